//! What an instance knows of its fleet: how many there are, its own place among them, and the server's clock. Pure.

use crate::policy::pace::{Phase, Shares};
use std::time::{Duration, Instant};

/// As the server last said, if it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership {
    /// Those that tell the server so.
    pub connected: u32,
    /// With those that are missing.
    pub instances: u32,
    rank: u32,
    clock: ServerClock,
}

/// What the server has answered to a beat (`instances.lua`): connected, all, rank, whether this instance was known, microseconds.
pub(super) type BeatReply = (u32, u32, u32, bool, u64);

/// An estimate of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerClock {
    /// When it showed 0, by ours.
    epoch: Instant,
    /// What it is off by, at most twice.
    round_trip: Duration,
    estimated_at: Instant,
}

impl Membership {
    /// Of one that the server has told nothing. Its part of the time is anywhere.
    pub fn unknown(now: Instant) -> Self {
        let epoch = before(now, Duration::from_millis(fastrand::u64(..DAY)));
        let clock = ServerClock { epoch, round_trip: Duration::MAX, estimated_at: now };
        Self { connected: 0, instances: 0, rank: 0, clock }
    }

    /// The answer to a beat that was sent at `asked` and answered at `now`.
    pub fn heard(self, (connected, instances, rank, _, micros): BeatReply, asked: Instant, now: Instant) -> Self {
        let round_trip = now - asked;
        let is_old = now - self.clock.estimated_at > KEEPS_TIME;
        let clock = if is_old || round_trip <= self.clock.round_trip {
            let epoch = before(asked + round_trip / 2, Duration::from_micros(micros));
            ServerClock { epoch, round_trip, estimated_at: now }
        } else {
            self.clock
        };
        Self { connected: connected.max(1), instances: instances.max(1), rank, clock }
    }

    /// Whether the server has said anything since this instance was started.
    pub fn is_known(&self) -> bool {
        self.instances > 0
    }

    /// `least`: as many are configured.
    pub fn shares(&self, least: u32) -> Shares {
        Shares { connected: self.connected.max(1), instances: self.instances.max(least).max(1) }
    }

    /// The place among at least so many. `None`: nobody knows how many they are.
    pub fn phase(&self, least: u32) -> Option<Phase> {
        let instances = self.instances.max(least);
        (instances > 0).then_some(Phase { instances, rank: self.rank, epoch: self.clock.epoch })
    }
}

/// Instants reach back further than the machine has been up.
fn before(at: Instant, by: Duration) -> Instant {
    at.checked_sub(by).unwrap_or(at)
}

/// Milliseconds.
const DAY: u64 = 24 * 3600 * 1000;
/// After that another estimate is better, however long its round trip took: clocks drift, and are set.
const KEEPS_TIME: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A server that was at 0 an hour before `zero`.
    fn says(at: Duration) -> BeatReply {
        (2, 3, 1, true, u64::try_from((HOUR + at).as_micros()).unwrap())
    }

    /// By how much the estimate is off.
    fn off(membership: &Membership, zero: Instant) -> Duration {
        let epoch = membership.phase(1).unwrap().epoch;
        let real = zero - HOUR;
        epoch.max(real) - epoch.min(real)
    }

    #[test]
    fn the_clock_is_that_of_the_quickest_answer_of_the_last_minute() {
        let zero = Instant::now();
        // 80 ms there, none back; then 10 and 12; then 300 and 0.
        let membership = Membership::unknown(zero).heard(says(ms(80)), zero, zero + ms(80));
        assert_eq!(off(&membership, zero), ms(40));
        let membership = membership.heard(says(ms(1010)), zero + ms(1000), zero + ms(1022));
        assert_eq!(off(&membership, zero), ms(1));
        let slow = |membership: Membership, at| membership.heard(says(at + ms(300)), zero + at, zero + at + ms(300));
        let membership = slow(membership, ms(2000));
        assert_eq!(off(&membership, zero), ms(1));
        assert_eq!(off(&slow(membership, ms(62_000)), zero), ms(150), "clocks drift");
    }

    #[test]
    fn as_many_are_missing_as_were_there_or_are_configured() {
        let now = Instant::now();
        let unknown = Membership::unknown(now);
        assert_eq!((unknown.is_known(), unknown.phase(0)), (false, None));
        assert_eq!(unknown.phase(4).map(|phase| phase.instances), Some(4));
        let membership = unknown.heard(says(ms(0)), now, now);
        assert_eq!(membership.shares(0), Shares { connected: 2, instances: 3 });
        assert_eq!(membership.shares(5), Shares { connected: 2, instances: 5 });
        let phase = membership.phase(2).unwrap();
        assert_eq!((phase.instances, phase.rank), (3, 1));
    }
}
