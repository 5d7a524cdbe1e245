//! Any bytes as a robots.txt: reading, compiling and linting it takes steps in proportion to its length, and a decision by it no more
//! than its budget, all that it is asked for together: the forms of the path, the rules, the preferences, and the operator's own
//! patterns. The first line is asked about; the lines are the operator's patterns, too.
#![no_main]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use politely::policy::{
    Access, Authority, Entry, HostRules, OwnRules, PolicyOptions, Request, SiteAnswer, decide, freshness::Freshness,
};
use politely::robots::{ParseOptions, ProductToken, Purpose, RobotsTxt, lint::LintReport, steps_of};

/// Steps of one decision.
const BUDGET: u64 = 100_000;
/// Comparisons of names, which are counted beside.
const NAMES: u64 = 5_000;

fuzz_target!(|bytes: &[u8]| {
    for options in [ParseOptions::default(), ParseOptions::crawler_commons_before_362(), ParseOptions::original()] {
        let target = [b"/", bytes.split(|&byte| byte == b'\n').next().unwrap_or_default()].concat();
        let mut rules = None;
        let steps = steps_of(|| {
            let robots = RobotsTxt::parse_with(bytes, &options);
            let read = robots.rules_for(&["ExampleBot", "a", "Mail.Ru"]);
            // Compiled when they are first asked.
            read.check("/");
            read.preferences_for(b"/");
            rules = Some(read);
        });
        assert!(steps <= 64 * bytes.len() as u64 + 1_000, "{steps} steps to read {} bytes", bytes.len());
        let steps = steps_of(|| _ = rules.as_ref().map(|rules| rules.check(&target).is_allowed()));
        assert!(steps <= BUDGET, "{steps} steps to check");
        let steps = steps_to_decide(RobotsTxt::parse_with(bytes, &options), bytes, &target);
        assert!(steps <= BUDGET + NAMES, "{steps} steps to decide");
    }
    // Patterns are compared with one another within a bound of their own.
    let steps = steps_of(|| _ = LintReport::new(&RobotsTxt::parse(bytes), Some("a")));
    assert!(steps <= 128 * bytes.len() as u64 + (4 << 20) + 1_000, "{steps} steps to lint {} bytes", bytes.len());
});

/// Steps of a decision once everything is compiled.
fn steps_to_decide(robots: RobotsTxt, bytes: &[u8], target: &[u8]) -> u64 {
    let names = ["ExampleBot", "a", "Mail.Ru"].map(|name| ProductToken::parse(name).expect("a name"));
    let purpose = Purpose::parse("ai-train").expect("a purpose");
    let mut rules = HostRules::new(Arc::new(PolicyOptions {
        policy_tokens: vec![(purpose.clone(), names[1].clone())],
        product_tokens: names.into(),
        purposes: vec![purpose],
        ..PolicyOptions::default()
    }));
    let lines = String::from_utf8_lossy(bytes);
    let patterns: Vec<&str> = lines.split('\n').filter(|line| line.starts_with(['/', '*'])).collect();
    rules.own_rules = Some(OwnRules::new("*", &patterns[..patterns.len() / 2], &patterns[patterns.len() / 2..]));
    let now = SystemTime::UNIX_EPOCH;
    let freshness = Freshness::new(now, Duration::from_secs(3600), 1.0);
    let entry = Entry::answered(SiteAnswer::new(Access::Rules(robots), 200, freshness));
    let authority = Authority::from_url("https://example.com").expect("an authority");
    let request = Request::new(&authority, target);
    decide(&entry, &rules, &request, now);
    steps_of(|| _ = decide(&entry, &rules, &request, now))
}
