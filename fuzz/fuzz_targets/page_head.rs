//! The beginning of a page: what it says in part it still says as a whole, unless its head has ended; and a tag before it is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::policy::usage::page::{LONGEST_HEAD, PageHead};
use politely::policy::{UsageModes, Use};
use politely::robots::{ProductToken, Purpose};
use std::time::SystemTime;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, page)) = bytes.split_first() else { return };
    let content_type = ["text/html", "text/html; charset=utf-16le", "application/xhtml+xml", "text/html; charset=x"];
    let content_type = content_type[usize::from(choice % 4)];
    let (whole, says) = read(page, content_type);
    let half = &page[..page.len() / 2];
    let (half_whole, half_says) = read(half, content_type);
    // What has a NUL is read as UTF-16 too, where `</head>` is no end.
    let may_be_utf16 = choice % 4 != 1 && page.contains(&0);
    if half_whole && half.len() < LONGEST_HEAD && !may_be_utf16 {
        assert!(whole && half_says == says, "what follows the head adds nothing");
    }
    // UTF-16 has marks and pairs of bytes that a tag before it would part.
    if choice % 4 != 1
        && !page.starts_with(b"\xff\xfe")
        && !page.starts_with(b"\xfe\xff")
        && !page.starts_with(b"\xef\xbb\xbf")
    {
        let (_, says) = read(&[b"<meta name=robots content=noai>", page].concat(), content_type);
        assert!(says, "a rule stays one, whatever follows");
    }
});

/// Whether the head has ended, and whether it says no to training.
fn read(page: &[u8], content_type: &str) -> (bool, bool) {
    let tokens = [ProductToken::parse("ExampleBot").unwrap()];
    let purposes = [Purpose::parse("ai-train").unwrap()];
    let head = PageHead::read(page, content_type.as_bytes(), &tokens);
    let to =
        Use { purposes: &purposes, product_tokens: &tokens, modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
    (head.is_whole, head.lines.reservation(&to).is_some())
}
