//! Bodies of any size that need not be held in memory: byte `i` is a function of `i`, so that a receiver can check that each piece is
//! the right one at the right place.

use std::sync::OnceLock;

/// A prime, so that pieces lost, repeated or shifted by a buffer's length are detected.
const PERIOD: usize = 65_521;
/// The longest slice that `piece` returns.
pub const PIECE: usize = 64 * 1024;

/// The bytes from `offset` on, at most [`PIECE`] of them and at most to `end`.
pub fn piece(offset: u64, end: u64) -> &'static [u8] {
    let start = (offset % PERIOD as u64) as usize;
    let length = end.saturating_sub(offset).min(PIECE as u64) as usize;
    &table()[start..start + length]
}

/// Checks a stream of pieces as they come.
#[derive(Clone, Debug)]
pub struct Checker {
    length: u64,
    intact: bool,
}

impl Default for Checker {
    fn default() -> Self {
        Self { length: 0, intact: true }
    }
}

impl Checker {
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = bytes.len().min(PIECE);
            let expected = piece(self.length, self.length + now as u64);
            self.intact &= &bytes[..now] == expected;
            self.length += now as u64;
            bytes = &bytes[now..];
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether everything received is the pattern from its start.
    pub fn is_intact(&self) -> bool {
        self.intact
    }
}

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut state = 0x2545_f491_u32;
        let period: Vec<u8> = (0..PERIOD)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        period.iter().chain(&period).chain(&period).copied().collect()
    })
}
