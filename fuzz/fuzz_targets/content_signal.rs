//! Content-Signal lines of robots.txt against a naive reading: a member says no, whatever stands beside it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{Purpose, RobotsTxt};

fuzz_target!(|text: &str| {
    if text.len() > 4096 || text.bytes().any(|byte| !(b' '..0x7f).contains(&byte) || byte == b'#') {
        return;
    }
    let file = format!("user-agent: *\ncontent-signal: / {text}\n");
    let rules = RobotsTxt::parse(file.as_bytes()).rules_for(&["ExampleBot"]);
    for purpose in ["search", "ai-input", "ai-train"] {
        let verdict = rules.check_for("/x", &[Purpose::parse(purpose).unwrap()]);
        assert_eq!(!verdict.is_allowed(), says_no(text, purpose), "{purpose}\n{file}");
    }
});

fn says_no(text: &str, purpose: &str) -> bool {
    text.to_ascii_lowercase().split(',').filter_map(|member| member.split_once('=')).any(|(name, value)| {
        match (name.trim(), value.trim()) {
            ("ai-output", "no") => purpose == "ai-input",
            ("use", "reference") => purpose == "ai-train",
            ("use", "immediate") => purpose != "ai-input",
            (name, "no") => name == purpose,
            _ => false,
        }
    })
}
