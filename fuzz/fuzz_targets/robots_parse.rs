//! Any bytes as a robots.txt, in each dialect: rules, warnings and findings, never a panic, and every place that is told is
//! one of the file's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{ParseOptions, RobotsTxt, lint};

fuzz_target!(|bytes: &[u8]| {
    for options in [ParseOptions::default(), ParseOptions::crawler_commons_before_362(), ParseOptions::original()] {
        let robots = RobotsTxt::parse_with(bytes, &options);
        let lines = lines(robots.source());
        let mut last = 1;
        for found in robots.warnings() {
            let place = found.place;
            assert!(place.line >= last && place.line <= lines, "{found} of {lines} lines");
            assert!(place.column >= 1 && place.len >= 1, "{found}");
            last = place.line;
        }
        let texts = robots.sitemaps().chain(robots.licenses());
        assert!(texts.map(str::len).sum::<usize>() <= 3 * bytes.len());
        for agents in [&["ExampleBot"][..], &["a", "b"], &[]] {
            let rules = robots.rules_for(agents);
            let verdict = rules.check("/a/b.html?c=d");
            assert!(verdict.is_allowed() || verdict.rule().is_some());
            assert!(verdict.rule().is_none_or(|rule| (1..=lines).contains(&rule.line()) && !rule.pattern().is_empty()));
            assert!(rules.preferences_for(b"/").iter().all(|preference| (1..=lines).contains(&preference.line())));
            assert!(
                rules.is_empty() == (rules.len() == 0)
                    && rules.crawl_delay() >= rules.request_rate().map(|rate| rate.gap())
            );
        }
        let report = lint::LintReport::new(&robots, None);
        for found in report.findings() {
            let places = [found.place].into_iter().chain(found.related.map(|related| related.place));
            for place in places {
                assert!((1..=lines).contains(&place.line) && place.column >= 1 && place.len >= 1, "{found:?}");
                assert!(!report.line(place.line).contains(['\n', '\r']));
            }
        }
        assert!(robots.heap_size() >= robots.source().len());
    }
});

/// How many lines a text has, an unfinished one and one after the last end included. LF, CR and CR LF end them.
fn lines(text: &[u8]) -> u32 {
    let ends = text
        .iter()
        .enumerate()
        .filter(|&(at, &byte)| byte == b'\n' || byte == b'\r' && text.get(at + 1) != Some(&b'\n'));
    ends.count() as u32 + 1
}
