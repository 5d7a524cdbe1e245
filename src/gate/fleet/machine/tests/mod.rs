//! Processes of one machine, simulated by separate open files.

mod file;
mod model;

use super::*;
use crate::config::{Settings, StoreSettings};
use crate::gate::fleet::{Acceptable, Claim, Fleet};
use crate::gate::store::Store;
use crate::policy::{Authority, SiteFile};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{hint, thread};
use tempfile::{TempDir, tempdir};
use tokio::time::timeout;

const NOW: Duration = Duration::ZERO;
const MOST: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn place() -> TempDir {
    tempdir().expect("a temporary directory")
}

fn open(directory: &TempDir) -> Machine {
    Machine::open(directory.path(), MOST, ms(2000)).expect("the file")
}

fn both() -> (TempDir, Machine, Machine) {
    let directory = place();
    let (one, other) = (open(&directory), open(&directory));
    (directory, one, other)
}

fn gap(gap: u64) -> MachineStart {
    MachineStart { gap: ms(gap), is_fetch: false, own: None }
}

/// Ends a process. A child just started by another test keeps the descriptors open for a moment.
fn end(process: Machine, other: &Machine) {
    let number = process.me;
    drop(process);
    while other.lives(number) {
        std::thread::yield_now();
    }
}

impl Machine {
    fn a(&self) -> u64 {
        self.id("a")
    }

    fn takes(&self, at: Instant, gap_ms: u64) -> MachineTurn {
        self.take(self.a(), gap(gap_ms), at)
    }

    fn leaves(&self, at: Instant, gap_ms: u64, is_gone: bool) {
        self.left(self.a(), gap(gap_ms), at, is_gone);
    }

    /// The key's slot, added if necessary. Another key may take it over at any time.
    fn slot(&self, id: u64) -> KeySlot<'_> {
        self.with_slot(id, 1, |_| ()).expect("no key is being added");
        self.find(id).expect("the key was added")
    }

    /// Makes a whole start: takes the turn, sends the request, and releases the turn.
    #[track_caller]
    fn starts(&self, at: Instant, gap_ms: u64) {
        assert_eq!(self.takes(at, gap_ms), MachineTurn::Taken);
        self.leaves(at, gap_ms, false);
        self.leaves(at, gap_ms, true);
        self.release(self.a());
    }

    fn reserves(&self, at: Instant, gap_ms: u64) -> MachineStart {
        self.reserve(self.a(), gap(gap_ms), at).expect("no key is being added")
    }

    /// Time from `at` until a reserved start is due.
    #[track_caller]
    fn waits(&self, reserved: &mut MachineStart, at: Instant) -> Duration {
        self.reserved(self.a(), reserved, at).expect("the reservation is plausible").duration_since(at)
    }

    /// Takes the turn for a reserved start whose request is sent only at `later`, and keeps the turn.
    #[track_caller]
    fn leaves_late(&self, reserved: MachineStart, at: Instant, later: Instant) {
        assert_eq!(self.take(self.a(), reserved, at), MachineTurn::Taken);
        for is_gone in [false, true] {
            self.left(self.a(), reserved, later, is_gone);
        }
    }

    /// Time from `at` until the next start with that gap.
    #[track_caller]
    fn due(&self, at: Instant, gap_ms: u64) -> Duration {
        match self.takes(at, gap_ms) {
            MachineTurn::Taken => {
                self.release(self.a());
                NOW
            }
            MachineTurn::NotBefore(due) => due - at,
            MachineTurn::Busy => panic!("another process has the turn"),
        }
    }
}

/// Whether two durations are equal up to rounding, as times in the file are microseconds.
fn is_about(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) <= Duration::from_micros(2)
}

#[test]
fn reservation_is_a_gap_after_other_processes_reservations() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    let reserve = |machine: &Machine, later: u64| {
        let mut reserved = machine.reserves(now + ms(later), 3000);
        (reserved, machine.waits(&mut reserved, now))
    };
    assert!(is_about(reserve(&one, 0).1, NOW));
    let (second, due) = reserve(&other, 10);
    assert!(is_about(due, ms(3000)));
    assert!(is_about(reserve(&one, 20).1, ms(6000)));
    other.give_back(other.a(), second);
    let (last, due) = reserve(&one, 30);
    assert!(is_about(due, ms(9000)), "a start given back leaves a gap, unless it was the last");
    one.give_back(one.a(), last);
    assert!(is_about(reserve(&other, 50).1, due), "the last start is given out again");
    assert!(is_about(reserve(&one, 60_000).1, ms(12_000)), "an unused reservation causes no debt");
    other.starts(now + ms(60_000), 3000);
    assert!(is_about(reserve(&one, 100_000).1, ms(100_000)), "an empty queue");
}

/// If a late start did not move the others, all of them would be overdue at the same time, and the first process to wake would start.
#[test]
fn late_start_moves_later_reservations_and_keeps_their_order() {
    let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
    let [first, mut second, mut third] = [&one, &other, &one].map(|machine| machine.reserves(now, 1000));
    // Connecting takes longer than two gaps, and so does the answer.
    let (connects, answered) = (now + ms(2500), now + ms(5000));
    assert_eq!(one.take(one.a(), first, now), MachineTurn::Taken);
    assert_eq!(other.take(other.a(), second, connects), MachineTurn::Busy);
    assert!(is_about(other.waits(&mut second, connects), NOW), "the second start is due now at the earliest");
    assert!(is_about(one.waits(&mut third, connects), ms(1000)));
    one.left(one.a(), first, connects, true);
    let both = |at| (other.waits(&mut second.clone(), at), one.waits(&mut third.clone(), at));
    let (second_in, third_in) = both(connects);
    assert!(is_about(second_in, ms(1000)) && is_about(third_in, ms(2000)), "{second_in:?} {third_in:?}");
    for at in [connects + ms(1001), answered] {
        assert_eq!(other.take(other.a(), second, at), MachineTurn::Busy);
    }
    let (second_in, third_in) = both(answered);
    assert!(is_about(second_in, NOW) && is_about(third_in, ms(1000)), "{second_in:?} {third_in:?}");
    let mut fourth = other.reserves(answered, 1000);
    assert!(is_about(other.waits(&mut fourth, answered), ms(2000)));
    one.release(one.a());
    let (second_in, third_in) = both(answered);
    assert!(is_about(second_in, NOW) && is_about(third_in, ms(1000)), "{second_in:?} {third_in:?}");
    assert!(matches!(one.take(one.a(), third, answered), MachineTurn::NotBefore(_)));
    other.leaves_late(second, answered, answered);
    other.release(other.a());
    assert!(is_about(one.waits(&mut third, answered), ms(1000)));
}

#[test]
fn stopped_process_delays_the_others_by_one_gap() {
    let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
    let mut stopped = one.reserves(now, 1000);
    for number in 1..100 {
        let at = now + ms(1002 * number);
        let mut next = other.reserves(at, 1000);
        assert!(other.waits(&mut next, at) <= ms(1), "{number}");
        other.leaves_late(next, at + ms(1), at + ms(1));
        other.release(other.a());
    }
    let at = now + ms(99_699);
    let mut next = other.reserves(at, 1000);
    assert!(is_about(other.waits(&mut next, at), ms(500)));
    // The result is the same however often the stopped process looks.
    for _ in 0..3 {
        assert!(is_about(one.waits(&mut stopped, at), ms(500)), "the stopped process goes first");
        assert!(is_about(other.waits(&mut next, at), ms(1500)));
    }
    let at = now + ms(100_200);
    one.leaves_late(stopped, at, at);
    one.release(one.a());
    assert!(is_about(other.waits(&mut next, at), ms(1000)));
}

#[test]
fn unused_start_delays_nobody() {
    let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
    let [first, mut second] = [&one, &other].map(|machine| machine.reserves(now, 1000));
    assert_eq!(one.take(one.a(), first, now), MachineTurn::Taken);
    let at = now + ms(4300);
    for at in [now + ms(1001), at] {
        assert_eq!(other.take(other.a(), second, at), MachineTurn::Busy);
    }
    one.give_back(one.a(), first);
    one.release(one.a());
    assert!(is_about(other.waits(&mut second, at), NOW));
    assert!(is_about(other.waits(&mut one.reserves(at, 1000), at), ms(1000)));
}

/// The gap grows, or the host asks for a pause, while starts are reserved.
#[test]
fn longer_gap_or_hold_keeps_the_order_of_reservations() {
    let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
    let [first, mut second, mut third] = [&one, &other, &one].map(|machine| machine.reserves(now, 1000));
    one.leaves_late(first, now, now);
    one.learn(one.a(), Observed::default(), Some(now + ms(7000)));
    one.release(one.a());
    assert!(is_about(other.waits(&mut second, now), ms(7000)));
    assert!(is_about(one.waits(&mut third, now), ms(8000)));
    (second.gap, third.gap) = (ms(10_000), ms(10_000));
    assert!(is_about(other.waits(&mut second, now), ms(10_000)));
    assert!(is_about(one.waits(&mut third, now), ms(11_000)));
}

/// A process whose reservation is lost reserves again.
#[test]
fn implausible_reservations_are_dropped() {
    let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
    let mut reserved = one.reserves(now, 1000);
    let slot = other.find(other.a()).expect("the key");
    for nonsense in [1 << 62, u64::MAX / 2, 1 << 60] {
        slot.words[slot::OFF].store(nonsense, Ordering::Relaxed);
        assert_eq!(one.reserved(one.a(), &mut reserved, now), None, "{nonsense}");
        reserved = one.reserves(now, 1000);
        assert!(one.waits(&mut reserved, now) <= ms(1), "{nonsense}");
        slot.words[slot::TAIL].store(nonsense, Ordering::Relaxed);
    }
    assert!(one.waits(&mut one.reserves(now, 1000), now) <= ms(1));
}

#[test]
fn turn_is_exclusive_and_the_gap_counts_from_when_its_request_left() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    assert_eq!(one.takes(now, 3000), MachineTurn::Taken);
    assert_eq!(other.takes(now, 3000), MachineTurn::Busy);
    // Connecting takes longer than the gap.
    assert_eq!(other.takes(now + ms(4000), 3000), MachineTurn::Busy);
    one.leaves(now + ms(5000), 3000, false);
    one.leaves(now + ms(5010), 3000, true);
    assert!(is_about(other.due(now + ms(5500), 3000), ms(2510)));
    assert_eq!(other.takes(now + ms(8020), 3000), MachineTurn::Busy, "the request is still in flight");
    one.release(one.a());
    assert_eq!(other.takes(now + ms(8020), 3000), MachineTurn::Taken);
}

#[test]
fn start_later_than_a_stale_clock_reading_is_not_invalid() {
    let ((_directory, one, other), read) = (both(), Instant::now());
    while read.elapsed() < ms(30) {
        std::thread::yield_now();
    }
    let started = Instant::now();
    other.starts(started, 3000);
    assert!(one.view(one.a(), read).is_some());
    assert!(matches!(one.takes(read, 3000), MachineTurn::NotBefore(_)));
    assert!(is_about(one.due(started, 3000), ms(3000)));
}

#[test]
fn turn_released_without_a_start_causes_no_gap() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    assert_eq!(one.takes(now, 3000), MachineTurn::Taken);
    one.release(one.a());
    assert_eq!(other.takes(now, 3000), MachineTurn::Taken);
}

/// The request may have been sent at any time until the process was killed.
#[test]
fn request_of_a_killed_process_counts_as_started_if_it_was_leaving() {
    for (leaving, gone, due) in [(false, false, 0), (true, false, 3000), (true, true, 2000)] {
        let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
        assert_eq!(one.takes(now, 3000), MachineTurn::Taken);
        if leaving {
            one.leaves(now, 3000, false);
        }
        if gone {
            one.leaves(now + ms(4000), 3000, true);
        }
        let waits = other.takes(now + ms(5000), 3000);
        assert_eq!(matches!(waits, MachineTurn::NotBefore(_)), gone, "while the process is alive: {waits:?}");
        end(one, &other);
        assert!(is_about(other.due(now + ms(5000), 3000), ms(due)), "{leaving} {gone}");
    }
}

/// The request may have been sent at any time until now, when another key needs the slot.
#[test]
fn leaving_request_of_a_killed_process_is_not_evicted_within_its_gap() {
    let ((_directory, one, other), now) = (both(), Instant::now() + ms(1_000_000));
    assert_eq!(one.takes(now, 3000), MachineTurn::Taken);
    one.leaves(now, 3000, false);
    let (slot, later) = (other.find(other.a()).expect("the key"), micros(now + ms(5000)));
    assert_eq!(slot.over(later, |process| other.lives(process)), u64::MAX, "the process with the turn is alive");
    end(one, &other);
    assert!(slot.over(later, |process| other.lives(process)) >= later + 3_000_000);
}

#[test]
fn debts_of_a_hosts_groups_are_found_without_their_delays() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    assert_eq!(other.debt(other.a(), now), [None; 2]);
    for (name, later, delay) in
        [("a#5us", 0, 9000), ("a#9us", 500, 3000), ("a:81", 700, 90_000), ("b#5us", 800, 90_000)]
    {
        let starts = LastStarts { last_start: Some(now + ms(later)), ..LastStarts::default() };
        one.owe(one.id(name), starts, now + ms(later + delay));
    }
    assert!(one.take_right("http://a"));
    let debt = other.debt(other.a(), now + ms(1000)).map(|at| at.expect("the debt is known") - now);
    assert!(is_about(debt[0], ms(500)) && is_about(debt[1], ms(9000)), "{debt:?}");
}

#[test]
fn turn_of_an_earlier_process_with_the_same_number_is_free() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    let slot = one.slot(one.a());
    let start = gap(1000);
    // A process may have ended, and another may have taken its number.
    for before in [other.me ^ 1 << 16, one.me ^ 1 << 16] {
        assert_eq!(slot.take(start, before, (micros(now), 1), |_| true), Some(MachineTurn::Taken));
        assert_eq!(other.takes(now, 1000), MachineTurn::Taken);
        other.release(other.a());
        slot.take(start, before, (micros(now), 1), |_| true);
        assert_eq!(one.takes(now, 1000), MachineTurn::Taken, "an ended process has no turn");
        one.release(one.a());
        assert!(one.slot(one.id("http://right")).take_right(before, |_| true));
        assert!(other.take_right("http://right"), "an ended process has no right");
        other.give_right("http://right");
    }
}

#[test]
fn first_fetches_delay_each_other_but_not_requests() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    let fetch = MachineStart { is_fetch: true, ..gap(3000) };
    assert_eq!(one.take(one.a(), fetch, now), MachineTurn::Taken);
    one.left(one.a(), fetch, now, true);
    one.release(one.a());
    assert!(matches!(other.take(other.a(), fetch, now), MachineTurn::NotBefore(_)));
    assert_eq!(other.due(now, 3000), NOW);
    other.starts(now, 3000);
    assert!(matches!(other.take(other.a(), fetch, now + ms(2000)), MachineTurn::NotBefore(_)));
}

#[test]
fn backoff_latency_and_hold_are_known_to_all_processes() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    assert_eq!(other.view(other.a(), now), None);
    let observed = Observed { backoff: ms(1000), latency: ms(40), refusals: 3 };
    one.learn(one.a(), observed, Some(now + ms(5000)));
    let view = other.view(other.a(), now).expect("the key's state is known");
    let latency = view.observed.latency;
    assert_eq!(view.observed, Observed { latency, ..observed });
    assert!(latency >= ms(40) && latency <= ms(40) * 101 / 100, "{latency:?}");
    assert!(view.starts.hold.is_some_and(|hold| is_about(hold - now, ms(5000))));
    assert!(is_about(other.due(now, 0), ms(5000)));
    other.learn(other.a(), Observed::default(), None);
    assert_eq!(one.view(one.a(), now + ms(5001)).map(|view| view.observed.backoff), Some(NOW), "backoff over");
    assert_eq!(one.due(now + ms(5001), 0), NOW);
}

/// If there is no hold, the time for which refusals are kept counts from now.
#[test]
fn consecutive_refusals_are_kept_for_an_hour() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.learn(one.a(), Observed { refusals: 1, ..Observed::default() }, None);
    let now = micros(now);
    assert!(other.find(other.a()).expect("the key").over(now, |_| true) >= now + 3_600_000_000);
}

#[test]
fn debts_outlive_their_process() {
    let (directory, now) = (place(), Instant::now());
    let one = open(&directory);
    one.starts(now, 30_000);
    let (b, earlier) = (one.id("b"), now - ms(1000));
    one.owe(b, LastStarts { last_start: Some(earlier), ..LastStarts::default() }, now + ms(9000));
    drop(one);
    let next = open(&directory);
    let seen = |id| next.view(id, now).map(|view| (view.starts.last_start, view.owed.map(|owed| owed - now)));
    for (id, start, owed) in [(next.a(), now, ms(30_000)), (b, earlier, ms(9000))] {
        let Some((Some(last), Some(owes))) = seen(id) else { panic!("no debt") };
        assert!(is_about(last.duration_since(start) + start.duration_since(last), NOW) && is_about(owes, owed));
    }
    assert_eq!(seen(next.id("c")), None);
    assert_eq!(next.view(next.a(), now + ms(30_001)).and_then(|view| view.owed), None);
}

#[test]
fn words_without_a_file_are_private_and_have_room_for_many_hosts() {
    let (one, other, now) = (Machine::unnamed(MOST), Machine::unnamed(MOST), Instant::now());
    one.starts(now, 3000);
    assert!(is_about(one.due(now, 3000), ms(3000)));
    assert_eq!(other.due(now, 3000), NOW);
    assert!(!one.is_shared() && one.a() != other.a());
    let first = one.own_bytes();
    for number in 0..100_000 {
        one.owe(one.id(&number.to_string()), LastStarts::default(), now + ms(60_000));
    }
    assert!((0..100_000).all(|number| one.view(one.id(&number.to_string()), now).is_some()));
    assert!((first + 1..100_000 * 256).contains(&one.own_bytes()), "{}", one.own_bytes());
}

type Process = (Arc<Fleet>, Arc<Store>);

fn fleets() -> (TempDir, Process, Process) {
    let directory = place();
    let process = || {
        let link = MachineLink::open(Some(directory.path()), MOST);
        let directory = Some(directory.path().to_owned());
        let settings = StoreSettings { directory, disk: 1 << 20, ..Settings::default().store };
        let store = Arc::new(Store::open(&settings));
        (Arc::new(Fleet::on_machine(link, store.clone())), store)
    };
    let (one, other) = (process(), process());
    (directory, one, other)
}

fn authority(name: &str) -> Authority {
    Authority::from_url(name).expect("an authority")
}

#[tokio::test]
async fn one_process_fetches_and_the_others_wait_for_its_copy() {
    use crate::policy::freshness::Freshness;
    use crate::policy::{Access, Entry, SiteAnswer, Validators};
    use std::time::SystemTime;
    let (_directory, (one, store), (other, _other_store)) = fleets();
    let (a, b) = (authority("http://a"), authority("http://b"));
    let entry = {
        let freshness = Freshness::new(SystemTime::now(), Duration::from_secs(60), 0.0);
        let (status, asked_again, validators) = (200, None, Validators::default());
        let access = Access::Missing;
        Entry::answered(SiteAnswer { access, status, asked_again, is_foreign: false, freshness, validators })
    };
    let Ok(Claim::Fetch(right, None)) = one.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None).await else {
        panic!("the right is free")
    };
    let waits = other.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None);
    let publishes = async {
        sleep(ms(20)).await;
        let entry = Arc::new(entry);
        let right = right.publish(entry.clone(), false).expect("the right is held until the store has the copy");
        store.save(SiteFile::Robots.of(&a), &entry);
        right.give_back(store.clone()).await;
    };
    let (claimed, ()) = tokio::join!(waits, publishes);
    assert!(matches!(claimed, Ok(Claim::Stored)));
    // The copy is too old for a claim with `anew`.
    let Ok(Claim::Fetch(right, None)) = other.claim(SiteFile::Robots.of(&a), Acceptable::Anew, None).await else {
        panic!("the file may be fetched")
    };
    drop(right);
    // A failed fetch counts for all, until it may be tried again.
    let failed = |wait| Arc::new(Entry::default().failed(SystemTime::now(), "status 503", Some(wait), 0.0));
    store.save(SiteFile::Robots.of(&b), &failed(Duration::from_secs(60)));
    store.written(&SiteFile::Robots.of(&b).to_string()).await;
    assert!(matches!(other.claim(SiteFile::Robots.of(&b), Acceptable::Fresh, None).await, Ok(Claim::Stored)));
    assert!(matches!(other.claim(SiteFile::Robots.of(&b), Acceptable::Anew, None).await, Ok(Claim::Fetch(..))));
}

/// The process with the right may be stopped.
#[tokio::test(start_paused = true)]
async fn wait_for_another_processs_fetch_ends_after_a_minute() {
    let ((_directory, (one, _one_store), (other, _other_store)), a) = (fleets(), authority("http://a"));
    let Ok(Claim::Fetch(right, None)) = one.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None).await else {
        panic!("the right is free")
    };
    let began = tokio::time::Instant::now();
    let Ok(Claim::Fetch(second, None)) = other.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None).await else {
        panic!("the wait is over")
    };
    assert!(began.elapsed() >= Duration::from_secs(60), "{:?}", began.elapsed());
    drop(second);
    let second = timeout(Duration::from_secs(1), other.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None)).await;
    assert!(second.is_err(), "the first process still has the right");
    drop(right);
    let second = timeout(Duration::from_secs(1), other.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None)).await;
    assert!(matches!(second, Ok(Ok(Claim::Fetch(..)))));
}

/// A process keeps the right after the fetch, until the store has the copy. So its next claim may come while it still holds the right.
#[tokio::test(start_paused = true)]
async fn second_claim_of_a_process_waits_for_its_first_right() {
    let ((_directory, (one, _one_store), (other, _other_store)), a) = (fleets(), authority("http://a"));
    let Ok(Claim::Fetch(right, None)) = one.claim(SiteFile::Robots.of(&a), Acceptable::Fresh, None).await else {
        panic!("the right is free")
    };
    let second = timeout(Duration::from_secs(1), one.claim(SiteFile::Robots.of(&a), Acceptable::Anew, None)).await;
    assert!(second.is_err(), "the second claim waits for the first right");
    let others = timeout(Duration::from_secs(1), other.claim(SiteFile::Robots.of(&a), Acceptable::Anew, None)).await;
    assert!(others.is_err(), "other processes wait for the right, too");
    drop(right);
    let others = timeout(Duration::from_secs(1), other.claim(SiteFile::Robots.of(&a), Acceptable::Anew, None)).await;
    assert!(matches!(others, Ok(Ok(Claim::Fetch(..)))));
}

#[test]
fn at_most_one_of_concurrent_processes_gets_the_right() {
    let (_directory, one, other) = both();
    let arrived = AtomicU64::new(0);
    // The threads spin, because a barrier would wake one of them much later.
    let meet = |count| {
        arrived.fetch_add(1, Relaxed);
        while arrived.load(Relaxed) < count {
            hint::spin_loop();
        }
    };
    let ask = |process: &Machine| {
        let ask = |number: u64| {
            meet(number * 4 - 2);
            let name = format!("http://{number}");
            let has_right = process.take_right(&name);
            meet(number * 4);
            process.give_right(&name);
            has_right
        };
        (1..=50_000).map(ask).collect::<Vec<_>>()
    };
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| ask(&other));
        (ask(&one), other.join().unwrap())
    });
    let rights = |of_both: bool| one.iter().zip(&other).filter(|(one, other)| (**one && **other) == of_both).count();
    assert_eq!(rights(true), 0, "of {}", one.len());
    assert!(one.iter().zip(&other).any(|(one, other)| *one || *other));
}

#[test]
fn right_belongs_to_one_process_until_it_is_given_back_or_the_process_ends() {
    let (_directory, one, other) = both();
    let name = |number: u64| format!("http://{number}.example");
    let takes = |process: &Machine, number| process.take_right(&name(number));
    assert!((1..=4).all(|number| takes(&one, number)));
    assert!((1..=4).all(|number| !takes(&one, number) && !takes(&other, number)));
    one.give_right(&name(1));
    assert!(takes(&other, 5) && takes(&other, 1) && !takes(&one, 1));
    one.give_right(&name(1));
    assert!(!takes(&one, 1), "another process has the right");
    end(one, &other);
    assert!((2..=4).all(|number| takes(&other, number)));
}

#[tokio::test]
async fn budget_spending_is_shared_with_other_and_later_processes() {
    use crate::policy::{Budget, Period};
    let (directory, one, other) = both();
    let spend = |within: Option<u64>, heard: Spent| {
        let within = within.map(|most| Budget { requests: Some(most), bytes: None, per: Period::Day, money: None });
        Spend { within, heard, ..Spend::of(Period::Day, 1, 10) }
    };
    let now = |(goes, spent): (bool, Spent)| (goes, spent.requests, spent.bytes);
    let of = |machine: &Machine, key: &'static str, it: Spend| {
        now(budgets::spend(machine.slot(key_id::of_budget(machine.key, key)), &it, at(10)))
    };
    let none = Spent::default();
    assert_eq!(of(&one, "a", spend(Some(2), none)), (true, 1, 10));
    assert_eq!(of(&other, "a", spend(Some(2), none)), (true, 2, 20));
    assert_eq!(of(&one, "a", spend(Some(2), none)), (false, 2, 20));
    assert_eq!(of(&one, "b", spend(Some(2), none)), (true, 1, 10));
    drop((one, other));
    let next = open(&directory);
    let heard = |ends| Spent { ends, requests: 5, bytes: 50 };
    assert_eq!(of(&next, "a", spend(None, heard(86_400))), (true, 6, 60), "a higher count heard replaces a lower one");
    assert_eq!(of(&next, "a", spend(None, heard(2 * 86_400))), (true, 7, 70), "a count of another day is ignored");
    let unsent = |ends| Spend { heard: Spent { ends, ..none }, ..Spend::of(Period::Day, -1, 0) };
    assert_eq!(of(&next, "a", unsent(2 * 86_400)), (true, 7, 70), "a payment of another day is not given back");
    assert_eq!(of(&next, "a", unsent(86_400)), (true, 6, 70));
    let slot = next.slot(key_id::of_budget(next.key, "a"));
    assert_eq!(now(budgets::spend(slot, &spend(Some(1), none), at(86_400))), (true, 1, 10), "another day");
    assert_eq!(now(budgets::spend(slot, &spend(Some(1), none), at(10))), (false, 1, 10), "the later day continues");
    assert_eq!(now(budgets::spend(slot, &spend(Some(2), none), at(10))), (true, 2, 20));
    assert_eq!(now(budgets::spend(slot, &spend(Some(2), none), at(2 * 86_400 - 1))), (false, 2, 20));
    assert_eq!(now(budgets::spend(slot, &spend(Some(1), none), at(4 * 86_400 - 1))), (true, 1, 10));
    assert_eq!(now(budgets::spend(slot, &spend(Some(1), none), at(86_400))), (false, 1, 10), "set back by days");
    assert_eq!(now(budgets::spend(slot, &spend(Some(2), none), at(86_400))), (true, 2, 20));
    assert_eq!(now(budgets::spend(slot, &spend(Some(2), none), at(2 * 86_400))), (false, 2, 20));
    assert_eq!(now(budgets::spend(slot, &spend(Some(2), none), at(3 * 86_400))), (true, 1, 10), "a new count");
    assert!(next.spend("a", &spend(None, none)).await.is_ok());
    // The count of bytes also lasts for as long, and no longer, even if spending is refused meanwhile.
    let most = Budget { requests: None, bytes: Some(10), per: Period::Day, money: None };
    let in_bytes = Spend { within: Some(most), heard: none, ..Spend::of(Period::Day, 1, 10) };
    let slot = next.slot(key_id::of_budget(next.key, "bytes"));
    let goes = [3, 1, 2, 3, 4].map(|day| budgets::spend(slot, &in_bytes, at(day * 86_400)).0);
    assert_eq!(goes, [true, false, false, true, true]);
    // Months without a request must not look like a clock that was set back.
    for days in 1..180 {
        let slot = next.slot(key_id::of_budget(next.key, &days.to_string()));
        let goes = [200, 200 + days].map(|day| budgets::spend(slot, &in_bytes, at(day * 86_400)).0);
        let is_near = (168..171).contains(&days);
        assert!(goes == [true, true] || is_near, "{days}: {goes:?}");
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
