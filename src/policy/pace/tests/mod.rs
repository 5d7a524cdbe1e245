//! Tests of the pace (docs/pace.md). Times are milliseconds from the start of the test.

use super::*;
use crate::policy::Refusal;
use std::iter;

mod manners;
mod parted;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const OK: PaceOutcome = PaceOutcome::Success;

/// A schedule and its time zero.
struct Host {
    zero: Instant,
    schedule: Schedule<&'static str>,
}

impl<W> Schedule<W> {
    /// The schedule after a restart, restored from its stored state.
    pub(super) fn again(&self, now: Instant) -> Self {
        let mut again = Self::default();
        again.adopt(self.last_starts());
        again.adopt_observed(self.observed());
        self.owed(now).inspect(|owed| again.adopt_owed(*owed));
        again
    }
}

impl Host {
    /// Records the start of a request in report mode, and returns the wait that it would have had.
    fn goes_freely(&mut self, at: u64, terms: &Terms) -> Duration {
        let now = self.at(at);
        let wait = self.schedule.forecast(now, A, terms).duration_since(now);
        self.schedule.record_start(now, terms);
        wait
    }

    fn new() -> Self {
        Self { zero: Instant::now(), schedule: Schedule::default() }
    }

    fn at(&self, at: u64) -> Instant {
        self.zero + ms(at)
    }

    fn ask(&mut self, at: u64, client: ClientId, terms: &Terms, name: &'static str) -> Turn {
        self.schedule.request(self.at(at), client, terms, || name)
    }

    #[track_caller]
    fn go(&mut self, at: u64, terms: &Terms) -> Slot {
        match self.ask(at, A, terms, "") {
            Turn::Go(slot) => slot,
            other => panic!("at {at}: {other:?}"),
        }
    }

    /// Runs a request that starts at `at` and ends at once.
    #[track_caller]
    fn visit(&mut self, at: u64, terms: &Terms, outcome: PaceOutcome) {
        let slot = self.go(at, terms);
        self.end(at, slot, outcome);
    }

    /// Asks for a slot for a request that has to wait until `until`.
    #[track_caller]
    fn wait(&mut self, at: u64, client: ClientId, terms: &Terms, name: &'static str, until: Option<u64>) -> Ticket {
        match self.ask(at, client, terms, name) {
            Turn::Wait { ticket, until: found } => {
                assert_eq!(found, until.map(|until| self.at(until)), "{name} at {at}");
                ticket
            }
            other => panic!("{name} at {at}: {other:?}"),
        }
    }

    /// The time at which a request that comes at `at` would start.
    fn open_at(&self, at: u64, terms: &Terms) -> u64 {
        self.schedule.forecast(self.at(at), A, terms).duration_since(self.zero).as_millis() as u64
    }

    fn end(&mut self, at: u64, slot: Slot, outcome: PaceOutcome) {
        let now = self.at(at);
        self.schedule.finished(|| now, slot, outcome);
    }

    #[track_caller]
    fn starts(&mut self, at: u64, name: &str) -> Slot {
        match self.schedule.poll(self.at(at)) {
            NextTurn::Start(found, slot) if found == name => slot,
            other => panic!("{name} at {at}: {other:?}"),
        }
    }

    #[track_caller]
    fn sleeps(&mut self, at: u64, until: u64) {
        assert_eq!(self.schedule.poll(self.at(at)), NextTurn::WaitUntil(self.at(until)), "at {at}");
    }

    #[track_caller]
    fn turns_away(&mut self, at: u64, name: &'static str, why: Refused) {
        assert_eq!(self.schedule.poll(self.at(at)), NextTurn::Refuse(name, why), "at {at}");
    }

    #[track_caller]
    fn idles(&mut self, at: u64) {
        assert_eq!(self.schedule.poll(self.at(at)), NextTurn::Idle, "at {at}");
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn delay(crawl_delay: u64) -> Terms {
    Terms { crawl_delay: ms(crawl_delay), ..Terms::default() }
}

fn too_long(retry_after: u64) -> Refused {
    Refused::TooLong { retry_after: ms(retry_after) }
}

fn full(retry_after: u64) -> Refused {
    Refused::Full { retry_after: ms(retry_after) }
}

fn refused(retry_after: Option<u64>) -> PaceOutcome {
    PaceOutcome::Backoff { retry_after: retry_after.map(ms) }
}

#[test]
fn the_first_request_starts_at_once() {
    Host::new().visit(0, &delay(10_000), OK);
}

#[test]
fn the_gap_runs_from_start_to_start() {
    let mut host = Host::new();
    let slot = host.go(0, &delay(1000));
    host.end(800, slot, OK);
    assert_eq!(host.open_at(900, &delay(1000)), 1000);
    host.visit(1000, &delay(1000), OK);
    assert_eq!(host.open_at(1000, &delay(1000)), 2000);
}

#[test]
fn the_gap_is_the_largest_of_crawl_delay_and_min_delay() {
    let terms = |crawl_delay, min_delay| Terms { min_delay: ms(min_delay), ..delay(crawl_delay) };
    assert_eq!(terms(2, 1).gap(), ms(2));
    assert_eq!(terms(1, 2).gap(), ms(2));
    assert_eq!(terms(0, 0).gap(), ms(0));
}

#[test]
fn the_gap_is_clamped_and_the_clamp_is_logged() {
    let terms = delay(86_400_000);
    assert_eq!((terms.gap(), terms.clamped()), (ms(300_000), Some(ms(86_400_000))));
    assert_eq!(delay(300_000).clamped(), None);
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    assert_eq!(host.open_at(1, &terms), 300_000);
}

#[test]
fn max_concurrent_is_8_without_a_delay_and_1_with_one() {
    let mut host = Host::new();
    let slots = [(); 8].map(|()| host.go(0, &Terms::default()));
    host.wait(0, A, &Terms::default(), "ninth", None);
    host.sleeps(0, 60_000);
    for slot in slots {
        host.end(5, slot, OK);
    }
    let ninth = host.starts(5, "ninth");
    host.idles(5);
    host.wait(5, A, &delay(1000), "slow", Some(1005));
    host.sleeps(1005, 60_005);
    host.end(2000, ninth, OK);
    let _slow = host.starts(2000, "slow");
}

#[test]
fn min_delay_alone_allows_concurrent_requests() {
    let terms = Terms { min_delay: ms(10), ..Terms::default() };
    let mut host = Host::new();
    let _slots = [0, 10, 20].map(|at| {
        let slot = host.go(at, &terms);
        host.schedule.left(&slot, host.at(at), true);
        slot
    });
    assert_eq!(host.schedule.in_flight(), 3);
}

#[test]
fn gap_starts_nothing_before_the_previous_head_has_left() {
    let terms = Terms { min_delay: ms(500), ..Terms::default() };
    let mut host = Host::new();
    let slow = host.go(0, &terms);
    host.wait(1, A, &terms, "next", Some(500));
    // The connection takes 470 ms: if the gap counted from the slot, the next request would leave 30 ms later.
    host.sleeps(500, 60_001);
    assert!(!host.schedule.left(&slow, host.at(460), false), "the request is still being written");
    assert!(host.schedule.left(&slow, host.at(470), true), "the next request has waited until this one left");
    host.sleeps(470, 970);
    let next = host.starts(970, "next");
    host.end(980, slow, OK);
    // A request that ends without leaving also lets the next one start.
    host.wait(981, A, &terms, "third", Some(1470));
    host.end(990, next, OK);
    host.sleeps(990, 1470);
    let _third = host.starts(1470, "third");
}

#[test]
fn max_concurrent_0_means_1() {
    Host::new().visit(0, &Terms { max_concurrent: 0, ..Terms::default() }, OK);
}

/// Each request is sent at once, so the next one would wait for one gap.
#[test]
fn start_without_a_slot_delays_the_next_one() {
    let mut host = Host::new();
    let told = [0, 10, 20, 30].map(|at| host.goes_freely(at, &delay(30_000)));
    assert_eq!(told, [0, 29_990, 29_990, 29_990].map(ms));
    assert_eq!(host.schedule.in_flight(), 0);
    assert_eq!(host.schedule.owed(host.at(40)), Some(host.at(30_030)));
    host.wait(40, A, &delay(30_000), "enforced", Some(30_030));
}

#[test]
fn first_come_first_served() {
    let mut host = Host::new();
    host.visit(0, &delay(1000), OK);
    host.wait(1, A, &delay(1000), "first", Some(1000));
    host.wait(2, A, &delay(1000), "second", Some(2000));
    host.sleeps(2, 1000);
    host.sleeps(999, 1000);
    let slot = host.starts(1000, "first");
    host.end(1001, slot, OK);
    host.sleeps(1001, 2000);
    let slot = host.starts(2000, "second");
    host.end(2000, slot, OK);
    host.idles(2000);
}

#[test]
fn late_arrival_does_not_overtake_the_queue() {
    let mut host = Host::new();
    host.visit(0, &delay(1000), OK);
    host.wait(1, A, &delay(1000), "first", Some(1000));
    host.wait(1500, A, &delay(1000), "late", Some(2500));
    let slot = host.starts(1500, "first");
    host.end(1500, slot, OK);
}

#[test]
fn a_greedy_client_costs_another_one_gap() {
    let mut host = Host::new();
    host.visit(0, &delay(100), OK);
    for until in (100..=10_000).step_by(100) {
        host.wait(0, A, &delay(100), "greedy", Some(until));
    }
    host.wait(50, B, &delay(100), "modest", Some(200));
    let slot = host.starts(100, "greedy");
    host.end(100, slot, OK);
    let slot = host.starts(200, "modest");
    host.end(200, slot, OK);
    host.wait(200, B, &delay(100), "modest again", Some(400));
    let slot = host.starts(300, "greedy");
    host.end(300, slot, OK);
    let _slot = host.starts(400, "modest again");
}

#[test]
fn wait_over_max_wait_is_refused_at_once_with_the_exact_wait() {
    let terms = Terms { max_wait: ms(2500), ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    host.wait(250, A, &terms, "first", Some(1000));
    host.wait(250, A, &terms, "second", Some(2000));
    assert_eq!(host.ask(250, A, &terms, "third"), Turn::Refuse(too_long(2750)));
    for (at, name) in [(1000, "first"), (2000, "second")] {
        let slot = host.starts(at, name);
        host.end(at, slot, OK);
    }
    host.visit(3000, &terms, OK);
}

/// The Retry-After of a refusal leaves out the arrival margin.
#[test]
fn client_returning_slightly_early_waits_even_with_max_wait_0() {
    let terms = Terms { max_wait: ms(0), queue: 0, ..delay(2000) };
    let mut host = Host::new();
    let first = host.go(0, &terms);
    host.schedule.left(&first, host.at(2), true);
    host.end(2, first, OK);
    let too_early = host.ask(1999, A, &terms, "");
    assert_eq!(too_early, Turn::Refuse(Refused::TooLong { retry_after: ms(3) }));
    host.wait(2001, A, &terms, "back", Some(2002));
    assert!(
        matches!(host.ask(2001, B, &terms, ""), Turn::Refuse(Refused::TooLong { .. })),
        "only one request may wait for the margin"
    );
    let back = host.starts(2002, "back");
    assert!(matches!(host.ask(4003, B, &terms, ""), Turn::Refuse(_)), "the earlier request has not left");
    host.end(4003, back, OK);
}

#[test]
fn a_wait_of_exactly_max_wait_is_kept() {
    let terms = Terms { max_wait: ms(1000), ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    host.wait(0, A, &terms, "patient", Some(1000));
    host.sleeps(0, 1000);
    let _slot = host.starts(1003, "patient");
}

#[test]
fn request_pushed_beyond_max_wait_is_refused_at_once() {
    let terms = Terms { max_wait: ms(2000), ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    host.wait(0, A, &terms, "first", Some(1000));
    host.wait(0, A, &terms, "second", Some(2000));
    host.wait(0, B, &terms, "other", Some(2000));
    host.turns_away(0, "second", too_long(3000));
    host.sleeps(0, 1000);
}

#[test]
fn prefer_wait_zero_never_waits() {
    let terms = Terms { max_wait: ms(0), ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    assert_eq!(host.ask(400, A, &terms, ""), Turn::Refuse(too_long(600)));
    let _slot = host.go(1000, &terms);
    assert_eq!(
        host.ask(2500, A, &terms, ""),
        Turn::Refuse(too_long(1000)),
        "one second, as the end of the request in flight is unknown"
    );
    assert_eq!(host.schedule.waiting(), 0);
}

#[test]
fn forecast_behind_a_slow_answer_is_the_gap() {
    for (gap, known) in [(0, 1000), (300, 1000), (30_000, 30_000)] {
        let terms = Terms { max_wait: ms(0), max_concurrent: 1, ..delay(gap) };
        let mut host = Host::new();
        let long = host.go(0, &terms);
        assert_eq!(host.ask(40_000, A, &terms, ""), Turn::Refuse(too_long(known)), "{gap}");
        host.end(41_000, long, OK);
    }
    // The gap is also the Retry-After of requests that waited and could not start.
    let terms = Terms { max_wait: ms(20_000), ..delay(15_000) };
    let mut host = Host::new();
    let _long = host.go(0, &terms);
    host.wait(0, A, &terms, "first", Some(15_000));
    host.turns_away(20_000, "first", too_long(15_000));
}

#[test]
fn slow_answer_times_out_the_requests_behind_it() {
    let terms = Terms { max_wait: ms(3000), ..delay(1000) };
    let mut host = Host::new();
    let slow = host.go(0, &terms);
    host.wait(0, A, &terms, "first", Some(1000));
    host.wait(0, A, &terms, "second", Some(2000));
    host.sleeps(1000, 3000);
    host.turns_away(3000, "second", too_long(1000));
    host.turns_away(3000, "first", too_long(1000));
    host.idles(3000);
    host.end(4000, slow, OK);
}

#[test]
fn full_queue_refuses() {
    let terms = Terms { queue: 2, ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    host.wait(0, A, &terms, "first", Some(1000));
    host.wait(0, A, &terms, "second", Some(2000));
    assert_eq!(host.ask(0, A, &terms, ""), Turn::Refuse(full(3000)));
    assert_eq!(host.schedule.waiting(), 2);
    assert_eq!(full(3000).into_refusal(ms(1)), Refusal::QueueFull { retry_after: ms(3000) });
    let late = |after| Refusal::CrawlDelay { retry_after: ms(after), max_wait: Some(ms(1000)) };
    assert_eq!(too_long(3000).into_refusal(ms(1000)), late(2998), "without the margin for arrival");
    assert_eq!(
        too_long(1001).into_refusal(ms(1000)),
        late(1001),
        "with the margin, as the result must exceed max_wait"
    );
}

#[test]
fn queue_of_length_0_is_always_full() {
    let terms = Terms { queue: 0, ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    assert_eq!(host.ask(0, A, &terms, ""), Turn::Refuse(full(1000)));
    host.idles(0);
}

#[test]
fn queue_full_of_one_client_has_room_for_another() {
    let terms = Terms { queue: 2, ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &terms, OK);
    host.wait(0, A, &terms, "first", Some(1000));
    host.wait(0, A, &terms, "second", Some(2000));
    host.wait(0, B, &terms, "other", Some(2000));
    host.turns_away(0, "second", full(2000));
    assert_eq!(host.ask(0, B, &terms, ""), Turn::Refuse(full(3000)), "both clients have one request now");
}

#[test]
fn cancelled_request_frees_its_place() {
    let mut host = Host::new();
    host.visit(0, &delay(1000), OK);
    let first = host.wait(0, A, &delay(1000), "first", Some(1000));
    let second = host.wait(0, A, &delay(1000), "second", Some(2000));
    assert_eq!(host.schedule.cancel(first), Some("first"));
    assert_eq!(host.schedule.cancel(first), None);
    let slot = host.starts(1000, "second");
    host.end(1000, slot, OK);
    assert_eq!(host.schedule.cancel(second), None);
    let last = host.wait(1000, B, &delay(1000), "last", Some(2000));
    assert_eq!(host.schedule.cancel(second), None, "a used ticket does not name another request");
    assert_eq!(host.schedule.cancel(last), Some("last"));
    host.idles(1000);
}

#[test]
fn unused_slot_is_free_again() {
    let mut host = Host::new();
    host.visit(0, &delay(1000), OK);
    host.wait(0, A, &delay(1000), "gone", Some(1000));
    host.wait(0, A, &delay(1000), "there", Some(2000));
    let slot = host.starts(1000, "gone");
    host.end(1000, slot, PaceOutcome::Unused);
    let _slot = host.starts(1000, "there");
}

#[test]
fn unused_slot_does_not_undo_a_later_start() {
    let mut host = Host::new();
    let unused = host.go(0, &Terms::default());
    let _used = host.go(500, &Terms::default());
    host.end(600, unused, PaceOutcome::Unused);
    assert_eq!(host.open_at(600, &delay(1000)), 1500);
}

#[test]
fn retry_after_pauses_and_then_halves() {
    let mut host = Host::new();
    let slot = host.go(0, &Terms::default());
    host.end(300, slot, refused(Some(20_000)));
    assert_eq!(host.open_at(301, &Terms::default()), 20_300);
    host.visit(20_300, &Terms::default(), OK);
    assert_eq!(host.open_at(20_300, &Terms::default()), 30_300);
    host.visit(30_300, &Terms::default(), OK);
    assert_eq!(host.open_at(30_300, &Terms::default()), 35_300);
}

#[test]
fn retry_after_is_capped_at_an_hour_and_not_by_max_crawl_delay() {
    let mut host = Host::new();
    host.visit(0, &Terms::default(), refused(Some(86_400_000)));
    assert_eq!(host.open_at(0, &Terms::default()), 3_600_000);
    assert_eq!(host.schedule.backoff(), ms(300_000), "the backoff itself is limited by max_crawl_delay");
}

#[test]
fn without_retry_after_the_backoff_doubles_from_a_second() {
    for no_advice in [None, Some(0)] {
        let mut host = Host::new();
        let mut at = 0;
        for step in [1000, 2000, 4000, 8000] {
            host.visit(at, &Terms::default(), refused(no_advice));
            assert_eq!(host.open_at(at, &Terms::default()), at + step);
            at += step;
        }
    }
}

#[test]
fn without_retry_after_the_backoff_doubles_from_a_longer_gap() {
    let mut host = Host::new();
    let slot = host.go(0, &delay(5000));
    host.end(4000, slot, refused(None));
    assert_eq!(host.open_at(4000, &delay(5000)), 9000, "the gap counts from the answer, not from the start");
    host.visit(9000, &delay(5000), refused(None));
    assert_eq!(host.open_at(9000, &delay(5000)), 19_000);
    host.visit(19_000, &delay(5000), OK);
    assert_eq!(host.open_at(19_000, &delay(5000)), 24_000, "the backoff of 10 s is halved to 5 s, which is the gap");
}

#[test]
fn the_backoff_stops_at_the_clamp() {
    let terms = Terms { max_crawl_delay: ms(3000), ..Terms::default() };
    let mut host = Host::new();
    for at in [0, 1000, 3000, 6000] {
        host.visit(at, &terms, refused(None));
    }
    assert_eq!(host.schedule.backoff(), ms(3000));
}

#[test]
fn successes_halve_the_backoff_away() {
    let mut host = Host::new();
    host.visit(0, &Terms::default(), refused(None));
    let mut at = 1000;
    for left in [500, 250, 125, 0] {
        host.visit(at, &Terms::default(), OK);
        assert_eq!(host.schedule.backoff(), ms(left));
        at += left;
    }
}

#[test]
fn refusals_of_concurrent_requests_double_the_backoff_once() {
    let mut host = Host::new();
    let [one, two, three, four] = [(); 4].map(|()| host.go(0, &Terms::default()));
    host.end(10, one, refused(None));
    host.end(20, two, refused(None));
    host.end(30, three, OK);
    assert_eq!(host.schedule.backoff(), ms(1000));
    assert_eq!(host.open_at(30, &Terms::default()), 1010);
    host.end(40, four, refused(Some(7000)));
    assert_eq!(
        (host.open_at(40, &Terms::default()), host.schedule.backoff()),
        (7040, ms(7000)),
        "a Retry-After counts nevertheless"
    );
}

#[test]
fn failure_does_not_change_the_backoff() {
    let mut host = Host::new();
    host.visit(0, &Terms::default(), refused(None));
    host.visit(1000, &Terms::default(), PaceOutcome::Failure);
    assert_eq!(host.schedule.backoff(), ms(1000));
}

#[test]
fn backoff_allows_one_request_in_flight() {
    let mut host = Host::new();
    host.visit(0, &Terms::default(), refused(None));
    let probe = host.go(1000, &Terms::default());
    host.wait(1000, A, &Terms::default(), "next", Some(1500));
    host.sleeps(2500, 61_000);
    host.end(3000, probe, OK);
    let _next = host.starts(3000, "next");
}

#[test]
fn backoff_refuses_at_once_requests_that_cannot_wait_for_its_end() {
    let patient = Terms { max_wait: ms(60_000), ..delay(1000) };
    let hurried = Terms { max_wait: ms(5000), ..delay(1000) };
    let mut host = Host::new();
    let slot = host.go(0, &patient);
    host.wait(0, A, &hurried, "hurried", Some(1000));
    host.wait(0, A, &patient, "patient", Some(2000));
    host.end(100, slot, refused(Some(30_000)));
    host.turns_away(100, "hurried", too_long(45_000));
    host.sleeps(100, 30_100);
    let _slot = host.starts(30_100, "patient");
}

/// The forecast assumes that each request succeeds and halves the backoff: the last of these starts before 80 s, not after 20 minutes.
#[test]
fn forecast_during_a_backoff_assumes_successes() {
    let (mut host, terms) = (Host::new(), Terms { max_wait: ms(600_000), ..Terms::default() });
    host.visit(0, &terms, refused(Some(40_000)));
    let starts = [40_000, 60_000, 70_000, 75_000, 77_500, 78_750, 79_375];
    for start in starts {
        host.wait(10, A, &terms, "one", Some(start));
    }
    (0..30).for_each(|_| assert!(matches!(host.ask(20, A, &terms, "one"), Turn::Wait { .. })));
    assert!(host.open_at(20, &terms) < 80_000);
    for start in starts {
        let slot = host.starts(start, "one");
        host.end(start, slot, OK);
    }
}

#[test]
fn forecast_assumes_success_of_a_request_in_flight() {
    let (mut host, terms) = (Host::new(), Terms { breaker: Some(breaker_of_five()), ..Terms::default() });
    host.visit(0, &terms, refused(Some(8000)));
    let slot = host.go(8000, &terms);
    assert_eq!(host.open_at(8100, &terms), 12_000);
    let now = host.at(8200);
    host.schedule.learn(|| now, &slot, PaceOutcome::TurnedAway);
    assert_eq!(host.open_at(8200, &terms), 16_000);
    host.schedule.learn(|| now, &slot, PaceOutcome::Success);
    assert_eq!(host.open_at(8200, &terms), 12_000, "halved once");
}

fn breaker_of_five() -> crate::policy::Breaker {
    crate::policy::Breaker { after: std::num::NonZeroU32::new(5).unwrap(), pause: ms(60_000) }
}

#[test]
fn a_request_follows_its_first_robots_fetch_at_once() {
    let fetch = Terms { first_fetch: true, ..Terms::default() };
    let mut host = Host::new();
    host.visit(0, &fetch, OK);
    host.visit(20, &delay(1000), OK);
    assert_eq!(host.open_at(20, &delay(1000)), 1020);
}

#[test]
fn first_fetches_on_one_key_keep_the_gap() {
    let fetch = Terms { first_fetch: true, min_delay: ms(100), ..Terms::default() };
    let mut host = Host::new();
    host.visit(0, &fetch, OK);
    host.visit(10, &delay(1000), OK);
    assert_eq!(host.open_at(10, &fetch), 110, "a first fetch keeps its distance from the request");
    host.visit(110, &fetch, OK);
    assert_eq!(host.open_at(110, &fetch), 210, "a first fetch keeps its distance from other first fetches");
    assert_eq!(host.open_at(110, &delay(1000)), 1010, "the request does not keep its distance from the fetch");
}

#[test]
fn a_refresh_is_a_request_like_any_other() {
    let mut host = Host::new();
    host.visit(0, &delay(1000), OK);
    host.visit(1000, &delay(1000), OK);
    assert_eq!(host.open_at(1000, &delay(1000)), 2000);
}

fn renewal(crawl_delay: u64) -> Terms {
    Terms { is_renewal: true, max_wait: ms(100), queue: 0, ..delay(crawl_delay) }
}

#[test]
fn renewal_waits_without_limit() {
    let mut host = Host::new();
    host.visit(0, &delay(300_000), OK);
    host.wait(0, A, &renewal(300_000), "renewal", Some(300_000));
    host.sleeps(0, 300_000);
    host.sleeps(150_000, 300_000);
    let _slot = host.starts(300_000, "renewal");
}

#[test]
fn renewal_starts_first_and_requests_pushed_beyond_max_wait_are_refused() {
    let patient = Terms { max_wait: ms(3000), ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &patient, OK);
    for (name, at) in [("one", 1000), ("two", 2000), ("three", 3000)] {
        host.wait(0, A, &patient, name, Some(at));
    }
    host.wait(0, B, &renewal(1000), "renewal", Some(1000));
    host.wait(0, B, &renewal(1000), "next renewal", Some(2000));
    host.turns_away(0, "three", too_long(5000));
    host.turns_away(0, "two", too_long(4000));
    for (at, name) in [(1000, "renewal"), (2000, "next renewal"), (3000, "one")] {
        host.sleeps(at - 1000, at);
        let slot = host.starts(at, name);
        host.end(at, slot, OK);
    }
    host.idles(3000);
}

#[test]
fn renewal_takes_no_queue_place_and_can_be_cancelled() {
    let full_at_one = Terms { queue: 1, ..delay(1000) };
    let mut host = Host::new();
    host.visit(0, &delay(1000), OK);
    let ticket = host.wait(0, B, &renewal(1000), "renewal", Some(1000));
    host.wait(0, A, &full_at_one, "first", Some(2000));
    assert_eq!(host.ask(0, A, &full_at_one, "second"), Turn::Refuse(full(3000)));
    host.wait(0, B, &renewal(1000), "another", Some(2000));
    assert_eq!(host.schedule.cancel(ticket), Some("renewal"));
    assert_eq!(host.schedule.waiting(), 2);
    let _slot = host.starts(1000, "another");
}

#[test]
fn gap_counts_from_when_the_head_has_left() {
    let mut host = Host::new();
    let slot = host.go(0, &delay(1000));
    host.wait(0, A, &delay(1000), "next", Some(1000));
    host.schedule.left(&slot, host.at(700), true);
    host.end(800, slot, OK);
    host.sleeps(800, 1700);
    let _next = host.starts(1700, "next");
}

#[test]
fn late_head_times_out_the_requests_behind_it() {
    let terms = Terms { max_wait: ms(1000), ..delay(1000) };
    let mut host = Host::new();
    let slot = host.go(0, &terms);
    host.wait(0, A, &terms, "next", Some(1000));
    host.schedule.left(&slot, host.at(700), true);
    host.turns_away(700, "next", too_long(1000));
}

#[test]
fn debt_survives_a_restart() {
    let mut host = Host::new();
    host.visit(0, &delay(10_000), OK);
    assert_eq!([4000, 10_000].map(|at| host.schedule.owed(host.at(at))), [Some(host.at(10_000)), None]);
    let again = Host { zero: host.zero, schedule: host.schedule.again(host.at(4000)) };
    assert_eq!(again.open_at(4000, &delay(10_000)), 10_000);
    assert_eq!(again.schedule.owed(again.at(4000)), Some(again.at(10_000)));
}

#[test]
fn backoff_survives_a_restart() {
    let mut host = Host::new();
    host.visit(0, &Terms::default(), refused(Some(60_000)));
    assert_eq!(host.schedule.owed(host.at(1)), Some(host.at(60_000)));
    let mut again = Host { zero: host.zero, schedule: host.schedule.again(host.at(1)) };
    again.visit(60_000, &Terms::default(), refused(None));
    assert_eq!(again.schedule.backoff(), ms(120_000));
}

#[test]
fn debt_is_the_longest_gap_still_owed() {
    let mut host = Host::new();
    host.visit(0, &delay(30_000), OK);
    host.visit(5000, &delay(1000), OK);
    assert_eq!(host.open_at(5000, &delay(30_000)), 35_000);
    assert_eq!(host.schedule.owed(host.at(5000)), Some(host.at(35_000)));
    host.visit(30_000, &delay(1000), OK);
    assert_eq!(host.schedule.owed(host.at(30_000)), Some(host.at(31_000)), "the longer gap has expired");
}

#[test]
fn a_schedule_is_unused_when_nothing_waits_or_is_in_flight() {
    let mut host = Host::new();
    let slot = host.go(0, &delay(1000));
    assert!(!host.schedule.is_unused(), "in flight");
    host.end(5000, slot, OK);
    assert!(host.schedule.is_unused() && host.schedule.owed(host.at(5000)).is_none());
    host.visit(5000, &delay(1000), OK);
    assert_eq!(host.schedule.owed(host.at(5999)), Some(host.at(6000)));
    let ticket = host.wait(5999, A, &delay(1000), "", Some(6000));
    assert!(!host.schedule.is_unused(), "a request waits");
    host.schedule.cancel(ticket);
    assert!(host.schedule.is_unused());
}

#[test]
fn absurd_durations_do_not_overflow() {
    let terms = Terms {
        crawl_delay: Duration::MAX,
        max_crawl_delay: Duration::MAX,
        max_wait: Duration::MAX,
        ..Terms::default()
    };
    let mut host = Host::new();
    let slot = host.go(0, &terms);
    assert_eq!(slot.gap, terms.gap(), "a shorter gap would make each start too early");
    host.end(0, slot, PaceOutcome::Backoff { retry_after: Some(Duration::MAX) });
    assert!(matches!(host.ask(0, A, &terms, ""), Turn::Wait { .. }));
    assert!(matches!(host.schedule.poll(host.zero), NextTurn::WaitUntil(_)));
}

#[test]
fn starts_without_a_slot_do_not_delay_a_renewal() {
    let mut host = Host::new();
    let delay = Terms { crawl_delay: Duration::from_secs(10), ..Terms::default() };
    let renewal = Terms { is_renewal: true, ..delay.clone() };
    assert_eq!(host.goes_freely(0, &delay), ms(0));
    host.wait(1000, B, &renewal, "renewal", Some(10_000));
    for at in (2000..10_000).step_by(100) {
        assert!(!host.goes_freely(at, &delay).is_zero());
    }
    assert!(matches!(host.schedule.poll(host.at(10_000)), NextTurn::Start("renewal", _)));
}

/// Guests are fetches that other hosts have redirected to this host.
#[test]
fn guests_yield_to_own_requests_up_to_a_limit() {
    for own in [vec!["a"; 12], ["a", "b"].repeat(6)] {
        let (mut host, terms) = (Host::new(), Terms { max_wait: ms(1_000_000), ..delay(1000) });
        host.visit(0, &terms, OK);
        assert!(matches!(host.ask(1, ClientId::GUESTS, &terms, "guest"), Turn::Wait { .. }));
        assert!(matches!(host.ask(1, ClientId::GUESTS, &terms, "guest"), Turn::Wait { .. }));
        let mut order = Vec::new();
        for (turn, name) in (1..).zip(own) {
            let client = if name == "a" { A } else { B };
            // Each time that a request starts, another one arrives.
            assert!(matches!(host.ask(turn * 1000 - 1, client, &terms, name), Turn::Wait { .. }));
            let NextTurn::Start(name, slot) = host.schedule.poll(host.at(turn * 1000)) else { panic!("it is due") };
            order.push(name);
            host.end(turn * 1000, slot, OK);
        }
        assert_eq!(order.iter().position(|name| *name == "guest"), Some(8), "{order:?}");
        assert_eq!(order.iter().filter(|name| **name == "guest").count(), 1, "{order:?}");
    }
    // Guests get all starts if nobody else waits.
    let (mut host, terms) = (Host::new(), delay(1000));
    host.visit(0, &terms, OK);
    host.wait(1, ClientId::GUESTS, &terms, "guest", Some(1000));
    let slot = host.starts(1000, "guest");
    host.end(1000, slot, OK);
}

/// Even if requests in flight never end, another client gets a place, but only one.
#[test]
fn client_without_a_place_is_lent_one() {
    let terms = Terms { max_concurrent: 2, ..delay(0) };
    let mut host = Host::new();
    let endless = [host.go(0, &terms), host.go(0, &terms)];
    host.wait(0, A, &terms, "third of A", None);
    host.wait(0, B, &terms, "first of B", None);
    host.wait(0, B, &terms, "second of B", None);
    host.sleeps(0, 10_000);
    let lent = host.starts(10_000, "first of B");
    assert_eq!(host.schedule.in_flight(), 3);
    host.sleeps(10_000, 60_000);
    host.end(20_000, lent, OK);
    let lent = host.starts(20_000, "second of B");
    host.end(30_000, lent, OK);
    host.sleeps(30_000, 60_000);
    for slot in endless {
        host.end(40_000, slot, OK);
    }
    let last = host.starts(40_000, "third of A");
    host.end(40_000, last, OK);
    assert!(host.schedule.held.is_empty());
}

#[test]
fn place_is_lent_after_half_of_max_wait_but_not_under_a_crawl_delay() {
    let terms = Terms { max_concurrent: 2, max_wait: ms(3000), ..delay(0) };
    let mut host = Host::new();
    let _endless = [host.go(0, &terms), host.go(0, &terms)];
    host.wait(100, B, &terms, "B", None);
    host.sleeps(100, 1600);
    let _lent = host.starts(1600, "B");
    let terms = Terms { max_wait: ms(3000), ..delay(1000) };
    let mut host = Host::new();
    let slot = host.go(0, &terms);
    host.wait(1000, B, &terms, "B", None);
    host.sleeps(1000, 4000);
    host.end(2000, slot, OK);
    let _its_turn = host.starts(2000, "B");
}

/// A request that continues without its slot still counts for its client, which would otherwise be lent another place.
#[test]
fn request_continuing_without_its_slot_counts_for_its_client() {
    let terms = Terms { max_concurrent: 2, ..delay(0) };
    let mut host = Host::new();
    let mut stalled = host.go(0, &terms);
    host.schedule.pass_on(&mut stalled);
    for _ in 0..2 {
        assert!(matches!(host.ask(0, B, &terms, ""), Turn::Go(_)), "there is room");
    }
    host.wait(0, A, &terms, "A", None);
    host.sleeps(10_000, 60_000);
}

/// robots.txt is renewed even if all places are taken.
#[test]
fn a_renewal_is_lent_a_place() {
    let terms = Terms { max_concurrent: 2, ..delay(0) };
    let renewal = Terms { is_renewal: true, ..terms.clone() };
    let mut host = Host::new();
    let _endless = [host.go(0, &terms), host.go(0, &terms)];
    host.wait(0, A, &renewal, "robots.txt", None);
    host.sleeps(0, 10_000);
    let slot = host.starts(10_000, "robots.txt");
    host.end(11_000, slot, OK);
    host.idles(11_000);
}

/// Holds even if the schedule is dropped and restored after each request, and although each request leaves a little after its start.
#[test]
fn expired_longer_gap_is_no_longer_owed() {
    for rests in [false, true] {
        let mut host = Host::new();
        for at in iter::once(0).chain((50_000..=110_000).step_by(1000)) {
            let slot = host.go(at, &delay(if at == 0 { 100_000 } else { 900 }));
            host.schedule.left(&slot, host.at(at + 5), true);
            host.end(at + 20, slot, OK);
            if rests && host.schedule.owes_one_gap() {
                host.schedule = host.schedule.again(host.at(at + 20));
            }
        }
        assert_eq!(host.schedule.owed(host.at(110_000)), Some(host.at(110_905)), "{rests}");
    }
}
