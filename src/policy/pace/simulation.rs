//! Drives a schedule as `gate::pacer` does, with random arrivals, answers and hang-ups in simulated time, and checks the promises of
//! docs/pace.md.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Arrival {
    after: Duration,
    client: u64,
    terms: Terms,
    /// Time from the start until the request leaves, for connecting.
    connects: Duration,
    /// Time from leaving to the end of the request.
    takes: Duration,
    outcome: PaceOutcome,
    /// Time after arrival at which a client that still waits hangs up.
    patience: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Arrives(usize),
    HangsUp(usize),
    Leaves(usize),
    Ends(usize),
    Timer,
}

/// The outcome of an arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Started(Instant),
    Refused(Instant),
    HungUp,
}

struct World {
    arrivals: Vec<Arrival>,
    schedule: Schedule<usize>,
    /// Whether the schedule is dropped while it is unused, and restored from a few numbers.
    rests: bool,
    now: Instant,
    agenda: Vec<(Instant, Event)>,
    timer: Option<Instant>,
    came: HashMap<usize, Instant>,
    waiting: HashMap<usize, Ticket>,
    slots: HashMap<usize, Slot>,
    fates: HashMap<usize, Fate>,
    starts: Vec<(Instant, usize)>,
    /// Requests that started in a lent place, beyond `max_concurrent`.
    lent: HashSet<usize>,
    /// The times at which requests left, as the origin sees them. Requests that never left are missing.
    heads: Vec<(Instant, usize)>,
    /// The start of each waiting request, as forecast on its arrival.
    told: HashMap<usize, Instant>,
    /// The instant before which nothing may start, according to the answers so far.
    hold: Option<Instant>,
}

impl World {
    fn new(arrivals: Vec<Arrival>, rests: bool) -> Self {
        let zero = Instant::now();
        let mut at = zero;
        let mut agenda = Vec::new();
        for (i, arrival) in arrivals.iter().enumerate() {
            at += arrival.after;
            agenda.push((at, Event::Arrives(i)));
        }
        Self {
            arrivals,
            schedule: Schedule::default(),
            rests,
            now: zero,
            agenda,
            timer: None,
            came: HashMap::new(),
            waiting: HashMap::new(),
            slots: HashMap::new(),
            fates: HashMap::new(),
            starts: Vec::new(),
            lent: HashSet::new(),
            heads: Vec::new(),
            told: HashMap::new(),
            hold: None,
        }
    }

    /// Runs until no event is left.
    fn run(&mut self) -> Result<(), TestCaseError> {
        self.run_until(None)
    }

    fn run_until(&mut self, end: Option<Instant>) -> Result<(), TestCaseError> {
        while let Some((at, event)) = self.next_event(end) {
            prop_assert!(at >= self.now, "no event is in the past");
            self.now = at;
            match event {
                Event::Arrives(i) => self.arrive(i)?,
                Event::HangsUp(i) => {
                    if let Some(ticket) = self.waiting.remove(&i) {
                        prop_assert_eq!(self.schedule.cancel(ticket), Some(i));
                        self.fates.insert(i, Fate::HungUp);
                    }
                }
                Event::Leaves(i) => self.leave(i)?,
                Event::Ends(i) => {
                    let slot = self.slots.remove(&i).unwrap();
                    if let PaceOutcome::Backoff { retry_after: Some(wait) } = self.arrivals[i].outcome {
                        self.hold = self.hold.max(Some(self.now + wait));
                    }
                    self.schedule.finished(|| self.now, slot, self.arrivals[i].outcome);
                }
                Event::Timer => {}
            }
            self.poll()?;
            if self.rests && self.schedule.is_unused() && self.schedule.owes_one_gap() {
                self.schedule = self.schedule.again(self.now);
            }
        }
        self.now = end.unwrap_or(self.now);
        Ok(())
    }

    fn next_event(&mut self, end: Option<Instant>) -> Option<(Instant, Event)> {
        let timer = self.timer.map(|at| (at, Event::Timer));
        let soonest = (0..self.agenda.len()).min_by_key(|i| self.agenda[*i].0);
        let in_time = |at: Instant| end.is_none_or(|end| at <= end);
        match soonest {
            Some(i) if timer.is_none_or(|(at, _)| self.agenda[i].0 <= at) => {
                in_time(self.agenda[i].0).then(|| self.agenda.remove(i))
            }
            _ => timer.filter(|(at, _)| in_time(*at)),
        }
    }

    fn arrive(&mut self, i: usize) -> Result<(), TestCaseError> {
        let Arrival { client, terms, patience, .. } = self.arrivals[i].clone();
        self.came.insert(i, self.now);
        match self.schedule.request(self.now, ClientId(client), &terms, || i) {
            Turn::Go(slot) => {
                prop_assert!(self.waiting.is_empty(), "a request starts at once only if no request waits");
                self.start(i, slot)?;
            }
            Turn::Wait { ticket, until } => {
                prop_assert!(until.is_none_or(|until| until <= self.now + terms.max_wait.max(ARRIVAL)));
                self.waiting.insert(i, ticket);
                self.told.extend(until.map(|until| (i, until)));
                if let Some(patience) = patience {
                    self.agenda.push((self.now + patience, Event::HangsUp(i)));
                }
            }
            Turn::Refuse(why) => self.refuse(i, why)?,
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), TestCaseError> {
        self.timer = loop {
            match self.schedule.poll(self.now) {
                NextTurn::Start(i, slot) => {
                    prop_assert!(self.waiting.remove(&i).is_some(), "each request is answered once");
                    self.start(i, slot)?;
                }
                NextTurn::Refuse(i, why) => {
                    prop_assert!(self.waiting.remove(&i).is_some(), "each request is answered once");
                    self.refuse(i, why)?;
                }
                NextTurn::WaitUntil(at) => {
                    prop_assert!(at > self.now, "a timer that fires for nothing would spin");
                    break Some(at);
                }
                NextTurn::Idle => {
                    prop_assert!(self.waiting.is_empty(), "no waiting request is forgotten");
                    break None;
                }
            }
        };
        prop_assert_eq!(self.schedule.waiting(), self.waiting.len());
        self.nothing_idles()
    }

    fn start(&mut self, i: usize, slot: Slot) -> Result<(), TestCaseError> {
        prop_assert!(self.hold.is_none_or(|hold| self.now >= hold), "nothing starts before Retry-After has passed");
        let has_gap = !slot.gap.is_zero();
        self.slots.insert(i, slot);
        let client = |i: &usize| self.arrivals[*i].client;
        let has_one = self.slots.keys().any(|other| *other != i && client(other) == client(&i));
        let is_within = self.slots.len() as u32 <= self.limit(i) || !has_one && self.limit(i) > 1;
        prop_assert!(is_within, "at most the allowed number is in flight, and one lent place for each client");
        if self.slots.len() as u32 > self.limit(i) {
            self.lent.insert(i);
        }
        self.starts.push((self.now, i));
        prop_assert!(self.fates.insert(i, Fate::Started(self.now)).is_none());
        let Arrival { connects, outcome, .. } = self.arrivals[i];
        // In this model, a request without a gap leaves at once.
        let connects = if has_gap { connects } else { Duration::ZERO };
        let next = if outcome == PaceOutcome::Unused { Event::Ends(i) } else { Event::Leaves(i) };
        if connects.is_zero() && next == Event::Leaves(i) {
            return self.leave(i);
        }
        self.agenda.push((self.now + connects, next));
        Ok(())
    }

    /// The request's head leaves.
    fn leave(&mut self, i: usize) -> Result<(), TestCaseError> {
        if let Some((last, _)) = self.heads.last() {
            prop_assert!(self.now >= *last + self.arrivals[i].terms.gap(), "requests leave at least a gap apart");
        }
        self.schedule.left(&self.slots[&i], self.now, true);
        self.heads.push((self.now, i));
        self.agenda.push((self.now + self.arrivals[i].takes, Event::Ends(i)));
        Ok(())
    }

    fn refuse(&mut self, i: usize, why: Refused) -> Result<(), TestCaseError> {
        let (Refused::TooLong { retry_after } | Refused::Full { retry_after } | Refused::Paused { retry_after, .. }) =
            why;
        prop_assert!(!retry_after.is_zero());
        prop_assert!(
            self.now <= self.came[&i] + self.arrivals[i].terms.max_wait.max(ARRIVAL),
            "refused no later than max_wait"
        );
        prop_assert!(self.fates.insert(i, Fate::Refused(self.now)).is_none());
        Ok(())
    }

    fn limit(&self, i: usize) -> u32 {
        let terms = &self.arrivals[i].terms;
        let delayed = !terms.crawl_delay.is_zero() || !self.schedule.backoff().is_zero();
        if delayed { 1 } else { terms.max_concurrent }
    }

    /// Checks that the schedule is work-conserving, if all requests have the same terms: while a request waits, either the slots are full
    /// or the gap has not passed, and the timer fires no later than the end of the gap.
    fn nothing_idles(&self) -> Result<(), TestCaseError> {
        let Some(i) = self.waiting.keys().next().copied() else {
            return Ok(());
        };
        let asks_for = |terms: &Terms| (terms.gap(), terms.max_concurrent);
        let asked = asks_for(&self.arrivals[i].terms);
        let uniform = self.arrivals.iter().all(|arrival| asks_for(&arrival.terms) == asked);
        if !uniform || self.schedule.in_flight() >= self.limit(i) || self.schedule.pending.is_some() {
            return Ok(());
        }
        let gap = self.arrivals[i].terms.gap().max(self.schedule.backoff());
        let due = self.heads.last().map(|(last, _)| *last + gap).max(self.schedule.last.hold);
        prop_assert!(due > Some(self.now), "no slot stays free while a request waits");
        prop_assert!(self.timer <= due, "the timer fires no later than the next start is due");
        Ok(())
    }

    /// Checks that each request has one outcome, no request starts after `max_wait`, and each client's requests start in order.
    fn all_served_in_order(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.fates.len(), self.arrivals.len());
        prop_assert_eq!(self.schedule.in_flight(), 0);
        let mut last = HashMap::new();
        for (at, i) in &self.starts {
            let arrival = &self.arrivals[*i];
            prop_assert!(*at <= self.came[i] + arrival.terms.max_wait.max(ARRIVAL));
            let before = last.insert(arrival.client, *i);
            prop_assert!(before < Some(*i), "a client's requests start in order of arrival");
        }
        Ok(())
    }

    /// Checks that between a request's arrival and start, another client gets at most one start more than this client. Lent places do not
    /// count.
    fn turns_are_shared(&self) -> Result<(), TestCaseError> {
        for (at, i) in &self.starts {
            let since = self.came[i];
            let meanwhile = self.starts.iter().filter(|(start, j)| *start >= since && start <= at && j != i);
            let mut turns = HashMap::<u64, usize>::new();
            for (start, j) in meanwhile {
                // A start at the instant of arrival, but before the arrival, does not count.
                let client = self.arrivals[*j].client;
                let counts = client == self.arrivals[*i].client || !self.lent.contains(j);
                if counts && *start > since && self.position(*j) < self.position(*i) {
                    *turns.entry(client).or_default() += 1;
                }
            }
            let own = turns.remove(&self.arrivals[*i].client).unwrap_or(0);
            prop_assert!(turns.values().all(|others| *others <= own + 1), "no client is starved: {:?} {}", turns, own);
        }
        Ok(())
    }

    fn position(&self, i: usize) -> Option<usize> {
        self.starts.iter().position(|(_, j)| *j == i)
    }
}

/// Durations in whole milliseconds, so that events often coincide.
fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn terms() -> impl Strategy<Value = Terms> {
    (
        prop_oneof![Just(0), 1..50u64],
        prop_oneof![Just(0), 1..20u64],
        1..4u32,
        prop_oneof![0..100u64, Just(10_000)],
        prop_oneof![0..6usize, Just(1000)],
        proptest::option::of((1..4u32, 1..60u64).prop_map(|(after, pause)| Breaker {
            after: NonZeroU32::new(after).unwrap(),
            pause: Duration::from_millis(pause),
        })),
    )
        .prop_map(|(crawl_delay, min_delay, max_concurrent, max_wait, queue, breaker)| Terms {
            breaker,
            crawl_delay: Duration::from_millis(crawl_delay),
            min_delay: Duration::from_millis(min_delay),
            max_crawl_delay: Duration::from_millis(40),
            max_concurrent,
            max_wait: Duration::from_millis(max_wait),
            queue,
            ..Terms::default()
        })
}

fn outcome() -> impl Strategy<Value = PaceOutcome> {
    prop_oneof![
        8 => Just(PaceOutcome::Success),
        1 => Just(PaceOutcome::Failure),
        1 => Just(PaceOutcome::TurnedAway),
        1 => Just(PaceOutcome::Unused),
        1 => Just(PaceOutcome::Backoff { retry_after: None }),
        1 => millis(1..200).prop_map(|wait| PaceOutcome::Backoff { retry_after: Some(wait) }),
    ]
}

fn arrival(terms: impl Strategy<Value = Terms>) -> impl Strategy<Value = Arrival> {
    let connects = prop_oneof![3 => Just(Duration::ZERO), 1 => millis(1..30)];
    let patience = proptest::option::of(millis(0..100));
    (millis(0..15), 0..4u64, terms, connects, millis(0..40), outcome(), patience).prop_map(
        |(after, client, terms, connects, takes, outcome, patience)| Arrival {
            after,
            client,
            terms,
            connects,
            takes,
            outcome,
            patience,
        },
    )
}

/// Arrivals at one host in the usual case: all requests have the same delay.
fn one_host() -> impl Strategy<Value = Vec<Arrival>> {
    terms().prop_flat_map(|terms| proptest::collection::vec(arrival(Just(terms)), 1..80))
}

/// Arrivals at one key with different delays, as of several hosts or product tokens.
fn mixed() -> impl Strategy<Value = Vec<Arrival>> {
    proptest::collection::vec(arrival(terms()), 1..80)
}

proptest! {
    #[test]
    fn gaps_are_kept_and_no_slot_is_wasted(arrivals in one_host(), rests: bool) {
        let mut world = World::new(arrivals, rests);
        world.run()?;
        world.all_served_in_order()?;
        world.turns_are_shared()?;
    }

    #[test]
    fn gaps_are_kept_and_no_slot_is_wasted_with_many_delays(arrivals in mixed(), rests: bool) {
        let mut world = World::new(arrivals, rests);
        world.run()?;
        world.all_served_in_order()?;
        world.turns_are_shared()?;
    }

    // With quick answers and one client, a request starts at the instant forecast on arrival.
    #[test]
    fn forecast_start_is_kept(arrivals in one_host(), rests: bool) {
        let arrivals = arrivals.into_iter().map(|arrival| Arrival { client: 0, ..quick(arrival) }).collect();
        let mut world = World::new(arrivals, rests);
        world.run()?;
        for (at, i) in &world.starts {
            prop_assert_eq!(at, world.told.get(i).unwrap_or(at));
        }
    }

    // A refused request that comes back when asked to starts at once, unless others have come in the meantime.
    #[test]
    fn retry_after_is_never_too_early(arrivals in mixed(), probe in terms(), after in millis(0..10), rests: bool) {
        let probe = Terms { max_wait: Duration::ZERO, ..probe };
        let mut world = World::new(arrivals.into_iter().map(quick).collect(), rests);
        let last = world.agenda.iter().map(|(at, _)| *at).max().expect("there is at least one arrival");
        world.run_until(Some(last + after))?;
        let turn = world.schedule.request(world.now, ClientId(9), &probe, || usize::MAX);
        if let Turn::Refuse(Refused::TooLong { retry_after }) = turn {
            world.run_until(Some(world.now + retry_after))?;
            let turn = world.schedule.request(world.now, ClientId(9), &probe, || usize::MAX);
            prop_assert!(matches!(turn, Turn::Go(_)), "{:?}", turn);
        } else {
            let is_soon = |until: Option<Instant>| until.is_some_and(|until| until <= world.now + ARRIVAL);
            let starts = matches!(turn, Turn::Go(_)) || matches!(turn, Turn::Wait { until, .. } if is_soon(until));
            prop_assert!(starts, "{:?}", turn);
        }
    }
}

/// An arrival that is answered at once, without effect on the pace, and whose client stays.
fn quick(arrival: Arrival) -> Arrival {
    Arrival {
        connects: Duration::ZERO,
        takes: Duration::ZERO,
        outcome: PaceOutcome::Success,
        patience: None,
        ..arrival
    }
}
