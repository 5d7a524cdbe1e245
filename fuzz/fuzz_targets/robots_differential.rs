//! The compiled rules against the naive reading of RFC 9309 that the tests use. The first line is a path, the others are
//! patterns; one that begins with `+` allows.
#![no_main]

#[path = "../../tests/support/naive.rs"]
mod naive;

use libfuzzer_sys::fuzz_target;
use naive::Rule;
use politely::robots::RobotsTxt;

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let path = format!("/{}", lines.next().unwrap_or_default());
    let rules: Vec<Rule> = lines.map(rule).filter(|(_, pattern)| is_one_value(pattern)).collect();
    // What the naive reading leaves to others: fragments, dot segments, and what is always allowed.
    let dots = path.contains("/.") || path.to_ascii_lowercase().contains("/%2e");
    if path.contains('#') || dots || path.to_ascii_lowercase().contains("robots") {
        return;
    }
    let mut file = String::from("user-agent: *\n");
    for (allows, pattern) in &rules {
        file.push_str(if *allows { "allow:" } else { "disallow:" });
        file.push_str(pattern);
        file.push('\n');
    }
    let compiled = RobotsTxt::parse(file.as_bytes()).rules_for(&["ExampleBot"]);
    let verdict = compiled.check(&path);
    let found = verdict.rule().map(|rule| (rule.line() as usize - 2, verdict.is_allowed()));
    assert_eq!(found, naive::decide(&rules, &path), "{path}\n{file}");
});

fn rule(line: &str) -> Rule {
    match line.strip_prefix('+') {
        Some(pattern) => (true, pattern.to_owned()),
        None => (false, line.to_owned()),
    }
}

/// Whether the file's grammar would read the pattern as it is.
fn is_one_value(pattern: &str) -> bool {
    pattern.len() < 4096 && !pattern.contains(['\r', '\0', '#']) && pattern.trim_matches([' ', '\t']) == pattern
}
