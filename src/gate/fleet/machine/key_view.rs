//! Starts in a key's slot, and its state.

use crate::policy::pace::{LastStarts, Observed};
use std::time::{Duration, Instant};

/// A start under a gap, among the processes of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct MachineStart {
    pub gap: Duration,
    /// Whether this is the first fetch of a robots.txt.
    pub is_fetch: bool,
}

/// A start that a process has reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Reserved {
    pub start: MachineStart,
    /// In the key's own time.
    pub(super) own: u64,
}

/// Result of asking for a key's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum MachineTurn {
    Taken,
    NotBefore(Instant),
    /// Another process has the turn.
    Busy,
}

/// A key's state, by the starts of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct MachineView {
    pub starts: LastStarts,
    /// The newest start that a process has reserved.
    pub newest: Option<Instant>,
    /// The end of the longest gap owed.
    pub owed: Option<Instant>,
    pub observed: Observed,
}
