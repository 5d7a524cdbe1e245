//! Writes compiled rules: a trie of the literals that patterns begin with, as a flat run of bytes; what `matcher` reads.
//! Pure.
//!
//! A node, children before their parent:
//!
//! ```text
//! flags, length of label, number of children, label
//! the byte that leads to each child, how far back each child is
//! if RULE:  low half of the priority, bytes that the priority counts beyond the literal's if EXTRA
//! if EXACT: low half of the priority of a rule that matches only where the path ends here
//! if LIST:  number of patterns with stars that hang here, the patterns (see `wildcard`)
//! if INDEX: the same for many of them: how far back is the root of a trie of one literal of each pattern, the number of
//!           lists in it, and a filter of two bytes
//! ```
//!
//! After the last node come zeros, so that whole words can be read anywhere.

use std::ops::Range;

use super::encoded::{push_number, push_u16, push_u32};
use super::pattern::{Arena, Pattern};
use super::trie_item::{self, ItemClass, TrieItem};
use super::wildcard;
use crate::robots::priority::Priority;

pub(crate) const RULE: u8 = 1;
pub(crate) const EXACT: u8 = 2;
pub(crate) const LIST: u8 = 4;
pub(crate) const INDEX: u8 = 8;
pub(crate) const EXTRA: u8 = 16;
/// Distances to children have two bytes.
pub(crate) const FAR: u8 = 32;
/// Distances to children have four bytes.
pub(crate) const FARTHER: u8 = 64;
/// The label is longer than a word. If its length is 255, two bytes more give it.
pub(crate) const LONG_LABEL: u8 = 128;

/// Patterns with stars that hang on one literal are tried one by one up to here; more get an index.
const MAX_LIST: usize = 24;
/// Zeros after the last node.
const PADDING: usize = 16;

/// Writes a trie of items, of which there is one at least; `starred` are the patterns with stars that they refer to.
/// Returns the bytes and where the root is.
pub(crate) fn write(arena: &Arena, items: &mut [TrieItem], starred: &[Pattern]) -> (Box<[u8]>, usize) {
    trie_item::sort(items, arena.text());
    let blob = Vec::with_capacity(arena.text().len() + 16 * items.len());
    let mut writer = TrieWriter { blob, arena, starred };
    let root = writer.trie(items, &mut None);
    writer.blob.extend([0; PADDING]);
    (writer.blob.into(), root)
}

/// How many bytes the distances to the children of a node with these flags have.
#[inline]
pub(crate) fn bytes_of_distance(flags: u8) -> usize {
    match flags & (FAR | FARTHER) {
        0 => 1,
        FAR => 2,
        _ => 4,
    }
}

/// The place of two bytes among the `2^log` places of a filter.
#[inline]
pub(crate) fn filter_bit(first: u8, second: u8, log: u32) -> usize {
    let pair = u32::from(first) << 8 | u32::from(second);
    (pair.wrapping_mul(0x9E37_79B1) >> (32 - log)) as usize
}

/// `None`: keys are what patterns begin with. Else they are pieces after a star, and lists of patterns that need another look
/// are counted.
type Lists = Option<usize>;

struct TrieWriter<'a> {
    blob: Vec<u8>,
    arena: &'a Arena,
    starred: &'a [Pattern],
}

/// The nodes of a trie that are not written yet: those that lead to the key read last.
struct OpenPath<'a> {
    nodes: Vec<OpenNode>,
    /// Children that are written and wait for their parents, those of the last node last.
    children: Vec<Child>,
    /// The key read last.
    key: &'a [u8],
}

struct OpenNode {
    /// How many bytes of the key lead to its end.
    end: usize,
    items: Range<usize>,
    /// How many of the waiting children are not its own.
    others: usize,
}

/// A node that is written: the byte that leads to it, and where it is.
type Child = (u8, usize);

impl TrieWriter<'_> {
    /// Writes the trie of sorted items; returns where its root is. Not recursive: a hostile file can make it deep.
    fn trie(&mut self, items: &[TrieItem], lists: &mut Lists) -> usize {
        let text = self.arena.text();
        let room = items.len().min(64);
        let mut path = OpenPath { nodes: Vec::with_capacity(room), children: Vec::with_capacity(room), key: &[] };
        for (n, item) in items.iter().enumerate() {
            let key = item.key(text);
            let shared = shared(path.key, key);
            match path.nodes.last_mut() {
                Some(node) if shared == key.len() && shared == path.key.len() => node.items.end = n + 1,
                Some(_) | None => {
                    self.close(&mut path, items, shared, lists);
                    path.nodes.push(OpenNode { end: key.len(), items: n..n + 1, others: path.children.len() });
                    path.key = key;
                }
            }
        }
        // What all keys begin with is the root's label.
        let end = path.nodes.first().map_or(0, |root| root.end);
        self.close(&mut path, items, end, lists);
        let root = path.nodes.pop().expect("the first key opened a node");
        self.node(&path.key[..end], &items[root.items], &path.children, lists)
    }

    /// Writes the nodes that end beyond the first `keep` bytes of the key read last.
    fn close(&mut self, path: &mut OpenPath<'_>, items: &[TrieItem], keep: usize, lists: &mut Lists) {
        while let Some(node) = path.nodes.pop_if(|node| node.end > keep) {
            let parent = path.nodes.last().map_or(0, |parent| parent.end);
            let above = parent.max(keep);
            let own = &items[node.items];
            let at = self.node(&path.key[above + 1..node.end], own, &path.children[node.others..], lists);
            path.children.truncate(node.others);
            path.children.push((path.key[above], at));
            if parent < above || path.nodes.is_empty() {
                path.nodes.push(OpenNode { end: above, items: 0..0, others: node.others });
            }
        }
    }

    fn node(&mut self, label: &[u8], items: &[TrieItem], children: &[Child], lists: &mut Lists) -> usize {
        let (rule, exact, stars) = decisive(items);
        let index = (lists.is_none() && stars.len() > MAX_LIST).then(|| self.index(stars));

        let at = self.blob.len();
        // The first child was written first.
        let width = match children.first().map_or(0, |&(_, child)| at - child) {
            0..=0xFF => 0,
            0x100..=0xFFFF => FAR,
            _ => FARTHER,
        };
        let extra = rule.map_or(0, |rule| rule.extra);
        let flags = width
            | if rule.is_some() { RULE } else { 0 }
            | if extra > 0 { EXTRA } else { 0 }
            | if exact.is_some() { EXACT } else { 0 }
            | if index.is_some() { INDEX } else { 0 }
            | if index.is_none() && !stars.is_empty() { LIST } else { 0 }
            | if label.len() > 8 { LONG_LABEL } else { 0 };
        let head = [flags, label.len().min(0xFF) as u8, children.len() as u8];
        self.blob.extend_from_slice(&head);
        if label.len() >= 0xFF {
            push_u16(&mut self.blob, label.len());
        }
        self.blob.extend_from_slice(label);
        self.children(at, children, bytes_of_distance(width));
        if let Some(rule) = rule {
            push_u32(&mut self.blob, rule.priority.low());
        }
        if extra > 0 {
            push_number(&mut self.blob, extra.into());
        }
        if let Some(exact) = exact {
            push_u32(&mut self.blob, exact.priority.low());
        }
        match index {
            Some((root, index)) => {
                let distance = u32::try_from(self.blob.len() - root).expect("a file is cut at 1 GiB");
                push_u32(&mut self.blob, distance);
                self.blob.extend(index);
            }
            None if stars.is_empty() => {}
            None => self.list(stars, lists),
        }
        at
    }

    fn children(&mut self, at: usize, children: &[Child], bytes: usize) {
        self.blob.extend(children.iter().map(|&(first, _)| first));
        for &(_, child) in children {
            let distance = u32::try_from(at - child).expect("a file is cut at 1 GiB").to_le_bytes();
            match bytes {
                1 => self.blob.push(distance[0]),
                2 => self.blob.extend_from_slice(&distance[..2]),
                _ => self.blob.extend_from_slice(&distance),
            }
        }
    }

    fn list(&mut self, stars: &[TrieItem], lists: &mut Lists) {
        if let Some(lists) = lists {
            push_number(&mut self.blob, *lists);
            *lists += 1;
        }
        wildcard::begin(&mut self.blob, stars.len());
        for item in stars {
            let pattern = &self.starred[item.pattern as usize];
            wildcard::write(&mut self.blob, self.arena, pattern, item.priority);
        }
    }

    /// Writes the trie of an index. Returns where its root is, and what a node holds of it beside.
    fn index(&mut self, stars: &[TrieItem]) -> (usize, Vec<u8>) {
        let text = self.arena.text();
        let piece = |item: &TrieItem| {
            let n = item.pattern as usize;
            TrieItem::piece(n, self.arena, &self.starred[n], item.priority)
        };
        let mut items: Vec<TrieItem> = stars.iter().map(piece).collect();
        trie_item::sort(&mut items, text);
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
        let mut lists = Some(0);
        let root = self.trie(&items, &mut lists);
        let mut index = Vec::with_capacity(filter.len() + 8);
        push_number(&mut index, lists.unwrap_or(0));
        index.push(log as u8);
        index.extend_from_slice(&filter);
        (root, index)
    }
}

/// Of the items of one key, those that can decide: the strongest rule, a stronger one that matches only where the path ends,
/// and the stronger ones with stars. What is weaker than a rule that always matches along with it never decides.
fn decisive(items: &[TrieItem]) -> (Option<&TrieItem>, Option<&TrieItem>, &[TrieItem]) {
    let (plain, stars) = items.split_at(items.partition_point(|item| item.class != ItemClass::Stars));
    let rule = plain.iter().find(|item| item.class == ItemClass::Rule);
    let floor = rule.map_or(Priority::NONE, |rule| rule.priority);
    let exact = plain.iter().find(|item| item.class == ItemClass::Exact && item.priority > floor);
    (rule, exact, &stars[..stars.partition_point(|item| item.priority > floor)])
}

/// How many bytes two keys have in common at their beginnings.
fn shared(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let same = 8 * words.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}
