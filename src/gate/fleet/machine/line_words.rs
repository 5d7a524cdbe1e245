//! The words of a key's lines (requests with the same delay): each has a time in microseconds and the number of its line.

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
