//! Processes of one machine, as far as they differ by their open files.

use super::lease::{HOUR, LEASE, LOOK_AGAIN, NOTED};
use super::slots::BUCKET;
use super::*;
use crate::gate::fleet::{Claim, Fleet};
use crate::policy::pace::Observed;
use crate::policy::{Authority, SiteFile};
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use tempfile::{TempDir, tempdir};
use tokio::time::timeout;

const NOW: Duration = Duration::ZERO;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn place() -> TempDir {
    tempdir().expect("a temporary directory")
}

fn open(directory: &TempDir) -> Machine {
    Machine::open(directory.path()).expect("it is there")
}

fn both() -> (TempDir, Machine, Machine) {
    let directory = place();
    let (one, other) = (open(&directory), open(&directory));
    (directory, one, other)
}

fn request(op: LeaseOp, gap: u64) -> LeaseRequest {
    LeaseRequest {
        op,
        number: 1,
        gap: ms(gap),
        starts: LastStarts::default(),
        backoff: Duration::ZERO,
        observed: Observed::default(),
        is_exact: op != LeaseOp::Take,
        matters: Duration::ZERO,
        most: HOUR,
    }
}

/// Its process ends. Another that some test is starting just then holds on to what was open, for a moment.
fn end(process: Machine, other: &Machine) {
    drop(process);
    let lease = other.slots.id("a").lease();
    while other.slots.count_locked(lease, lease + 1).expect("the file is there") > 0 {
        std::thread::yield_now();
    }
}

impl Machine {
    /// What is asked at once, as of `later`.
    #[track_caller]
    fn at(&self, at: Instant, later: Duration, op: LeaseOp, gap: u64) -> LeaseStatus {
        let asked = self.ask("a", &request(op, gap), at + later);
        asked.expect("the file is there").expect("nobody is at it")
    }

    fn starts(&self, at: Instant) {
        self.notes(at, true);
        self.notes(at, false);
    }

    fn notes(&self, at: Instant, leaving: bool) {
        self.note("a", LastStarts { last_start: Some(at), ..LastStarts::default() }, leaving);
    }
}

fn soon(status: LeaseStatus) -> bool {
    matches!(status.place, TurnPlace::Queued(_))
}

#[test]
fn one_has_the_lease_and_the_next_has_it_with_the_last_start() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    assert_eq!(one.at(now, NOW, LeaseOp::Take, 3000).place, TurnPlace::Leased(LEASE));
    assert!(soon(other.at(now, NOW, LeaseOp::Take, 3000)));
    assert_eq!(one.at(now, NOW, LeaseOp::Keep, 3000).rivals, 2, "it hears of who waits");
    one.starts(now);
    let waits = other.at(now, ms(10), LeaseOp::Take, 3000);
    assert_eq!(
        (waits.place, waits.starts.last_start),
        (TurnPlace::Queued(LOOK_AGAIN), Some(now)),
        "not before it is due"
    );
    one.at(now, ms(20), LeaseOp::Give, 3000);
    // Who gave it up stands behind, for a moment.
    assert!(soon(one.at(now, ms(30), LeaseOp::Take, 3000)));
    assert!(soon(one.at(now, ms(3100), LeaseOp::Take, 3000)));
    let has = other.at(now, ms(3000), LeaseOp::Take, 3000);
    assert_eq!((has.place, has.starts.last_start, has.rivals), (TurnPlace::Leased(LEASE), Some(now), 2));
    other.at(now, ms(3010), LeaseOp::Give, 3000);
    assert_eq!(one.at(now, ms(3020), LeaseOp::Take, 3000).place, TurnPlace::Leased(LEASE));
}

/// Else thousands of hosts would have their file written all the time.
#[test]
fn what_is_kept_on_is_noted_now_and_then() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.at(now, NOW, LeaseOp::Take, 3000);
    assert!(other.slots.lock(other.slots.id("a").bucket(), BUCKET).expect("the file is there"));
    let keep = |later| one.ask("a", &request(LeaseOp::Keep, 3000), now + later);
    assert_eq!(keep(ms(1000)).expect("the file is there").expect("it writes nothing").place, TurnPlace::Leased(LEASE));
    assert!(keep(NOTED).expect("the file is there").is_none(), "it has to be noted again");
}

#[test]
fn without_others_a_process_that_gave_it_up_has_it_again() {
    let ((_directory, one, _other), now) = (both(), Instant::now());
    for _ in 0..3 {
        assert_eq!(one.at(now, NOW, LeaseOp::Take, 3000).place, TurnPlace::Leased(LEASE));
        one.at(now, NOW, LeaseOp::Give, 3000);
    }
}

#[test]
fn what_has_been_kept_is_known_whenever_its_process_ended() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.at(now, NOW, LeaseOp::Take, 3000);
    one.starts(now);
    assert!(soon(other.at(now, NOW, LeaseOp::Take, 3000)));
    end(one, &other);
    let has = other.at(now, ms(10), LeaseOp::Take, 3000);
    assert_eq!((has.place, has.starts.last_start, has.rivals), (TurnPlace::Leased(LEASE), Some(now), 1));
}

/// It may have been written at any time until then.
#[test]
fn what_had_not_been_seen_to_leave_when_its_process_was_killed_counts_as_of_then() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.at(now, NOW, LeaseOp::Take, 3000);
    one.notes(now, true);
    assert!(soon(other.at(now, ms(5), LeaseOp::Take, 3000)));
    end(one, &other);
    for (later, start) in [(20_000, 20_000), (20_010, 20_000)].map(|(later, start)| (ms(later), now + ms(start))) {
        assert_eq!(other.at(now, later, LeaseOp::Take, 3000).starts.last_start, Some(start));
        other.at(now, later, LeaseOp::Give, 3000);
    }
}

#[test]
fn what_was_given_up_before_it_left_is_not_taken_for_that() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.at(now, NOW, LeaseOp::Take, 3000);
    one.notes(now, true);
    one.at(now, ms(10), LeaseOp::Give, 3000);
    assert_eq!(other.at(now, ms(20), LeaseOp::Take, 3000).starts.last_start, Some(now));
}

#[test]
fn what_others_have_started_is_known_to_a_process_that_comes_back() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    other.at(now, NOW, LeaseOp::Take, 3000);
    other.starts(now);
    other.at(now, NOW, LeaseOp::Give, 3000);
    for _ in 0..2 {
        // It gives up, and has forgotten what it knew.
        assert_eq!(one.at(now, ms(5), LeaseOp::Take, 3000).starts.last_start, Some(now));
        one.at(now, ms(5), LeaseOp::Give, 3000);
    }
}

#[test]
fn a_start_that_nobody_made_binds_nobody() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.at(now, NOW, LeaseOp::Take, 3000);
    let starts = LastStarts { last_start: Some(now), ..LastStarts::default() };
    let kept = LeaseRequest { starts, ..request(LeaseOp::Keep, 3000) };
    one.ask("a", &kept, now).expect("the file is there");
    one.at(now, NOW, LeaseOp::Give, 3000);
    assert_eq!(other.at(now, NOW, LeaseOp::Take, 3000).starts.last_start, None);
}

#[test]
fn without_a_delay_nobody_needs_it_until_the_origin_asks_for_time() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    assert_eq!(one.at(now, NOW, LeaseOp::Take, 0).place, TurnPlace::Free);
    assert!(!other.is_held_back("a", now));
    let starts = LastStarts { hold: Some(now + ms(5000)), ..LastStarts::default() };
    let (backoff, matters) = (ms(1000), ms(6000));
    let refused = LeaseRequest { starts, backoff, matters, is_exact: false, ..request(LeaseOp::Give, 0) };
    one.ask("a", &refused, now).expect("the file is there").expect("nobody is at it");
    assert!(other.is_held_back("a", now));
    let told = other.at(now, NOW, LeaseOp::Take, 0);
    assert_eq!(
        (told.place, told.starts.hold, told.backoff),
        (TurnPlace::Leased(LEASE), Some(now + ms(5000)), ms(1000))
    );
    // Without the lease one can only raise what is known, not lower it.
    let more = LeaseRequest { backoff: ms(2000), ..refused };
    for told in [more, refused] {
        one.ask("a", &told, now).expect("the file is there").expect("nobody is at it");
    }
    other.starts(now);
    assert_eq!(other.at(now, NOW, LeaseOp::Keep, 0).backoff, NOW, "it has been told that it has passed");
    assert_eq!(other.at(now, ms(5001), LeaseOp::Give, 0).starts.last_start, Some(now));
    assert!(!one.is_held_back("a", now + ms(5001)));
}

#[test]
fn all_waiting_requests_are_counted() {
    let (directory, now) = (place(), Instant::now());
    let all: Vec<_> = (0..6).map(|_| open(&directory)).collect();
    for (before, each) in all.iter().enumerate() {
        let rivals = each.at(now, NOW, LeaseOp::Take, 1000).rivals;
        assert_eq!(rivals as usize, before + 1);
    }
    assert_eq!(all[0].at(now, NOW, LeaseOp::Keep, 1000).rivals, 6);
    all[3].at(now, NOW, LeaseOp::Give, 1000);
    assert_eq!(all[0].at(now, NOW, LeaseOp::Keep, 1000).rivals, 5);
}

/// As a machine is after a restart: its clock begins again too.
#[test]
fn after_a_boot_no_time_has_passed() {
    let (directory, now) = (place(), Instant::now());
    let file = directory.path().join("politely.pace3");
    {
        let one = open(&directory);
        let starts = LastStarts { hold: Some(now + ms(60_000)), ..LastStarts::default() };
        let taken = LeaseRequest { starts, backoff: ms(500), ..request(LeaseOp::Take, 3000) };
        one.ask("a", &taken, now).expect("the file is there");
        one.starts(now);
        drop(open(&directory));
        assert_eq!(one.at(now, NOW, LeaseOp::Keep, 3000).starts.last_start, Some(now), "the same boot");
    }
    File::options().write(true).open(&file).expect("it is ours").write_all_at(&[7; 8], 0).expect("it is ours");
    let opened = Instant::now();
    let one = open(&directory);
    let has = one.at(opened, ms(50), LeaseOp::Take, 3000);
    let start = has.starts.last_start.expect("it is owed");
    assert!(start >= opened && start <= Instant::now() + ms(60), "the start counts as of now");
    let hold = has.starts.hold.expect("it is owed");
    assert!(hold >= opened + ms(59_999), "and what was left is left");
}

/// There is no start or lease by which the file's last moment could be known.
#[test]
fn after_a_boot_what_an_origin_has_asked_for_ends() {
    let (directory, now) = (place(), Instant::now());
    {
        let one = open(&directory);
        let starts = LastStarts { hold: Some(now + ms(5000)), ..LastStarts::default() };
        let refused = LeaseRequest { starts, backoff: ms(500), matters: ms(6000), ..request(LeaseOp::Give, 0) };
        one.ask("a", &refused, now).expect("the file is there");
    }
    let file = directory.path().join("politely.pace3");
    File::options().write(true).open(&file).expect("it is ours").write_all_at(&[7; 8], 0).expect("it is ours");
    let (one, most) = (open(&directory), ms(10_000));
    let held = |later| {
        let asked = LeaseRequest { most, ..request(LeaseOp::Take, 3000) };
        let status = one.ask("a", &asked, now + later).expect("the file is there");
        status.expect("nobody is at it").starts.hold
    };
    assert!(held(NOW).is_some_and(|hold| hold <= Instant::now() + most));
    assert_eq!(held(ms(60_000)), None);
}

/// The kernel reports any lock, not the first.
#[test]
fn who_waits_is_counted_whatever_else_they_have() {
    let ((directory, one, other), now) = (both(), Instant::now());
    let third = open(&directory);
    let elsewhere = request(LeaseOp::Take, 1000);
    third.ask("b", &elsewhere, now).expect("the file is there");
    assert_eq!(one.at(now, NOW, LeaseOp::Take, 1000).place, TurnPlace::Leased(LEASE));
    other.at(now, NOW, LeaseOp::Take, 1000);
    third.at(now, NOW, LeaseOp::Take, 1000);
    assert_eq!(one.at(now, NOW, LeaseOp::Keep, 1000).rivals, 3);
}

/// Names of so many hosts that are in one bucket of this machine's file.
fn of_one_bucket(machine: &Machine, count: usize) -> Vec<String> {
    let bucket = |name: &str| machine.slots.id(name).bucket();
    (0..).map(|n| format!("h{n}")).filter(|n| bucket(n) == bucket("h0")).take(count).collect()
}

#[test]
fn hosts_of_one_bucket_keep_out_of_each_others_way() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    let names = of_one_bucket(&one, 9);
    let ask = |machine: &Machine, name: &String, at| {
        machine.ask(name, &request(LeaseOp::Take, 3000), at).expect("the file is there").expect("nobody is at it")
    };
    for (name, machine) in names.iter().zip([&one, &other].into_iter().cycle()) {
        // Without room for the last, that of the first is over soonest.
        assert_eq!(ask(machine, name, now).place, TurnPlace::Leased(LEASE));
    }
    let is_known = |name: &String| one.slots.find(one.slots.id(name)).expect("the file is there").is_some();
    assert_eq!(names.iter().filter(|name| !is_known(name)).collect::<Vec<_>>(), [&names[0]]);
    assert!(soon(ask(&other, &names[0], now)), "whose lease is still its own");
    assert!(soon(ask(&other, &names[8], now)));
}

/// Else who runs a few hosts could choose their names to be in the bucket of another's.
#[test]
fn which_hosts_are_in_one_bucket_is_known_to_nobody_else() {
    let (here, elsewhere) = (place(), place());
    let (one, again, other) = (open(&here), open(&here), open(&elsewhere));
    let names = of_one_bucket(&one, 9);
    let buckets = |machine: &Machine| names.iter().map(|name| machine.slots.id(name).bucket()).collect::<Vec<_>>();
    assert_eq!(buckets(&again), buckets(&one));
    assert!(buckets(&other).windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn what_is_anothers_is_not_trusted_and_what_root_makes_in_anothers_directory_is_that_ones() {
    let directory = place();
    let file = directory.path().join("politely.pace3");
    drop(open(&directory));
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::remove_file(&file).expect("it is ours");
    symlink("/etc/passwd", &file).expect("it is ours");
    assert!(Machine::open(directory.path()).is_none());
    std::fs::remove_file(&file).expect("it is ours");
    let Ok(()) = chown(directory.path(), Some(4711), Some(4712)) else { return };
    drop(open(&directory));
    for name in ["politely.pace3", "politely.copies2"] {
        let it = std::fs::metadata(directory.path().join(name)).expect("it is there");
        assert_eq!((it.uid(), it.gid()), (4711, 4712), "{name}");
    }
    chown(&file, Some(4713), None).expect("root may");
    assert!(Machine::open(directory.path()).is_none());
}

#[test]
fn where_nothing_can_be_made_or_is_no_file_it_goes_on_alone() {
    let directory = place();
    let file = directory.path().join("file");
    File::create(&file).expect("it is writable");
    assert!(Machine::open(&file).is_none());
    std::fs::create_dir(directory.path().join("politely.pace3")).expect("it is writable");
    assert!(Machine::open(directory.path()).is_none());
    let read_only = place();
    std::fs::set_permissions(read_only.path(), Permissions::from_mode(0o500)).expect("it is ours");
    // Root may all the same.
    let may = File::create(read_only.path().join("x")).is_ok();
    assert_eq!(Machine::open(read_only.path()).is_some(), may);
}

#[tokio::test]
async fn what_cannot_be_written_any_more_leaves_each_to_itself_and_keeps_nobody_waiting() {
    let (directory, one, other) = both();
    assert_eq!(one.lease("a", &request(LeaseOp::Take, 3000)).await.map(|it| it.place), Ok(TurnPlace::Leased(LEASE)));
    File::options()
        .write(true)
        .open(directory.path().join("politely.pace3"))
        .and_then(|it| it.set_len(0))
        .expect("ours");
    assert!(one.lease("a", &request(LeaseOp::Keep, 3000)).await.is_err());
    assert_eq!((one.reach().link, one.reach().alone), (0, Some(1)));
    assert!(other.slots.lock(other.slots.id("a").lease(), 1).expect("it is open"), "it is free");
}

/// Another is stopped in the microseconds for which it has locked the bucket.
#[tokio::test(start_paused = true)]
async fn what_another_has_locked_and_does_not_unlock_is_not_waited_for_for_ever() {
    let (_directory, one, other) = both();
    assert!(other.slots.lock(other.slots.id("a").bucket(), BUCKET).expect("the file is there"));
    let take = request(LeaseOp::Take, 3000);
    let asked = timeout(Duration::from_secs(10), one.lease("a", &take)).await;
    assert_eq!(asked.expect("it gives up"), Err(ServerLost));
    other.slots.unlock(other.slots.id("a").bucket(), BUCKET).expect("the file is there");
    assert_eq!(one.lease("a", &take).await.map(|it| it.place), Ok(TurnPlace::Leased(LEASE)), "and asks again");
}

/// Else a host would have no turn until the process asks for it again, which may be never.
#[tokio::test(start_paused = true)]
async fn who_cannot_note_that_it_takes_or_gives_the_lease_keeps_it_from_nobody() {
    use LeaseOp::{Give, Keep, Take};
    // Where it goes on, it may have a request in flight.
    for (has, op, goes_on) in [(false, Take, false), (true, Give, false), (true, Take, true), (true, Keep, true)] {
        let ((directory, one, other), now) = (both(), Instant::now());
        let (stopped, bucket) = (open(&directory), one.slots.id("a").bucket());
        if has {
            assert_eq!(one.at(now, NOW, Take, 3000).place, TurnPlace::Leased(LEASE));
        }
        assert!(stopped.slots.lock(bucket, BUCKET).expect("the file is there"));
        let news = LeaseRequest { backoff: ms(500), ..request(op, 3000) };
        assert_eq!(one.lease("a", &news).await, Err(ServerLost));
        stopped.slots.unlock(bucket, BUCKET).expect("the file is there");
        assert_eq!(soon(other.at(now, NOW, Take, 3000)), goes_on, "{op:?}");
    }
}

fn fleets() -> (TempDir, Arc<Fleet>, Arc<Fleet>) {
    let directory = place();
    let open = || Arc::new(Fleet::on_machine(directory.path()).expect("it is there"));
    let (one, other) = (open(), open());
    (directory, one, other)
}

fn authority(name: &str) -> Authority {
    Authority::from_url(name).expect("an authority")
}

#[tokio::test]
async fn one_fetches_and_the_others_wait_for_that() {
    use crate::policy::freshness::Freshness;
    use crate::policy::{Access, Entry, SiteAnswer, Validators};
    use std::time::SystemTime;
    let (_directory, one, other) = fleets();
    let (a, b) = (authority("http://a"), authority("http://b"));
    let entry = {
        let freshness = Freshness::new(SystemTime::now(), Duration::from_secs(60), 0.0);
        let (status, asked_again, validators) = (200, None, Validators::default());
        let access = Access::Missing;
        Entry::answered(SiteAnswer { access, status, asked_again, is_foreign: false, freshness, validators })
    };
    let Ok(Claim::Fetch(right, None)) = one.claim(SiteFile::Robots.of(&a), false).await else {
        panic!("nobody has it")
    };
    let waits = other.claim(SiteFile::Robots.of(&a), false);
    let publishes = async {
        sleep(ms(20)).await;
        right.publish(Arc::new(entry)).await;
    };
    let (claimed, ()) = tokio::join!(waits, publishes);
    assert!(matches!(claimed, Ok(Claim::Copy(_))));
    // It is not new to who wants a new one.
    let Ok(Claim::Fetch(right, Some(_))) = other.claim(SiteFile::Robots.of(&a), true).await else {
        panic!("it may be fetched")
    };
    drop(right);
    // That it could not be had is each one's to find.
    let failed = Arc::new(Entry::default().failed(SystemTime::now(), "status 503", None, 0.0));
    for fleet in [&one, &other, &one] {
        let Ok(Claim::Fetch(right, None)) = fleet.claim(SiteFile::Robots.of(&b), false).await else {
            panic!("nobody has it")
        };
        right.publish(failed.clone()).await;
    }
}

/// It may be stopped.
#[tokio::test(start_paused = true)]
async fn who_does_not_come_back_with_a_copy_is_not_waited_for_for_ever() {
    let ((_directory, one, other), a) = (fleets(), authority("http://a"));
    let Ok(Claim::Fetch(right, None)) = one.claim(SiteFile::Robots.of(&a), false).await else {
        panic!("nobody has it")
    };
    let began = tokio::time::Instant::now();
    let Ok(Claim::Fetch(second, None)) = other.claim(SiteFile::Robots.of(&a), false).await else {
        panic!("it waits no longer")
    };
    assert!(began.elapsed() >= Duration::from_secs(60), "{:?}", began.elapsed());
    drop(second);
    let second = timeout(Duration::from_secs(1), other.claim(SiteFile::Robots.of(&a), false)).await;
    assert!(second.is_err(), "the first has it still");
    drop(right);
    let second = timeout(Duration::from_secs(1), other.claim(SiteFile::Robots.of(&a), false)).await;
    assert!(matches!(second, Ok(Ok(Claim::Fetch(..)))));
}
