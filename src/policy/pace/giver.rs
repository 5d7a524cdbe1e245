//! Who gives a lane's turns: itself, or the fleet of instances that share the key (SEMANTICS §5, fleet). Kept up by
//! `gate::pacer`.

use std::time::{Duration, Instant};

use super::terms::{Demand, Start};

/// Who gives the turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Giver {
    /// The lane.
    #[default]
    Lane,
    /// The fleet, wherever a gap or a backoff is in force. The lane's own marks hold beside.
    Fleet(Share),
    /// The lane, as the fleet cannot be asked: it keeps each gap once for each instance.
    Parted { instances: u32 },
}

/// How a lane stands in its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The fleet has said how the key stands, and that holds still. Until then every start is the fleet's to give.
    pub known: bool,
    /// The next start is given to this lane.
    pub turn: bool,
    /// Foreseen for its next turn.
    pub not_before: Option<Instant>,
    /// Instances that want the key now, this one included: each has a turn in its turn.
    pub rivals: u32,
}

/// A turn to be asked for: what the head of the line needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub gap: Duration,
    /// It keeps the turn until it has finished: nobody else may be in flight.
    pub exclusive: bool,
    pub first_fetch: bool,
    /// The most that is kept of a backoff.
    pub max_delay: Duration,
}

impl Giver {
    /// Whether a start is the fleet's to give.
    pub(super) fn is_asked(&self, demand: Demand, backoff: Duration) -> bool {
        match self {
            Self::Lane | Self::Parted { .. } => false,
            Self::Fleet(share) => !share.known || !demand.delay.is_zero() || !backoff.is_zero(),
        }
    }

    /// Whether it has been given.
    pub(super) fn has_turn(&self) -> bool {
        matches!(self, Self::Fleet(Share { turn: true, .. }))
    }

    pub(super) fn use_turn(&mut self) {
        if let Self::Fleet(share) = self {
            share.turn = false;
        }
    }

    /// What starts have to keep.
    pub(super) fn tempo(&self, backoff: Duration) -> Tempo {
        let times = match self {
            Self::Lane | Self::Fleet(_) => 1,
            Self::Parted { instances } => *instances,
        };
        Tempo { backoff, times, not_before: None }
    }

    /// What they are expected to find.
    pub(super) fn forecast(&self, backoff: Duration) -> Tempo {
        match self {
            Self::Lane | Self::Parted { .. } => self.tempo(backoff),
            Self::Fleet(share) => Tempo { backoff, times: share.rivals, not_before: share.not_before },
        }
    }
}

/// What the gaps of a lane come to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tempo {
    backoff: Duration,
    times: u32,
    not_before: Option<Instant>,
}

impl Tempo {
    pub fn gap(&self, demand: Demand) -> Duration {
        let gap = demand.delay.max(self.backoff);
        if self.times > 1 { gap.saturating_mul(self.times) } else { gap }
    }

    pub fn not_before(&self) -> Option<Instant> {
        self.not_before
    }
}

/// The longest that asking the fleet takes.
pub(super) const ASKING: Duration = Duration::from_millis(500);

impl Want {
    pub(super) fn new(demand: Demand, limit: u32, max_delay: Duration) -> Self {
        let first_fetch = demand.start == Start::FirstFetch;
        Self { gap: demand.delay, exclusive: limit == 1, first_fetch, max_delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::{Client, Lane, Next, Outcome, Refused, Terms, Turn};

    const A: Client = Client(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn delay(crawl_delay: u64) -> Terms {
        Terms { crawl_delay: ms(crawl_delay), ..Terms::default() }
    }

    fn fleet(known: bool, turn: bool) -> Giver {
        Giver::Fleet(Share { known, turn, not_before: None, rivals: 1 })
    }

    fn lane(giver: Giver) -> (Lane<&'static str>, Instant) {
        let mut lane = Lane::default();
        lane.given_by(giver);
        (lane, Instant::now())
    }

    #[test]
    fn where_a_gap_is_in_force_the_fleet_gives_each_turn() {
        let (mut lane, now) = lane(fleet(true, false));
        assert!(matches!(lane.request(now, A, &delay(1000), || "it"), Turn::Wait { .. }));
        let want = lane.wants_turn().unwrap();
        assert_eq!((want.gap, want.exclusive, want.first_fetch), (ms(1000), true, false));
        assert_eq!(lane.poll(now), Next::WaitUntil(now + Terms::default().max_wait), "whoever gives it wakes the line");
        lane.given_by(fleet(true, true));
        assert_eq!(lane.wants_turn(), None);
        let Next::Start("it", slot) = lane.poll(now) else { panic!("it has its turn") };
        assert!(slot.is_shared() && slot.is_exclusive());
        lane.finished(|| now, slot, Outcome::Success);
        // The turn is used, and would be too early anyway.
        assert!(matches!(lane.request(now + ms(1000), A, &delay(1000), || "next"), Turn::Wait { .. }));
        assert!(lane.wants_turn().is_some());
    }

    #[test]
    fn its_own_marks_hold_beside_the_turn() {
        let (mut lane, now) = lane(fleet(true, true));
        let Turn::Go(slot) = lane.request(now, A, &delay(1000), || "") else { panic!("its turn") };
        lane.finished(|| now, slot, Outcome::Success);
        lane.given_by(fleet(true, true));
        assert!(matches!(lane.request(now, A, &delay(1000), || "it"), Turn::Wait { .. }));
        assert_eq!(lane.poll(now), Next::WaitUntil(now + ms(1000)));
        assert!(matches!(lane.poll(now + ms(1000)), Next::Start("it", _)));
    }

    #[test]
    fn without_a_gap_nobody_is_asked_once_the_key_is_known() {
        let (mut lane, now) = lane(fleet(false, false));
        assert!(matches!(lane.request(now, A, &delay(0), || "it"), Turn::Wait { .. }));
        assert!(lane.wants_turn().is_some());
        lane.given_by(fleet(true, false));
        assert_eq!(lane.wants_turn(), None);
        assert!(matches!(lane.poll(now), Next::Start("it", _)));
        let Turn::Go(slot) = lane.request(now, A, &delay(0), || "") else { panic!("at once") };
        assert!(!slot.is_shared());
        // A backoff makes the turns the fleet's.
        lane.adopt(now, ms(2000), ms(2000));
        assert!(matches!(lane.request(now, A, &delay(0), || "it"), Turn::Wait { until: Some(_), .. }));
        assert!(lane.wants_turn().is_some());
        lane.adopt(now, Duration::ZERO, Duration::ZERO);
        assert_eq!(lane.wants_turn(), None, "and its end makes them its own");
    }

    #[test]
    fn who_may_not_wait_may_ask() {
        let terms = Terms { max_wait: Duration::ZERO, queue: 0, ..delay(1000) };
        let (mut lane, now) = lane(fleet(true, false));
        assert!(matches!(lane.request(now, A, &terms, || "it"), Turn::Wait { .. }));
        let told = now + ms(1);
        lane.given_by(Giver::Fleet(Share { known: true, turn: false, not_before: Some(told + ms(5000)), rivals: 2 }));
        assert_eq!(lane.poll(told), Next::Refuse("it", Refused::TooLong { retry_after: ms(5000) }));
        assert_eq!(
            lane.request(told, A, &terms, || "it"),
            Turn::Refuse(Refused::TooLong { retry_after: ms(5000) }),
            "and no more once it is known to be in vain"
        );
    }

    #[test]
    fn a_line_moves_on_once_for_each_rival() {
        let (mut lane, now) = lane(Giver::Fleet(Share { known: true, turn: false, not_before: None, rivals: 3 }));
        for _ in 0..3 {
            assert!(matches!(lane.request(now, A, &delay(1000), || ""), Turn::Wait { .. }));
        }
        assert_eq!(lane.forecast(now, A, &delay(1000)), now + ms(9000));
    }

    #[test]
    fn parted_each_keeps_every_gap_once_for_each_instance() {
        let (mut lane, now) = lane(Giver::Parted { instances: 3 });
        let Turn::Go(slot) = lane.request(now, A, &delay(1000), || "") else { panic!("at once") };
        lane.finished(|| now, slot, Outcome::Success);
        assert_eq!(lane.forecast(now, A, &delay(1000)), now + ms(3000));
        // Back in the fleet its own last start still counts.
        lane.given_by(fleet(true, true));
        assert!(matches!(lane.request(now, A, &delay(1000), || "it"), Turn::Wait { until: Some(_), .. }));
    }
}
