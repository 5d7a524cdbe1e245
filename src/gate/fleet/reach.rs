//! Whether this instance can reach the fleet's server, and what applies while it cannot.

use super::clock::ServerClock;
use crate::policy::Refusal;
use crate::policy::pace::{Phase, Shares};
use rustix::time::{ClockId, clock_gettime};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The state of the fleet's server as seen by this instance, and the rules for starts while the server is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::gate) struct Reach {
    /// Number of the server, from 1; a server that may have lost its data gets a new number. 0: the server is lost. Without a server,
    /// always 1.
    pub link: u64,
    /// The server's clock. `None`: there is no server.
    pub clock: Option<ServerClock>,
    /// Time by which all instances have noticed that the server is lost or back. Lost: from then on, this instance starts requests in its
    /// time slices. Back: until then, no start is reserved; the time moves on until all instances have reported their debts, for at most
    /// five minutes. `None`: there is nothing to wait for.
    pub settled_at: Option<Instant>,
    /// The number of all instances, and the number of those that can ask the server.
    pub shares: Shares,
    /// Total time that the machine was suspended: the server's clock includes it, `Instant` does not.
    pub slept: Duration,
    /// The time slices in which this instance may start requests while it is cut off from the fleet. `None`: it starts nothing then; or
    /// there is no server, and it is not cut off.
    pub alone: Option<Phase>,
    /// If the server is lost and `alone` is `None`: whether the reason is that the number of instances is unknown.
    pub is_uncounted: bool,
}

impl Reach {
    /// The refusal for all requests, if any.
    pub fn refusal(self) -> Option<Refusal> {
        let is_uncounted = self.is_uncounted;
        (self.link == 0 && self.alone.is_none()).then_some(Refusal::FleetLost { retry_after: COME_BACK, is_uncounted })
    }
}

/// Suspended time since the first call. The result is never too long: an interruption between the two clock readings only shortens it.
pub(super) fn slept() -> Duration {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| (since_boot(), Instant::now()));
    let (first, at) = *FIRST;
    since_boot().saturating_sub(first).saturating_sub(at.elapsed())
}

/// Reads the time since boot, including the time that the machine slept, which `Instant` leaves out.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// The server cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct ServerLost;

/// Retry-After: an instance tries to reach the server at about this interval.
const COME_BACK: Duration = Duration::from_secs(2);
