//! Decides in each dialect whether the value of a `User-agent` line names a crawler. RFC 9309 §2.2.1. Pure.

use crate::robots::product_token::is_token_byte;
use crate::robots::steps;

pub(super) fn is_token(name: &[u8]) -> bool {
    name.iter().copied().all(is_token_byte)
}

pub(super) fn is_prefix(value: &[u8], token: &[u8]) -> bool {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|word| !word.is_empty());
    words.into_iter().any(|word| token.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
}

pub(super) fn is_substring(value: &[u8], token: &[u8]) -> bool {
    let (value, token) = (value.to_ascii_lowercase(), token.to_ascii_lowercase());
    if value.is_empty() {
        return false;
    }
    let mut rest = token.as_slice();
    let within_token = value.split(|&byte| byte == b'*').all(|piece| match memchr::memmem::find(rest, piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    });
    within_token || memchr::memmem::find(&value, &token).is_some()
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    steps::count(1 + a.len().min(b.len()));
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}
