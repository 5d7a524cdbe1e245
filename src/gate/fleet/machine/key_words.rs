//! The words of a key's slot. Those of its lines (requests with the same delay) have a time in microseconds and the number of the line.

/// Where a line has its word, or is to have it: in place of the one that was used least recently, which then counts from the last
/// start of any, and so from no earlier one.
pub(super) struct LinePlace {
    pub word: usize,
    pub value: u64,
    pub at: u64,
    pub is_there: bool,
}

pub(super) fn place_of(line: u16, words: &[(usize, u64); LINES]) -> LinePlace {
    let own = words.iter().find(|(_, value)| *value != 0 && *value as u16 == line);
    let [first, ..] = words;
    let oldest = words.iter().fold(first, |oldest, word| if word.1 >> 16 < oldest.1 >> 16 { word } else { oldest });
    let &(word, value) = own.unwrap_or(oldest);
    LinePlace { word, value, at: value >> 16, is_there: own.is_some() }
}

pub(super) fn packed(at: u64, line: u16) -> u64 {
    at << 16 | u64::from(line)
}

/// Lines of a key that are told apart.
pub(super) const LINES: usize = 3;
/// Words of a slot.
pub(super) const WORDS: usize = 15;
pub(super) const TURN: usize = 0;
pub(super) const KEPT: usize = 1;
pub(super) const HOLD: usize = 2;
pub(super) const OWED: usize = 3;
pub(super) const BACKOFF: usize = 4;
pub(super) const LATENCY: usize = 5;
pub(super) const FETCH: usize = 6;
/// Who of those who wait is next, and when it last said so.
pub(super) const NEXT: usize = 7;
pub(super) const NEXT_SAID: usize = 8;
pub(super) const STARTS: [usize; LINES] = [9, 10, 11];
pub(super) const TAILS: [usize; LINES] = [12, 13, 14];
/// How often a site has refused.
pub(super) const LOW: u64 = 0xffff;
/// Bit of TURN, which has the process and the line of its request: that request may have left.
pub(super) const LEAVING: u64 = 1 << 48;
