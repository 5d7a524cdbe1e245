//! RFC 9309 §2.2.2: the rule that decides about a path, found in time that hardly depends on how many rules there are.
//! Pure. Called by `ruleset`.

use super::blob::Cursor;
use super::options::ParseOptions;
use super::pattern::Arena;
use super::rank::{Rank, Ranking, RuleKind};
use super::source::Source;
use super::stars;
use super::trie::{self, EXACT, EXTRA, INDEX, LIST, LONG_LABEL, RULE, WIDTH, WIDTH_SHIFT};

/// Compiled patterns; which is the strongest that matches a path?
///
/// One walk along the path through a trie of literals finds the longest literal rule, and the literals on which patterns
/// with stars hang. Those are tried strongest first, and only while they are stronger than what was found; where many
/// hang on one literal, they are looked up by a piece of theirs at each octet of the path.
#[derive(Debug)]
pub(crate) struct Matcher {
    blob: Box<[u8]>,
    root: usize,
    ranking: Ranking,
}

impl Matcher {
    pub(crate) fn new(source: &Source, rules: &[super::ruleset::RuleSpan], options: &ParseOptions) -> Self {
        let ranking = Ranking::new(options.precedence);
        let octets = rules.iter().map(|rule| usize::from(rule.value.len)).sum();
        let mut arena = Arena::with_capacity(octets);
        let patterns: Vec<_> = rules
            .iter()
            .map(|rule| {
                (
                    arena.push(source.slice(rule.value)),
                    ranking.low(rule.value.start, rule.kind),
                )
            })
            .collect();
        let (blob, root) = if patterns.is_empty() {
            Default::default()
        } else {
            trie::build(&arena, &patterns, ranking)
        };
        Self { blob, root, ranking }
    }

    /// The strongest rule that matches a normalised path.
    pub(crate) fn best(&self, path: &[u8]) -> Option<Rank> {
        if self.blob.is_empty() {
            return None;
        }
        let mut search = Search {
            blob: &self.blob,
            ranking: self.ranking,
            path,
            best: Rank::NONE,
        };
        search.literals(self.root);
        (search.best > Rank::NONE).then_some(search.best)
    }

    pub(crate) fn kind(&self, rank: Rank) -> RuleKind {
        self.ranking.kind(rank)
    }

    /// Where the value of the rule of this rank begins.
    pub(crate) fn offset(&self, rank: Rank) -> u32 {
        self.ranking.offset(rank)
    }

    pub(crate) fn heap_size(&self) -> usize {
        self.blob.len()
    }
}

/// One path on its way through the rules.
struct Search<'a> {
    blob: &'a [u8],
    ranking: Ranking,
    path: &'a [u8],
    best: Rank,
}

/// Patterns with stars that hang on a literal: where their node is and where what it holds of them, and how much of the
/// path the literal took.
#[derive(Clone, Copy, Default)]
struct Hanging {
    node: u32,
    payload: u32,
    from: u32,
    indexed: bool,
}

impl Search<'_> {
    /// Walks along the path from its start, then tries the patterns with stars that hang on the way, those of the longest
    /// literals first.
    fn literals(&mut self, root: usize) {
        let mut hanging = [Hanging::default(); 8];
        let mut count = 0;
        let (mut node, mut at) = (root, 0);
        while let Some(mut found) = Node::read(self.blob, node, &self.path[at..]) {
            at += found.label;
            self.decide(&mut found, at, at);
            if found.flags & (LIST | INDEX) != 0 {
                if count == hanging.len() {
                    // The shortest literal's; they are the likeliest to be weaker than what is found later.
                    count -= 1;
                    self.hanging(hanging[0]);
                    hanging.rotate_left(1);
                }
                let payload = self.blob.len() - found.payload.len();
                let indexed = found.flags & INDEX != 0;
                hanging[count] = Hanging {
                    node: node as u32,
                    payload: payload as u32,
                    from: at as u32,
                    indexed,
                };
                count += 1;
            }
            let Some(&next) = self.path.get(at) else { break };
            let Some(distance) = found.child(next) else { break };
            node -= distance;
            at += 1;
        }
        for &hanging in hanging[..count].iter().rev() {
            self.hanging(hanging);
        }
    }

    /// The literal rules that end at a node, after `at` octets of the path; `octets` of the pattern are matched.
    #[inline]
    fn decide(&mut self, node: &mut Node<'_>, at: usize, octets: usize) {
        if node.flags & RULE != 0 {
            let low = node.payload.u32();
            let extra = if node.flags & EXTRA != 0 {
                node.payload.number()
            } else {
                0
            };
            self.best = self.best.max(self.ranking.rank(octets + extra, low));
        }
        if node.flags & EXACT != 0 {
            let low = node.payload.u32();
            if at == self.path.len() {
                self.best = self.best.max(self.ranking.rank(octets + 1, low));
            }
        }
    }

    fn hanging(&mut self, hanging: Hanging) {
        let mut payload = Cursor::new(&self.blob[hanging.payload as usize..]);
        if hanging.indexed {
            self.pieces(payload, hanging.node as usize, hanging.from as usize);
        } else {
            let count = payload.number();
            self.list(payload, count, hanging.from as usize);
        }
    }

    /// Patterns of which all pieces must be found beyond `from`.
    fn list(&mut self, list: Cursor<'_>, count: usize, from: usize) {
        if let Some(rank) = stars::best_of(list, count, &self.path[from..], self.ranking, self.best) {
            self.best = rank;
        }
    }

    /// Looks up at each octet beyond `from` which of the pieces begins there.
    fn pieces(&mut self, mut index: Cursor<'_>, node: usize, from: usize) {
        let root = node - index.u32() as usize;
        let mut seen = Seen::new(index.number());
        let log = u32::from(index.u8());
        let filter = index.take(1 << (log - 3));
        let path = self.path;
        for start in from..path.len() {
            let second = path.get(start + 1).copied().unwrap_or_default();
            let bit = trie::filter_bit(path[start], second, log);
            if filter[bit / 8] >> (bit % 8) & 1 == 1 {
                self.piece(root, start, from, &mut seen);
            }
        }
    }

    /// Walks along the path from `start`, where a piece may begin.
    fn piece(&mut self, root: usize, start: usize, from: usize, seen: &mut Seen) {
        let (mut node, mut at) = (root, start);
        while let Some(mut found) = Node::read(self.blob, node, &self.path[at..]) {
            at += found.label;
            self.decide(&mut found, at, from + 1 + at - start);
            if found.flags & LIST != 0 {
                let list = found.payload.number();
                let count = found.payload.number();
                // A list does not depend on where the piece is: once is enough.
                if seen.first_time(list) {
                    self.list(found.payload, count, from);
                }
            }
            let Some(&next) = self.path.get(at) else { break };
            let Some(distance) = found.child(next) else { break };
            node -= distance;
            at += 1;
        }
    }
}

/// A node of a trie whose label the path has.
struct Node<'a> {
    flags: u8,
    /// The label's length.
    label: usize,
    firsts: &'a [u8],
    distances: &'a [u8],
    /// What hangs on it.
    payload: Cursor<'a>,
}

impl<'a> Node<'a> {
    #[inline]
    fn read(blob: &'a [u8], at: usize, path: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(&blob[at..]);
        let flags = cursor.u8();
        let mut label = usize::from(cursor.u8());
        if flags & LONG_LABEL != 0 {
            label |= usize::from(cursor.u8()) << 8 | usize::from(cursor.u8()) << 16;
        }
        if !path.starts_with(cursor.take(label)) {
            return None;
        }
        let width = (flags & WIDTH) >> WIDTH_SHIFT;
        let (mut firsts, mut distances): (&[u8], &[u8]) = (&[], &[]);
        if width > 0 {
            let children = usize::from(cursor.u8()) + 1;
            firsts = cursor.take(children);
            distances = cursor.take(children << (width - 1));
        }
        Some(Self {
            flags,
            label,
            firsts,
            distances,
            payload: cursor,
        })
    }

    /// How far back the child is that this octet leads to.
    #[inline]
    fn child(&self, first: u8) -> Option<usize> {
        let at = self.firsts.iter().position(|&octet| octet == first)?;
        match (self.flags & WIDTH) >> WIDTH_SHIFT {
            1 => self.distances.get(at).map(|&octet| octet.into()),
            2 => self.distances[2 * at..]
                .first_chunk()
                .map(|&octets| u16::from_le_bytes(octets).into()),
            _ => self.distances[4 * at..]
                .first_chunk()
                .map(|&octets| u32::from_le_bytes(octets) as usize),
        }
    }
}

/// Which lists of an index were tried.
struct Seen {
    few: [u64; 8],
    many: Vec<u64>,
}

impl Seen {
    fn new(lists: usize) -> Self {
        let many = if lists > 64 * 8 {
            vec![0; lists.div_ceil(64)]
        } else {
            Vec::new()
        };
        Self { few: [0; 8], many }
    }

    fn first_time(&mut self, list: usize) -> bool {
        let words = if self.many.is_empty() {
            &mut self.few[..]
        } else {
            &mut self.many
        };
        let (word, bit) = (list / 64, 1 << (list % 64));
        let first = words[word] & bit == 0;
        words[word] |= bit;
        first
    }
}
