//! Writes compiled rules: one trie of the literals that patterns begin with, as a flat run of octets. What `matcher` reads.
//! Pure. Called by `matcher` alone.
//!
//! A node, children before their parent:
//!
//! ```text
//! flags, length of label, number of children, label
//! the octet that leads to each child, how far back each child is
//! if RULE:  low half of the rank, octets that the rank counts beyond the literal's if EXTRA
//! if EXACT: low half of the rank of a rule that matches only where the path ends here
//! if LIST:  number of patterns with stars that hang here, the patterns (see `stars`)
//! if INDEX: the same for many of them: how far back is the root of a trie of one literal of each pattern, the number of
//!           lists in it, and a filter of two octets
//! ```
//!
//! After the last node come zeros, so that whole words can be read anywhere.

use super::blob::{push_number, push_u32};
use super::pattern::{Arena, Pattern, PatternKind};
use super::rank::{Rank, Ranking};
use super::stars;

pub(crate) const RULE: u8 = 1;
pub(crate) const EXACT: u8 = 2;
pub(crate) const LIST: u8 = 4;
pub(crate) const INDEX: u8 = 8;
pub(crate) const EXTRA: u8 = 16;
/// Octets of a distance to a child, as a power of two.
pub(crate) const WIDTH: u8 = 32 | 64;
pub(crate) const WIDTH_SHIFT: u32 = 5;
/// The label is longer than 255 octets; two octets more tell its length.
pub(crate) const LONG_LABEL: u8 = 128;

/// Zeros after the last node.
pub(crate) const PADDING: usize = 16;

/// Patterns with stars that hang on one literal are tried one by one up to here; more get an index.
const MAX_LIST: usize = 24;
/// Longer pieces are looked up by their beginning, so that a look-up at each octet of a path stays cheap.
const MAX_KEY: usize = 64;

/// Compiles patterns; returns the octets and where the root is.
pub(crate) fn build(arena: &Arena, patterns: &[(Pattern, u32)], ranking: Ranking) -> (Box<[u8]>, usize) {
    let mut items: Vec<Item> = patterns
        .iter()
        .enumerate()
        .map(|(n, pattern)| Item::literal(n, pattern, ranking))
        .collect();
    let mut builder = Builder {
        blob: Vec::with_capacity(arena.text().len() + 16),
        arena,
        patterns,
    };
    sort(&mut items, arena.text());
    let root = builder.trie(&items, &mut Level::Literals);
    builder.blob.extend([0; PADDING]);
    (builder.blob.into(), root)
}

/// The two octets that the filter of an index knows, in one of `2^log` places.
#[inline]
pub(crate) fn filter_bit(first: u8, second: u8, log: u32) -> usize {
    let pair = u32::from(first) << 8 | u32::from(second);
    (pair.wrapping_mul(0x9E37_79B1) >> (32 - log)) as usize
}

/// A pattern's place in a trie.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// Eight octets of the key, for sorting.
    word: u64,
    rank: Rank,
    key: (u32, u32),
    pattern: u32,
    /// Octets that the rank counts beyond those of the literals and one star between them.
    extra: u16,
    class: Class,
}

/// What an item does at the node of its key. Ordered as nodes want them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Rule,
    Exact,
    Stars,
}

enum Level {
    /// Keys are what patterns begin with.
    Literals,
    /// Keys are pieces after a star; counts the lists of patterns that need another look.
    Pieces { lists: usize },
}

impl Item {
    fn literal(n: usize, (pattern, low): &(Pattern, u32), ranking: Ranking) -> Self {
        let (class, beyond) = match pattern.kind {
            PatternKind::Prefix => (Class::Rule, 0),
            PatternKind::Exact => (Class::Exact, 1),
            PatternKind::Pieces | PatternKind::AnchoredPieces => (Class::Stars, 0),
        };
        Self::new(
            n,
            pattern,
            ranking.rank(pattern.octets, *low),
            pattern.literal.clone(),
            class,
            beyond,
        )
    }

    /// For an index: the longest piece, as the rarest to be found in a path.
    fn piece(n: usize, arena: &Arena, pattern: &Pattern, rank: Rank) -> Self {
        let pieces = || arena.pieces(pattern);
        // The first of the longest.
        let key = pieces().rev().max_by_key(std::ops::Range::len).unwrap_or_default();
        let only = pieces().count() == 1 && key.len() <= MAX_KEY;
        let implied = pattern.literal.len() + 1 + key.len();
        let class = match pattern.kind {
            PatternKind::Pieces if only => Class::Rule,
            PatternKind::AnchoredPieces if only && pattern.octets == implied + 1 => Class::Exact,
            PatternKind::Pieces | PatternKind::AnchoredPieces => Class::Stars,
            PatternKind::Prefix | PatternKind::Exact => unreachable!("patterns without pieces do not hang on literals"),
        };
        let beyond = implied - key.len() + usize::from(class == Class::Exact);
        Self::new(
            n,
            pattern,
            rank,
            key.start..key.end.min(key.start + MAX_KEY),
            class,
            beyond,
        )
    }

    fn new(n: usize, pattern: &Pattern, rank: Rank, key: std::ops::Range<usize>, class: Class, beyond: usize) -> Self {
        let extra = match class {
            Class::Rule => pattern.octets - key.len() - beyond,
            Class::Exact | Class::Stars => 0,
        };
        Self {
            word: 0,
            rank,
            key: (narrow(key.start), narrow(key.end)),
            pattern: narrow(n),
            extra: u16::try_from(extra).expect("a line is cut at 16 KiB"),
            class,
        }
    }

    fn key<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.key.0 as usize..self.key.1 as usize]
    }
}

struct Builder<'a> {
    blob: Vec<u8>,
    arena: &'a Arena,
    patterns: &'a [(Pattern, u32)],
}

/// A node whose keys are not all read yet.
struct Open {
    /// Octets from the root to its end.
    end: usize,
    items: std::ops::Range<usize>,
    /// Where its children begin among those that wait for their parents.
    children: usize,
}

impl Builder<'_> {
    /// Writes the trie of sorted items; returns where its root is. Not recursive: a hostile file can make it deep.
    fn trie(&mut self, items: &[Item], level: &mut Level) -> usize {
        let text = self.arena.text();
        let mut open = vec![Open {
            end: 0,
            items: 0..0,
            children: 0,
        }];
        let mut children = Vec::new();
        let mut last: &[u8] = &[];
        let mut next = 0;
        while next < items.len() {
            let key = items[next].key(text);
            let equals = items[next..].iter().take_while(|item| item.key(text) == key).count();
            self.close(&mut open, &mut children, items, last, shared(last, key), level);
            match open.last_mut() {
                Some(node) if node.end == key.len() => node.items = next..next + equals,
                _ => open.push(Open {
                    end: key.len(),
                    items: next..next + equals,
                    children: children.len(),
                }),
            }
            last = key;
            next += equals;
        }
        // Most rule sets have one node below the empty root: `/`. Then that is the root.
        let bare = open[0].items.is_empty() && open.get(1).is_some_and(|node| node.children == 0);
        let end = if bare { open[1].end } else { 0 };
        self.close(&mut open, &mut children, items, last, end, level);
        let root = open.pop().expect("the root is never closed");
        self.node(&last[..end], &items[root.items], &children, level)
    }

    /// Writes the nodes that end beyond the first `keep` octets of the key read last.
    fn close(
        &mut self,
        open: &mut Vec<Open>,
        children: &mut Vec<(u8, usize)>,
        items: &[Item],
        last: &[u8],
        keep: usize,
        level: &mut Level,
    ) {
        while let Some(node) = open.pop_if(|node| node.end > keep) {
            let above = open.last().map_or(0, |parent| parent.end);
            let start = above.max(keep);
            let at = self.node(
                &last[start + 1..node.end],
                &items[node.items],
                &children[node.children..],
                level,
            );
            children.truncate(node.children);
            children.push((last[start], at));
            if above < start {
                open.push(Open {
                    end: start,
                    items: 0..0,
                    children: node.children,
                });
            }
        }
    }

    fn node(&mut self, label: &[u8], items: &[Item], children: &[(u8, usize)], level: &mut Level) -> usize {
        let stars = items
            .iter()
            .position(|item| item.class == Class::Stars)
            .unwrap_or(items.len());
        let (decisive, stars) = items.split_at(stars);
        let rule = decisive.iter().find(|item| item.class == Class::Rule);
        let floor = rule.map_or(Rank::NONE, |rule| rule.rank);
        // What is weaker than a rule that always matches along with it can never decide.
        let exact = decisive
            .iter()
            .find(|item| item.class == Class::Exact && item.rank > floor);
        let stars = &stars[..stars.iter().position(|item| item.rank <= floor).unwrap_or(stars.len())];
        let index = match level {
            Level::Literals if stars.len() > MAX_LIST => Some(self.index(stars)),
            Level::Literals | Level::Pieces { .. } => None,
        };

        let at = self.blob.len();
        let farthest = children.first().map_or(0, |&(_, child)| at - child);
        let width = match farthest {
            0..=0xFF => 0,
            0x100..=0xFFFF => 1,
            _ => 2,
        };
        let extra = rule.map_or(0, |rule| rule.extra);
        let flags = if rule.is_some() { RULE } else { 0 }
            | if extra > 0 { EXTRA } else { 0 }
            | if exact.is_some() { EXACT } else { 0 }
            | if index.is_some() { INDEX } else { 0 }
            | if index.is_none() && !stars.is_empty() { LIST } else { 0 }
            | if label.len() > 0xFF { LONG_LABEL } else { 0 }
            | width << WIDTH_SHIFT;
        self.blob.extend([flags, label.len() as u8, children.len() as u8]);
        if label.len() > 0xFF {
            self.blob.extend([(label.len() >> 8) as u8, (label.len() >> 16) as u8]);
        }
        self.blob.extend_from_slice(label);
        self.children(at, children, width);
        if let Some(rule) = rule {
            push_u32(&mut self.blob, rule.rank.low());
            if extra > 0 {
                push_number(&mut self.blob, extra.into());
            }
        }
        if let Some(exact) = exact {
            push_u32(&mut self.blob, exact.rank.low());
        }
        match index {
            Some(index) => self.put_index(index),
            None if stars.is_empty() => {}
            None => self.list(stars, level),
        }
        at
    }

    fn children(&mut self, at: usize, children: &[(u8, usize)], width: u8) {
        self.blob.extend(children.iter().map(|&(first, _)| first));
        for &(_, child) in children {
            let distance = narrow(at - child).to_le_bytes();
            self.blob.extend_from_slice(&distance[..1 << width]);
        }
    }

    fn list(&mut self, stars: &[Item], level: &mut Level) {
        if let Level::Pieces { lists } = level {
            push_number(&mut self.blob, *lists);
            *lists += 1;
        }
        stars::begin(&mut self.blob, stars.len());
        for item in stars {
            stars::write(
                &mut self.blob,
                self.arena,
                &self.patterns[item.pattern as usize].0,
                item.rank,
            );
        }
    }

    /// Writes the trie of an index, and gives what the node that has it must hold.
    fn index(&mut self, stars: &[Item]) -> Index {
        let text = self.arena.text();
        let pattern = |item: &Item| &self.patterns[item.pattern as usize].0;
        let mut items: Vec<_> = stars
            .iter()
            .map(|item| Item::piece(item.pattern as usize, self.arena, pattern(item), item.rank))
            .collect();
        sort(&mut items, text);
        let log = (items.len() * 4).next_power_of_two().trailing_zeros().clamp(8, 16);
        let mut filter = vec![0_u8; 1 << (log - 3)];
        for item in &items {
            match *item.key(text) {
                [] => {}
                [first] => (0..=0xFF).for_each(|second| set(&mut filter, filter_bit(first, second, log))),
                [first, second, ..] => set(&mut filter, filter_bit(first, second, log)),
            }
        }
        let mut level = Level::Pieces { lists: 0 };
        let root = self.trie(&items, &mut level);
        let Level::Pieces { lists } = level else {
            unreachable!("set above")
        };
        Index {
            root,
            lists,
            log,
            filter,
        }
    }

    fn put_index(&mut self, index: Index) {
        let here = self.blob.len();
        push_u32(&mut self.blob, narrow(here - index.root));
        push_number(&mut self.blob, index.lists);
        self.blob.push(index.log as u8);
        self.blob.extend_from_slice(&index.filter);
    }
}

struct Index {
    root: usize,
    lists: usize,
    log: u32,
    filter: Vec<u8>,
}

fn set(filter: &mut [u8], bit: usize) {
    filter[bit / 8] |= 1 << (bit % 8);
}

/// Sorts by key, then as nodes want their items: decisive ones before those with stars, the strongest first.
fn sort(items: &mut [Item], text: &[u8]) {
    let mut todo = vec![(0, items.len(), 0)];
    while let Some((from, to, depth)) = todo.pop() {
        for item in &mut items[from..to] {
            item.word = word(item.key(text), depth);
        }
        items[from..to]
            .sort_unstable_by_key(|item| (item.word, item.class == Class::Stars, std::cmp::Reverse(item.rank)));
        let mut start = from;
        while start < to {
            let word = items[start].word;
            let end = start + items[start..to].iter().take_while(|item| item.word == word).count();
            // A zero octet is past the end: then the keys are equal, and in order.
            if end - start > 1 && word & 0xFF != 0 {
                todo.push((start, end, depth + 8));
            }
            start = end;
        }
    }
}

/// Eight octets of a key, such that their order is that of the keys; zeros past its end, as no key holds one.
fn word(key: &[u8], depth: usize) -> u64 {
    let rest = key.get(depth..).unwrap_or_default();
    match rest.first_chunk() {
        Some(octets) => u64::from_be_bytes(*octets),
        None => {
            let mut octets = [0; 8];
            octets[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(octets)
        }
    }
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a file is cut at 1 GiB")
}
