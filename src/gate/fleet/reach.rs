//! Whether the fleet can be asked, and what to do otherwise.

use super::clock::ServerClock;
use crate::policy::Refusal;
use crate::policy::pace::{Phase, Shares};
use crate::since_boot::since_boot;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Whether the fleet can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::gate) struct Reach {
    /// Number of the server, from 1; a server that may have lost its data gets a new number. 0: no server.
    pub link: u64,
    /// The server's clock. `None`: there is none.
    pub clock: Option<ServerClock>,
    /// With a server, starts are reserved from then on; without, this instance starts alone from then on: all others have noticed.
    pub settled_at: Option<Instant>,
    /// The number of instances, and of those that can ask the server.
    pub shares: Shares,
    /// Total time that the machine was suspended: the server's clock includes it, `Instant` does not.
    pub slept: Duration,
    /// This instance's part of the time while the fleet does not answer. `None`: nothing starts.
    pub alone: Option<Phase>,
    /// Nothing starts because the number of instances is unknown.
    pub is_uncounted: bool,
}

impl Reach {
    /// Why requests are refused, if they are.
    pub fn refusal(self) -> Option<Refusal> {
        let is_uncounted = self.is_uncounted;
        (self.link == 0 && self.alone.is_none()).then_some(Refusal::FleetLost { retry_after: COME_BACK, is_uncounted })
    }
}

/// Suspended time since the first call, never too much: losing the processor between the two clock readings lowers it.
pub(super) fn slept() -> Duration {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| (since_boot(), Instant::now()));
    let (first, at) = *FIRST;
    since_boot().saturating_sub(first).saturating_sub(at.elapsed())
}

/// The server cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct ServerLost;

/// The server is tried about as often.
const COME_BACK: Duration = Duration::from_secs(2);
