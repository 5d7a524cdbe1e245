//! Gathers the rules of one crawler and compiles them. Pure.

use super::pattern::{Arena, Pattern, PatternKind};
use super::trie;
use super::trie_item::TrieItem;
use crate::robots::options::ParseOptions;
use crate::robots::priority::{PriorityScheme, RuleKind};

/// Rules on their way to a [`Matcher`](super::Matcher).
pub(crate) struct Rules {
    pub(crate) scheme: PriorityScheme,
    arena: Arena,
    items: Vec<TrieItem>,
    /// The patterns with stars, to which items refer.
    starred: Vec<Pattern>,
}

impl Rules {
    /// With room for so many rules of so many bytes.
    pub(crate) fn new(options: &ParseOptions, rules: usize, bytes: usize) -> Self {
        Self {
            scheme: PriorityScheme::new(options.precedence),
            arena: Arena::new(options.percent_encoding, bytes),
            items: Vec::with_capacity(rules),
            starred: Vec::new(),
        }
    }

    /// A rule in whose pattern nothing is special and nothing must be normalised; `offset` is its place in the file.
    #[inline]
    pub(crate) fn add_plain(&mut self, written: &[u8], offset: u32, kind: RuleKind) {
        let pattern = self.arena.push_plain(written);
        self.add_pattern(pattern, offset, kind);
    }

    pub(crate) fn add(&mut self, written: &[u8], offset: u32, kind: RuleKind) {
        let pattern = self.arena.push(written);
        self.add_pattern(pattern, offset, kind);
    }

    /// The directory that is allowed where its `index.html` is (Google).
    pub(crate) fn add_index(&mut self, written: &[u8], offset: u32) {
        if let Some(pattern) = self.arena.push_index(written) {
            self.add_pattern(pattern, offset, RuleKind::Allow);
        }
    }

    /// The bytes of the compiled rules and where their root is.
    pub(crate) fn compile(mut self) -> (Box<[u8]>, usize) {
        if self.items.is_empty() {
            return Default::default();
        }
        trie::write(&self.arena, &mut self.items, &self.starred)
    }

    #[inline]
    fn add_pattern(&mut self, pattern: Pattern, offset: u32, kind: RuleKind) {
        let priority = self.scheme.priority(pattern.bytes, self.scheme.low(offset, kind));
        self.items.push(TrieItem::literal(self.starred.len(), &pattern, priority));
        match pattern.kind {
            PatternKind::Prefix | PatternKind::Exact => {}
            PatternKind::Pieces | PatternKind::AnchoredPieces => self.starred.push(pattern),
        }
    }
}
