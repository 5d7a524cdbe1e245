//! What `trie` orders: patterns by a literal of theirs. Pure.

use std::cmp::Reverse;
use std::ops::Range;

use super::pattern::{Arena, Pattern, PatternKind};
use crate::robots::priority::Priority;

/// A pattern's place in a trie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrieItem {
    /// Eight bytes of the key, for sorting.
    word: u64,
    pub(crate) priority: Priority,
    key: (u32, u32),
    /// Which of the patterns with stars it is.
    pub(crate) pattern: u32,
    /// Bytes that the priority counts beyond those of the literals and one star between them.
    pub(crate) extra: u16,
    pub(crate) class: ItemClass,
}

/// What an item does at the node of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemClass {
    /// Matches whatever follows.
    Rule,
    /// Matches if nothing follows.
    Exact,
    /// Matches if the rest of the pattern does.
    Stars,
}

/// Longer pieces are looked up by their beginning, so that a look-up at each byte of a path stays cheap.
const MAX_KEY: usize = 64;

impl TrieItem {
    /// By what the pattern begins with; `n` is the pattern's number if it has stars.
    pub(crate) fn literal(n: usize, pattern: &Pattern, priority: Priority) -> Self {
        let (class, extra) = match pattern.kind {
            PatternKind::Prefix => (ItemClass::Rule, pattern.bytes - pattern.literal.len()),
            PatternKind::Exact => (ItemClass::Exact, 0),
            PatternKind::Pieces | PatternKind::AnchoredPieces => (ItemClass::Stars, 0),
        };
        Self::new(n, priority, pattern.literal.clone(), class, extra)
    }

    /// By the longest piece after a star, as it is the rarest to be found in a path.
    pub(crate) fn piece(n: usize, arena: &Arena, pattern: &Pattern, priority: Priority) -> Self {
        let pieces = || arena.pieces(pattern);
        // The first of the longest.
        let key = pieces().rev().max_by_key(Range::len).unwrap_or_default();
        let only = pieces().count() == 1 && key.len() <= MAX_KEY;
        let implied = pattern.literal.len() + 1 + key.len();
        let (class, extra) = match pattern.kind {
            PatternKind::Pieces if only => (ItemClass::Rule, pattern.bytes - implied),
            PatternKind::AnchoredPieces if only && pattern.bytes == implied + 1 => (ItemClass::Exact, 0),
            PatternKind::Pieces | PatternKind::AnchoredPieces => (ItemClass::Stars, 0),
            PatternKind::Prefix | PatternKind::Exact => unreachable!("patterns without pieces do not hang on literals"),
        };
        Self::new(n, priority, key.start..key.end.min(key.start + MAX_KEY), class, extra)
    }

    fn new(n: usize, priority: Priority, key: Range<usize>, class: ItemClass, extra: usize) -> Self {
        let extra = u16::try_from(extra).expect("a line is cut at 20,000 bytes");
        Self { word: 0, priority, key: (narrow(key.start), narrow(key.end)), pattern: narrow(n), extra, class }
    }

    pub(crate) fn key<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.key.0 as usize..self.key.1 as usize]
    }
}

/// Sorts by key; items of one key with those that have stars last, then the strongest first.
pub(crate) fn sort(items: &mut [TrieItem], text: &[u8]) {
    let mut todo = Vec::new();
    let mut next = Some((0, items.len(), 0));
    while let Some((from, to, depth)) = next {
        for item in &mut items[from..to] {
            item.word = word(item.key(text), depth);
        }
        let items = &mut items[from..to];
        items.sort_unstable_by_key(|item| item.word);
        let mut start = 0;
        for run in items.chunk_by_mut(|a, b| a.word == b.word) {
            // A zero byte is past the end: then the keys are equal.
            if run.len() > 1 && run[0].word & 0xFF == 0 {
                run.sort_unstable_by_key(|item| (item.class == ItemClass::Stars, Reverse(item.priority)));
            } else if run.len() > 1 {
                todo.push((from + start, from + start + run.len(), depth + 8));
            }
            start += run.len();
        }
        next = todo.pop();
    }
}

/// Eight bytes of a key, such that their order is that of the keys; zeros past its end, as no key holds one.
fn word(key: &[u8], depth: usize) -> u64 {
    let rest = key.get(depth..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)) << (8 * (8 - rest.len()) % 64),
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a file is cut at 1 GiB")
}
