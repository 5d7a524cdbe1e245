//! Figures on a host's pace, for the status and metrics.

use std::time::Duration;

/// One host's pace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaceFigures {
    pub waiting: usize,
    pub in_flight: u32,
    /// The part of the gap that is due to the origin's 429 and 503 answers.
    pub backoff: Duration,
    /// Nothing starts within this time.
    pub owed: Duration,
    /// To the first byte of an answer, smoothed; zero: not known, or not asked for.
    pub latency: Duration,
    /// Answers in a row that turned requests away, where a breaker counts them.
    pub refusals: u32,
    /// For so long it is left alone for that.
    pub paused: Duration,
}
