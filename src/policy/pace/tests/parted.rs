//! Tests of partitioned instances in simulated time, each with its own estimate of the common clock.

use super::*;
use proptest::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);
/// Half of the largest difference between two clocks, in milliseconds.
const OFF: u64 = 30;

struct Instance {
    schedule: Schedule<Instant>,
    /// Future arrivals, in reverse order.
    arrivals: Vec<Instant>,
    timer: Option<Instant>,
    starts: Vec<Instant>,
    /// The longest wait of a request.
    waited: Duration,
}

/// Runs the instances until no event is left. `clocks`: each instance's clock error in milliseconds, plus [`OFF`]. `arrivals`: for each
/// instance, the milliseconds from one arrival to the next.
fn run(gap: u64, clocks: &[u64], arrivals: &[Vec<u64>]) -> Vec<Instance> {
    let zero = Instant::now();
    let instances = clocks.len() as u32;
    let mut all: Vec<Instance> = (0..)
        .zip(clocks.iter().zip(arrivals))
        .map(|(rank, (clock, after))| {
            let mut schedule = Schedule::default();
            let epoch = zero - HOUR + ms(*clock) - ms(OFF);
            schedule.follow(TurnSource::Partitioned(Phase { instances, rank, epoch }));
            let at = after.iter().scan(zero, |at, after| {
                *at += ms(*after);
                Some(*at)
            });
            let arrivals = at.collect::<Vec<_>>().into_iter().rev().collect();
            Instance { schedule, arrivals, timer: None, starts: Vec::new(), waited: Duration::ZERO }
        })
        .collect();
    let terms =
        Terms { crawl_delay: ms(gap), max_crawl_delay: HOUR, max_wait: HOUR * 24, queue: 10_000, ..Terms::default() };
    while let Some((now, instance)) = all.iter_mut().filter_map(|it| Some((it.next()?, it))).min_by_key(|(at, _)| *at) {
        instance.advance(now, &terms);
    }
    all
}

impl Instance {
    fn next(&self) -> Option<Instant> {
        [self.arrivals.last().copied(), self.timer].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant, terms: &Terms) {
        if self.arrivals.pop_if(|at| *at == now).is_some() {
            match self.schedule.request(now, A, terms, || now) {
                Turn::Go(slot) => self.start(now, now, slot),
                Turn::Wait { .. } => {}
                Turn::Refuse(why) => panic!("{why:?}"),
            }
        }
        self.timer = loop {
            match self.schedule.poll(now) {
                NextTurn::Start(came, slot) => self.start(now, came, slot),
                NextTurn::Refuse(_, why) => panic!("{why:?}"),
                NextTurn::WaitUntil(at) => break Some(at),
                NextTurn::Idle => break None,
            }
        };
    }

    fn start(&mut self, now: Instant, came: Instant, slot: Slot) {
        self.starts.push(now);
        self.waited = self.waited.max(now - came);
        self.schedule.left(&slot, now, true);
        self.schedule.finished(|| now, slot, OK);
    }
}

/// A gap, and for each instance its clock error and its arrivals.
fn fleets(most: u64) -> impl Strategy<Value = (u64, Vec<u64>, Vec<Vec<u64>>)> {
    (prop::sample::select(vec![1_usize, 2, 3, 8, 100]), 100..20_000_u64).prop_flat_map(move |(count, gap)| {
        let clocks = prop::collection::vec(0..=2 * OFF, count);
        let arrivals = prop::collection::vec(0..=most * gap * count as u64, 1..12);
        (Just(gap), clocks, prop::collection::vec(arrivals, count))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Holds for any arrivals and any clocks.
    #[test]
    fn partitioned_instances_together_keep_one_pace((gap, clocks, arrivals) in fleets(2)) {
        let all = run(gap, &clocks, &arrivals);
        let mut starts: Vec<Instant> = all.iter().flat_map(|instance| &instance.starts).copied().collect();
        starts.sort();
        prop_assert_eq!(starts.len(), arrivals.iter().map(Vec::len).sum::<usize>());
        let off = ms(clocks.iter().max().unwrap() - clocks.iter().min().unwrap());
        for pair in starts.windows(2) {
            prop_assert!(pair[1] - pair[0] + off >= ms(gap), "{:?}", pair[1] - pair[0]);
        }
        let whole = starts[starts.len() - 1] - starts[0];
        prop_assert!(whole + off >= ms(gap) * (starts.len() as u32 - 1), "{whole:?} for {} starts", starts.len());
    }

    /// All requests come at once.
    #[test]
    fn partitioned_instance_starts_once_in_n_gaps((gap, clocks, arrivals) in fleets(0)) {
        let period = ms(gap) * clocks.len() as u32;
        for (instance, arrivals) in run(gap, &clocks, &arrivals).iter().zip(&arrivals) {
            prop_assert!(instance.waited <= period * arrivals.len() as u32, "{:?}", instance.waited);
            for pair in instance.starts.windows(2) {
                prop_assert_eq!(pair[1] - pair[0], period);
            }
        }
    }

    /// The forecast that determines a refusal or a Retry-After is right.
    #[test]
    fn partitioned_forecast_is_right((gap, clocks, _) in fleets(0), ahead in 0..5_u64, at in 0..100_000_u64) {
        let zero = Instant::now();
        let phase = Phase { instances: clocks.len() as u32, rank: 0, epoch: zero - HOUR + ms(clocks[0]) };
        let mut schedule = Schedule::default();
        schedule.follow(TurnSource::Partitioned(phase));
        let terms = Terms { crawl_delay: ms(gap), max_crawl_delay: HOUR, max_wait: HOUR * 24, ..Terms::default() };
        let mut now = zero + ms(at);
        let mut told = schedule.forecast(now, A, &terms);
        for number in 0..=ahead {
            told = schedule.forecast(now, A, &terms);
            if let Turn::Go(slot) = schedule.request(now, A, &terms, || number) {
                prop_assert!(number == 0 && told == now);
                schedule.finished(|| now, slot, OK);
            }
        }
        loop {
            match schedule.poll(now) {
                NextTurn::Start(number, slot) => {
                    schedule.finished(|| now, slot, OK);
                    if number == ahead {
                        prop_assert_eq!(now, told);
                    }
                }
                NextTurn::WaitUntil(at) => now = at,
                NextTurn::Idle => break,
                NextTurn::Refuse(..) => prop_assert!(false),
            }
        }
    }
}

fn second_of_three() -> (Host, Terms) {
    let mut host = Host::new();
    host.schedule.follow(TurnSource::Partitioned(Phase { instances: 3, rank: 1, epoch: host.zero }));
    (host, Terms { crawl_delay: ms(1000), ..Terms::default() })
}

#[test]
fn second_of_three_instances_starts_after_one_gap_and_every_three() {
    let (mut host, terms) = second_of_three();
    for (came, starts) in [(0, 1000), (1000, 4000), (4100, 7000), (17_000, 19_000)] {
        host.wait(came, A, &terms, "it", Some(starts));
        assert_eq!(host.schedule.poll(host.at(came)), NextTurn::WaitUntil(host.at(starts)));
        let NextTurn::Start("it", slot) = host.schedule.poll(host.at(starts)) else { panic!("at {starts}") };
        host.end(starts, slot, OK);
    }
    // A request that comes exactly when a time slice begins need not wait.
    host.visit(22_000, &terms, OK);
}

#[test]
fn late_timer_keeps_the_slot_unless_the_next_instance_is_nearly_due() {
    let (mut host, terms) = second_of_three();
    host.wait(0, A, &terms, "it", Some(1000));
    host.wait(0, A, &terms, "next", Some(4000));
    assert_eq!(host.schedule.poll(host.at(0)), NextTurn::WaitUntil(host.at(1000)));
    let NextTurn::Start("it", slot) = host.schedule.poll(host.at(1250)) else { panic!("the request has its turn") };
    host.end(1250, slot, OK);
    assert_eq!(host.schedule.poll(host.at(1250)), NextTurn::WaitUntil(host.at(4000)));
    assert_eq!(host.schedule.poll(host.at(4251)), NextTurn::WaitUntil(host.at(7000)));
}

#[test]
fn request_that_cannot_wait_for_the_next_part_may_start_late_in_this_one() {
    let (mut host, terms) = second_of_three();
    let at_once = Terms { max_wait: Duration::ZERO, ..terms.clone() };
    let refused = |turn| matches!(turn, Turn::Refuse(Refused::TooLong { .. }));
    assert!(refused(host.ask(500, A, &at_once, "it")));
    host.visit(1900, &at_once, OK);
    for at in [1950, 2500, 3500] {
        assert!(refused(host.ask(at, A, &at_once, "it")), "at {at}");
    }
    host.visit(4900, &at_once, OK);
    host.wait(7900, A, &terms, "waits", Some(10_000));
}

#[test]
fn partition_does_not_apply_without_a_gap() {
    let (mut host, _) = second_of_three();
    host.visit(500, &Terms::default(), OK);
    host.visit(500, &Terms::default(), OK);
}
