//! Text as what it stands in wants it, written straight to where it goes. Pure.

use std::fmt::{self, Write};

/// An object of JSON, written member by member.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Object { out, is_empty: true }
    }

    pub fn text(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        self.out.push(b'"');
        write(JsonText(self.out), value);
        self.out.push(b'"');
    }

    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        crate::http1::put_number(self.out, value);
    }

    pub fn end(self) {
        self.out.push(b'}');
    }

    /// `name`: one of ours, in which nothing has to be escaped.
    fn name(&mut self, name: &str) {
        self.out.extend_from_slice(if self.is_empty { b"\"" } else { b",\"" });
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.is_empty = false;
    }
}

/// Appends.
pub(super) fn write(mut to: impl Write, value: impl fmt::Display) {
    // Writing to memory does not fail.
    let _ = write!(to, "{value}");
}

/// As it is.
pub(super) struct Plain<'a>(pub &'a mut Vec<u8>);

impl Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Within a string of JSON (RFC 8259 §7).
struct JsonText<'a>(&'a mut Vec<u8>);

impl Write for JsonText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while let Some(at) = rest.iter().position(|&byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            self.0.extend_from_slice(&rest[..at]);
            match rest[at] {
                byte @ (b'"' | b'\\') => self.0.extend_from_slice(&[b'\\', byte]),
                b'\n' => self.0.extend_from_slice(b"\\n"),
                byte => self.0.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            }
            rest = &rest[at + 1..];
        }
        self.0.extend_from_slice(rest);
        Ok(())
    }
}

/// Within a string of a structured field (RFC 9651 §3.3.3), which holds printable ASCII only.
pub(super) struct FieldText<'a> {
    pub out: &'a mut Vec<u8>,
    /// Characters that there is still room for.
    pub room: usize,
}

impl Write for FieldText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars().take(self.room) {
            match c {
                '"' | '\\' => self.out.extend_from_slice(&[b'\\', c as u8]),
                ' '..='~' => self.out.push(c as u8),
                _ => self.out.push(b'?'),
            }
            self.room -= 1;
        }
        Ok(())
    }
}

/// Within an element of HTML, or an attribute.
pub(super) struct HtmlText<'a>(pub &'a mut Vec<u8>);

impl Write for HtmlText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'<' => self.0.extend_from_slice(b"&lt;"),
                b'>' => self.0.extend_from_slice(b"&gt;"),
                b'&' => self.0.extend_from_slice(b"&amp;"),
                b'"' => self.0.extend_from_slice(b"&quot;"),
                byte => self.0.push(byte),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character that means something to JSON, and some that mean something elsewhere.
    #[test]
    fn what_is_written_is_read_as_it_was() {
        let all: String = (0..0x250).filter_map(char::from_u32).chain("\u{2028}\u{1f600}</script>".chars()).collect();
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object.text("all", &all);
        object.text("empty", "");
        object.number("number", u64::MAX);
        object.end();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read, serde_json::json!({ "all": all, "empty": "", "number": u64::MAX }));
    }
}
