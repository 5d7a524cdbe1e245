//! The beginning of a page: a head that has come has come, whatever follows it; and a tag before everything else is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::policy::usage::page::{has_head, read_page};
use politely::policy::{UsageModes, Use};
use politely::robots::{ProductToken, Purpose};
use std::time::SystemTime;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, page)) = bytes.split_first() else { return };
    let content_type = ["text/html", "text/html; charset=utf-16le", "application/xhtml+xml", "text/html; charset=x"];
    let content_type = content_type[usize::from(choice % 4)].as_bytes();
    let half = &page[..page.len() / 2];
    // What has a NUL is read as UTF-16 too, where `</head>` is no end.
    if has_head(&[half], content_type) && !page.contains(&0) {
        assert!(has_head(&[page], content_type), "what follows the head does not begin it anew");
    }
    says_no(page, content_type);
    assert!(says_no(&[b"<meta name=robots content=noai>", page].concat(), content_type), "a rule stays one, whatever follows");
});

/// Whether it says no to training.
fn says_no(page: &[u8], content_type: &[u8]) -> bool {
    let tokens = [ProductToken::parse("ExampleBot").unwrap()];
    let purposes = [Purpose::parse("ai-train").unwrap()];
    let lines = read_page(&[page], content_type, &tokens);
    let to =
        Use { purposes: &purposes, product_tokens: &tokens, modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
    lines.reservation(&to).is_some()
}
