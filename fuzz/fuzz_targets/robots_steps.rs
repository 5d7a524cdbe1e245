//! Any octets as a robots.txt: reading, compiling and linting it takes steps in proportion to its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{ParseOptions, RobotsTxt, lint::Report, steps_of};

fuzz_target!(|octets: &[u8]| {
    for options in [ParseOptions::default(), ParseOptions::google(), ParseOptions::original()] {
        let steps = steps_of(|| {
            let robots = RobotsTxt::parse_with(octets, &options);
            robots.rules_for(&["ExampleBot", "a", "Mail.Ru"]);
        });
        assert!(steps <= 64 * octets.len() as u64 + 1_000, "{steps} steps to read {} octets", octets.len());
    }
    // Patterns are compared with one another within a bound of their own.
    let steps = steps_of(|| _ = Report::new(&RobotsTxt::parse(octets), Some("a")));
    assert!(steps <= 128 * octets.len() as u64 + (4 << 20) + 1_000, "{steps} steps to lint {} octets", octets.len());
});
