//! What is asked of a key's slot, and what it says.

use crate::policy::pace::{LastStarts, Observed};
use std::time::{Duration, Instant};

/// A start under a gap, among the processes of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct MachineStart {
    pub gap: Duration,
    /// Whether it is the first fetch of a robots.txt.
    pub is_fetch: bool,
}

/// How a key stands, by the starts of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct MachineView {
    pub starts: LastStarts,
    /// The end of the longest gap that is owed.
    pub owed: Option<Instant>,
    pub backoff: Duration,
    pub observed: Observed,
}
