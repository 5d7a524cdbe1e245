//! RFC 9309 §2.2.2: converts paths and patterns to the form in which they are compared. Pure.

use std::borrow::Cow;

use crate::robots::byte_set::ByteSet;

/// The path and query of a request target: `/a?b` for `/a?b#c`, `/?b` for `https://example.com?b`.
pub(crate) fn path_and_query(target: &[u8]) -> Cow<'_, [u8]> {
    let target = memchr::memchr(b'#', target).map_or(target, |hash| &target[..hash]);
    if target.first() == Some(&b'/') {
        return Cow::Borrowed(target);
    }
    let rest = match after_scheme(target) {
        Some(rest) => &rest[rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len())..],
        None => target,
    };
    match rest.first() {
        Some(b'/') => Cow::Borrowed(rest),
        Some(_) => Cow::Owned([b"/", rest].concat()),
        None => Cow::Borrowed(b"/"),
    }
}

/// A path ready to be compared: normalised, with the kinds of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComparedPath<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) byte_set: ByteSet,
    /// Whether to compare the path with folded patterns.
    pub(crate) is_folded: bool,
}

/// Whether there may be a dot segment: a dot after a slash.
#[inline]
pub(crate) fn may_have_dot_segment(path: &[u8]) -> bool {
    memchr::memmem::find(path, b"/.").is_some()
}

/// Converts a path and query to the form that is compared: escapes of unreserved bytes decoded, other escapes in upper case, bytes that no
/// URI may contain escaped. `%2A` and `%24` are decoded too, since in patterns they mean a literal `*` and `$`.
pub(crate) fn normalise(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 16);
    for piece in pieces(path) {
        match piece {
            PathByte::Byte(byte) | PathByte::Literal(byte) => out.push(byte),
            PathByte::Escaped(byte) => push_escaped(byte, &mut out),
        }
    }
    out
}

/// One byte of a path or pattern, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathByte {
    /// A byte that stands for itself, or is special in a pattern.
    Byte(u8),
    /// A byte that was written as an escape, so that it stands for itself even in a pattern.
    Literal(u8),
    /// A byte that is compared as an escape.
    Escaped(u8),
}

/// The bytes and escapes of a path or pattern.
#[inline]
pub(crate) fn pieces(text: &[u8]) -> impl Iterator<Item = PathByte> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let &first = rest.first()?;
        let (piece, read) = match escape(rest) {
            Some(byte) if is_unreserved(byte) => (PathByte::Byte(byte), 3),
            Some(byte @ (b'*' | b'$')) => (PathByte::Literal(byte), 3),
            Some(byte) => (PathByte::Escaped(byte), 3),
            None if must_escape(first) => (PathByte::Escaped(first), 1),
            None => (PathByte::Byte(first), 1),
        };
        rest = &rest[read..];
        Some(piece)
    })
}

/// Decodes the escape that a text begins with.
#[inline]
pub(crate) fn escape(text: &[u8]) -> Option<u8> {
    static TABLE: [u8; 256] = DIGITS;
    let &[b'%', high, low, ..] = text else { return None };
    let (high, low) = (TABLE[usize::from(high)], TABLE[usize::from(low)]);
    ((high | low) < 16).then_some(high << 4 | low)
}

/// The value of each hexadecimal digit; 255 for other bytes.
const DIGITS: [u8; 256] = {
    let mut digits = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value];
        digits[digit as usize] = value as u8;
        digits[digit.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    digits
};

/// Whether the byte means the same with and without escape (RFC 3986 §2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether to compare the byte as an escape: URIs may not contain it, and browsers escape it.
fn must_escape(byte: u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b'"' | b'<' | b'>' | b'`')
}

pub(crate) fn push_escaped(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// The path, and the query with its `?`.
pub(crate) fn parts(target: &[u8]) -> (&[u8], &[u8]) {
    target.split_at(memchr::memchr(b'?', target).unwrap_or(target.len()))
}

/// Rewrites a text. `piece` is called with the remaining text: it writes a replacement for its beginning and returns the number of
/// bytes replaced, or `None` to keep the next byte.
pub(crate) fn rewritten(text: &[u8], mut piece: impl FnMut(&[u8], &mut Vec<u8>) -> Option<usize>) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(&first) = rest.first() {
        let read = piece(rest, &mut out).unwrap_or_else(|| {
            out.push(first);
            1
        });
        rest = &rest[read..];
    }
    out
}

/// The normalised path with its dot segments removed (RFC 3986 §5.2.4); the query stays. `None` if it has no dot segment.
pub(crate) fn without_dot_segments(path: &[u8]) -> Option<Vec<u8>> {
    let query = memchr::memchr(b'?', path).unwrap_or(path.len());
    let (path, query) = path.split_at(query);
    let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
    if !path.split(|&byte| byte == b'/').any(is_dots) {
        return None;
    }
    let mut out = Vec::with_capacity(path.len() + query.len());
    // Targets begin with `/`, so the first piece of `split` is empty.
    let mut segments = path.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." if last => out.push(b'/'),
            b"." => {}
            b".." => {
                out.truncate(memchr::memrchr(b'/', &out).unwrap_or(0));
                if last {
                    out.push(b'/');
                }
            }
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    out.extend_from_slice(query);
    Some(out)
}

fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memchr(b':', target)?;
    let (scheme, rest) = target.split_at(colon);
    let is_scheme = scheme.first()?.is_ascii_alphabetic()
        && scheme.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    if is_scheme { rest.strip_prefix(b"://") } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: impl AsRef<[u8]>) -> String {
        String::from_utf8(bytes.as_ref().to_vec()).expect("normalised paths are ASCII")
    }

    fn normal(path: &str) -> String {
        text(normalise(path.as_bytes()))
    }

    #[test]
    fn targets_are_reduced_to_path_and_query() {
        for (target, expected) in [
            ("/a?b#c", "/a?b"),
            ("https://example.com/a?b#c", "/a?b"),
            ("http://user:pw@example.com:80/a", "/a"),
            ("https://example.com", "/"),
            ("https://example.com?b", "/?b"),
            ("https://example.com#/x", "/"),
            ("/http://example.com/x", "/http://example.com/x"),
            ("//example.com/x", "//example.com/x"),
            ("", "/"),
            ("#", "/"),
            ("a/b", "/a/b"),
            ("a?u=http://x/y", "/a?u=http://x/y"),
            ("*", "/*"),
        ] {
            assert_eq!(text(path_and_query(target.as_bytes())), expected, "{target}");
        }
    }

    #[test]
    fn rfc_escapes_are_compared_in_one_form() {
        for (path, expected) in [
            ("/%61%7Eb%2D", "/a~b-"),
            ("/%2fa%3A", "/%2Fa%3A"),
            ("/\u{fc}", "/%C3%BC"),
            ("/%c3%bc", "/%C3%BC"),
            ("/a b\"<>`\u{7f}\u{1}", "/a%20b%22%3C%3E%60%7F%01"),
            ("/{}|\\^[]'()!", "/{}|\\^[]'()!"),
            ("/%2a%24", "/*$"),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz%41", "/%zzA"),
            ("/%25%36%31", "/%2561"),
        ] {
            assert_eq!(normal(path), expected, "{path}");
        }
    }

    #[test]
    fn dot_segments_are_found_at_every_position() {
        for len in 1..40 {
            let plain = format!("/{}", ".a/-".chars().cycle().take(len).collect::<String>()).replace("/.", "..");
            assert!(!may_have_dot_segment(plain.as_bytes()), "{plain}");
            for at in 0..=plain.len() {
                let path = format!("{}/.{}", &plain[..at], &plain[at..]);
                assert!(may_have_dot_segment(path.as_bytes()), "{path}");
            }
        }
    }

    #[test]
    fn dot_segments_are_removed() {
        for (path, expected) in [
            ("/a/../b", Some("/b")),
            ("/a/./b", Some("/a/b")),
            ("/a/..", Some("/")),
            ("/a/b/..", Some("/a/")),
            ("/a/.", Some("/a/")),
            ("/../../a", Some("/a")),
            ("/..", Some("/")),
            ("/a//../b", Some("/a/b")),
            ("/a/../b?/../c", Some("/b?/../c")),
            ("/a/b", None),
            ("/a/...", None),
            ("/.well-known/x", None),
            ("/a?/../b", None),
        ] {
            assert_eq!(without_dot_segments(path.as_bytes()).map(text).as_deref(), expected, "{path}");
        }
    }
}
