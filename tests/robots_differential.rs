//! The compiled rules against the naive reading, on files and paths made so that rules collide.

#[path = "support/naive.rs"]
mod naive;

use naive::Rule;
use politely::robots::RobotsTxt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngAlgorithm;

/// Pieces of patterns and paths: few, so that they meet often.
const PIECES: &[&str] = &[
    "/",
    "a",
    "b",
    "aa",
    "ab",
    "ba",
    "/a",
    "/b/",
    ".html",
    "?",
    "=",
    "?a=",
    "&",
    "index",
    "%61",
    "%2F",
    "%2f",
    "%C3%BC",
    "%c3%bc",
    "\u{fc}",
    "%2A",
    "%24",
    "$",
    "%",
    "%4",
    "~",
    "%7E",
    ":",
    "%3a",
    "\"",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// A pattern: pieces of paths with `*` and `$`.
fn pattern() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => select(PIECES), 1 => Just("*"), 1 => Just("$"), 1 => Just("**")];
    let begin = prop_oneof![6 => Just("/"), 1 => Just("*"), 1 => Just("/*"), 1 => Just("")];
    let end = prop_oneof![4 => Just(""), 1 => Just("$"), 1 => Just("*"), 1 => Just("*$")];
    (begin, vec(piece, 0..7), end).prop_map(|(begin, pieces, end)| format!("{begin}{}{end}", pieces.concat()))
}

fn path() -> impl Strategy<Value = String> {
    vec(select(PIECES), 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Rules and paths of up to four characters.
fn any_alphabet() -> impl Strategy<Value = (Vec<Rule>, Vec<String>)> {
    // What ends a line or a value, begins a comment, a fragment or a dot segment is for other tests.
    let character = any::<char>()
        .prop_filter("no part of a value", |c| !c.is_control() && !c.is_whitespace() && !matches!(c, '#' | '.' | '%'));
    vec(character, 1..4).prop_flat_map(|alphabet| {
        let mut in_paths: Vec<String> = alphabet.iter().map(char::to_string).collect();
        in_paths.extend(["/", "%41"].map(str::to_owned));
        let mut in_patterns = in_paths.clone();
        in_patterns.extend(["*", "$", "A"].map(str::to_owned));
        let text =
            |pieces, most| vec(select(pieces), 0..most).prop_map(|pieces: Vec<String>| format!("/{}", pieces.concat()));
        let rules = vec((any::<bool>(), text(in_patterns, 6)), 1..12);
        (rules, vec(text(in_paths, 10), 1..12))
    })
}

const LETTERS: &[&str] = &["a", "b", "c", "d", "="];

/// `/*ab*c$` and the like.
fn starred() -> impl Strategy<Value = String> {
    let piece = vec(select(LETTERS), 1..4).prop_map(|letters| letters.concat());
    let end = prop_oneof![4 => Just(""), 1 => Just("$"), 1 => Just("*")];
    (vec(piece, 1..4), end).prop_map(|(pieces, end)| format!("/*{}{end}", pieces.join("*")))
}

/// Compares verdict and line.
fn compare(rules: &[Rule], paths: &[String]) -> Result<(), TestCaseError> {
    let mut text = String::from("user-agent: *\n");
    for (allows, pattern) in rules {
        text.push_str(if *allows { "allow: " } else { "disallow: " });
        text.push_str(pattern);
        text.push('\n');
    }
    let compiled = RobotsTxt::parse(text.as_bytes()).rules_for(&["ExampleBot"]);
    for path in paths {
        let verdict = compiled.check(path);
        let found = verdict.rule().map(|rule| (rule.line() as usize - 2, rule.pattern().to_owned()));
        let expected = naive::decide(rules, path);
        let same = (found.as_ref().map(|(place, _)| *place), verdict.is_allowed())
            == (expected.map(|(place, _)| place), expected.is_none_or(|(_, allows)| allows));
        prop_assert!(same, "{text}\n{path} => {found:?}, expected {expected:?}");
        if let Some((place, pattern)) = found {
            prop_assert_eq!(&rules[place].1, &pattern);
        }
    }
    Ok(())
}

proptest! {
    // With the default generator, drawing a case takes longer than judging it.
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

    #[test]
    fn few_rules_decide_as_the_rfc_says(rules in vec((any::<bool>(), pattern()), 1..6), paths in vec(path(), 1..12)) {
        compare(&rules, &paths)?;
    }

    #[test]
    fn many_rules_decide_as_the_rfc_says(rules in vec((any::<bool>(), pattern()), 30..160), paths in vec(path(), 1..12)) {
        compare(&rules, &paths)?;
    }

    /// With few different bytes, most patterns nearly match.
    #[test]
    fn any_small_alphabet_is_decided_as_the_rfc_says((rules, paths) in any_alphabet()) {
        compare(&rules, &paths)?;
    }

    /// Enough patterns share one literal for the second index, by another piece, to be used.
    #[test]
    fn hundreds_of_patterns_on_one_literal_decide_as_the_rfc_says(
        rules in vec((any::<bool>(), starred()), 80..300),
        paths in vec(vec(select(LETTERS), 1..24), 1..12),
    ) {
        let paths: Vec<String> = paths.iter().map(|letters| format!("/{}", letters.concat())).collect();
        compare(&rules, &paths)?;
    }

    /// Paths made of a rule's own pieces match it, or nearly.
    #[test]
    fn paths_made_from_patterns_decide_as_the_rfc_says(
        rules in vec((any::<bool>(), pattern()), 1..90),
        which in any::<prop::sample::Index>(),
        filler in select(PIECES),
        tail in select(PIECES),
    ) {
        let pattern = which.get(&rules).1.trim_start_matches('/').replace('*', filler);
        let path = format!("/{}", pattern.strip_suffix('$').unwrap_or(&pattern));
        compare(&rules, &[path.clone(), format!("{path}{tail}"), format!("/{tail}{path}")])?;
    }
}
