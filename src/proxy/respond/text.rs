//! Text escaped for its context, written directly to its destination. Pure.

use crate::http1::{below, equal, put_number};
use crate::policy::{Authority, is_unseen, json_escape};
use crate::proxy::io::Scratch;
use http::StatusCode;
use std::fmt::{self, Write};

/// A problem as a JSON object, written member by member. Names need no escaping.
pub(super) struct Object<'a>(&'a mut Scratch);

impl<'a> Object<'a> {
    /// Writes the members that every problem has, none of which needs escaping.
    pub fn begin(out: &'a mut Scratch, slug: &str, title: &str, status: StatusCode) -> Self {
        out.reserve(USUAL);
        for part in ["{\"type\":\"urn:politely:", slug, "\",\"title\":\"", title, "\",\"status\":"] {
            out.extend_from_slice(part.as_bytes());
        }
        put_number(out, status.as_u16().into());
        Object(out)
    }

    /// Adds the concatenated `pieces`.
    #[inline]
    pub fn text<'b>(&mut self, name: &str, pieces: impl IntoIterator<Item = &'b str>) {
        self.name(name, b"\":\"");
        pieces.into_iter().for_each(|text| put_json(self.0, text));
        self.0.push(b'"');
    }

    /// Adds the URL of the authority's robots.txt.
    pub fn robots_url(&mut self, name: &str, authority: &Authority) {
        self.name(name, b"\":\"");
        // Writing to memory does not fail.
        let _ = authority.write_url("/robots.txt", self.0);
        self.0.push(b'"');
    }

    #[inline]
    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name, b"\":");
        put_number(self.0, value);
    }

    pub fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }

    #[inline]
    fn name(&mut self, name: &str, colon: &[u8]) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(colon);
    }
}

/// Usual size of a problem in bytes.
const USUAL: usize = 1024;

/// Writes a string of a structured field (RFC 9651 §3.3.3), which is printable ASCII, of up to `most` characters.
pub(super) fn put_field_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let escaped = |word| below(word, b' ') | equal(word, b'"') | equal(word, b'\\');
    if holds_none(text, |word| escaped(word) | equal(word, 0x7f) | below(!word, 0x80)) {
        return out.extend_from_slice(&text.as_bytes()[..text.len().min(most)]);
    }
    for c in text.chars().take(most) {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            ' '..='~' => out.push(c as u8),
            _ => out.push(b'?'),
        }
    }
}

/// Text escaped for an HTML element or attribute. Characters that hide text or change its direction are shown as escapes.
pub(super) struct Html<'a>(pub &'a str);

impl fmt::Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c if is_unseen(c) && c != '\n' => write!(f, "{}", c.escape_unicode())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Writes the content of a JSON string, without the quotes (RFC 8259 §7).
fn put_json(out: &mut Vec<u8>, text: &str) {
    if holds_none(text, |word| {
        below(word, b' ') | equal(word, b'"') | equal(word, b'\\') | equal(word, 0x7f) | below(!word, 0x80)
    }) {
        return out.extend_from_slice(text.as_bytes());
    }
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            '\n' => out.extend_from_slice(b"\\n"),
            c if is_unseen(c) => out.extend_from_slice(json_escape(c).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether the text has no special byte: a fast check, which nearly all text passes. `special` marks the special bytes in
/// a word of 8 bytes.
#[inline]
fn holds_none(text: &str, special: impl Fn(u64) -> u64) -> bool {
    let (words, rest) = text.as_bytes().as_chunks();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).all(|word| special(u64::from_le_bytes(*word)) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_field_characters_are_escaped_at_any_position() {
        let cases =
            [("\"", "\\\""), ("\\", "\\\\"), ("\n", "?"), ("\x7f", "?"), ("\u{e9}", "?"), ("~", "~"), ("\u{80}", "?")];
        for (special, escaped) in cases {
            for place in 0..20 {
                let (before, after) = ("a".repeat(place), "b".repeat(19 - place));
                let mut out = Vec::new();
                put_field_text(&mut out, &format!("{before}{special}{after}"), 300);
                assert_eq!(String::from_utf8(out).unwrap(), format!("{before}{escaped}{after}"));
            }
        }
        let mut out = Vec::new();
        put_field_text(&mut out, "abcdefghijkl", 10);
        assert_eq!(out, b"abcdefghij");
    }

    /// Every special character of JSON, and some of other languages.
    #[test]
    fn written_json_reads_back_unchanged() {
        let all: String = (0..0x250).filter_map(char::from_u32).chain("\u{2028}\u{1f600}</script>".chars()).collect();
        for c in all.chars() {
            for place in 0..20 {
                let text = format!("{}{c}{}", "a".repeat(place), "b".repeat(19 - place));
                let mut out = b"\"".to_vec();
                put_json(&mut out, &text);
                out.push(b'"');
                assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            }
        }
        let mut out = Scratch::new();
        let mut object = Object::begin(&mut out, "slug", "a title", StatusCode::FORBIDDEN);
        object.text("all", [&*all]);
        object.text("empty", []);
        object.text("pieces", ["a\"", "b"]);
        let robots_url = "https://[::1]:8443/robots.txt";
        object.robots_url("robots_url", &Authority::from_url(robots_url).unwrap());
        object.number("number", u64::MAX);
        object.end();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let wanted = serde_json::json!({
            "type": "urn:politely:slug", "title": "a title", "status": 403,
            "all": all, "empty": "", "pieces": "a\"b", "robots_url": robots_url, "number": u64::MAX,
        });
        assert_eq!(read, wanted);
    }
}
