//! Stores the text of patterns. Pure.

use std::ops::Range;
use std::sync::Arc;

/// The text of all patterns: the shared text, followed by the patterns that are not pieces of the shared text.
#[derive(Debug, Clone)]
pub(super) struct PatternText {
    pub(super) shared: Arc<[u8]>,
    pub(super) own: Vec<u8>,
}

impl PatternText {
    #[inline]
    pub(super) fn at(&self, place: PatternPlace) -> &[u8] {
        let (start, end) = (place.start as usize, place.start as usize + place.len as usize);
        match start.checked_sub(self.shared.len()) {
            None => &self.shared[start..end],
            Some(start) => &self.own[start..start + place.len as usize],
        }
    }
}

/// The position of a pattern in [`PatternText`].
#[derive(Debug, Clone, Copy)]
pub(super) struct PatternPlace {
    start: u32,
    pub(super) len: u32,
}

impl PatternPlace {
    pub(super) fn new(range: Range<usize>) -> Self {
        let narrow = |number: usize| u32::try_from(number).expect("no file is longer than 1 GiB");
        Self { start: narrow(range.start), len: narrow(range.len()) }
    }
}
