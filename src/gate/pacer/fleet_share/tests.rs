//! Tests of an instance's reports to its fleet, and of its conduct when the server is lost or new.

use super::*;
use crate::gate::fleet::pace_twin::pace;
use crate::gate::fleet::{PaceAnswer, StartWindow};
use crate::policy::pace::{ClientId, NextTurn, PaceOutcome, Phase, Terms, Turn};

const GAP: Duration = Duration::from_millis(1000);
const HOUR: Duration = Duration::from_secs(3600);

/// An instance with more waiting requests than the host's delay allows. The server's clock was at 0 an hour ago.
struct Instance {
    schedule: Schedule,
    share: FleetShare,
    reach: Reach,
    now: Instant,
    zero: Instant,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Instance {
    fn waiting() -> Self {
        let now = Instant::now();
        let clock = ServerClock::unknown(now).heard(u64::try_from(HOUR.as_micros()).unwrap(), now, now);
        let reach = Reach { link: 1, clock: Some(clock), ..Reach::default() };
        let mut it = Self { schedule: Schedule::default(), share: FleetShare::default(), reach, now, zero: now };
        it.follow();
        for client in 0..100 {
            let terms = Terms { crawl_delay: GAP, max_wait: HOUR, ..Terms::default() };
            assert!(matches!(it.schedule.request(now, ClientId(client), &terms, || ()), Turn::Wait { .. }));
        }
        it
    }

    fn follow(&mut self) {
        self.share.follow(&mut self.schedule, self.reach, self.now);
    }

    fn poll(&mut self) -> NextTurn<()> {
        self.follow();
        self.schedule.poll(self.now)
    }

    fn call(&mut self) -> Option<PaceCall> {
        self.follow();
        self.share.call(&self.schedule, self.now)
    }

    /// Answers a call; a reserved start is `start` after `zero`.
    fn answer(&mut self, call: &PaceCall, start: Duration, observed: Observed) {
        let clock = self.reach.clock.expect("the server has a clock");
        let start = clock.micros(self.zero + start);
        let answer = PaceAnswer {
            clock,
            reserved: call.wants.map(|_| StartWindow { start, end: start + 2000, before: 0 }),
            put_off: 0,
            busy: None,
            hold: None,
            observed,
            way: Duration::ZERO,
            arrival: Duration::ZERO,
        };
        self.share.answered(&mut self.schedule, call, Some(answer), self.now, self.now);
    }

    fn reserve(&mut self, start: Duration) {
        let call = self.call().expect("the instance calls");
        assert_eq!(call.wants.map(|wants| wants.is_fetch), Some(false));
        self.answer(&call, start, Observed::default());
    }

    /// Starts a request that is answered at once.
    fn start(&mut self, outcome: PaceOutcome) {
        let NextTurn::Start((), slot) = self.poll() else { panic!("the start is due") };
        self.share.started(&self.schedule, &slot);
        self.follow();
        assert!(self.schedule.holds(&slot, self.share.has_turn(&slot, self.now)));
        self.schedule.left(&slot, self.now, true);
        self.share.left(&self.schedule, &slot, self.now, true);
        assert!(self.share.ended(&slot, true, self.now));
        self.schedule.finished(|| self.now, slot, outcome);
    }
}

#[test]
fn reservation_allows_one_start() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(50));
    assert_eq!(instance.poll(), NextTurn::WaitUntil(instance.now + HOUR), "only the reserved start wakes the queue");
    assert_eq!(instance.share.next(&instance.schedule, instance.now), Some(instance.zero + ms(50)));
    instance.now += ms(50);
    instance.start(PaceOutcome::Success);
    assert!(matches!(instance.poll(), NextTurn::WaitUntil(_)));
    instance.reserve(ms(1100));
    instance.now += ms(1050);
    instance.start(PaceOutcome::Success);
}

#[test]
fn missed_window_makes_the_next_one_longer() {
    let mut instance = Instance::waiting();
    let call = instance.call().expect("the instance calls");
    let window = call.wants.expect("a start").margin;
    instance.now += ms(1500);
    instance.answer(&call, ms(50), Observed::default());
    let again = instance.call().expect("the instance calls again").wants.expect("a start");
    let late = ms(1450) - GAP;
    assert!((late..late + ms(50)).contains(&(again.margin - window)), "{again:?} after {window:?}");
}

#[test]
fn start_far_ahead_does_not_raise_rivals_above_the_number_of_instances() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(20_000));
    instance.follow();
    let terms = Terms { crawl_delay: GAP, max_wait: HOUR, ..Terms::default() };
    let forecast = instance.schedule.forecast(instance.now, ClientId(100), &terms);
    assert_eq!(forecast - instance.zero, ms(20_000) + GAP * 100, "one gap for each request that waits");
}

#[test]
fn postponement_of_a_reserved_start_counts_once() {
    let mut instance = Instance::waiting();
    let call = instance.call().expect("the instance calls");
    let news = WaitNews { put_off: 30_000, busy: 0, way: 0 };
    instance.share.hears(Some(news), instance.now);
    // The server answered before it postponed the start.
    instance.answer(&call, ms(50), Observed::default());
    let later = Some(instance.zero + ms(80));
    assert_eq!(instance.share.next(&instance.schedule, instance.now), later);
    instance.share.hears(Some(news), instance.now);
    assert_eq!(instance.share.next(&instance.schedule, instance.now), later, "the postponement counts once");
}

#[test]
fn unwanted_start_is_given_back_and_suspension_voids_reservations() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(5000));
    instance.reach.slept = ms(60_000);
    assert!(instance.call().expect("the instance calls again").wants.is_some());
    // The instance is suspended while it waits for the answer.
    let mut instance = Instance::waiting();
    let call = instance.call().expect("the instance calls");
    instance.reach.slept = ms(60_000);
    instance.follow();
    instance.answer(&call, ms(5000), Observed::default());
    assert!(instance.call().expect("the answer is void after the suspension").wants.is_some());

    let mut instance = Instance::waiting();
    instance.reserve(ms(5000));
    let reserved = instance.share.reserved.expect("a start is reserved").window;
    instance.schedule = Schedule::default();
    let call = instance.call().expect("the start is given back");
    assert_eq!((call.wants, call.unused), (None, Some(reserved)));
}

#[test]
fn lost_server_voids_reservations_and_stops_starts_until_all_have_noticed() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(3000));
    let lost = instance.now + ms(1000);
    for later in [0, 150] {
        instance.now = lost + ms(later);
        let alone = Some(Phase { instances: 2, rank: 1, epoch: lost - ms(1000) });
        instance.reach = Reach { alone, settled_at: Some(lost + ms(2000)), ..Reach::default() };
        assert_eq!(instance.poll(), NextTurn::WaitUntil(lost + ms(4000)), "the reserved start is void");
    }
}

#[test]
fn new_server_is_told_debts_before_a_start_is_reserved() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(50));
    instance.now += ms(50);
    instance.start(PaceOutcome::Success);
    let last = instance.schedule.last_starts();
    (instance.reach.link, instance.reach.settled_at) = (2, Some(instance.now + ms(2000)));
    let call = instance.call().expect("a debt is reported");
    assert_eq!((call.wants, call.starts, call.gap), (None, last, GAP));
    instance.answer(&call, ms(0), Observed::default());
    assert_eq!(instance.call(), None, "other instances may still report debts");
    for _ in 0..100 {
        instance.now += ms(2000);
        assert_eq!(instance.call().map(|call| call.wants.is_some()), Some(true), "all instances have reported");
        instance.reach.settled_at = Some(instance.now + ms(2000));
        instance.share.calling = None;
        assert_eq!(instance.call(), None, "an instance still reports debts");
        assert_eq!(instance.share.next(&instance.schedule, instance.now), instance.reach.settled_at);
    }
    instance.now += ms(2000);
    assert!(instance.call().expect("all instances have reported").wants.is_some());
}

/// The reports fail while no start may be reserved yet.
#[test]
fn a_debt_whose_report_failed_is_reported_again() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(50));
    instance.now += ms(50);
    instance.start(PaceOutcome::Success);
    instance.reach.link = 2;
    for _ in 0..5 {
        instance.reach.settled_at = Some(instance.now + ms(200));
        let call = instance.call().expect("a debt is reported");
        assert_eq!(call.wants, None);
        instance.share.answered(&mut instance.schedule, &call, None, instance.now, instance.now);
        assert_eq!(instance.call(), None, "the report is not repeated at once");
        instance.now += ms(100);
    }
}

#[test]
fn refusal_is_reported_at_once_and_a_recovery_seen_by_others_is_adopted() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(50));
    instance.now += ms(50);
    let call = instance.call();
    assert_eq!(call, None);
    instance.start(PaceOutcome::Backoff { retry_after: Some(ms(4000)) });
    let call = instance.call().expect("the instance reports");
    assert_eq!(call.observed.map(|observed| observed.backoff), [ms(0), ms(4000)]);
    assert_eq!(call.starts.hold, Some(instance.now + ms(4000)));
    let slow = Observed { backoff: ms(4000), latency: ms(3000), refusals: 2 };
    instance.answer(&call, ms(5000), slow);
    // Nothing has changed here, but meanwhile the other instances find that the host has recovered.
    instance.now = instance.zero + ms(5000);
    instance.share.hears(None, instance.now);
    let call = instance.call().expect("the instance calls");
    assert_eq!(call.observed, [slow; 2]);
    let good = Observed { latency: ms(200), ..Observed::default() };
    instance.answer(&call, ms(5000), good);
    assert_eq!(instance.schedule.observed(), good);
}

#[test]
fn instance_with_an_outdated_backoff_does_not_raise_it_again() {
    let mut instance = Instance::waiting();
    instance.reserve(ms(50));
    instance.now += ms(50);
    instance.start(PaceOutcome::Backoff { retry_after: Some(ms(4000)) });
    let refused = instance.call().expect("the instance reports");
    let (mut entry, mut time, clock) = (None, 0, instance.reach.clock.expect("the server has a clock"));
    let mut told = |call: &PaceCall, me| {
        time += 1_000_000;
        pace(&mut entry, time, me, &call.numbers(&clock, instance.now)).0[6]
    };
    assert_eq!(told(&refused, 1), 4_000_000);
    let [_, raised] = refused.observed;
    let starts = LastStarts { hold: None, ..refused.starts };
    let succeeded = PaceCall { observed: [raised, Observed::default()], starts, ..refused };
    assert_eq!(told(&succeeded, 2), 0);
    let no_news = PaceCall { observed: [raised; 2], starts, ..refused };
    assert_eq!(told(&no_news, 1), 0);
    let mut deleted = None;
    let kept_here = pace(&mut deleted, 1_000_000, 1, &no_news.numbers(&clock, instance.now)).0[6];
    assert_eq!(kept_here, 4_000_000, "a server that has lost the key learns it again");
}
