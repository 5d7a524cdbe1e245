//! The source that grants a schedule's starts: the schedule itself, or the fleet that shares the key (docs/fleet.md).

use std::time::{Duration, Instant};

use super::terms::SlotRequest;

/// The source that grants starts. In each case the gap to the schedule's own last starts applies as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnSource {
    /// This schedule alone grants starts.
    #[default]
    Own,
    /// The fleet: while a gap or a backoff is in force, each start is reserved.
    Fleet {
        /// Whether the key's state in the fleet is known and current. Otherwise, every start is reserved.
        known: bool,
        /// Whether the next waiting request has the turn: its reserved start is due in the fleet, or this process has taken the key's turn
        /// among those of its machine.
        has_turn: bool,
        /// Number of instances that want the key now, including this one.
        rivals: u32,
        /// The start reserved for the next waiting request. Nothing starts before it.
        reserved: Option<Instant>,
        shares: Shares,
    },
    /// This schedule, only in its instance's time slices, as the fleet is unreachable.
    Partitioned(Phase),
}

/// The number of all instances, and of the connected ones. A missing instance may continue alone, so the connected ones leave its share of
/// the rate unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    pub instances: u32,
    /// Number of instances that share starts, at least 1.
    pub connected: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self { instances: 1, connected: 1 }
    }
}

impl TurnSource {
    /// Whether the start needs the fleet's turn: only with a fleet that is reachable, and only if its state of the key is unknown, or
    /// there is a gap or a backoff.
    pub(super) fn is_shared(&self, request: SlotRequest, backoff: Duration) -> bool {
        match self {
            Self::Own | Self::Partitioned(_) => false,
            Self::Fleet { known, .. } => !known || request.has_gap() || !backoff.is_zero(),
        }
    }

    /// The factor of each gap, as numerator and denominator.
    pub(super) fn times(&self) -> (u32, u32) {
        match self {
            // A partitioned instance is slowed by its time slices instead.
            Self::Own | Self::Partitioned(_) => (1, 1),
            Self::Fleet { shares, .. } => (shares.instances, shares.connected),
        }
    }

    /// Like [`times`](Self::times), but the factor that is expected when a waiting request starts.
    pub(super) fn forecast_times(&self) -> (u32, u32) {
        match self {
            Self::Own => (1, 1),
            Self::Fleet { rivals, shares, .. } => (rivals.saturating_mul(shares.instances), shares.connected),
            Self::Partitioned(phase) => (phase.instances, 1),
        }
    }
}

/// The rank of an instance among several that have lost contact, which determines its time slices. The common clock is divided into periods
/// of `instances` gaps, and in each period, each instance has a time slice of one gap. For example, with a gap of 2 s, the slices of the
/// second of three instances begin at 2, 8, 14 s …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Number of instances. If it is 1, all of the time belongs to this instance.
    pub instances: u32,
    /// Rank of this instance, from 0.
    pub rank: u32,
    /// The local time at which the common clock showed 0.
    pub epoch: Instant,
}

impl Phase {
    /// The start of this instance's first time slice that begins at or after `at`. `gap`: not zero.
    pub(super) fn next(&self, at: Instant, gap: Duration) -> Instant {
        match self.since(at, gap) {
            Duration::ZERO => at,
            since => at + (gap.saturating_mul(self.instances).saturating_sub(since)),
        }
    }

    /// Whether `at` is in one of this instance's time slices.
    pub(super) fn has(&self, at: Instant, gap: Duration) -> bool {
        self.since(at, gap) < gap
    }

    /// Time since this instance's latest time slice began.
    fn since(&self, at: Instant, gap: Duration) -> Duration {
        let gap = gap.as_nanos();
        let period = gap * u128::from(self.instances);
        let begins = gap * u128::from(self.rank % self.instances);
        let since = (at.duration_since(self.epoch).as_nanos() + period - begins) % period;
        Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// Minimum time for which a request waits if the fleet is asked for its slot, however short its `max_wait` is.
pub(super) const ASKING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::{ClientId, LastStarts, NextTurn, Observed, PaceOutcome, Refused, Schedule, Terms, Turn};

    const A: ClientId = ClientId(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn delay(crawl_delay: u64) -> Terms {
        Terms { crawl_delay: ms(crawl_delay), ..Terms::default() }
    }

    fn backoff(backoff: u64) -> Observed {
        Observed { backoff: ms(backoff), ..Observed::default() }
    }

    fn fleet(known: bool, has_turn: bool) -> TurnSource {
        TurnSource::Fleet { known, has_turn, rivals: 1, reserved: None, shares: Shares::default() }
    }

    fn schedule(source: TurnSource) -> (Schedule<&'static str>, Instant) {
        let mut schedule = Schedule::default();
        schedule.follow(source);
        (schedule, Instant::now())
    }

    #[test]
    fn gap_in_a_fleet_requires_the_turn_to_start() {
        let (mut schedule, now) = schedule(fleet(true, false));
        assert!(matches!(schedule.request(now, A, &delay(1000), || "it"), Turn::Wait { .. }));
        assert_eq!(schedule.head_start(now), Some((ms(1000), false)));
        assert_eq!(
            schedule.poll(now),
            NextTurn::WaitUntil(now + Terms::default().max_wait),
            "the arrival of the turn wakes the queue"
        );
        schedule.follow(fleet(true, true));
        assert_eq!(schedule.head_start(now), None);
        let NextTurn::Start("it", slot) = schedule.poll(now) else { panic!("the request has its turn") };
        assert!(slot.is_shared && slot.is_exclusive);
        schedule.finished(|| now, slot, PaceOutcome::Success);
        // The schedule keeps the gap itself while the fleet is connected.
        assert!(matches!(schedule.request(now, A, &delay(1000), || "next"), Turn::Wait { .. }));
        assert_eq!((schedule.head_start(now), schedule.poll(now)), (None, NextTurn::WaitUntil(now + ms(1000))));
        assert!(matches!(schedule.poll(now + ms(1000)), NextTurn::Start("next", _)));
    }

    /// Two requests of one client are in flight and never end; 200 ms later another client comes.
    fn shut_out(max_wait: Duration) -> (Schedule<&'static str>, Instant) {
        let (mut schedule, now) = schedule(TurnSource::Own);
        let terms = Terms { max_concurrent: 2, min_delay: ms(100), max_wait, ..delay(0) };
        for at in [now, now + ms(100)] {
            let Turn::Go(slot) = schedule.request(at, A, &terms, || "") else { panic!("there is room") };
            schedule.left(&slot, at, true);
        }
        assert!(matches!(schedule.request(now + ms(200), ClientId(2), &terms, || "lent"), Turn::Wait { .. }));
        (schedule, now)
    }

    #[test]
    fn lent_place_in_a_fleet_requires_the_turn() {
        let (mut schedule, now) = shut_out(ms(3000));
        schedule.follow(fleet(true, false));
        let lent = now + ms(1700);
        assert_eq!(
            (schedule.head_start(now + ms(200)), schedule.poll(now + ms(200))),
            (None, NextTurn::WaitUntil(lent))
        );
        assert_eq!(
            schedule.head_start(lent),
            Some((ms(100), false)),
            "the request to be lent a place asks for the turn"
        );
        assert_eq!(schedule.poll(lent), NextTurn::WaitUntil(now + ms(3200)), "the arrival of the turn wakes the queue");
        schedule.follow(fleet(true, true));
        assert!(matches!(schedule.poll(lent), NextTurn::Start("lent", _)));
    }

    #[test]
    fn lent_place_in_a_partitioned_fleet_waits_for_its_part() {
        let (mut schedule, now) = shut_out(ms(40_000));
        schedule.follow(TurnSource::Partitioned(Phase { instances: 300, rank: 0, epoch: now }));
        assert_eq!(schedule.poll(now + ms(10_200)), NextTurn::WaitUntil(now + ms(30_000)));
        assert!(matches!(schedule.poll(now + ms(30_000)), NextTurn::Start("lent", _)));
    }

    #[test]
    fn starts_of_other_instances_count() {
        let (mut schedule, now) = schedule(fleet(true, true));
        schedule.adopt(LastStarts { last_start: Some(now), ..LastStarts::default() });
        assert!(matches!(schedule.request(now + ms(400), A, &delay(1000), || "it"), Turn::Wait { .. }));
        assert_eq!(schedule.poll(now + ms(400)), NextTurn::WaitUntil(now + ms(1000)));
    }

    #[test]
    fn starts_of_other_instances_count_after_an_unused_slot() {
        let (mut schedule, now) = schedule(fleet(true, true));
        let Turn::Go(slot) = schedule.request(now, A, &delay(1000), || "") else { panic!("at once") };
        schedule.adopt(LastStarts { last_start: Some(now + ms(400)), ..LastStarts::default() });
        schedule.finished(|| now + ms(500), slot, PaceOutcome::Unused);
        assert_eq!(schedule.forecast(now + ms(500), A, &delay(1000)), now + ms(1400));
    }

    #[test]
    fn host_without_a_gap_needs_no_turn_once_known() {
        let (mut schedule, now) = schedule(fleet(false, false));
        assert!(matches!(schedule.request(now, A, &delay(0), || "it"), Turn::Wait { .. }));
        assert_eq!(schedule.head_start(now), Some((ms(0), false)));
        schedule.follow(fleet(true, false));
        assert_eq!(schedule.head_start(now), None);
        let NextTurn::Start("it", first) = schedule.poll(now) else { panic!("the request has its turn") };
        let Turn::Go(slot) = schedule.request(now, A, &delay(0), || "") else { panic!("at once") };
        assert!(!slot.is_shared);
        [first, slot].into_iter().for_each(|slot| schedule.finished(|| now, slot, PaceOutcome::Success));
        // A backoff makes the fleet grant the starts.
        let held = LastStarts { hold: Some(now + ms(2000)), ..LastStarts::default() };
        schedule.adopt(held);
        schedule.adopt_observed(backoff(2000));
        assert!(matches!(schedule.request(now, A, &delay(0), || "it"), Turn::Wait { until: Some(_), .. }));
        assert!(schedule.head_start(now).is_some());
        schedule.adopt_observed(backoff(0));
        assert_eq!(schedule.head_start(now), None, "without a backoff the schedule grants the starts itself");
    }

    #[test]
    fn refusal_before_an_adopted_backoff_does_not_double_it() {
        let (mut schedule, now) = schedule(fleet(true, false));
        let Turn::Go(slot) = schedule.request(now, A, &delay(0), || "") else { panic!("at once") };
        schedule.adopt_observed(backoff(1000));
        schedule.finished(|| now, slot, PaceOutcome::Backoff { retry_after: None });
        assert_eq!(schedule.backoff(), ms(1000));
    }

    #[test]
    fn request_with_max_wait_0_may_ask_the_fleet() {
        let terms = Terms { max_wait: Duration::ZERO, queue: 0, ..delay(9000) };
        let (mut schedule, now) = schedule(fleet(true, false));
        assert!(matches!(schedule.request(now, A, &terms, || "it"), Turn::Wait { .. }));
        let told = now + ms(1);
        schedule.adopt(LastStarts { last_start: Some(told - ms(4000)), ..LastStarts::default() });
        assert_eq!(schedule.poll(told), NextTurn::Refuse("it", Refused::TooLong { retry_after: ms(5000) }));
        assert_eq!(
            schedule.request(told, A, &terms, || "it"),
            Turn::Refuse(Refused::TooLong { retry_after: ms(5000) }),
            "a request that would wait too long is refused without asking the fleet"
        );
    }

    /// Holds however long other instances keep the turn.
    #[test]
    fn wait_for_the_turn_is_limited_to_max_wait_or_a_second() {
        for (max_wait, at_most) in [(ms(5000), ms(5000)), (ms(300), ASKING), (ms(0), ASKING)] {
            let terms = Terms { max_wait, ..delay(1000) };
            let (mut schedule, now) = schedule(fleet(true, false));
            assert!(matches!(schedule.request(now, A, &terms, || "it"), Turn::Wait { .. }));
            for at in [ms(0), at_most / 2, at_most - ms(1)] {
                assert_eq!(schedule.poll(now + at), NextTurn::WaitUntil(now + at_most));
            }
            assert!(matches!(schedule.poll(now + at_most), NextTurn::Refuse("it", Refused::TooLong { .. })));
        }
    }

    #[test]
    fn queue_shares_starts_with_each_rival_instance() {
        let shares = Shares::default();
        let source = TurnSource::Fleet { known: true, has_turn: false, rivals: 3, reserved: None, shares };
        let (mut schedule, now) = schedule(source);
        for _ in 0..3 {
            assert!(matches!(schedule.request(now, A, &delay(1000), || ""), Turn::Wait { .. }));
        }
        assert_eq!(schedule.forecast(now, A, &delay(1000)), now + ms(9000));
    }

    #[test]
    fn unsent_slot_is_lost_only_to_another_instances_start() {
        let (mut schedule, now) = schedule(fleet(true, true));
        let Turn::Go(slot) = schedule.request(now, A, &delay(1000), || "") else { panic!("at once") };
        schedule.record_start(now, &delay(1000));
        let others = LastStarts { last_fetch: Some(now), last_start: Some(now - ms(5)), hold: Some(now + ms(3000)) };
        schedule.adopt(others);
        assert!(schedule.holds(&slot, true));
        assert!(!schedule.holds(&slot, false), "the turn is over");
        let longest = LastStarts { last_start: Some(now + ms(10_000)), ..LastStarts::default() };
        schedule.adopt(longest);
        assert!(!schedule.holds(&slot, true));
    }

    #[test]
    fn missing_instances_keep_their_share() {
        let shares = Shares { instances: 3, connected: 2 };
        let source = TurnSource::Fleet { known: true, has_turn: true, rivals: 1, reserved: None, shares };
        let (mut schedule, now) = schedule(source);
        let Turn::Go(slot) = schedule.request(now, A, &delay(1000), || "") else { panic!("at once") };
        schedule.finished(|| now, slot, PaceOutcome::Success);
        assert_eq!(schedule.forecast(now, A, &delay(1000)), now + ms(1500));
        assert!(matches!(schedule.request(now, A, &delay(1000), || "it"), Turn::Wait { .. }));
        assert_eq!(schedule.poll(now), NextTurn::WaitUntil(now + ms(1500)));
        // The other instances are back.
        schedule.follow(fleet(true, true));
        assert_eq!(schedule.poll(now), NextTurn::WaitUntil(now + ms(1000)));
    }

    #[test]
    fn partitioned_instance_uses_one_gap_in_n() {
        let (mut schedule, now) = schedule(fleet(true, true));
        let Turn::Go(slot) = schedule.request(now, A, &delay(1000), || "") else { panic!("at once") };
        schedule.finished(|| now, slot, PaceOutcome::Success);
        schedule.follow(TurnSource::Partitioned(Phase { instances: 3, rank: 0, epoch: now - ms(2500) }));
        // A start half a second from now would be within a gap of the last one.
        assert_eq!(schedule.forecast(now, A, &delay(1000)), now + ms(3500));
        // Back in the fleet, the instance's own last start still counts.
        schedule.follow(fleet(true, true));
        assert!(matches!(schedule.request(now, A, &delay(1000), || "it"), Turn::Wait { until: Some(_), .. }));
    }

    #[test]
    fn forecast_uses_the_reserved_start() {
        let reserved = |now| Some(now + ms(4000));
        let (mut schedule, now) = schedule(fleet(true, false));
        for (waiter, max_wait) in [("it", ms(5000)), ("next", ms(4500))] {
            let terms = Terms { max_wait, ..delay(1000) };
            assert!(matches!(schedule.request(now, A, &terms, || waiter), Turn::Wait { .. }));
        }
        let (reserved, shares) = (reserved(now), Shares::default());
        let source = TurnSource::Fleet { known: true, has_turn: false, rivals: 1, reserved, shares };
        schedule.follow(source);
        assert_eq!(schedule.forecast(now, A, &delay(1000)), now + ms(6000));
        assert_eq!(schedule.poll(now), NextTurn::Refuse("next", Refused::TooLong { retry_after: ms(5000) }));
    }

    /// Starts of other instances before a reserved start do not move it.
    #[test]
    fn forecast_without_a_reservation_puts_one_start_of_each_rival_first() {
        let (mut schedule, now) = schedule(fleet(true, false));
        let starts = LastStarts { last_start: Some(now), ..LastStarts::default() };
        schedule.adopt(starts);
        let shares = Shares::default();
        let mut follow = |reserved: Option<u64>| {
            let reserved = reserved.map(|at| now + ms(at));
            schedule.follow(TurnSource::Fleet { known: true, has_turn: false, rivals: 3, reserved, shares });
            schedule.forecast(now, A, &delay(1000)) - now
        };
        assert_eq!([None, Some(1500), Some(500)].map(&mut follow), [ms(3000), ms(1500), ms(1000)]);
    }
}
