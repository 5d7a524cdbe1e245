//! An instance's view of its fleet: the number of instances, its rank among them, and the server's clock. Pure.

use super::clock::ServerClock;
use crate::policy::pace::{Phase, Shares};
use std::time::Instant;

/// The server's last report, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership {
    /// Instances connected to the server.
    pub connected: u32,
    /// Connected and missing instances.
    pub instances: u32,
    rank: u32,
    /// Other instances that still report their debts to the server.
    pub telling: u32,
    pub clock: ServerClock,
}

/// The reply to a registration (`instances.lua`): the number of connected instances, the number of all, this instance's rank, whether it
/// was registered before, how many others still report their debts, and the server's time in microseconds.
pub(super) type BeatReply = (u32, u32, u32, bool, u32, u64);

impl Membership {
    /// The state before any report. The instance's time slices begin at random times.
    pub fn unknown(now: Instant) -> Self {
        Self { connected: 0, instances: 0, rank: 0, telling: 0, clock: ServerClock::unknown(now) }
    }

    /// Adds the reply to a registration that was sent at `asked` and answered at `now`.
    pub fn heard(self, reply: BeatReply, asked: Instant, now: Instant) -> Self {
        let (connected, instances, rank, _, telling, micros) = reply;
        let clock = self.clock.heard(micros, asked, now);
        Self { connected: connected.max(1), instances: instances.max(1), rank, telling, clock }
    }

    /// Whether the server has reported since this instance was started.
    pub fn is_known(&self) -> bool {
        self.instances > 0
    }

    /// The number of connected instances and of all instances. `least`: the configured number.
    pub fn shares(&self, least: u32) -> Shares {
        Shares { connected: self.connected.max(1), instances: self.instances.max(least).max(1) }
    }

    /// The time slices of this instance among at least `least` instances. `None`: the number of instances is unknown.
    pub fn phase(&self, least: u32) -> Option<Phase> {
        let instances = self.instances.max(least);
        (instances > 0).then_some(Phase { instances, rank: self.rank, epoch: self.clock.epoch() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_known_and_configured_instances() {
        let now = Instant::now();
        let unknown = Membership::unknown(now);
        assert_eq!((unknown.is_known(), unknown.phase(0)), (false, None));
        assert_eq!(unknown.phase(4).map(|phase| phase.instances), Some(4));
        let membership = unknown.heard((2, 3, 1, true, 0, 0), now, now);
        assert_eq!(membership.shares(0), Shares { connected: 2, instances: 3 });
        assert_eq!(membership.shares(5), Shares { connected: 2, instances: 5 });
        let phase = membership.phase(2).unwrap();
        assert_eq!((phase.instances, phase.rank), (3, 1));
    }
}
