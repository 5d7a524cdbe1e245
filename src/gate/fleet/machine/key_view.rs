//! Starts in a key's slot, and its state.

use crate::policy::pace::{LastStarts, Observed};
use std::time::{Duration, Instant};

/// A start under a gap, among the processes of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct MachineStart {
    pub gap: Duration,
    /// Whether this is the first fetch of a robots.txt. Those are not reserved, as requests keep no distance from them.
    pub is_fetch: bool,
    /// When it is reserved, in the key's own time.
    pub own: Option<u64>,
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
