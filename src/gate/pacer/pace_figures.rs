//! The figures of one key's pace.

use crate::policy::pace::{Observed, Schedule};
use std::time::{Duration, Instant};

/// One host's pace, for the status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaceFigures {
    pub waiting: usize,
    pub in_flight: u32,
    /// The part of the gap that is due to the origin's 429 and 503 answers.
    pub backoff: Duration,
    /// Time until the next request may start.
    pub owed: Duration,
    /// Time to first byte, smoothed. Zero: unknown or unused.
    pub latency: Duration,
    /// Consecutive refusals, if a breaker counts them.
    pub refusals: u32,
    /// Time for which the host is still paused because of these refusals.
    pub paused: Duration,
}

impl PaceFigures {
    pub(super) fn of<W>(schedule: &Schedule<W>, now: Instant) -> Self {
        let paused = schedule.paused_until(now).map_or(Duration::ZERO, |until| until - now);
        let (backoff, Observed { latency, refusals, .. }) = (schedule.backoff(), schedule.observed());
        let owed = schedule.owed(now).map_or(Duration::ZERO, |until| until - now);
        let (waiting, in_flight) = (schedule.waiting(), schedule.in_flight());
        Self { waiting, in_flight, backoff, owed, latency, refusals, paused }
    }

    pub(super) fn with_group(self, group: Self) -> Self {
        Self { waiting: self.waiting + group.waiting, owed: self.owed.max(group.owed), ..self }
    }
}
