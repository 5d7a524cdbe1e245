//! What only some servers decode, or leave out of a path (`robots.paths`). Pure.

use crate::robots::path;

/// A path with `%uXXXX` (`unescape` of JavaScript, IIS) escaped as all others are. `None` if it has none.
pub(super) fn without_utf16(path: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr_iter(b'%', path).find(|&at| is_utf16(&path[at..]))?;
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((&first, after)) = rest.split_first() {
        rest = match utf16(rest) {
            Some(char) => {
                let mut bytes = [0; 4];
                char.encode_utf8(&mut bytes).bytes().for_each(|byte| path::push_escaped(byte, &mut out));
                &rest[6..]
            }
            None => {
                out.push(first);
                after
            }
        };
    }
    Some(out)
}

/// Whether a text begins with an escape that [`without_utf16`] decodes.
pub(super) fn is_utf16(text: &[u8]) -> bool {
    utf16(text).is_some()
}

/// A path without the bytes, escaped or not, that are no UTF-8 (Bottle). `None` if there are none, or if a segment has nothing else: no
/// server that leaves them out merges slashes.
pub(super) fn without_ill_formed(path: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (None::<Vec<u8>>, path);
    while let Some((first, piece)) = byte(rest) {
        let char = if first.is_ascii() { Some(piece) } else { char_len(rest) };
        match (&mut out, char) {
            (Some(out), Some(len)) => out.extend_from_slice(&rest[..len]),
            (None, None) => out = Some(path[..path.len() - rest.len()].to_vec()),
            (Some(_), None) | (None, Some(_)) => {}
        }
        rest = &rest[char.unwrap_or(piece)..];
    }
    let is_empty = |path: &[u8]| path.split(|&byte| byte == b'/').map(<[u8]>::is_empty).collect::<Vec<_>>();
    out.filter(|out| is_empty(out) == is_empty(path))
}

/// What the escape `%uXXXX` stands for that a text begins with. Halves of what UTF-16 has in two are left.
fn utf16(text: &[u8]) -> Option<char> {
    let &[b'%', b'u' | b'U', a, b, c, d, ..] = text else { return None };
    let high = path::escape(&[b'%', a, b])?;
    let low = path::escape(&[b'%', c, d])?;
    char::from_u32(u32::from(high) << 8 | u32::from(low))
}

/// The byte that a text begins with, escaped or not, and how long it is.
fn byte(text: &[u8]) -> Option<(u8, usize)> {
    path::escape(text).map(|byte| (byte, 3)).or_else(|| Some((*text.first()?, 1)))
}

/// How long the character is that a text begins with. `None` if that is no UTF-8.
fn char_len(text: &[u8]) -> Option<usize> {
    let (mut bytes, mut len) = ([0; 4], 0);
    for count in 0..4 {
        let (byte, piece) = byte(&text[len..])?;
        bytes[count] = byte;
        len += piece;
        match str::from_utf8(&bytes[..=count]) {
            Ok(_) => return Some(len),
            Err(error) if error.error_len().is_some() => return None,
            Err(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Option<Vec<u8>>) -> Option<String> {
        bytes.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn utf16_escapes_become_those_of_utf8() {
        for (path, expected) in [
            ("/a%u002fb%u0041", Some("/a%2Fb%41")),
            ("/%U00e9%u20AC", Some("/%C3%A9%E2%82%AC")),
            ("/%u002%u002e", Some("/%u002%2E")),
            ("/%ud83d%ude00%u0061", Some("/%ud83d%ude00%61")),
            ("/%ud83d", None),
            ("/%u", None),
            ("/%2f%u00zz", None),
        ] {
            assert_eq!(text(without_utf16(path.as_bytes())).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_left_out() {
        for (path, expected) in [
            ("/%ffprivate", Some("/private")),
            ("/pri%80vate%C0%af/", Some("/private/")),
            ("/%e4%bdx%E4%BD%A0", Some("/x%E4%BD%A0")),
            ("/a%f0%9f%98", Some("/a")),
            ("/%EA%E0%F2/search/", None),
            ("/%ed%a0%80a", Some("/a")),
            ("/\u{e4}%e4", Some("/\u{e4}")),
            ("/%E4%BD%A0%20%C3%BC\u{e4}%", None),
            ("/%F0%9F%98%80", None),
            ("", None),
        ] {
            assert_eq!(text(without_ill_formed(path.as_bytes())).as_deref(), expected, "{path}");
        }
        assert_eq!(without_ill_formed(b"/a\xffb\xc3\xbc").as_deref(), Some(&b"/ab\xc3\xbc"[..]));
    }
}
