//! Whether the fleet can be asked, and what follows where it cannot.

use crate::policy::Refusal;
use std::time::{Duration, Instant};

/// Whether the fleet can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::gate) struct Reach {
    /// At this server, counted from 1, one that may have forgotten as another; 0: at none.
    pub link: u64,
    /// Leases are asked for from then on.
    pub settled_at: Option<Instant>,
    /// Where the fleet does not answer one goes on alone, one of so many instances. `None`: nothing starts.
    pub alone: Option<u32>,
}

impl Reach {
    /// Why nothing goes, if that is so.
    pub fn refusal(self) -> Option<Refusal> {
        (self.link == 0 && self.alone.is_none()).then_some(Refusal::FleetLost { retry_after: COME_BACK })
    }
}

/// The server cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct ServerLost;

/// The server is tried about as often.
const COME_BACK: Duration = Duration::from_secs(2);
