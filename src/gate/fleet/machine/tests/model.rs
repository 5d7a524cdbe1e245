//! Processes at one key in simulated time. Each behaves like a host queue: reserves, takes the turn when due, sends its request some time
//! later, ends, gives up, is stopped for a while, or is killed at any moment. The checks see only starts.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
struct Plan {
    process: usize,
    after: u64,
    gap: u64,
    /// Time in ms by which the process is late to see that its start is due.
    sleeps: u64,
    /// Pause that the host asks for in its answer, in ms.
    holds: u64,
    /// Times in ms: from taking the turn to sending the head, and from there to the end.
    connects: u64,
    takes: u64,
    ends: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Whole,
    GivesUp,
    /// The process has the turn, and its request is never sent.
    Unused,
    KilledWaiting,
    KilledConnecting,
    KilledLeaving,
    KilledInFlight,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Idle,
    Waiting { reserved: Option<MachineStart>, next: Instant },
    Connecting(Instant),
    InFlight(Instant),
}

struct Process {
    machine: Option<Machine>,
    plans: Vec<Plan>,
    stage: Stage,
    from: Instant,
    /// The number of the process's reservation, counted over all processes.
    number: usize,
    reservation: Option<MachineStart>,
}

/// The model's observations.
#[derive(Default)]
struct Seen {
    /// When heads were sent, as far as other processes can know, with their gaps.
    heads: Vec<(Instant, u64)>,
    /// How long processes waited for the turn that they got.
    waits: Vec<Duration>,
    /// The numbers of reservations, in the order of starts, and whether the process slept.
    order: Vec<(usize, bool)>,
    reservations: usize,
}

fn plan(processes: usize) -> impl Strategy<Value = Plan> {
    let ending = prop_oneof![
        12 => Just(Ending::Whole),
        2 => Just(Ending::GivesUp),
        2 => Just(Ending::Unused),
        1 => Just(Ending::KilledWaiting),
        1 => Just(Ending::KilledConnecting),
        1 => Just(Ending::KilledLeaving),
        1 => Just(Ending::KilledInFlight),
    ];
    let late = |most: u64| prop_oneof![3 => Just(0), 1 => 1..most];
    let gap = prop_oneof![6 => Just(GAP), 1 => Just(GAP / 2), 1 => Just(2 * GAP)];
    let sleeps = prop_oneof![9 => Just(0), 1 => 1..MOST_ASLEEP];
    let holds = prop_oneof![9 => Just(0), 1 => 1..MOST_HELD];
    (0..processes, 0..300u64, gap, (late(250), late(250)), (sleeps, holds), ending).prop_map(
        |(process, after, gap, (connects, takes), (sleeps, holds), ends)| Plan {
            process,
            after,
            gap,
            sleeps,
            holds,
            connects,
            takes,
            ends,
        },
    )
}

/// A plan in which nothing is late.
fn prompt(number: usize) -> Plan {
    let (process, ends) = (number % 3, Ending::Whole);
    Plan { process, after: 0, gap: GAP, sleeps: 0, holds: 0, connects: 0, takes: 20, ends }
}

const GAP: u64 = 100;
const MOST_ASLEEP: u64 = 1500;
const MOST_HELD: u64 = 500;

/// Runs all plans to their ends.
fn run(plans: &[Plan], processes: usize) -> Seen {
    let directory = place();
    let zero = Instant::now() + Duration::from_secs(3600);
    let mut all: Vec<Process> = (0..processes)
        .map(|number| Process {
            machine: Some(open(&directory)),
            plans: plans.iter().rev().filter(|plan| plan.process == number).copied().collect(),
            stage: Stage::Idle,
            from: zero,
            number: 0,
            reservation: None,
        })
        .collect();
    let (mut now, mut seen) = (zero, Seen::default());
    loop {
        let mut soonest: Option<Instant> = None;
        for number in 0..processes {
            // Steps until the process has nothing to do for now.
            while let Some(at) = step(&mut all, number, now, &mut seen, &directory) {
                if at > now {
                    soonest = Some(soonest.map_or(at, |soonest| soonest.min(at)));
                    break;
                }
            }
        }
        match soonest {
            Some(at) => now = at,
            None => return seen,
        }
    }
}

/// When this process has to act next. `None`: never.
fn step(all: &mut [Process], number: usize, now: Instant, seen: &mut Seen, directory: &TempDir) -> Option<Instant> {
    let kill = |process: &mut Process| {
        let machine = process.machine.take().expect("the process is alive");
        let next = open(directory);
        end(machine, &next);
        process.machine = Some(next);
    };
    let process = &mut all[number];
    let plan = *process.plans.last()?;
    let machine = process.machine.as_ref().expect("the process is alive");
    let id = machine.a();
    match process.stage {
        Stage::Idle => {
            let at = process.from + ms(plan.after);
            if at > now {
                return Some(at);
            }
            (process.from, process.stage) = (now, Stage::Waiting { reserved: None, next: now });
        }
        Stage::Waiting { next, .. } if next > now => return Some(next),
        Stage::Waiting { reserved: None, .. } => {
            let reserved = machine.reserve(id, gap(plan.gap), now).expect("no key is being added");
            (process.number, seen.reservations) = (seen.reservations, seen.reservations + 1);
            if plan.ends == Ending::KilledWaiting {
                kill(process);
                over(process, now);
            } else if plan.ends == Ending::GivesUp {
                machine.give_back(id, reserved);
                over(process, now);
            } else {
                process.stage = Stage::Waiting { reserved: Some(reserved), next: now + ms(plan.sleeps) };
            }
        }
        Stage::Waiting { reserved: Some(mut reserved), .. } => {
            let time = machine.reserved(id, &mut reserved, now);
            let (due, reserved) = (time.unwrap_or(now), time.map(|_| reserved));
            let turn = match reserved {
                Some(it) if due <= now => machine.take(id, it, now),
                _ => MachineTurn::NotBefore(due),
            };
            match turn {
                MachineTurn::Taken => {
                    seen.waits.push(now - process.from);
                    (process.stage, process.reservation) = (Stage::Connecting(now + ms(plan.connects)), reserved);
                }
                MachineTurn::NotBefore(next) => process.stage = Stage::Waiting { reserved, next },
                MachineTurn::Busy => process.stage = Stage::Waiting { reserved, next: now + ms(10) },
            }
        }
        Stage::Connecting(until) if until > now => return Some(until),
        Stage::Connecting(_) if plan.ends == Ending::Unused => {
            machine.give_back(id, process.reservation.expect("the process has the turn"));
            machine.release(id);
            over(process, now);
        }
        Stage::Connecting(_) if plan.ends == Ending::KilledConnecting => {
            kill(process);
            over(process, now);
        }
        Stage::Connecting(_) => {
            let start = process.reservation.unwrap_or(gap(plan.gap));
            machine.left(id, start, now, false);
            seen.heads.push((now, plan.gap));
            seen.order.push((process.number, plan.sleeps > 0));
            if plan.ends == Ending::KilledLeaving {
                kill(process);
                over(process, now);
            } else {
                machine.left(id, start, now, true);
                process.stage = Stage::InFlight(now + ms(plan.takes));
            }
        }
        Stage::InFlight(until) if until > now => return Some(until),
        Stage::InFlight(_) => {
            if plan.ends == Ending::KilledInFlight {
                kill(process);
            } else {
                if plan.holds > 0 {
                    machine.learn(id, Observed::default(), Some(now + ms(plan.holds)));
                }
                machine.release(id);
            }
            over(process, now);
        }
    }
    Some(now)
}

fn over(process: &mut Process, now: Instant) {
    process.plans.pop();
    (process.from, process.stage) = (now, Stage::Idle);
}

/// Whether a process that woke on time was overtaken by one that reserved later.
fn is_in_order(order: &[(usize, bool)]) -> bool {
    let is_overtaken = |at: usize| !order[at].1 && order[..at].iter().any(|before| before.0 > order[at].0);
    !(0..order.len()).any(is_overtaken)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_start_is_early_or_overtaken_and_waits_are_bounded(
        (processes, plans) in (1..5usize).prop_flat_map(|count| (Just(count), proptest::collection::vec(plan(count), 1..40)))
    ) {
        let Seen { heads, waits, order, .. } = run(&plans, processes);
        for pair in heads.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 >= ms(pair[1].1), "{:?}", heads);
        }
        prop_assert!(is_in_order(&order), "{:?}", order);
        // Each other process may start first, take as long as possible, and cost a gap if killed.
        let longest = ms((2 * GAP + 250 + 250 + MOST_HELD + 2 * GAP) * (processes as u64 + 1) + MOST_ASLEEP);
        prop_assert!(waits.iter().all(|wait| *wait <= longest), "{:?} of {:?}", waits.iter().max(), longest);
    }
}

/// Without an order, the process whose request has just ended would always be the first to see the free turn.
#[test]
fn turns_are_shared_evenly_if_answers_take_longer_than_the_gap() {
    const TAKES: u64 = 10 * GAP;
    let plans: Vec<_> = (0..30).map(|number| Plan { takes: TAKES, ..prompt(number) }).collect();
    let Seen { heads, waits, .. } = run(&plans, 3);
    assert_eq!(heads.len(), 30);
    assert!(waits.iter().all(|wait| *wait <= ms(3 * (TAKES + 20))), "{:?}", waits.iter().max());
}

/// While connecting takes longer than the gap, the later reservations are postponed. Otherwise all of them would be overdue, and the first
/// process to wake would always start next.
#[test]
fn turns_are_shared_evenly_if_connecting_takes_longer_than_the_gap() {
    const CONNECTS: u64 = 3 * GAP;
    let plans: Vec<_> = (0..60).map(|number| Plan { connects: CONNECTS, ..prompt(number) }).collect();
    let Seen { heads, waits, .. } = run(&plans, 3);
    assert_eq!(heads.len(), 60);
    assert!(waits.iter().all(|wait| *wait <= ms(3 * (CONNECTS + GAP))), "{:?}", waits.iter().max());
}

/// Processes take turns in the order in which they came.
#[test]
fn turns_are_shared_evenly() {
    let plans: Vec<Plan> = (0..60).map(prompt).collect();
    let Seen { heads, waits, .. } = run(&plans, 3);
    assert_eq!(heads.len(), 60);
    assert!(waits.iter().all(|wait| *wait <= ms(3 * GAP) + ms(1)), "{:?}", waits.iter().max());
    let whole = heads.last().expect("60").0 - heads[0].0;
    assert!(whole <= ms(59 * GAP) + ms(1), "no gap is left unused: {whole:?}");
}
