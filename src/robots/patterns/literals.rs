//! Patterns without a star, sorted, so that a binary search finds the patterns that are prefixes of a path. Pure.

use std::cmp::{Ordering, Reverse};

use super::text::{PatternPlace, PatternText};
use crate::robots::budget::{StepBudget, StepsSpent};
use crate::robots::steps;

/// The literals of [`Patterns`](super::Patterns), sorted; an anchored literal comes after an equal one without an anchor.
#[derive(Debug)]
pub(super) struct Literals<T>(Box<[Literal<T>]>);

#[derive(Debug, Clone, Copy)]
pub(super) struct Literal<T> {
    /// The first eight bytes, which decide most comparisons.
    word: u64,
    place: PatternPlace,
    /// Index of the longest other unanchored literal that is a prefix of this literal.
    parent: u32,
    /// Whether the literal matches only a path that equals it.
    is_exact: bool,
    /// The greatest value of this literal and of its ancestors, which all match every path that it matches.
    value: T,
}

const NONE: u32 = u32::MAX;
/// Steps of each look-up besides its comparisons, as each look-up is a cache miss in a file with thousands of groups.
const LOOK_UP: usize = 16;

impl<T> Literal<T> {
    #[inline]
    pub(super) fn new(place: PatternPlace, is_exact: bool, value: T) -> Self {
        Self { word: 0, place, parent: NONE, is_exact, value }
    }
}

impl<T: Ord + Copy> Literals<T> {
    pub(super) fn new(literals: Vec<Literal<T>>, text: &PatternText) -> Self {
        let mut literals = literals;
        sort(&mut literals, text);
        // Among equal literals, `sort` has put the literal with the greatest value first.
        literals.dedup_by(|b, a| {
            a.is_exact == b.is_exact && a.place.len == b.place.len && bytes(text, a) == bytes(text, b)
        });
        let mut last = NONE;
        for at in 0..literals.len() {
            let own = bytes(text, &literals[at]);
            let mut parent = last;
            while let Some(other) = literals.get(parent as usize) {
                steps::count(1 + other.place.len as usize / 64);
                if own.starts_with(bytes(text, other)) {
                    break;
                }
                parent = other.parent;
            }
            let inherited = literals.get(parent as usize).map(|parent| parent.value);
            let literal = &mut literals[at];
            literal.parent = parent;
            literal.value = inherited.map_or(literal.value, |inherited| inherited.max(literal.value));
            last = if literal.is_exact { parent } else { at as u32 };
        }
        Self(literals.into())
    }

    /// The greatest value of the literals that match.
    #[inline]
    pub(super) fn best(
        &self,
        text: &PatternText,
        path: &[u8],
        budget: &mut StepBudget,
    ) -> Result<Option<T>, StepsSpent> {
        let (mut steps, start) = (LOOK_UP, word(path));
        let behind = self.0.partition_point(|literal| match literal.word.cmp(&start) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                steps += 1 + literal.place.len as usize / 64;
                bytes(text, literal) <= path
            }
        });
        // `next` is the last literal that does not sort after the path. Any literal that is a prefix of the path is `next` or an ancestor
        // of it.
        let mut next = behind.checked_sub(1).map(|last| &self.0[last]);
        let shared = next.map_or(0, |last| shared(bytes(text, last), path));
        let found = loop {
            let Some(literal) = next else { break None };
            let len = literal.place.len as usize;
            if len <= shared && (!literal.is_exact || len == path.len()) {
                break Some(literal.value);
            }
            steps += 1;
            next = self.0.get(literal.parent as usize);
        };
        budget.spend(steps + shared / 16)?;
        Ok(found)
    }

    pub(super) fn heap_size(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Sorts by bytes; among equal literals, unanchored ones come first, then the greatest value.
fn sort<T: Ord + Copy>(literals: &mut [Literal<T>], text: &PatternText) {
    for literal in &mut *literals {
        literal.word = word(bytes(text, literal));
    }
    literals.sort_unstable_by(|a, b| {
        a.word.cmp(&b.word).then_with(|| {
            steps::count(1 + a.place.len.min(b.place.len) as usize / 64);
            let precedence = |literal: &Literal<T>| (literal.is_exact, Reverse(literal.value));
            bytes(text, a).cmp(bytes(text, b)).then_with(|| precedence(a).cmp(&precedence(b)))
        })
    });
}

#[inline]
fn bytes<'a, T>(text: &'a PatternText, literal: &Literal<T>) -> &'a [u8] {
    text.at(literal.place)
}

/// The first eight bytes as a number that sorts like the text. Shorter texts are padded with zeros, which no literal contains.
#[inline]
fn word(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => text.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)) << (8 * (8 - text.len()) % 64),
    }
}

/// Length of the common prefix.
#[inline]
fn shared(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let same = 8 * words.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}
