//! Patterns with stars. Between stars there are only literals, so the leftmost match of each literal is enough, without backtracking. Pure.

use std::cmp::Reverse;

use super::pattern::STAR;
use super::text::{PatternPlace, PatternText};
use crate::robots::budget::{StepBudget, StepsSpent};
use crate::robots::byte_set::ByteSet;
use crate::robots::fold::fold;
use crate::robots::path::{ComparedPath, parts};
use crate::robots::steps;
use smallvec::SmallVec;

/// The patterns with stars of [`Patterns`](super::Patterns), in descending order of value.
#[derive(Debug)]
pub(super) struct Starred<T> {
    patterns: Box<[Star<T>]>,
    /// The index, built only if there are many patterns.
    index: Option<Box<Index>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Star<T> {
    pub(super) value: T,
    /// The kinds of bytes that every matching path has.
    byte_set: ByteSet,
    /// The text: literals with stars between them, and no star at the end.
    place: PatternPlace,
    /// Number of bytes before the first star.
    first_star: u32,
    /// Whether a matching path must end with the last literal.
    is_anchored: bool,
    /// Whether [`has_separators`] is true of the pattern.
    has_separators: bool,
}

impl<T: Ord + Copy> Starred<T> {
    pub(super) fn new(mut patterns: Vec<Star<T>>, text: &PatternText) -> Self {
        patterns.sort_unstable_by_key(|star| Reverse(star.value));
        let index = (patterns.len() > MOST_WITHOUT_INDEX).then(|| Index::new(&patterns, text).into());
        Self { patterns: patterns.into(), index }
    }

    /// The greatest value of the patterns that match, if it is greater than `floor`.
    #[inline]
    pub(super) fn best(
        &self,
        text: &PatternText,
        path: ComparedPath<'_>,
        floor: Option<T>,
        budget: &mut StepBudget,
    ) -> Result<Option<T>, StepsSpent> {
        let stronger = self.patterns.partition_point(|star| Some(star.value) > floor);
        let Some(index) = &self.index else {
            budget.spend(self.patterns.len() / 2)?;
            for star in &self.patterns[..stronger] {
                if path.byte_set.has_all(star.byte_set) && star.matches(text, path, budget)? {
                    return Ok(Some(star.value));
                }
            }
            return Ok(None);
        };
        let is_candidate =
            |&n: &u32| (n as usize) < stronger && path.byte_set.has_all(self.patterns[n as usize].byte_set);
        let mut candidates: Candidates = SmallVec::new();
        budget.spend(2 * index.short.len() + path.bytes.len() * 3 / 2)?;
        candidates.extend(index.short.iter().copied().filter(is_candidate));
        let mut window = 0;
        for &byte in path.bytes {
            window = window << 8 & 0xFF_FFFF | u32::from(byte);
            let members = index.members(window);
            if members.is_empty() {
                continue;
            }
            budget.spend(1 + 2 * members.len())?;
            // `extend` would first reserve room for all members.
            members.iter().filter(|n| is_candidate(n)).for_each(|&n| candidates.push(n));
        }
        let sorting = candidates.len() * (candidates.len() + 1).ilog2() as usize;
        budget.spend(sorting / 2)?;
        candidates.sort_unstable();
        candidates.dedup();
        for star in candidates.iter().map(|&n| &self.patterns[n as usize]) {
            if star.matches(text, path, budget)? {
                return Ok(Some(star.value));
            }
        }
        Ok(None)
    }

    pub(super) fn heap_size(&self) -> usize {
        size_of_val(&*self.patterns) + self.index.as_ref().map_or(0, |index| index.heap_size())
    }
}

impl<T> Star<T> {
    /// Creates a pattern from the text at `place`, which is split before its first star.
    pub(super) fn new(value: T, (literal, pieces): (&[u8], &[u8]), place: PatternPlace, is_anchored: bool) -> Self {
        let has_separators = has_separators(literal, pieces);
        let pieces = pieces.split(|&byte| byte == STAR).filter(|_| !has_separators);
        let byte_set = pieces.fold(ByteSet::of(literal), |set, piece| set.with(ByteSet::of(piece)));
        Self { value, byte_set, place, first_star: literal.len() as u32, is_anchored, has_separators }
    }

    #[inline(never)]
    fn matches(&self, text: &PatternText, path: ComparedPath<'_>, budget: &mut StepBudget) -> Result<bool, StepsSpent> {
        let pattern = text.at(self.place);
        budget.spend(4 + pattern.len() / 64)?;
        let (literal, mut pieces) = pattern.split_at(self.first_star as usize);
        let Some(mut rest) = path.bytes.strip_prefix(literal) else { return Ok(false) };
        if path.is_folded && self.has_separators {
            return self.matches_folded(rest, pieces, budget);
        }
        if self.is_anchored {
            let last = memchr::memrchr(STAR, pieces).map_or(0, |star| star + 1);
            let Some(before) = rest.strip_suffix(&pieces[last..]) else { return Ok(false) };
            (rest, pieces) = (before, &pieces[..last]);
        }
        for piece in pieces.split(|&byte| byte == STAR).filter(|piece| !piece.is_empty()) {
            let Some(at) = find(rest, piece, budget)? else { return Ok(false) };
            rest = &rest[at + piece.len()..];
        }
        Ok(true)
    }

    /// Does the rest of [`matches`](Self::matches) for a folded path and its query. Each piece must occur in the path, where `+` equals
    /// `%2B`, `&` equals `%26` and `=` equals `%3D`, or in the query, where these differ.
    #[cold]
    fn matches_folded(&self, mut rest: &[u8], pieces: &[u8], budget: &mut StepBudget) -> Result<bool, StepsSpent> {
        budget.spend(pieces.len())?;
        let in_path = fold(pieces, parts(pieces).0.len());
        let mut pieces: SmallVec<[_; 8]> =
            in_path.split(|&byte| byte == STAR).zip(pieces.split(|&byte| byte == STAR)).collect();
        let mut query = parts(rest).0.len();
        if self.is_anchored
            && let Some((folded, written)) = pieces.pop()
        {
            let in_query = rest.strip_suffix(written).filter(|before| before.len() >= query);
            let in_path = || rest.strip_suffix(folded).filter(|before| before.len() + parts(folded).0.len() <= query);
            let Some(before) = in_query.or_else(in_path) else { return Ok(false) };
            (rest, query) = (before, query.min(before.len()));
        }
        let mut from = 0;
        for (folded, written) in pieces.into_iter().filter(|(piece, _)| !piece.is_empty()) {
            // A piece with a `?` may extend into the query, by the length of its part from the `?` on.
            let end = rest.len().min(query + parts(folded).1.len());
            let mut found = None;
            if from <= query {
                found = find(&rest[from..end], folded, budget)?.map(|at| from + at + folded.len());
            }
            if found.is_none() {
                let begin = from.max(query);
                found = find(&rest[begin..], written, budget)?.map(|at| begin + at + written.len());
            }
            let Some(end) = found else { return Ok(false) };
            from = end;
        }
        Ok(true)
    }
}

/// Whether a pattern has `%2B`, `%26` or `%3D` after a star and before any `?`, where it may match in a path or in a query.
fn has_separators(literal: &[u8], pieces: &[u8]) -> bool {
    let has = |escape: &&[u8]| memchr::memmem::find(parts(pieces).0, escape).is_some();
    !literal.contains(&b'?') && [&b"%2B"[..], b"%26", b"%3D"].iter().any(has)
}

/// The leftmost position of a piece, which must not be empty.
fn find(text: &[u8], piece: &[u8], budget: &mut StepBudget) -> Result<Option<usize>, StepsSpent> {
    let Some(last) = text.len().checked_sub(piece.len()) else { return Ok(None) };
    let mut from = 0;
    while from <= last {
        let found = memchr::memchr(piece[0], &text[from..=last]);
        budget.spend(3 + found.unwrap_or(last - from) / 64)?;
        let Some(at) = found.map(|at| from + at) else { return Ok(None) };
        if text[at..].starts_with(piece) {
            return Ok(Some(at));
        }
        budget.spend(piece.len() / 64)?;
        from = at + 1;
    }
    Ok(None)
}

/// The numbers of patterns that may match a path.
type Candidates = SmallVec<[u32; 32]>;

/// Finds candidates among many patterns by a trigram: three consecutive bytes that every matching path has. Each pattern is indexed by its
/// rarest trigram among all patterns; a path is looked up by each of its trigrams.
#[derive(Debug)]
struct Index {
    /// Index in `members` at which each bucket begins; the last entry is the end of the last bucket.
    starts: Box<[u32]>,
    members: Box<[u32]>,
    /// The patterns that have no trigram in every matching path.
    short: Box<[u32]>,
}

impl Index {
    fn new<T>(patterns: &[Star<T>], text: &PatternText) -> Self {
        let buckets = patterns.len().next_power_of_two();
        let own = |star: &Star<T>| {
            let (pattern, has_separators) = (text.at(star.place), star.has_separators);
            steps::count(pattern.len());
            let windows = pattern.windows(3).filter(move |window| !has_separators && !window.contains(&STAR));
            windows.map(move |window| {
                bucket(window.iter().fold(0, |window, &byte| window << 8 | u32::from(byte)), buckets)
            })
        };
        let mut starts = vec![0_u32; buckets + 1];
        for at in patterns.iter().flat_map(own) {
            starts[at] += 1;
        }
        let rarest: Vec<Option<usize>> = patterns.iter().map(|star| own(star).min_by_key(|&at| starts[at])).collect();
        starts.fill(0);
        for at in rarest.iter().flatten() {
            starts[at + 1] += 1;
        }
        for at in 0..buckets {
            starts[at + 1] += starts[at];
        }
        let mut members = vec![0; starts[buckets] as usize];
        let (mut next, mut short) = (starts.clone(), Vec::new());
        for (n, at) in (0..).zip(rarest) {
            match at {
                Some(at) => {
                    members[next[at] as usize] = n;
                    next[at] += 1;
                }
                None => short.push(n),
            }
        }
        Self { starts: starts.into(), members: members.into(), short: short.into() }
    }

    #[inline]
    fn members(&self, window: u32) -> &[u32] {
        let at = bucket(window, self.starts.len() - 1);
        let &[start, end] = &self.starts[at..at + 2] else { return &[] };
        if start == end { &[] } else { &self.members[start as usize..end as usize] }
    }

    fn heap_size(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.starts) + size_of_val(&*self.members) + size_of_val(&*self.short)
    }
}

/// The bucket of a trigram. `buckets` is a power of two.
#[inline]
fn bucket(window: u32, buckets: usize) -> usize {
    (window.wrapping_mul(0x9E37_79B1) >> (32 - buckets.trailing_zeros())) as usize
}

/// Maximum number of patterns that are tried one by one, without an index.
const MOST_WITHOUT_INDEX: usize = 64;
