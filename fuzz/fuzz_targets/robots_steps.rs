//! Any bytes as a robots.txt: reading, compiling and linting it takes steps in proportion to its length, and a decision by it no more
//! than its budget. The first line is asked about, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{ParseOptions, RobotsTxt, lint::LintReport, steps_of};

/// Steps of one decision.
const BUDGET: u64 = 100_000;

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
        let steps = steps_of(|| _ = rules.as_ref().map(|rules| rules.check_bytes(&target).is_allowed()));
        assert!(steps <= BUDGET + target.len() as u64, "{steps} steps to decide");
    }
    // Patterns are compared with one another within a bound of their own.
    let steps = steps_of(|| _ = LintReport::new(&RobotsTxt::parse(bytes), Some("a")));
    assert!(steps <= 128 * bytes.len() as u64 + (4 << 20) + 1_000, "{steps} steps to lint {} bytes", bytes.len());
});
