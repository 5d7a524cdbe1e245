//! Text as what it stands in wants it, written straight to where it goes. Pure.

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

    /// `pieces`: one after the other.
    pub fn text<'b>(&mut self, name: &str, pieces: impl IntoIterator<Item = &'b str>) {
        self.name(name);
        self.out.push(b'"');
        pieces.into_iter().for_each(|text| put_json(self.out, text));
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

/// Within a string of a structured field (RFC 9651 §3.3.3), which holds printable ASCII only: so many characters at most.
pub(super) fn put_field_text(out: &mut Vec<u8>, text: &str, most: usize) {
    if holds_none(text, |byte| !matches!(byte, b' '..=b'~') | matches!(byte, b'"' | b'\\')) {
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

/// Within an element of HTML, or an attribute.
pub(super) fn put_html(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            byte => out.push(byte),
        }
    }
}

/// Within a string of JSON (RFC 8259 §7).
fn put_json(out: &mut Vec<u8>, text: &str) {
    let is_special = |byte| byte < b' ' || matches!(byte, b'"' | b'\\');
    let mut rest = text.as_bytes();
    if holds_none(text, is_special) {
        return out.extend_from_slice(rest);
    }
    while let Some(at) = rest.iter().position(|&byte| is_special(byte)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// As is true of nearly all text. In steps that the compiler makes one instruction of.
#[inline(always)]
fn holds_none(text: &str, is_special: impl Fn(u8) -> bool) -> bool {
    let (steps, rest) = text.as_bytes().as_chunks::<16>();
    let special = |bytes: &[u8]| bytes.iter().fold(false, |found, &byte| found | is_special(byte));
    !steps.iter().any(|step| special(step)) && !special(rest)
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
        object.text("all", [&*all]);
        object.text("empty", []);
        object.text("pieces", ["a\"", "b"]);
        object.number("number", u64::MAX);
        object.end();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read, serde_json::json!({ "all": all, "empty": "", "pieces": "a\"b", "number": u64::MAX }));
    }
}
