//! A target and a robots.txt: the verdict is the same however the target is written, and no way around a rule. What stands
//! before the first line end is the target.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{ParseOptions, Purpose, RobotsTxt, RuleKind, Verdict};

fuzz_target!(|bytes: &[u8]| {
    let (target, file) =
        bytes.iter().position(|&byte| byte == b'\n').map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 1..]));
    let purpose = Purpose::parse("ai-train").expect("a purpose");
    for options in [ParseOptions::default(), ParseOptions::crawler_commons_before_362(), ParseOptions::original()] {
        let rules = RobotsTxt::parse_with(file, &options).rules_for(&["ExampleBot"]);
        let verdict = rules.check(target);
        // The evidence fits the verdict.
        let allows = verdict.rule().is_none_or(|rule| rule.kind() == RuleKind::Allow);
        assert_eq!(verdict.is_allowed(), allows, "{verdict:?}");
        // Asked for a purpose, nothing becomes allowed.
        let asked_for = rules.check_for(target, std::slice::from_ref(&purpose));
        assert!(verdict.is_allowed() || place(&asked_for) == place(&verdict));
        assert_eq!(asked_for.preference().is_some(), verdict.is_allowed() && !asked_for.is_allowed());
        // A fragment is no part of it; the same path as an absolute URL is the same path.
        if !target.contains(&b'#') {
            assert_eq!(place(&rules.check(&[target, b"#x?/../y"].concat())), place(&verdict));
            if target.first() == Some(&b'/') {
                let url = [b"https://user@example.com:8443".as_slice(), target].concat();
                assert_eq!(place(&rules.check(&url)), place(&verdict));
            }
        }
        // To escape what may stand with and without an escape is no way around.
        if options == ParseOptions::default() && target.first() == Some(&b'/') {
            let escape = |byte: &u8| match byte {
                byte if byte.is_ascii_alphanumeric() => format!("%{byte:02x}").into_bytes(),
                byte => vec![*byte],
            };
            // Not where digits belong to an escape already, nor in a query that would look like one.
            if !target.contains(&b'%') && target != b"/robots.txt" {
                let escaped: Vec<u8> = target.iter().flat_map(escape).collect();
                assert_eq!(
                    rules.check(&escaped).is_allowed(),
                    verdict.is_allowed(),
                    "{:?}",
                    escaped.escape_ascii().to_string()
                );
            }
        }
    }
});

/// What decided: whether it allows, and the line.
fn place(verdict: &Verdict<'_>) -> (bool, Option<u32>, Option<u32>) {
    let preference = verdict.preference().map(|preference| preference.line());
    (verdict.is_allowed(), verdict.rule().map(|rule| rule.line()), preference)
}
