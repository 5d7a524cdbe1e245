//! Writes compiled rules: a trie of the literals that patterns begin with, as a flat run of octets; what `matcher` reads.
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

use std::ops::Range;

use super::blob::{push_number, push_u16, push_u32};
use super::item::{self, Class, Item};
use super::pattern::{Arena, Pattern};
use super::rank::{Rank, Ranking};
use super::stars;

pub(crate) const RULE: u8 = 1;
pub(crate) const EXACT: u8 = 2;
pub(crate) const LIST: u8 = 4;
pub(crate) const INDEX: u8 = 8;
pub(crate) const EXTRA: u8 = 16;
/// Distances to children have two octets.
pub(crate) const FAR: u8 = 32;
/// Distances to children have four octets.
pub(crate) const FARTHER: u8 = 64;
/// The label is longer than a word. If its length is 255, two octets more tell it.
pub(crate) const LONG_LABEL: u8 = 128;
/// Patterns with stars that hang on one literal are tried one by one up to here; more get an index.
const MAX_LIST: usize = 24;
/// Zeros after the last node.
const PADDING: usize = 16;

/// Compiles patterns, of which there is one at least; returns the octets and where the root is.
pub(crate) fn build(arena: &Arena, patterns: &[(Pattern, u32)], ranking: Ranking) -> (Box<[u8]>, usize) {
    let literal = |(n, pattern)| Item::literal(n, pattern, ranking);
    let mut items: Vec<Item> = patterns.iter().enumerate().map(literal).collect();
    item::sort(&mut items, arena.text());
    let mut builder = Builder { blob: Vec::with_capacity(arena.text().len() + 64), arena, patterns };
    let root = builder.trie(&items, &mut Level::Literals);
    builder.blob.extend([0; PADDING]);
    (builder.blob.into(), root)
}

/// How many octets the distances to the children of a node with these flags have.
#[inline]
pub(crate) fn octets_of_distance(flags: u8) -> usize {
    match flags & (FAR | FARTHER) {
        0 => 1,
        FAR => 2,
        _ => 4,
    }
}

/// The place of two octets among the `2^log` places of a filter.
#[inline]
pub(crate) fn filter_bit(first: u8, second: u8, log: u32) -> usize {
    let pair = u32::from(first) << 8 | u32::from(second);
    (pair.wrapping_mul(0x9E37_79B1) >> (32 - log)) as usize
}

enum Level {
    /// Keys are what patterns begin with.
    Literals,
    /// Keys are pieces after a star; counts the lists of patterns that need another look.
    Pieces { lists: usize },
}

struct Builder<'a> {
    blob: Vec<u8>,
    arena: &'a Arena,
    patterns: &'a [(Pattern, u32)],
}

/// A node that is to be written.
struct Plan {
    /// The keys of its own and of its children.
    keys: Range<usize>,
    /// Its label is this part of them.
    label: Range<usize>,
    /// How many children were planned after it.
    children: usize,
}

/// A node that was written: the octet that leads to it, and where it is.
type Child = (u8, usize);

impl Builder<'_> {
    /// Writes the trie of sorted items; returns where its root is. Not recursive: a hostile file can make it deep.
    fn trie(&mut self, items: &[Item], level: &mut Level) -> usize {
        let text = self.arena.text();
        let groups: Vec<&[Item]> = items.chunk_by(|a, b| a.key(text) == b.key(text)).collect();
        let keys: Vec<&[u8]> = groups.iter().map(|group| group[0].key(text)).collect();
        let mut waiting: Vec<Child> = Vec::new();
        let mut children = Vec::new();
        // Parents were planned before their children: backwards, the children are there when their parent is written.
        for Plan { keys: range, label, children: count } in plan(&keys).into_iter().rev() {
            let key = keys[range.start];
            children.clear();
            // The first child was written last.
            children.extend(waiting.drain(waiting.len() - count..).rev());
            let items = if key.len() == label.end { groups[range.start] } else { &[] };
            let at = self.node(&key[label.clone()], items, &children, level);
            match label.start.checked_sub(1) {
                Some(before) => waiting.push((key[before], at)),
                None => return at,
            }
        }
        unreachable!("the root is the first that is planned")
    }

    fn node(&mut self, label: &[u8], items: &[Item], children: &[Child], level: &mut Level) -> usize {
        let (decisive, stars) = items.split_at(items.partition_point(|item| item.class != Class::Stars));
        let rule = decisive.iter().find(|item| item.class == Class::Rule);
        let floor = rule.map_or(Rank::NONE, |rule| rule.rank);
        // What is weaker than a rule that always matches along with it can never decide.
        let exact = decisive.iter().find(|item| item.class == Class::Exact && item.rank > floor);
        let stars = &stars[..stars.partition_point(|item| item.rank > floor)];
        let index = match level {
            Level::Literals if stars.len() > MAX_LIST => Some(self.index(stars)),
            Level::Literals | Level::Pieces { .. } => None,
        };

        let at = self.blob.len();
        let extra = rule.map_or(0, |rule| rule.extra);
        // The last child was written first.
        let width = match children.last().map_or(0, |&(_, child)| at - child) {
            0..=0xFF => 0,
            0x100..=0xFFFF => FAR,
            _ => FARTHER,
        };
        let holds = [
            (rule.is_some(), RULE),
            (exact.is_some(), EXACT),
            (index.is_none() && !stars.is_empty(), LIST),
            (index.is_some(), INDEX),
            (extra > 0, EXTRA),
            (label.len() > 8, LONG_LABEL),
        ];
        let flags = holds.iter().filter(|(holds, _)| *holds).fold(width, |flags, (_, flag)| flags | flag);
        self.blob.extend([flags, label.len().min(0xFF) as u8, children.len() as u8]);
        if label.len() >= 0xFF {
            push_u16(&mut self.blob, label.len());
        }
        self.blob.extend_from_slice(label);
        self.blob.extend(children.iter().map(|&(first, _)| first));
        for &(_, child) in children {
            let distance = u32::try_from(at - child).expect("a file is cut at 1 GiB").to_le_bytes();
            self.blob.extend_from_slice(&distance[..octets_of_distance(width)]);
        }
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
            Some(index) => index.write(&mut self.blob),
            None if stars.is_empty() => {}
            None => self.list(stars, level),
        }
        at
    }

    fn list(&mut self, stars: &[Item], level: &mut Level) {
        if let Level::Pieces { lists } = level {
            push_number(&mut self.blob, *lists);
            *lists += 1;
        }
        stars::begin(&mut self.blob, stars.len());
        for item in stars {
            stars::write(&mut self.blob, self.arena, &self.patterns[item.pattern as usize].0, item.rank);
        }
    }

    /// Writes the trie of an index.
    fn index(&mut self, stars: &[Item]) -> Index {
        let text = self.arena.text();
        let piece = |item: &Item| {
            let (pattern, _) = &self.patterns[item.pattern as usize];
            Item::piece(item.pattern, self.arena, pattern, item.rank)
        };
        let mut items: Vec<Item> = stars.iter().map(piece).collect();
        item::sort(&mut items, text);
        let log = (items.len() * 4).next_power_of_two().trailing_zeros().clamp(8, 16);
        let mut filter = vec![0_u8; 1 << (log - 3)];
        let mut set = |bit: usize| filter[bit / 8] |= 1 << (bit % 8);
        for item in &items {
            match *item.key(text) {
                [] => {}
                [first] => (0..=0xFF).for_each(|second| set(filter_bit(first, second, log))),
                [first, second, ..] => set(filter_bit(first, second, log)),
            }
        }
        let mut level = Level::Pieces { lists: 0 };
        let root = self.trie(&items, &mut level);
        let lists = match level {
            Level::Pieces { lists } => lists,
            Level::Literals => 0,
        };
        Index { root, lists, log, filter }
    }
}

/// Which nodes there will be: parents before their children, all of a child's before the next child.
fn plan(keys: &[&[u8]]) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut todo = vec![(0..keys.len(), 0)];
    while let Some((range, depth)) = todo.pop() {
        let (first, last) = (keys[range.start], keys[range.end - 1]);
        let end = depth + shared(&first[depth..], &last[depth..]);
        let planned = todo.len();
        let mut start = range.start + usize::from(first.len() == end);
        for branch in keys[start..range.end].chunk_by(|a, b| a[end] == b[end]) {
            todo.push((start..start + branch.len(), end + 1));
            start += branch.len();
        }
        todo[planned..].reverse();
        plans.push(Plan { keys: range, label: depth..end, children: todo.len() - planned });
    }
    plans
}

/// What a node holds of an index.
struct Index {
    root: usize,
    lists: usize,
    log: u32,
    filter: Vec<u8>,
}

impl Index {
    fn write(&self, blob: &mut Vec<u8>) {
        push_u32(blob, u32::try_from(blob.len() - self.root).expect("a file is cut at 1 GiB"));
        push_number(blob, self.lists);
        blob.push(self.log as u8);
        blob.extend_from_slice(&self.filter);
    }
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
