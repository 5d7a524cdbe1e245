//! Findings of `lint` about rules are true: removing a rule that never decides changes no decision.

use politely::robots::{RobotsTxt, lint};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngAlgorithm;

const PIECES: &[&str] = &["a", "b", "ab", "/", "*", "**", "$", "%61", "%2A", "%2f", "?", "a*", "*b"];

fn pattern() -> impl Strategy<Value = String> {
    let begin = prop_oneof![5 => Just("/"), 2 => Just("/*"), 2 => Just("*"), 1 => Just("*/")];
    let end = prop_oneof![4 => Just(""), 1 => Just("$"), 2 => Just("*"), 1 => Just("*$")];
    (begin, vec(select(PIECES), 0..4), end).prop_map(|(begin, pieces, end)| format!("{begin}{}{end}", pieces.concat()))
}

fn path() -> impl Strategy<Value = String> {
    vec(select(&["a", "b", "ab", "/", "*", "$", "%2F", "?", "//"][..]), 0..8)
        .prop_map(|pieces| format!("/{}", pieces.concat()))
}

fn file(rules: &[(bool, String)]) -> String {
    let line =
        |(allows, pattern): &(bool, String)| format!("{}: {pattern}\n", if *allows { "Allow" } else { "Disallow" });
    format!("User-agent: *\n{}", rules.iter().map(line).collect::<String>())
}

const NEVER: [&str; 4] = ["same-rule-twice", "same-when-decoded", "allowed-and-disallowed", "never-decides"];

proptest! {
    // With the default generator, drawing a case takes longer than judging it.
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_rule_that_is_said_never_to_decide_can_be_left_out(
        rules in vec((any::<bool>(), pattern()), 2..8),
        paths in vec(path(), 1..40),
    ) {
        let text = file(&rules);
        let robots = RobotsTxt::parse(text.as_bytes());
        let report = lint::LintReport::new(&robots, None);
        let everybody: [&str; 0] = [];
        let all = robots.rules_for(&everybody);
        for dead in report.findings().iter().filter(|found| NEVER.contains(&found.code)) {
            let line = dead.place.line;
            // Blank, so that lines keep their numbers.
            let without = text.split('\n').enumerate().map(|(at, text)| if at as u32 + 1 == line { "" } else { text });
            let without = RobotsTxt::parse(without.collect::<Vec<_>>().join("\n").as_bytes()).rules_for(&everybody);
            for path in &paths {
                let verdicts = [&all, &without].map(|rules| {
                    let verdict = rules.check(path);
                    (verdict.is_allowed(), verdict.rule().map(|rule| rule.line()))
                });
                prop_assert!(verdicts[0] == verdicts[1], "{text}{path}: {verdicts:?} without line {line}, {}", dead.code);
            }
            // The rule that is named instead matches what this one does, and is another.
            let related = dead.related.expect("each names the other").place;
            prop_assert!(related.line != line);
        }
    }

    /// For any bytes, places are inside the file, and the excerpt of the line can show them.
    #[test]
    fn places_are_places_of_the_file(bytes in vec(prop_oneof![any::<u8>(), select(&b"user-agent:disallow /*%\n\r\0"[..])], 0..300)) {
        let report = lint::LintReport::new(&RobotsTxt::parse(&bytes), None);
        for found in report.findings() {
            let places = std::iter::once(found.place).chain(found.related.map(|related| related.place));
            for place in places {
                let shown = report.line(place.line).chars().count() as u32;
                // A NUL at the line's end, or a key without a value, is pointed at from behind.
                prop_assert!(place.column >= 1 && place.column + place.len <= shown.max(1) + 2, "{found:?} in {shown}");
            }
        }
    }
}
