//! A start of one of the machine's processes, and the state of its key.

use crate::policy::pace::{LastStarts, Observed};
use std::time::{Duration, Instant};

/// The start of a request by a process of this machine, and its gap to the previous start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct MachineStart {
    pub gap: Duration,
    /// Whether this is the first fetch of a robots.txt. The start of such a fetch is not reserved, as the next request need not keep a gap
    /// to it.
    pub is_fetch: bool,
    /// The reserved time, in the key's own time (`order`). `None`: not reserved.
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

/// A key's state, which includes the starts of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct MachineView {
    pub starts: LastStarts,
    /// The newest start that a process has reserved.
    pub newest: Option<Instant>,
    /// The end of the longest gap owed.
    pub owed: Option<Instant>,
    pub observed: Observed,
}
