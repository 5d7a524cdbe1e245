//! What is asked of a key's slot, and what it says. Times are microseconds (`clock`).

use crate::policy::pace::Observed;
use std::time::Duration;

/// What a key's slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KeyView {
    /// 0 is never.
    pub last_start: u64,
    pub last_fetch: u64,
    pub hold: u64,
    /// The end of the longest gap that is owed.
    pub owed: u64,
    pub backoff: Duration,
    pub observed: Observed,
}

/// A start as it is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotStart {
    /// The line in which it keeps its gap.
    pub line: u16,
    pub gap: u64,
    /// The first fetch of a robots.txt, from which requests keep no distance.
    pub is_fetch: bool,
}

/// What comes of asking for the key's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotTurn {
    Taken,
    NotBefore(u64),
    /// That process has it, or had it when it ended: if it has, `KeySlot::bury`.
    Of {
        process: u32,
        word: u64,
    },
    /// Another process is next.
    Behind,
    /// The words are another key's by now.
    Gone,
}
