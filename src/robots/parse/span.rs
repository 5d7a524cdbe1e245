//! The positions of values and rules in the text of a robots.txt. Pure.

use crate::robots::rule::RuleKind;

/// A piece of one line of the text. Lines are cut at 16 KiB, so that a `u16` holds every length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u16,
}

impl Span {
    pub(crate) fn new(range: std::ops::Range<usize>) -> Self {
        Self {
            start: u32::try_from(range.start).expect("a file is cut at 1 GiB"),
            len: u16::try_from(range.len()).expect("a line is cut at 16 KiB"),
        }
    }
}

/// A rule in the file: the position of its path, and its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSpan {
    pub(crate) start: u32,
    pub(crate) len: u16,
    pub(crate) kind: RuleKind,
    /// Whether the path has neither `*` nor a final `$`, and needs no normalising.
    pub(crate) plain: bool,
}

impl RuleSpan {
    pub(crate) fn value(&self) -> Span {
        Span { start: self.start, len: self.len }
    }
}
