//! Which bytes of a line count in a dialect: how many, and what is white space. RFC 9309 §2.2 (grammar). Pure.

use std::ops::Range;

use crate::robots::steps;

/// A line that is read is never longer, so that 16 bits hold its normalised length.
pub(crate) const MAX_LINE: usize = 20_000;

/// What a dialect takes to be a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grammar {
    /// Vertical tabs and form feeds are white space at the ends of keys and values, not only `WS = %x20 / %x09`.
    pub(crate) control_space: bool,
    /// Bytes that are read at most.
    pub(crate) max_line: usize,
}

impl Grammar {
    #[inline]
    fn is_space(self, byte: u8) -> bool {
        match byte {
            b' ' | b'\t' => true,
            0x0B | 0x0C => self.control_space,
            _ => false,
        }
    }

    #[inline]
    pub(super) fn trim(self, text: &[u8], range: Range<usize>) -> Range<usize> {
        let start = self.trim_start(text, range.start, range.end);
        let end = self.trim_end(text, start, range.end);
        steps::count(range.len() - (end - start));
        start..end
    }

    #[inline]
    pub(super) fn trim_start(self, text: &[u8], mut start: usize, end: usize) -> usize {
        while start < end && self.is_space(text[start]) {
            start += 1;
        }
        start
    }

    #[inline]
    pub(super) fn trim_end(self, text: &[u8], start: usize, mut end: usize) -> usize {
        while start < end && self.is_space(text[end - 1]) {
            end -= 1;
        }
        end
    }
}
