//! Cuts a file into lines and a line into key and value. RFC 9309 §2.2 (grammar). Pure. Called by `parse`.

use std::ops::Range;

use super::source::Span;

/// Octets of a line that are read at most.
pub(crate) const MAX_LINE: usize = 16 * 1024;

/// The lines of a text: ended by LF, CR, CR LF or NUL, without those.
pub(crate) struct Lines<'a> {
    text: &'a [u8],
    next: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8], start: usize) -> Self {
        Self { text, next: start }
    }
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        let len = memchr::memchr3(b'\n', b'\r', 0, rest).unwrap_or(rest.len());
        // The LF of a CR LF makes an empty line of its own, which says nothing.
        self.next = start + len + 1;
        Some(start..start + len)
    }
}

/// Key and value of a record, as ranges of the text, without white space around them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) colon: bool,
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing, or a comment only.
    Empty,
    Record(Record),
    /// Text without a colon, with none or more than one gap.
    Text(Range<usize>),
}

/// Reads one line: comment off, white space off, split at the first colon, or at the one gap where there is no colon.
pub(crate) fn read(text: &[u8], line: Range<usize>) -> Line {
    let line = line.start..line.end.min(line.start + MAX_LINE);
    let end = memchr::memchr(b'#', &text[line.clone()]).map_or(line.end, |hash| line.start + hash);
    let content = trim(text, line.start..end);
    if content.is_empty() {
        return Line::Empty;
    }
    if let Some(colon) = memchr::memchr(b':', &text[content.clone()]) {
        let colon = content.start + colon;
        let key = trim(text, content.start..colon);
        return Line::Record(Record { key, value: trim(text, colon + 1..content.end), colon: true });
    }
    let gap = text[content.clone()].iter().position(is_space);
    let Some(gap) = gap.map(|gap| content.start + gap) else {
        return Line::Text(content);
    };
    let value = trim(text, gap..content.end);
    if text[value.clone()].iter().any(is_space) {
        return Line::Text(content);
    }
    Line::Record(Record { key: content.start..gap, value, colon: false })
}

/// The value that begins at this octet, as far as [`read`] took it.
pub(crate) fn value_at(text: &[u8], offset: usize) -> Span {
    let is_end = |octet: &u8| matches!(octet, b'\n' | b'\r' | 0);
    let start = text[..offset].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = text[offset..].iter().position(is_end).map_or(text.len(), |end| offset + end);
    match read(text, start..end) {
        Line::Record(record) if record.value.start == offset => Span::new(record.value),
        Line::Record(_) | Line::Empty | Line::Text(_) => Span::new(offset..offset),
    }
}

/// RFC 9309: WS = %x20 / %x09.
fn is_space(octet: &u8) -> bool {
    matches!(octet, b' ' | b'\t')
}

fn trim(text: &[u8], range: Range<usize>) -> Range<usize> {
    let piece = &text[range.clone()];
    let Some(first) = piece.iter().position(|octet| !is_space(octet)) else {
        return range.end..range.end;
    };
    let last = piece.iter().rposition(|octet| !is_space(octet)).expect("one octet is not space");
    range.start + first..range.start + last + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(line: &str) -> String {
        let at = |range: Range<usize>| &line[range];
        match read(line.as_bytes(), 0..line.len()) {
            Line::Empty => "-".to_owned(),
            Line::Text(text) => format!("text({})", at(text)),
            Line::Record(Record { key, value, colon }) => {
                format!("{}{}{}", at(key), if colon { ":" } else { " " }, at(value))
            }
        }
    }

    #[test]
    fn rfc_lines_are_key_colon_value() {
        for (line, expected) in [
            ("Disallow: /x", "Disallow:/x"),
            ("  Disallow\t : \t/x y \t", "Disallow:/x y"),
            ("Disallow:/x:y", "Disallow:/x:y"),
            ("Disallow: /x # why", "Disallow:/x"),
            ("Disallow:#", "Disallow:"),
            (": x", ":x"),
            ("# Disallow: /x", "-"),
            (" \t ", "-"),
            ("", "-"),
        ] {
            assert_eq!(show(line), expected, "{line:?}");
        }
    }

    #[test]
    fn google_accepts_a_missing_colon_between_two_words() {
        assert_eq!(show(" Disallow \t /x "), "Disallow /x");
        assert_eq!(show("Disallow /x /y"), "text(Disallow /x /y)");
        assert_eq!(show("Disallow"), "text(Disallow)");
    }

    #[test]
    fn lines_end_at_lf_cr_crlf_and_nul() {
        let text = b"a\nb\rc\r\nd\0e";
        let lines: Vec<_> = Lines::new(text, 0).map(|line| &text[line]).filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, [b"a", b"b", b"c", b"d", b"e"]);
    }

    #[test]
    fn long_lines_are_cut() {
        let line = [b"allow:/".as_slice(), &[b'x'; 20_000]].concat();
        let Line::Record(record) = read(&line, 0..line.len()) else { panic!("a record") };
        assert_eq!(record.value, 6..MAX_LINE);
    }
}
