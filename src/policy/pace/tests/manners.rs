//! Tests of the gap that depends on a host's latency, and of the pause of a host.

use std::num::NonZeroU32;

use super::*;
use crate::policy::{Adaptive, Breaker};

const AWAY: PaceOutcome = PaceOutcome::TurnedAway;

fn adaptive(min: u64, max: u64) -> Terms {
    let factor = NonZeroU32::new(500).unwrap();
    Terms { adaptive: Some(Adaptive::new(factor, ms(min), ms(max))), ..Terms::default() }
}

fn breaker(after: u32, pause: u64) -> Terms {
    let after = NonZeroU32::new(after).unwrap();
    Terms { breaker: Some(Breaker { after, pause: ms(pause) }), ..Terms::default() }
}

fn paused(retry_after: u64, refusals: u32) -> Turn {
    Turn::Refuse(Refused::Paused { retry_after: ms(retry_after), refusals })
}

impl Host {
    /// Runs a request that starts at `at`; its answer begins `after` later, when the request also ends.
    #[track_caller]
    fn answered(&mut self, at: u64, terms: &Terms, after: u64, is_good: bool) {
        let slot = self.go(at, terms);
        self.schedule.answered(ms(after), is_good);
        self.end(at + after, slot, OK);
    }
}

/// The starts of the requests of a sequential crawl, given the latencies.
fn starts(terms: &Terms, latencies: &[u64]) -> Vec<u64> {
    let (mut host, mut at) = (Host::new(), 0);
    let start = |latency: &u64| {
        let start = host.open_at(at, terms);
        host.answered(start, terms, *latency, true);
        at = start + latency;
        start
    };
    latencies.iter().map(start).collect()
}

#[test]
fn adaptive_gap_follows_the_latency() {
    let starts = starts(&adaptive(0, 30_000), &[100, 100, 300, 700, 150, 100, 100]);
    // Smoothed latencies: 100, 100, 200, 450, 300, 200 ms. The next gap is five times as long.
    assert_eq!(starts, [0, 500, 1000, 2000, 4250, 5750, 6750]);
}

#[test]
fn debt_shrinks_with_the_adaptive_gap() {
    let (mut host, terms, mut at) = (Host::new(), adaptive(0, 30_000), 0);
    for latency in [640, 160, 240, 520, 40] {
        host.answered(at, &terms, latency, true);
        let now = at + latency;
        at = host.open_at(now, &terms);
        let owed = host.schedule.owed(host.at(now)).unwrap_or(host.at(now));
        let owed = owed.duration_since(host.zero).as_millis() as u64;
        assert_eq!(owed, at, "the debt ends when the next request may start, after a latency of {latency} ms");
    }
}

#[test]
fn adaptive_gap_stays_within_min_and_max() {
    assert_eq!(starts(&adaptive(1000, 3000), &[100, 100, 10_000, 10]), [0, 1000, 2000, 12_000]);
    assert_eq!(starts(&adaptive(1000, 3000), &[2000, 0]), [0, 3000]);
}

#[test]
fn adaptive_gap_is_not_below_crawl_delay_or_min_delay() {
    for terms in
        [Terms { crawl_delay: ms(900), ..adaptive(0, 5000) }, Terms { min_delay: ms(900), ..adaptive(0, 5000) }]
    {
        assert_eq!(starts(&terms, &[10, 10, 1000, 10]), [0, 900, 1800, 4325]);
    }
}

#[test]
fn adaptive_host_gets_one_request_at_a_time() {
    let mut host = Host::new();
    let slot = host.go(0, &adaptive(0, 5000));
    host.wait(10, A, &adaptive(0, 5000), "next", None);
    host.schedule.answered(ms(400), true);
    host.end(400, slot, OK);
    host.sleeps(400, 2000);
    let _next = host.starts(2000, "next");
}

#[test]
fn quick_error_does_not_shorten_the_adaptive_gap() {
    let mut host = Host::new();
    let terms = adaptive(0, 30_000);
    host.answered(0, &terms, 1000, true);
    host.answered(5000, &terms, 10, false);
    assert_eq!(host.open_at(5010, &terms), 10_000);
    host.answered(10_000, &terms, 3000, false);
    assert_eq!(host.open_at(13_000, &terms), 20_000, "a slow error raises the latency like any answer");
}

#[test]
fn latency_has_no_effect_without_adaptive() {
    let mut host = Host::new();
    host.answered(0, &adaptive(0, 5000), 1000, true);
    assert_eq!(host.open_at(1000, &Terms::default()), 1000);
}

#[test]
fn consecutive_refusals_pause_the_host_then_one_request_is_sent() {
    let (mut host, terms) = (Host::new(), breaker(3, 60_000));
    let terms = Terms { max_wait: ms(10_000), ..terms };
    for at in [0, 100, 200] {
        host.visit(at, &terms, AWAY);
    }
    assert_eq!(host.ask(300, A, &terms, ""), paused(59_900, 3));
    assert_eq!(host.ask(40_000, A, &terms, ""), paused(20_200, 3));
    // Requests that may wait until the pause ends do so. The first starts alone, and its outcome decides about the others.
    host.wait(55_000, A, &terms, "probe", Some(60_200));
    host.wait(55_000, A, &terms, "next", Some(60_700));
    let probe = host.starts(60_200, "probe");
    host.sleeps(60_200, 65_000);
    host.end(60_300, probe, AWAY);
    host.turns_away(60_300, "next", Refused::Paused { retry_after: ms(60_000), refusals: 4 });
    // The first success after the next pause resets the count and halves the backoff.
    assert_eq!(host.open_at(60_300, &terms), 120_300);
    host.visit(120_300, &terms, OK);
    assert_eq!(
        (host.schedule.observed().refusals, host.schedule.backoff()),
        (0, ms(500)),
        "a success halves the backoff"
    );
    host.visit(120_800, &terms, AWAY);
    assert_eq!(
        (host.schedule.observed().refusals, host.open_at(120_801, &terms)),
        (1, 121_300),
        "refusals are counted from zero again"
    );
}

#[test]
fn answer_resets_the_refusal_count_but_a_failure_does_not() {
    let (mut host, terms) = (Host::new(), breaker(2, 60_000));
    for outcome in [AWAY, OK, AWAY, PaceOutcome::Failure] {
        host.visit(0, &terms, outcome);
    }
    assert_eq!(host.open_at(0, &terms), 0);
    host.visit(0, &terms, AWAY);
    assert_eq!(host.open_at(0, &terms), 60_000);
}

#[test]
fn refusals_of_requests_in_flight_together_cause_one_pause() {
    let (mut host, terms) = (Host::new(), breaker(2, 60_000));
    let slots = [(); 5].map(|()| host.go(0, &terms));
    for (slot, at) in slots.into_iter().zip([10, 20, 30, 40, 50]) {
        host.end(at, slot, if at == 50 { OK } else { AWAY });
    }
    assert_eq!(host.open_at(50, &terms), 60_020, "a late success does not end the pause");
}

#[test]
fn refusal_with_retry_after_counts_and_the_longer_wait_applies() {
    let (mut host, terms) = (Host::new(), breaker(2, 60_000));
    host.visit(0, &terms, refused(Some(1000)));
    host.visit(1000, &terms, refused(Some(5000)));
    assert_eq!(host.open_at(1000, &terms), 61_000);
    host.visit(61_000, &terms, refused(Some(90_000)));
    assert_eq!(host.open_at(61_000, &terms), 151_000);
}

#[test]
fn without_a_breaker_403_has_no_effect() {
    let mut host = Host::new();
    host.visit(0, &Terms::default(), refused(None));
    host.visit(1000, &Terms::default(), AWAY);
    assert_eq!((host.schedule.backoff(), host.schedule.observed().refusals), (ms(500), 0));
    let mut host = Host::new();
    for _ in 0..100 {
        host.visit(0, &Terms::default(), AWAY);
    }
    assert_eq!(host.open_at(0, &Terms::default()), 0);
}

#[test]
fn pause_survives_a_restart() {
    let (mut host, terms) = (Host::new(), Terms { max_wait: ms(0), ..breaker(2, 60_000) });
    host.visit(0, &terms, AWAY);
    host.visit(0, &terms, AWAY);
    let mut next = Host { zero: host.zero, schedule: host.schedule.again(host.at(1000)) };
    assert_eq!(next.ask(1000, A, &terms, ""), paused(59_000, 2));
    next.visit(60_000, &terms, AWAY);
    assert_eq!(
        next.ask(60_000, A, &terms, ""),
        paused(60_000, 3),
        "the first request after the pause begins another pause"
    );
}

#[test]
fn refusals_seen_by_other_instances_count() {
    let (mut host, terms) = (Host::new(), breaker(3, 60_000));
    host.visit(0, &terms, AWAY);
    host.schedule.adopt_observed(Observed { refusals: 2, ..Observed::default() });
    host.visit(0, &terms, AWAY);
    assert_eq!(host.open_at(0, &terms), 60_000);
    let mut host = Host::new();
    host.schedule.adopt_observed(Observed { latency: ms(200), ..Observed::default() });
    let terms = adaptive(0, 5000);
    host.visit(0, &terms, OK);
    assert_eq!(host.open_at(0, &terms), 1000);
}

/// With `pace.key: site`, hosts of one pace may have different breakers, or none.
#[test]
fn pause_applies_to_requests_without_a_breaker() {
    let (mut host, terms) = (Host::new(), breaker(1, 60_000));
    let slot = host.go(0, &terms);
    host.end(10, slot, AWAY);
    let without = Terms { breaker: None, max_wait: ms(1000), ..terms };
    assert_eq!(host.ask(10, A, &without, "it"), paused(60_000, 1));
}
