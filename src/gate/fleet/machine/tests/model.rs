//! Processes at one key in simulated time. Each behaves like a host queue: reserves, takes the turn when due, leaves some time later,
//! ends, gives up, or is killed at any moment. The checks see only starts.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
struct Plan {
    process: usize,
    after: u64,
    /// From the turn to the head, and from there to the end.
    connects: u64,
    takes: u64,
    ends: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Whole,
    GivesUp,
    /// The process has the turn, and its request never leaves.
    Unused,
    KilledWaiting,
    KilledConnecting,
    KilledLeaving,
    KilledInFlight,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Idle,
    Waiting { reserved: Option<Instant>, next: Instant },
    Connecting(Instant),
    InFlight(Instant),
}

struct Process {
    machine: Option<Machine>,
    plans: Vec<Plan>,
    stage: Stage,
    from: Instant,
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
    (0..processes, 0..300u64, prop_oneof![3 => Just(0), 1 => 1..250u64], 0..250u64, ending)
        .prop_map(|(process, after, connects, takes, ends)| Plan { process, after, connects, takes, ends })
}

const GAP: u64 = 100;

/// Runs all plans to their ends; returns when heads left, as far as others can know, and how long completed starts took.
fn run(plans: &[Plan], processes: usize) -> (Vec<Instant>, Vec<Duration>) {
    let directory = place();
    let zero = Instant::now() + Duration::from_secs(3600);
    let mut all: Vec<Process> = (0..processes)
        .map(|number| Process {
            machine: Some(open(&directory)),
            plans: plans.iter().rev().filter(|plan| plan.process == number).copied().collect(),
            stage: Stage::Idle,
            from: zero,
        })
        .collect();
    let (mut now, mut heads, mut waits) = (zero, Vec::new(), Vec::new());
    loop {
        let mut soonest: Option<Instant> = None;
        for number in 0..processes {
            // Until the process has nothing to do for now.
            while let Some(at) = step(&mut all, number, now, (&mut heads, &mut waits), &directory) {
                if at > now {
                    soonest = Some(soonest.map_or(at, |soonest| soonest.min(at)));
                    break;
                }
            }
        }
        match soonest {
            Some(at) => now = at,
            None => return (heads, waits),
        }
    }
}

/// When this process has to act next. `None`: never.
fn step(
    all: &mut [Process],
    number: usize,
    now: Instant,
    (heads, waits): (&mut Vec<Instant>, &mut Vec<Duration>),
    directory: &TempDir,
) -> Option<Instant> {
    let kill = |process: &mut Process| {
        let machine = process.machine.take().expect("it lives");
        let next = open(directory);
        end(machine, &next);
        process.machine = Some(next);
    };
    let process = &mut all[number];
    let plan = *process.plans.last()?;
    let machine = process.machine.as_ref().expect("it lives");
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
            let at = machine.reserve(id, gap(GAP), now).expect("nobody is at it");
            if plan.ends == Ending::KilledWaiting {
                kill(process);
                over(process, now);
            } else if plan.ends == Ending::GivesUp {
                machine.give_back(id, gap(GAP), at);
                over(process, now);
            } else {
                process.stage = Stage::Waiting { reserved: Some(at), next: at };
            }
        }
        Stage::Waiting { reserved, .. } => match machine.take(id, gap(GAP), reserved.unwrap_or(now), now) {
            MachineTurn::Taken => {
                waits.push(now - process.from);
                process.stage = Stage::Connecting(now + ms(plan.connects));
            }
            MachineTurn::NotBefore(next) => process.stage = Stage::Waiting { reserved, next },
            MachineTurn::Busy => process.stage = Stage::Waiting { reserved, next: now + ms(10) },
        },
        Stage::Connecting(until) if until > now => return Some(until),
        Stage::Connecting(_) if plan.ends == Ending::Unused => {
            machine.release(id);
            over(process, now);
        }
        Stage::Connecting(_) if plan.ends == Ending::KilledConnecting => {
            kill(process);
            over(process, now);
        }
        Stage::Connecting(_) => {
            machine.left(id, gap(GAP), now, false);
            heads.push(now);
            if plan.ends == Ending::KilledLeaving {
                kill(process);
                over(process, now);
            } else {
                machine.left(id, gap(GAP), now, true);
                process.stage = Stage::InFlight(now + ms(plan.takes));
            }
        }
        Stage::InFlight(until) if until > now => return Some(until),
        Stage::InFlight(_) => {
            if plan.ends == Ending::KilledInFlight {
                kill(process);
            } else {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_start_is_early_and_nobody_waits_for_ever(
        (processes, plans) in (1..5usize).prop_flat_map(|count| (Just(count), proptest::collection::vec(plan(count), 1..40)))
    ) {
        let (heads, waits) = run(&plans, processes);
        for pair in heads.windows(2) {
            prop_assert!(pair[1] - pair[0] >= ms(GAP), "{:?}", heads);
        }
        // Each other process may start before, take as long as possible, and cost a gap if killed.
        let longest = ms((GAP + 250 + 250 + GAP) * (processes as u64 + 1));
        prop_assert!(waits.iter().all(|wait| *wait <= longest), "{:?} of {:?}", waits.iter().max(), longest);
    }
}

/// Otherwise the process whose request has just ended would always be the first to see the free turn.
#[test]
fn turns_are_shared_evenly_where_answers_take_longer_than_the_gap() {
    const TAKES: u64 = 10 * GAP;
    let plan = |number: usize| Plan { process: number % 3, after: 0, connects: 0, takes: TAKES, ends: Ending::Whole };
    let (heads, waits) = run(&(0..30).map(plan).collect::<Vec<_>>(), 3);
    assert_eq!(heads.len(), 30);
    assert!(waits.iter().all(|wait| *wait <= ms(3 * (TAKES + 20))), "{:?}", waits.iter().max());
}

/// Processes take turns in the order in which they came.
#[test]
fn turns_are_shared_evenly() {
    let plans: Vec<Plan> = (0..60)
        .map(|number| Plan { process: number % 3, after: 0, connects: 0, takes: 20, ends: Ending::Whole })
        .collect();
    let (heads, waits) = run(&plans, 3);
    assert_eq!(heads.len(), 60);
    assert!(waits.iter().all(|wait| *wait <= ms(3 * GAP) + ms(1)), "{:?}", waits.iter().max());
    let whole = *heads.last().expect("60") - heads[0];
    assert!(whole <= ms(59 * GAP) + ms(1), "no gap is left unused: {whole:?}");
}
