//! The text of a robots.txt, shared by everything that points into it, and its line numbers. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::span::Span;
use crate::robots::options::ParseOptions;

/// The decoded bytes of a file, up to the size limit, and the dialect in which they are read.
#[derive(Debug)]
pub(crate) struct FileSource {
    text: Arc<[u8]>,
    pub(crate) options: ParseOptions,
    /// For each full block of the text, the line of its first byte: finding a line number reads only one block.
    marks: Box<[u32]>,
    /// Readable forms of the values that are not valid UTF-8, by offset.
    repaired: BTreeMap<u32, Box<str>>,
}

impl FileSource {
    pub(crate) fn new(text: &[u8], options: &ParseOptions, marks: Marks, repaired: BTreeMap<u32, Box<str>>) -> Self {
        Self { text: text.into(), options: options.clone(), marks: marks.0.into(), repaired }
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
        let offset = offset.min(self.text.len());
        let block = offset / BLOCK;
        let line = block.checked_sub(1).and_then(|mark| self.marks.get(mark)).copied().unwrap_or(1);
        line + line_ends(&self.text, block * BLOCK, offset)
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
        self.text.len() + size_of_val(&*self.marks) + repaired
    }
}

/// Line numbers at every block of a text, collected while it is read.
pub(crate) struct Marks(Vec<u32>);

impl Marks {
    pub(crate) fn for_text(text: &[u8]) -> Self {
        Self(Vec::with_capacity(text.len() / BLOCK))
    }

    /// Records that the line with this number ends right before `end`.
    #[inline]
    pub(crate) fn line(&mut self, number: u32, end: usize) {
        while (self.0.len() + 1) * BLOCK < end {
            self.0.push(number);
        }
    }
}

const BLOCK: usize = 256;

/// Number of line ends in `text[from..to]`; a CR LF counts once, at its LF.
fn line_ends(text: &[u8], from: usize, to: usize) -> u32 {
    let block = &text[from..to];
    let lf = memchr::memchr_iter(b'\n', block).count();
    let lone_cr = memchr::memchr_iter(b'\r', block).filter(|at| text.get(from + at + 1) != Some(&b'\n')).count();
    u32::try_from(lf + lone_cr).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::line::SourceLines;
    use super::*;

    fn source(text: &[u8]) -> FileSource {
        let mut marks = Marks::for_text(text);
        for line in SourceLines::new(text) {
            marks.line(line.number, line.next);
        }
        FileSource::new(text, &ParseOptions::default(), marks, BTreeMap::new())
    }

    #[test]
    fn lines_end_at_lf_cr_and_crlf() {
        let source = source(b"a\nb\rc\r\nd\n\re");
        for (byte, line) in [(b'a', 1), (b'b', 2), (b'c', 3), (b'd', 4), (b'e', 6)] {
            let offset = source.text().iter().position(|&o| o == byte).expect("the byte is in the text");
            assert_eq!(source.line_of(offset), line, "{}", byte as char);
        }
    }

    #[test]
    fn lines_are_counted_across_blocks() {
        let text = b"0123456\r\n".repeat(2_000);
        let source = source(&text);
        for line in 0..2_000 {
            for at in 0..9 {
                assert_eq!(source.line_of(line * 9 + at), line as u32 + 1, "byte {at} of line {line}");
            }
        }
    }
}
