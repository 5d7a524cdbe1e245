//! Patterns with stars: how they are written into a rule set's bytes, and matched there. Between stars are only
//! literals, so the leftmost place of each is enough: no backtracking. RFC 9309 §2.2.3. Pure.
//!
//! ```text
//! low half of the priority (4 bytes), bytes that the priority counts (2), length of all pieces (2),
//! two of the rarest kinds of bytes in them, the highest bit of the first set if anchored (2),
//! each piece: its length, the piece; an anchored last piece comes first
//! ```

use super::encoded::{Cursor, push_number, push_u16, push_u32};
use super::pattern::{Arena, Pattern, PatternKind};
use crate::robots::byte_set::ByteSet;
use crate::robots::priority::{Priority, PriorityScheme};

/// Appends one pattern.
pub(crate) fn write(blob: &mut Vec<u8>, arena: &Arena, pattern: &Pattern, priority: Priority) {
    let mut pieces = arena.pieces(pattern);
    let suffix = match pattern.kind {
        PatternKind::AnchoredPieces => pieces.next_back(),
        PatternKind::Prefix | PatternKind::Exact | PatternKind::Pieces => None,
    };
    let anchored = if suffix.is_some() { ANCHORED } else { 0 };
    push_u32(blob, priority.low());
    push_u16(blob, pattern.bytes);
    let header = blob.len();
    blob.extend_from_slice(&[0; 4]);
    let mut byte_set = ByteSet::default();
    for piece in suffix.into_iter().chain(pieces) {
        let piece = &arena.text()[piece];
        byte_set = byte_set.with(ByteSet::of(piece));
        push_number(blob, piece.len());
        blob.extend_from_slice(piece);
    }
    let len = u16::try_from(blob.len() - header - 4).expect("a line is cut at 20,000 bytes");
    let [rarest, second] = byte_set.two_rarest();
    blob[header..header + 2].copy_from_slice(&len.to_le_bytes());
    blob[header + 2..header + 4].copy_from_slice(&[rarest | anchored, second]);
}

/// Begins a list of so many patterns, the strongest first.
pub(crate) fn begin(blob: &mut Vec<u8>, count: usize) {
    push_u32(blob, u32::try_from(count).expect("fewer patterns than bytes"));
}

/// Of a list, the priority of the first pattern that is stronger than `best` and matches `path`, which is what follows the
/// literal that they begin with, and holds bytes of these kinds only.
#[inline]
pub(crate) fn best_of(
    list: &[u8],
    path: &[u8],
    byte_set: ByteSet,
    scheme: PriorityScheme,
    best: Priority,
) -> Option<Priority> {
    let (count, mut list) = list.split_first_chunk()?;
    for _ in 0..u32::from_le_bytes(*count) {
        let (header, rest) = list.split_first_chunk::<10>()?;
        let [l0, l1, l2, l3, o0, o1, n0, n1, rarest, second] = *header;
        let len = usize::from(u16::from_le_bytes([n0, n1]));
        // Most patterns are ruled out by a byte that the path has not.
        if byte_set.have(rarest, second) {
            let priority = scheme.priority(u16::from_le_bytes([o0, o1]).into(), u32::from_le_bytes([l0, l1, l2, l3]));
            if priority <= best {
                return None;
            }
            if matches(rest.get(..len)?, rarest & ANCHORED != 0, path) {
                return Some(priority);
            }
        }
        list = rest.get(len..)?;
    }
    None
}

#[inline(never)]
fn matches(pieces: &[u8], anchored: bool, path: &[u8]) -> bool {
    let mut pieces = Cursor::new(pieces);
    let mut rest = path;
    if anchored {
        let len = pieces.number();
        let Some(before) = rest.strip_suffix(pieces.take(len)) else {
            return false;
        };
        rest = before;
    }
    while !pieces.is_empty() {
        let len = pieces.number();
        let piece = pieces.take(len);
        let Some(at) = find(rest, piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

/// The leftmost place of a piece, which is never empty.
fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    if text.len() > LONG {
        return memchr::memmem::find(text, piece);
    }
    let last = text.len().checked_sub(piece.len())?;
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

const ANCHORED: u8 = 128;
