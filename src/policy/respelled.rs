//! Bytes that some clients send as they are, and others escape (`robots.paths`). RFC 9309 compares reserved bytes as they are written:
//! a rule for `[` says nothing of `%5B`. But servers take both for the same, and which of them is sent is a matter of a crawler's
//! library. Pure.

use crate::robots::path;

/// Which of these bytes a text holds, escaped or not; 0 for none.
pub(super) fn kinds(text: &[u8]) -> u8 {
    let mut kinds = text.iter().fold(0, |kinds, &byte| kinds | KINDS[usize::from(byte)]);
    if kinds & ESCAPE != 0 {
        let escaped = memchr::memchr_iter(b'%', text).filter_map(|at| path::escape(&text[at..]));
        kinds = escaped.fold(kinds, |kinds, byte| kinds | KINDS[usize::from(byte)]);
    }
    kinds & ALL
}

/// A text of these kinds as others would write it, all bytes of a kind escaped or none, with the kinds that are written otherwise.
pub(super) fn respelled(text: &[u8], kinds: u8) -> impl Iterator<Item = (Vec<u8>, u8)> {
    let choices = (0..=ALL).filter(move |escaped| kinds != 0 && escaped & !kinds == 0);
    choices.map(|escaped| written(text, escaped)).filter(|(_, changed)| *changed != 0)
}

fn written(text: &[u8], escaped: u8) -> (Vec<u8>, u8) {
    let (mut out, mut rest, mut changed) = (Vec::with_capacity(text.len() + 16), text, 0);
    while let Some(&first) = rest.first() {
        let (byte, piece) = match path::escape(rest) {
            Some(byte) => (byte, &rest[..3]),
            None => (first, &rest[..1]),
        };
        let (kind, at) = (KINDS[usize::from(byte)] & ALL, out.len());
        match kind {
            0 => out.extend_from_slice(piece),
            kind if kind & escaped != 0 => path::push_escaped(byte, &mut out),
            _ => out.push(byte),
        }
        if out[at..] != *piece {
            changed |= kind;
        }
        rest = &rest[piece.len()..];
    }
    (out, changed)
}

/// No URI may hold them, yet many clients send them.
const ODD: u8 = 1;
/// Reserved, but for those that part a path or a query.
const RESERVED: u8 = 2;
const ALL: u8 = ODD | RESERVED;
const ESCAPE: u8 = 4;

/// Those of a byte as it is written.
pub(super) const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    kinds[b'%' as usize] = ESCAPE;
    let (odd, reserved) = (b"[]{}|\\^", b":;,@!'()");
    let mut at = 0;
    while at < odd.len() {
        kinds[odd[at] as usize] = ODD;
        at += 1;
    }
    at = 0;
    while at < reserved.len() {
        kinds[reserved[at] as usize] = RESERVED;
        at += 1;
    }
    kinds
};

#[cfg(test)]
mod tests {
    use super::*;

    fn others(text: &str) -> Vec<String> {
        let others = respelled(text.as_bytes(), kinds(text.as_bytes()));
        others.map(|(other, _)| String::from_utf8(other).unwrap()).collect()
    }

    #[test]
    fn each_kind_is_written_in_either_way() {
        assert_eq!(others("/a[0]"), ["/a%5B0%5D"]);
        assert_eq!(others("/a%5b0]"), ["/a[0]", "/a%5B0%5D"]);
        assert_eq!(others("/w:x?p=%7c"), ["/w:x?p=|", "/w:x?p=%7C", "/w%3Ax?p=|", "/w%3Ax?p=%7C"]);
    }

    #[test]
    fn what_all_clients_write_alike_stays() {
        for text in ["", "/a/b.html?c=d&e=f+g", "/%2F%3F%23%25%26%3D%2B%2A%24%20%C3%BC", "/100%", "/%zz%5"] {
            assert_eq!(kinds(text.as_bytes()), 0, "{text}");
            assert!(others(text).is_empty(), "{text}");
        }
        assert_eq!(others("/%2Fa%26:"), ["/%2Fa%26%3A"]);
    }
}
