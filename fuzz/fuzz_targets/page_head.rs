//! The beginning of a page: a head that has come has come, whatever follows it; and a tag before everything else is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::policy::usage::page::{MOST_STEPS, PageForm, PageRead};
use politely::policy::{UsageModes, Use};
use politely::robots::{ProductToken, Purpose};
use std::time::SystemTime;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, page)) = bytes.split_first() else { return };
    let content_type = ["text/html", "text/html; charset=utf-16le", "application/xhtml+xml", "text/html; charset=x"];
    let content_type = content_type[usize::from(choice % 4)].as_bytes();
    let half = &page[..page.len() / 2];
    // What has a NUL is read as UTF-16 too, where `</head>` is no end.
    if read(half, content_type).is_some_and(|read| read.has_head) && !page.contains(&0) {
        assert!(read(page, content_type).is_none_or(|read| read.has_head), "what follows the head does not begin it anew");
    }
    says_no(page, content_type);
    let ruled = [b"<meta name=robots content=noai>", page].concat();
    assert!(says_no(&ruled, content_type).is_none_or(|says_no| says_no), "a rule stays one, whatever follows");
});

/// `None`: it takes too many steps.
fn read(page: &[u8], content_type: &[u8]) -> Option<PageRead> {
    let product_tokens = vec![ProductToken::parse("ExampleBot").unwrap()];
    let form = PageForm { content_type: content_type.to_vec(), codings: String::new(), product_tokens };
    let mut read = None;
    let steps = politely::robots::steps_of(|| read = form.read(&[page], MOST_STEPS));
    assert!(steps <= MOST_STEPS as u64, "{steps} steps");
    read
}

/// Whether it says no to training.
fn says_no(page: &[u8], content_type: &[u8]) -> Option<bool> {
    let tokens = [ProductToken::parse("ExampleBot").unwrap()];
    let purposes = [Purpose::parse("ai-train").unwrap()];
    let lines = read(page, content_type)?.lines;
    let to =
        Use { purposes: &purposes, product_tokens: &tokens, modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
    Some(lines.reservation(&to).is_some())
}
