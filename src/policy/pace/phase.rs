//! The pace of a partitioned instance: each instance has its own part of the time. Pure.

use std::time::{Duration, Instant};

/// One instance's rank among several that go on without asking each other. The common clock is divided into periods of `instances` gaps,
/// and each instance owns one gap of each period: with a gap of 2 s, the second of three starts at 2, 8, 14 s …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// With 1, all of the time is this instance's.
    pub instances: u32,
    /// Counted from 0.
    pub rank: u32,
    /// When the common clock showed 0, by the local clock.
    pub epoch: Instant,
}

impl Phase {
    /// The first beginning of this instance's part at or after `at`. `gap`: not zero.
    pub(super) fn next(&self, at: Instant, gap: Duration) -> Instant {
        match self.since(at, gap) {
            Duration::ZERO => at,
            since => at + (gap.saturating_mul(self.instances).saturating_sub(since)),
        }
    }

    /// Whether `at` is in this instance's part.
    pub(super) fn has(&self, at: Instant, gap: Duration) -> bool {
        self.since(at, gap) < gap
    }

    /// Time since this instance's part last began.
    fn since(&self, at: Instant, gap: Duration) -> Duration {
        let gap = gap.as_nanos();
        let period = gap * u128::from(self.instances);
        let begins = gap * u128::from(self.rank % self.instances);
        let since = (at.duration_since(self.epoch).as_nanos() + period - begins) % period;
        Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }
}
