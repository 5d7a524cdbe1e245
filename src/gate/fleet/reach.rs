//! Whether the fleet can be asked, and what follows where it cannot.

use super::clock::ServerClock;
use crate::policy::Refusal;
use crate::policy::pace::{Phase, Shares};
use rustix::time::{ClockId, clock_gettime};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Whether the fleet can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::gate) struct Reach {
    /// At this server, counted from 1, one that may have forgotten as another; 0: at none.
    pub link: u64,
    /// Its clock. `None`: there is none.
    pub clock: Option<ServerClock>,
    /// Starts are reserved from then on; without a server, this instance starts something by itself: all others have noticed.
    pub settled_at: Option<Instant>,
    /// How many can ask it, of how many.
    pub shares: Shares,
    /// For how long the machine has been suspended so far: the server has counted that time, and `Instant` has not.
    pub slept: Duration,
    /// Where the fleet does not answer, this instance goes on in this part of the time. `None`: nothing starts.
    pub alone: Option<Phase>,
    /// If nothing starts, that is as nobody knows how many instances there are.
    pub is_uncounted: bool,
}

impl Reach {
    /// Why nothing goes, if that is so.
    pub fn refusal(self) -> Option<Refusal> {
        let is_uncounted = self.is_uncounted;
        (self.link == 0 && self.alone.is_none()).then_some(Refusal::FleetLost { retry_after: COME_BACK, is_uncounted })
    }
}

/// Since the first look, and never more than that: who loses the processor between the two clocks sees less.
pub(super) fn slept() -> Duration {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| (with_sleep(), Instant::now()));
    let (first, at) = *FIRST;
    with_sleep().saturating_sub(first).saturating_sub(at.elapsed())
}

/// By a clock that a suspended machine does not stop.
fn with_sleep() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    // On macOS it goes on, and that of `Instant` does not.
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// The server cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct ServerLost;

/// The server is tried about as often.
const COME_BACK: Duration = Duration::from_secs(2);
