//! Content-Usage, X-Robots-Tag, Robots-Tag, Content-Signal and TDM-Reservation of an answer. The first byte chooses the field; the
//! rest is its value.
//! Content-Usage says what `sfv` makes of it, in a line of robots.txt too; what is for another crawler, or is not `1`, says nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::policy::{UsageField, UsageLines, UsageModes, UsageReport, Use};
use politely::robots::{ProductToken, Purpose, RobotsTxt};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};
use std::time::{Duration, SystemTime};

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, value)) = bytes.split_first() else { return };
    match choice % 5 {
        0 => content_usage(value),
        1 => x_robots_tag(value),
        2 => robots_tag(value),
        3 => content_signal(value),
        _ => tdm_reservation(value),
    }
});

fn says_no(name: &str, values: &[&[u8]], purpose: &str) -> bool {
    let purposes = [Purpose::parse(purpose).unwrap()];
    let product_tokens = [ProductToken::parse("ExampleBot").unwrap()];
    let mut lines = UsageLines::default();
    values.iter().for_each(|value| lines.take(name.as_bytes(), value));
    // 2026-03-01.
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_323_200);
    let to = Use { purposes: &purposes, product_tokens: &product_tokens, modes: UsageModes::default(), now };
    let noted = UsageReport::judged(&lines, 200, &to).0;
    let found = lines.reservation(&to);
    if let Some((reservation, _)) = &found {
        assert_eq!(reservation.field.as_str(), name);
        assert!(
            noted.reserved.iter().any(|(field, _)| *field == reservation.field)
                || name == UsageField::XRobotsTag.as_str()
        );
    }
    found.is_some()
}

fn content_usage(value: &[u8]) {
    for (label, purpose) in [("train-ai", "ai-train"), ("ai-use", "ai-input"), ("search", "search"), ("bots", "bots")] {
        let read = Parser::new(value.trim_ascii()).parse::<Dictionary>().ok().filter(|_| value.len() <= 4096);
        let is_n = |entry: &ListEntry| match entry {
            ListEntry::Item(item) => item.bare_item.as_token().is_some_and(|token| token.as_str() == "n"),
            ListEntry::InnerList(_) => false,
        };
        let expected = read.as_ref().and_then(|read| read.get(label)).is_some_and(is_n);
        assert_eq!(says_no("Content-Usage", &[value], purpose), expected, "{}", String::from_utf8_lossy(value));
        // A line of robots.txt has an end, and comments.
        if value.iter().all(|byte| (b' '..0x7f).contains(byte) && *byte != b'#') {
            let file = [b"user-agent: *\ncontent-usage: / ", value, b"\n"].concat();
            let rules = RobotsTxt::parse(&file).rules_for(&["ExampleBot"]);
            let verdict = rules.check_for("/x", &[Purpose::parse(purpose).unwrap()]);
            assert_eq!(!verdict.is_allowed(), expected, "{}", String::from_utf8_lossy(&file));
        }
    }
}

fn x_robots_tag(value: &[u8]) {
    for (purpose, rule) in [("search", &b"noindex"[..]), ("ai-train", b"noai")] {
        let no = says_no("X-Robots-Tag", &[value], purpose);
        assert!(says_no("X-Robots-Tag", &[value, rule], purpose), "each line begins unscoped");
        if no && !value.contains(&b':') {
            assert!(!says_no("X-Robots-Tag", &[&[b"otherbot: ", value].concat()], purpose), "it is for another");
            assert!(says_no("X-Robots-Tag", &[&value.to_ascii_uppercase()], purpose));
        }
    }
}

/// What `sfv` makes of the list, for `*` and for us.
fn robots_tag(value: &[u8]) {
    if value.len() > 8 * 1024 || value.iter().any(u8::is_ascii_uppercase) {
        // It is cut, or read in lower case where it is no list otherwise.
        says_no("Robots-Tag", &[value], "search");
        return;
    }
    let read = Parser::new(value.trim_ascii()).parse::<List>().unwrap_or_default();
    let is_noindex = |entry: &ListEntry| match entry {
        ListEntry::Item(Item { bare_item, params }) => {
            let name = bare_item.as_token().map(|it| it.as_str()).or(bare_item.as_string().map(|it| it.as_str()));
            let is_ours = name.is_some_and(|name| name == "*" || name.eq_ignore_ascii_case("examplebot"));
            is_ours
                && ["noindex", "none"]
                    .iter()
                    .any(|rule| params.get(*rule).is_some_and(|it| *it == BareItem::Boolean(true)))
        }
        ListEntry::InnerList(_) => false,
    };
    let expected = read.iter().any(is_noindex);
    let dated = memchr::memmem::find(value, b"unavailable_after").is_some();
    let found = says_no("Robots-Tag", &[value], "search");
    assert!(found == expected || dated && found, "{}", String::from_utf8_lossy(value));
    assert!(!says_no("X-Robots-Tag", &[b"*;noindex"], "search"), "it is another grammar");
}

/// As the line of robots.txt without a path.
fn content_signal(value: &[u8]) {
    if value.len() > 4096 || !value.iter().all(|byte| (b' '..0x7f).contains(byte) && !matches!(byte, b'#' | b'/')) {
        return;
    }
    let file = [b"user-agent: *\ncontent-signal: ", value, b"\n"].concat();
    let rules = RobotsTxt::parse(&file).rules_for(&["ExampleBot"]);
    for purpose in ["search", "ai-train", "ai-input"] {
        let verdict = rules.check_for("/x", &[Purpose::parse(purpose).unwrap()]);
        assert_eq!(
            says_no("Content-Signal", &[value], purpose),
            !verdict.is_allowed(),
            "{}",
            String::from_utf8_lossy(&file)
        );
    }
}

fn tdm_reservation(value: &[u8]) {
    let expected = value.trim_ascii() == b"1";
    assert_eq!(says_no("TDM-Reservation", &[value], "tdm"), expected);
    assert!(!says_no("TDM-Reservation", &[value], "search"));
}
