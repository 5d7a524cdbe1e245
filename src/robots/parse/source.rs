//! The text of a robots.txt, shared by everything that points into it, and its line numbers. Pure.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::span::Span;

/// The decoded bytes of a file, as far as they were read.
#[derive(Debug)]
pub(crate) struct FileSource {
    text: Arc<[u8]>,
    /// Readable forms of the values that are not UTF-8, by offset.
    repaired: BTreeMap<u32, Box<str>>,
}

impl FileSource {
    pub(crate) fn new(text: Arc<[u8]>, repaired: BTreeMap<u32, Box<str>>) -> Self {
        Self { text, repaired }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The text, as a shared reference.
    pub(crate) fn shared(&self) -> Arc<[u8]> {
        Arc::clone(&self.text)
    }

    /// The number, from 1, of the line that holds this byte. LF, CR and CR LF end lines.
    pub(crate) fn line_of(&self, offset: usize) -> u32 {
        1 + self.line_ends(0..offset)
    }

    /// Number of line ends in this piece of the text; a CR LF is one, at its LF.
    pub(crate) fn line_ends(&self, piece: Range<usize>) -> u32 {
        let (from, text) = (piece.start, &self.text[piece]);
        let lf = memchr::memchr_iter(b'\n', text).count();
        let is_lone = |at: &usize| self.text.get(from + at + 1) != Some(&b'\n');
        let lone_cr = memchr::memchr_iter(b'\r', text).filter(is_lone).count();
        u32::try_from(lf + lone_cr).unwrap_or(u32::MAX)
    }

    /// The bytes of a value as text; U+FFFD replaces ill-formed UTF-8.
    pub(crate) fn str_at(&self, span: Span) -> &str {
        let repaired = || self.repaired.get(&span.start).map_or("\u{FFFD}", |text| text);
        str::from_utf8(self.slice(span)).unwrap_or_else(|_| repaired())
    }

    pub(crate) fn slice(&self, span: Span) -> &[u8] {
        &self.text[span.start as usize..][..usize::from(span.len)]
    }

    pub(crate) fn heap_size(&self) -> usize {
        let repaired: usize = self.repaired.values().map(|text| size_of::<(u32, Box<str>)>() + text.len()).sum();
        self.text.len() + repaired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &[u8]) -> FileSource {
        FileSource::new(text.into(), BTreeMap::new())
    }

    #[test]
    fn lines_end_at_lf_cr_and_crlf() {
        let source = source(b"a\nb\rc\r\nd\n\re");
        for (byte, line) in [(b'a', 1), (b'b', 2), (b'c', 3), (b'd', 4), (b'e', 6)] {
            let offset = source.text().iter().position(|&o| o == byte).expect("in the text");
            assert_eq!(source.line_of(offset), line, "{}", byte as char);
        }
    }

    #[test]
    fn each_byte_of_a_line_has_its_number() {
        let text = b"0123456\r\n".repeat(2_000);
        let source = source(&text);
        for line in 0..2_000 {
            for at in 0..9 {
                assert_eq!(source.line_of(line * 9 + at), line as u32 + 1, "byte {at} of line {line}");
            }
        }
    }
}
