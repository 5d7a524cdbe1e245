//! Cuts a file into lines and a line into key and value. RFC 9309 §2.2 (grammar). Pure.

use std::ops::Range;

use super::key;
use crate::robots::rule::RuleKind;
use crate::robots::steps;

/// The lines of a text. LF, CR and CR LF end a line. NUL ends a line too, but does not increase the line number.
pub(crate) struct SourceLines<'a> {
    text: &'a [u8],
    next: usize,
    number: u32,
    /// Offset at which the line with the current number begins.
    first: usize,
    /// Whether the last line ended at a NUL, so that the next line has the same number.
    after_nul: bool,
    /// Whether the text has a NUL, so that each line must be searched for one. The search for a line end then stops at the NUL, as it would
    /// otherwise read the rest of the file for each NUL.
    has_nul: bool,
}

/// A line, without its line ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceLine {
    pub(crate) number: u32,
    /// Offset at which the whole line begins; NULs may split it into several pieces.
    pub(crate) first: usize,
    pub(crate) start: usize,
    /// Offset of the comment, or of the end of the line if there is no comment.
    pub(crate) content_end: usize,
    pub(crate) end: usize,
    /// Offset of the next line.
    pub(crate) next: usize,
}

impl<'a> SourceLines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let has_nul = memchr::memchr(0, text).is_some();
        Self { text, next: byte_order_mark(text), number: 0, first: 0, after_nul: false, has_nul }
    }

    /// The end of the line that begins at `start`, and the end of its content before a comment.
    fn ends(&self, start: usize) -> (usize, usize) {
        let rest = &self.text[start..];
        let len = rest.len();
        let (content, end) = if self.has_nul {
            let end = memchr::memchr3(b'\n', b'\r', 0, rest).unwrap_or(len);
            (memchr::memchr(b'#', &rest[..end]).unwrap_or(end), end)
        } else {
            let content = memchr::memchr3(b'\n', b'\r', b'#', rest).unwrap_or(len);
            let end = match rest.get(content) {
                Some(b'#') => content + memchr::memchr2(b'\n', b'\r', &rest[content..]).unwrap_or(len - content),
                Some(_) | None => content,
            };
            (content, end)
        };
        steps::count(end + 1);
        (start + content, start + end)
    }
}

impl Iterator for SourceLines<'_> {
    type Item = SourceLine;

    #[inline]
    fn next(&mut self) -> Option<SourceLine> {
        let start = self.next;
        if start >= self.text.len() {
            return None;
        }
        let (content_end, end) = self.ends(start);
        let is_crlf = matches!(self.text.get(end..end + 2), Some(b"\r\n"));
        if !self.after_nul {
            self.number += 1;
            self.first = start;
        }
        self.after_nul = self.text.get(end) == Some(&0);
        self.next = end + 1 + usize::from(is_crlf);
        Some(SourceLine { number: self.number, first: self.first, start, content_end, end, next: self.next })
    }
}

/// Length of the byte order marks at the start. A truncated mark counts too, as with Google, and so do several marks in a row, which arise
/// when several tools each add a mark. A mark of UTF-16 or UTF-32 has no meaning in a text of single bytes, but is skipped as well.
pub(crate) fn byte_order_mark(text: &[u8]) -> usize {
    if let Some(wide) = WIDE_MARKS.iter().find(|mark| text.starts_with(mark)) {
        return wide.len();
    }
    b"\xEF\xBB\xBF".iter().cycle().zip(text).take_while(|(mark, byte)| mark == byte).count()
}

/// Byte order marks of UTF-16 and UTF-32.
const WIDE_MARKS: [&[u8]; 3] = [b"\xFF\xFE", b"\xFE\xFF", b"\0\0\xFE\xFF"];

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineContent {
    /// Nothing, or a comment only.
    Empty,
    Record(Record),
    /// Text that cannot be split into key and value: it has no colon, and no white space or several runs of white space.
    Text(Range<usize>),
}

/// Key and value of a record, as ranges of the text, without white space around them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) colon: bool,
}

/// Reads a line: removes comment and white space, then splits at the first colon, or if there is none, at the only run of white space.
pub(crate) fn read(text: &[u8], line: &SourceLine) -> LineContent {
    let end = line.content_end.min(line.start + MAX_LINE);
    let content = trim(text, line.start..end);
    if content.is_empty() {
        return LineContent::Empty;
    }
    let bytes = &text[content.clone()];
    steps::count(bytes.len());
    if let Some(colon) = bytes.iter().position(|&byte| byte == b':') {
        let colon = content.start + colon;
        let (key, value) = (trim(text, content.start..colon), trim(text, colon + 1..content.end));
        return LineContent::Record(Record { key, value, colon: true });
    }
    let Some(gap) = bytes.iter().position(is_blank) else {
        return LineContent::Text(content);
    };
    let gap = content.start + gap;
    let value = trim(text, gap..content.end);
    if text[value.clone()].iter().any(is_blank) {
        return LineContent::Text(content);
    }
    LineContent::Record(Record { key: content.start..gap, value, colon: false })
}

/// Fast path for a rule in its usual form: nothing before its key, and a colon right after the key.
#[inline]
pub(crate) fn read_rule(text: &[u8], line: &SourceLine) -> Option<(RuleKind, Record)> {
    let content = &text[line.start..line.content_end];
    let len = key::length_of_rule_key(content)?;
    if content.get(len) != Some(&b':') || line.end - line.start > MAX_LINE {
        return None;
    }
    let kind = if len == 8 { RuleKind::Disallow } else { RuleKind::Allow };
    let key = line.start..line.start + len;
    let value = trim(text, key.end + 1..line.content_end);
    Some((kind, Record { key, value, colon: true }))
}

/// The range without white space around it (`WS = %x20 / %x09`).
#[inline]
fn trim(text: &[u8], range: Range<usize>) -> Range<usize> {
    let Range { mut start, mut end } = range;
    while start < end && is_blank(&text[start]) {
        start += 1;
    }
    while start < end && is_blank(&text[end - 1]) {
        end -= 1;
    }
    steps::count(range.len() - (end - start));
    start..end
}

#[inline]
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Longest part of a line that is read, in bytes.
pub(crate) const MAX_LINE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &[u8]) -> LineContent {
        SourceLines::new(text).next().map_or(LineContent::Empty, |line| read(text, &line))
    }

    fn show(line: &str) -> String {
        let at = |range: Range<usize>| &line[range];
        match first(line.as_bytes()) {
            LineContent::Empty => "-".to_owned(),
            LineContent::Text(text) => format!("text({})", at(text)),
            LineContent::Record(Record { key, value, colon }) => {
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
            ("Disallow:", "Disallow:"),
            (": x", ":x"),
            (":", ":"),
            ("# Disallow: /x", "-"),
            (" \t ", "-"),
            ("", "-"),
        ] {
            assert_eq!(show(line), expected, "{line:?}");
        }
    }

    #[test]
    fn rules_are_read_as_all_records_are() {
        for text in
            ["Disallow: /x # why", "ALLOW:\t/x y ", "disallow:", "allow:#", "Disallow : /x", " allow: /x", "allows: /x"]
        {
            let line = SourceLines::new(text.as_bytes()).next().expect("a line");
            let quickly = read_rule(text.as_bytes(), &line);
            let LineContent::Record(record) = read(text.as_bytes(), &line) else { panic!("{text} is a record") };
            let is_usual = !text.contains(" :") && !text.starts_with(' ') && !text.contains('s');
            assert_eq!(quickly.is_some(), is_usual || text.to_lowercase().starts_with("disallow:"), "{text}");
            assert!(quickly.is_none_or(|(_, rule)| rule == record), "{text}");
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
        let text = b"a\nb#\rc\r\nd\0e#x\0f\n\n#g";
        let lines: Vec<_> =
            SourceLines::new(text).map(|line| (line.number, &text[line.start..line.content_end])).collect();
        let expected: [(u32, &[u8]); 8] =
            [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (4, b"e"), (4, b"f"), (5, b""), (6, b"")];
        assert_eq!(lines, expected);
    }

    #[test]
    fn long_lines_are_cut() {
        let line = [b"allow:/".as_slice(), &[b'x'; 20_000]].concat();
        let LineContent::Record(record) = first(&line) else { panic!("a record") };
        assert_eq!(record.value, 6..16_384);
    }
}
