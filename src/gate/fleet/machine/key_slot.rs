//! What the processes of a machine know of one key, and how it is laid out in their file.

use super::clock::{nanos, span};
use crate::policy::pace::{LastStarts, Observed};
use std::time::Duration;

/// What is known of a key; 0 is never, and nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KeySlot {
    pub tag: u64,
    /// Who has the lease, or has had it last.
    pub by: u64,
    pub last_start: u64,
    pub last_fetch: u64,
    /// The last of them had yet to be seen to leave. A bit of `last_start` in the file.
    pub leaving: bool,
    /// When that one gave it up.
    pub given: u64,
    pub hold: u64,
    pub backoff: u64,
    /// Then nothing of this matters any more.
    pub until: u64,
    pub latency: u64,
    pub refusals: u64,
}

impl KeySlot {
    pub fn of(row: [u64; NUMBERS]) -> Self {
        let [tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals] = row;
        let (leaving, last_start) = (last_start & LEAVING != 0, last_start & !LEAVING);
        Self { tag, by, last_start, last_fetch, leaving, given, hold, backoff, until, latency, refusals }
    }

    pub fn row(&self) -> [u64; NUMBERS] {
        let Self { tag, by, last_start, last_fetch, leaving, given, hold, backoff, until, latency, refusals } = *self;
        let last_start = if leaving { last_start | LEAVING } else { last_start };
        [tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals]
    }

    /// The same slot with its instants moved by `to - from`, as if no time had passed between the two.
    pub fn moved(self, from: u64, to: u64) -> Self {
        let moved = |at: u64| if at == 0 { 0 } else { at.saturating_add(to).saturating_sub(from).max(1) };
        let [last_start, last_fetch, given, hold, until] =
            [self.last_start, self.last_fetch, self.given, self.hold, self.until].map(moved);
        Self { last_start, last_fetch, given, hold, until, ..self }
    }

    pub fn learn(&mut self, starts: LastStarts) {
        self.last_start = self.last_start.max(starts.last_start.map_or(0, nanos));
        self.last_fetch = self.last_fetch.max(starts.last_fetch.map_or(0, nanos));
    }

    /// When the next may start.
    pub fn due(&self, gap: Duration) -> u64 {
        self.last_start.saturating_add(span(gap.max(self.backoff()))).max(self.hold)
    }

    pub fn holds_back(&self, now: u64) -> bool {
        self.backoff != 0 || self.hold > now
    }

    pub fn backoff(&self) -> Duration {
        Duration::from_nanos(self.backoff)
    }

    pub fn observed(&self) -> Observed {
        let refusals = u32::try_from(self.refusals).unwrap_or(u32::MAX);
        Observed { latency: Duration::from_nanos(self.latency), refusals }
    }
}

/// Of one in the file.
pub(super) const NUMBERS: usize = 10;
/// In 292 years.
const LEAVING: u64 = 1 << 63;
