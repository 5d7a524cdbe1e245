//! Patterns with stars: how they are written into a rule set's octets, and matched there. Between stars are only
//! literals, so the leftmost place of each is enough: no backtracking. RFC 9309 §2.2.3. Pure. Used by `trie`, `matcher`.

use super::blob::{Cursor, push_number, push_u32};
use super::pattern::{Arena, Pattern, PatternKind};
use super::rank::{Rank, Ranking};

/// Appends one pattern: its length here, its rank, then its pieces, an anchored one first.
pub(crate) fn write(blob: &mut Vec<u8>, arena: &Arena, pattern: &Pattern, rank: Rank) {
    let mut pieces = arena.pieces(pattern);
    let suffix = match pattern.kind {
        PatternKind::AnchoredPieces => pieces.next_back(),
        PatternKind::Prefix | PatternKind::Exact | PatternKind::Pieces => None,
    };
    let mut entry = Vec::with_capacity(16 + pattern.octets);
    push_u32(&mut entry, rank.low());
    push_number(&mut entry, pattern.octets);
    entry.push(u8::from(suffix.is_some()));
    for piece in suffix.into_iter().chain(pieces) {
        push_number(&mut entry, piece.len());
        entry.extend_from_slice(&arena.text()[piece]);
    }
    push_number(blob, entry.len());
    blob.extend_from_slice(&entry);
}

/// The rank of the first of `count` patterns, the strongest first, that is stronger than `best` and matches `path`,
/// which is what follows the literal that they begin with.
pub(crate) fn best_of(mut list: Cursor<'_>, count: usize, path: &[u8], ranking: Ranking, best: Rank) -> Option<Rank> {
    for _ in 0..count {
        let len = list.number();
        let mut entry = Cursor::new(list.take(len));
        let low = entry.u32();
        let rank = ranking.rank(entry.number(), low);
        if rank <= best {
            return None;
        }
        if matches(entry, path) {
            return Some(rank);
        }
    }
    None
}

fn matches(mut entry: Cursor<'_>, path: &[u8]) -> bool {
    let mut rest = path;
    if entry.u8() == 1 {
        let len = entry.number();
        let Some(before) = rest.strip_suffix(entry.take(len)) else {
            return false;
        };
        rest = before;
    }
    while !entry.is_empty() {
        let len = entry.number();
        let piece = entry.take(len);
        let Some(at) = find(rest, piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

/// The leftmost place of a piece, which is never empty.
#[inline]
fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    if text.len() < piece.len() {
        return None;
    }
    if text.len() > LONG {
        return memchr::memmem::find(text, piece);
    }
    let last = text.len() - piece.len();
    let mut from = 0;
    while from <= last {
        let at = from + memchr::memchr(piece[0], &text[from..=last])?;
        if text[at..].starts_with(piece) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Above it, the set-up of a linear search is worth its while.
const LONG: usize = 256;
