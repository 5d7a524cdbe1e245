//! Any bytes as a robots.txt: reading, compiling and linting it takes steps in proportion to its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{ParseOptions, RobotsTxt, lint::LintReport, steps_of};

fuzz_target!(|bytes: &[u8]| {
    for options in [ParseOptions::default(), ParseOptions::google(), ParseOptions::original()] {
        let steps = steps_of(|| {
            let robots = RobotsTxt::parse_with(bytes, &options);
            robots.rules_for(&["ExampleBot", "a", "Mail.Ru"]);
        });
        assert!(steps <= 64 * bytes.len() as u64 + 1_000, "{steps} steps to read {} bytes", bytes.len());
    }
    // Patterns are compared with one another within a bound of their own.
    let steps = steps_of(|| _ = LintReport::new(&RobotsTxt::parse(bytes), Some("a")));
    assert!(steps <= 128 * bytes.len() as u64 + (4 << 20) + 1_000, "{steps} steps to lint {} bytes", bytes.len());
});
