//! RFC 9309 §2.2.2: the rule that decides about a path, found in time that hardly depends on how many rules there are.
//! Pure.

pub(crate) mod builder;
mod encoded;
mod node;
pub(crate) mod path;
pub(crate) mod pattern;
mod trie;
mod trie_item;
mod wildcard;

use crate::robots::byte_set::ByteSet;
use crate::robots::options::ParseOptions;
use crate::robots::parse::source::FileSource;
use crate::robots::parse::span::RuleSpan;
use crate::robots::priority::{Priority, PriorityScheme, RuleKind};
use builder::Rules;
use encoded::Cursor;
use node::{Node, PathWords};
use smallvec::SmallVec;
use trie::{EXACT, EXTRA, INDEX, LIST, RULE};

/// Compiled patterns; which is the strongest that matches a path?
///
/// One walk along the path through a trie of literals finds the longest literal rule, and the literals on which patterns
/// with stars hang. Those are tried strongest first, and only while they are stronger than what was found; where many
/// hang on one literal, they are looked up by a piece of theirs at each byte of the path.
#[derive(Debug)]
pub(crate) struct Matcher {
    blob: Box<[u8]>,
    root: usize,
    scheme: PriorityScheme,
}

impl Matcher {
    pub(crate) fn of_rules(source: &FileSource, rules: &[RuleSpan], options: &ParseOptions) -> Self {
        let bytes = rules.iter().map(|rule| usize::from(rule.len)).sum();
        let mut compiled = Rules::new(options, rules.len(), bytes);
        for rule in rules {
            let written = source.slice(rule.value());
            if rule.plain {
                compiled.add_plain(written, rule.start, rule.kind);
            } else {
                compiled.add(written, rule.start, rule.kind);
            }
            if options.index_html && rule.kind == RuleKind::Allow {
                compiled.add_index(written, rule.start);
            }
        }
        Self::new(compiled)
    }

    pub(crate) fn new(rules: Rules) -> Self {
        let scheme = rules.scheme;
        let (blob, root) = rules.compile();
        Self { blob, root, scheme }
    }

    /// The strongest rule that matches a normalised path, which has bytes of these kinds.
    pub(crate) fn best(&self, path: &[u8], byte_set: ByteSet) -> Option<Priority> {
        let search = Search { blob: &self.blob, scheme: self.scheme, path: PathWords::new(path), byte_set };
        let best = search.literals(self.root);
        (best > Priority::NONE).then_some(best)
    }

    pub(crate) fn kind(&self, priority: Priority) -> RuleKind {
        self.scheme.kind(priority)
    }

    /// Where the value of the rule of this priority begins.
    pub(crate) fn offset(&self, priority: Priority) -> u32 {
        self.scheme.offset(priority)
    }

    pub(crate) fn heap_size(&self) -> usize {
        self.blob.len()
    }
}

/// One path on its way through the rules.
struct Search<'a> {
    blob: &'a [u8],
    scheme: PriorityScheme,
    path: PathWords<'a>,
    byte_set: ByteSet,
}

impl Search<'_> {
    /// Walks along the path from its start. Patterns with stars that hang on the way wait until the next ones are met, or
    /// the walk ends: they are often weaker than the literals that follow.
    #[inline]
    fn literals(&self, root: usize) -> Priority {
        let mut best = Priority::NONE;
        let mut waiting = None;
        let mut step = Some((root, 0));
        while let Some(node) = step.and_then(|(at, from)| Node::read(self.blob, at, &self.path, from)) {
            if node.holds(RULE | EXACT | LIST | INDEX) {
                let payload = self.decide(&node, node.end, &mut best);
                if node.holds(LIST | INDEX) {
                    best = self.hanging(waiting.replace((payload, node.end, node.holds(INDEX))), best);
                }
            }
            step = node.child(self.blob, &self.path);
        }
        self.hanging(waiting, best)
    }

    /// Counts the literal rules that end at a node; so many `bytes` of the pattern are matched. Returns where the rest of
    /// what hangs there is.
    #[inline]
    fn decide(&self, node: &Node, bytes: usize, best: &mut Priority) -> usize {
        let mut payload = Cursor::new(self.blob.get(node.payload()..).unwrap_or_default());
        if node.holds(RULE) {
            let low = payload.u32();
            let extra = if node.holds(EXTRA) { payload.number() } else { 0 };
            *best = self.scheme.priority(bytes + extra, low).max(*best);
        }
        if node.holds(EXACT) {
            let low = payload.u32();
            if node.end == self.path.bytes.len() {
                *best = self.scheme.priority(bytes + 1, low).max(*best);
            }
        }
        self.blob.len() - payload.len()
    }

    #[inline]
    fn hanging(&self, patterns: Option<(usize, usize, bool)>, best: Priority) -> Priority {
        match patterns {
            Some((payload, from, false)) => self.list(payload, from, best),
            Some((payload, from, true)) => self.pieces(payload, from, best),
            None => best,
        }
    }

    /// Patterns of which all pieces must be found beyond `from`.
    #[inline(never)]
    fn list(&self, payload: usize, from: usize, best: Priority) -> Priority {
        let path = self.path.bytes.get(from..).unwrap_or_default();
        wildcard::best_of(&self.blob[payload..], path, self.byte_set, self.scheme, best).unwrap_or(best)
    }

    /// Looks up at each byte beyond `from` which of the pieces begins there.
    #[inline(never)]
    fn pieces(&self, at: usize, from: usize, mut best: Priority) -> Priority {
        let mut index = Cursor::new(&self.blob[at..]);
        let root = at - index.u32() as usize;
        let mut seen = Seen::from_elem(0, index.number().div_ceil(64));
        let log = u32::from(index.u8());
        let filter = index.take(1 << (log - 3));
        let path = self.path.bytes;
        for start in from..path.len() {
            let second = path.get(start + 1).copied().unwrap_or_default();
            let bit = trie::filter_bit(path[start], second, log);
            if filter[bit / 8] >> (bit % 8) & 1 == 1 {
                best = self.piece(root, start, from, &mut seen, best);
            }
        }
        best
    }

    /// Looks up the pieces that begin at `start`.
    fn piece(&self, root: usize, start: usize, from: usize, seen: &mut Seen, mut best: Priority) -> Priority {
        let mut step = Some((root, start));
        while let Some(node) = step.and_then(|(at, from)| Node::read(self.blob, at, &self.path, from)) {
            if node.holds(RULE | EXACT | LIST) {
                // The literal before the star, the star, the piece.
                let payload = self.decide(&node, from + 1 + node.end - start, &mut best);
                if node.holds(LIST) {
                    let mut list = Cursor::new(&self.blob[payload..]);
                    // A list does not depend on where the piece is: once is enough.
                    if is_first_time(seen, list.number()) {
                        best = self.list(self.blob.len() - list.len(), from, best);
                    }
                }
            }
            step = node.child(self.blob, &self.path);
        }
        best
    }
}

/// Which lists of an index were tried: a bit for each.
type Seen = SmallVec<[u64; 8]>;

fn is_first_time(seen: &mut Seen, list: usize) -> bool {
    let (word, bit) = (list / 64, 1 << (list % 64));
    let first = seen[word] & bit == 0;
    seen[word] |= bit;
    first
}
