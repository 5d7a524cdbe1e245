//! Tests of the store from outside: what survives, what is shared, what is dropped, what is moved aside.

use super::batch::WriteBatch;
use super::disk::Disk;
use super::queue::Outage;
use super::*;
use crate::policy::freshness::Freshness;
use crate::policy::{Authority, SiteAnswer, SiteFile, Validators};
use crate::robots::RobotsTxt;
use futures_util::FutureExt;
use redb::ReadableTable;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn settings(directory: &Path, disk: u64) -> config::StoreSettings {
    config::StoreSettings {
        directory: Some(directory.to_owned()),
        disk,
        memory: 64 * MIB,
        ..config::Settings::default().store
    }
}

fn open(settings: &config::StoreSettings) -> Store {
    Store::open(settings, false)
}

/// A store that writes nothing. What waits to be written is what the test wants to wait.
pub(in crate::gate) fn unwritten() -> Store {
    let directory = tempfile::tempdir().unwrap().path().to_owned();
    let disk = WriterShared {
        location: Location { directory, size: MIB.into() },
        most_queued: LEAST_QUEUED.into(),
        is_shared: false,
        disk: Default::default(),
        queue: Mutex::default(),
        more: Default::default(),
        written: Default::default(),
        room: Default::default(),
        stalled: Mutex::default(),
    };
    Store { disk: Some(Arc::new(disk)), writer: Mutex::default() }
}

impl Store {
    /// Returns when all queued changes are written, or cannot be.
    fn flush(&self) {
        let disk = self.disk.as_ref().unwrap();
        let mut queue = disk.queue.lock();
        while queue.outage.is_none() && (!queue.next.is_empty() || !queue.writing.is_empty()) {
            disk.written.wait(&mut queue);
        }
    }

    pub(in crate::gate) fn fall_behind(&self) {
        let large = entry(&"-".repeat(400_000));
        (0..)
            .take_while(|_| !self.is_behind())
            .for_each(|number| self.save(SiteFile::Robots.of(&authority(number)), &large));
    }

    pub(in crate::gate) fn catch_up(&self) {
        let disk = self.disk.as_ref().unwrap();
        disk.queue.lock().next = WriteBatch::default();
        disk.room.notify_waiters();
    }
}

fn is_open(store: &Store) -> bool {
    store.disk.as_ref().is_some_and(|disk| disk.disk.read().is_some())
}

/// Opens the same file as another process would.
fn disk(directory: &Path) -> Disk {
    Location { directory: directory.to_owned(), size: MIB.into() }.open(false).unwrap()
}

fn authority(number: usize) -> Authority {
    Authority::from_url(&format!("https://host{number}.example")).unwrap()
}

fn entry(body: &str) -> Arc<Entry> {
    let access = Access::Rules(RobotsTxt::parse(body.as_bytes()));
    let freshness = Freshness::new(SystemTime::now(), Duration::from_secs(3600), 0.5);
    let validators = Validators::new(Some("\"v1\""), None);
    Arc::new(Entry::answered(SiteAnswer { validators, ..SiteAnswer::new(access, 200, freshness) }))
}

fn load(store: &Store, number: usize) -> Option<String> {
    let entry = store.load(SiteFile::Robots.of(&authority(number)), |_, body| {
        Some(Access::Rules(RobotsTxt::parse(&body(&|_| true)?)))
    })?;
    match &entry.answer.as_ref()?.access {
        Access::Rules(robots) => Some(String::from_utf8_lossy(robots.source()).into_owned()),
        Access::Reservations(_) | Access::Licenses(_) | Access::Missing => None,
    }
}

fn files(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn what_is_kept_is_its_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(disk(directory.path()));
    let mode = fs::metadata(directory.path().join("robots.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn copies_survive_a_restart_and_can_be_read_before_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let store = open(&settings);
    for number in 0..100 {
        store.save(SiteFile::Robots.of(&authority(number)), &entry(&format!("Disallow: /{}", number % 3)));
        assert_eq!(load(&store, number).unwrap(), format!("Disallow: /{}", number % 3));
    }
    drop(store);
    let store = open(&settings);
    for number in 0..100 {
        assert_eq!(load(&store, number).unwrap(), format!("Disallow: /{}", number % 3));
    }
    assert_eq!(load(&store, 100), None);
}

#[test]
fn the_newest_entry_wins_and_lets_go_of_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    for round in 0..3 {
        let store = open(&settings);
        store.save(SiteFile::Robots.of(&authority(0)), &entry(&format!("# {round}")));
        store.close();
        assert_eq!(load(&open(&settings), 0).unwrap(), format!("# {round}"));
    }
    let disk = disk(directory.path());
    assert_eq!((disk.authorities(), disk.bodies()), (1, 1));
}

#[test]
fn what_found_no_room_does_not_come_back_older() {
    let directory = tempfile::tempdir().unwrap();
    let settings = config::StoreSettings { memory: 0, ..settings(directory.path(), 64 * MIB) };
    let store = open(&settings);
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# old"));
    store.flush();
    // The disk stalls from here on.
    let stalled = store.disk.as_ref().unwrap().stalled.lock();
    let large = "# new".to_owned() + &"-".repeat(400_000);
    for number in (0..30).rev() {
        store.save(SiteFile::Robots.of(&authority(number)), &entry(&large));
    }
    assert_eq!(load(&store, 29).as_deref(), Some(&*large), "read before it is written");
    assert_eq!(load(&store, 0), None, "there was no room for the new one, and the old one is none");
    drop(stalled);
    store.flush();
    assert_eq!(load(&store, 0), None);
    drop(store);
    let store = open(&settings);
    assert_eq!((load(&store, 29), load(&store, 0)), (Some(large), None));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# newest"));
    assert_eq!(load(&store, 0).as_deref(), Some("# newest"));
}

#[test]
fn what_found_no_room_costs_neither_memory_nor_the_rest_of_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let settings = config::StoreSettings { memory: 0, ..settings(directory.path(), 64 * MIB) };
    let store = open(&settings);
    for number in 0..1000 {
        store.save(SiteFile::Robots.of(&authority(number)), &entry("# old"));
    }
    store.flush();
    let stalled = store.disk.as_ref().unwrap().stalled.lock();
    let new = entry("# new");
    for number in (500..1000).chain(1000..100_000) {
        store.save(SiteFile::Robots.of(&authority(number)), &new);
    }
    assert!(store.queued_bytes() < LEAST_QUEUED + 2 * MIB as usize, "{}", store.queued_bytes());
    assert!((500..1000).all(|number| load(&store, number).is_none_or(|robots| robots == "# new")));
    drop(stalled);
    store.flush();
    // A few others may be false positives of the filter.
    let kept = (0..500).filter(|number| load(&store, *number).as_deref() == Some("# old")).count();
    assert!(kept > 450, "{kept}");
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# newest"));
    drop(store);
    let store = open(&settings);
    assert!((500..1000).all(|number| load(&store, number).is_none_or(|robots| robots == "# new")));
    assert_eq!(load(&store, 0).as_deref(), Some("# newest"));
}

#[test]
fn what_found_no_room_twice_is_read_again_once_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let settings = config::StoreSettings { memory: 0, ..settings(directory.path(), 64 * MIB) };
    let store = open(&settings);
    let large = entry(&("# new".to_owned() + &"-".repeat(400_000)));
    for _ in 0..2 {
        let stalled = store.disk.as_ref().unwrap().stalled.lock();
        // The entry is queued, and a newer one is refused.
        store.save(SiteFile::Robots.of(&authority(0)), &entry("# old"));
        (1..30).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &large));
        store.save(SiteFile::Robots.of(&authority(0)), &entry("# lost"));
        assert_eq!(load(&store, 0), None);
        drop(stalled);
        store.flush();
        assert_eq!(load(&store, 0), None);
        store.save(SiteFile::Robots.of(&authority(0)), &entry("# newest"));
        assert_eq!(load(&store, 0).as_deref(), Some("# newest"));
        store.flush();
        assert_eq!(load(&store, 0).as_deref(), Some("# newest"));
    }
}

/// Rows that are left out do not stay as they were before.
#[test]
fn a_commit_that_is_late_leaves_entries_out_and_nothing_older_in_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let disk = disk(directory.path());
    let commit = |body: &str, most: usize| {
        let (mut batch, calls) = (WriteBatch::default(), std::cell::Cell::new(0));
        (0..10).for_each(|number| batch.save(authority(number).to_string().into(), entry(body)));
        let is_late = || calls.replace(calls.get() + 1) >= most;
        disk.commit(&batch, MIB, most == 3, is_late).unwrap()
    };
    assert_eq!((commit("# old", 10), commit("# new", 3)), (0, 7));
    drop(disk);
    let store = open(&settings);
    let left: Vec<_> = (0..10).filter_map(|number| load(&store, number)).collect();
    assert_eq!(left, ["# new"; 3]);
}

#[test]
fn a_store_whose_disk_hangs_is_not_waited_for_without_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 64 * MIB));
    let disk = store.disk.clone().unwrap();
    let stalled = disk.stalled.lock();
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# lost"));
    store.close();
    drop(stalled);
}

/// A disk that is slow is waited for; one that fails is not.
#[tokio::test]
async fn new_files_wait_for_a_slow_disk_and_for_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&config::StoreSettings { memory: 0, ..settings(directory.path(), 64 * MIB) });
    let large = entry(&"-".repeat(400_000));
    let save = |store: &Store, numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &large));
    };
    let disk = store.disk.clone().unwrap();
    let stalled = disk.stalled.lock();
    save(&store, 0..5);
    assert!(store.room().now_or_never().is_some());
    save(&store, 5..15);
    let mut room = std::pin::pin!(store.room());
    assert!((&mut room).now_or_never().is_none(), "half of what may wait does");
    drop(stalled);
    room.await;
    assert!((0..15).all(|number| load(&store, number).is_some()));
    let stalled = disk.stalled.lock();
    save(&store, 15..30);
    assert!(store.room().now_or_never().is_none());
    disk.queue.lock().outage = Some(Outage { until: Instant::now(), pause: Duration::ZERO, is_elsewhere: false });
    assert!(store.room().now_or_never().is_some(), "what fails may fail for long");
    disk.queue.lock().outage = None;
    drop(stalled);
    store.close();
    assert!(store.room().now_or_never().is_some());
}

/// Reading the whole file again, too, takes long on a disk that is slow.
#[test]
fn a_write_begins_with_all_that_comes_before_the_commit() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 64 * MIB));
    let disk = store.disk.clone().unwrap();
    let stalled = disk.stalled.lock();
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# kept"));
    let until = Instant::now() + Duration::from_secs(10);
    while disk.queue.lock().began.is_none() {
        assert!(Instant::now() < until, "it has not begun");
        std::thread::yield_now();
    }
    drop(stalled);
    store.flush();
    while disk.queue.lock().began.is_some() {
        assert!(Instant::now() < until, "it has not ended");
        std::thread::yield_now();
    }
}

/// That much waits is no sign of a slow disk: it may have come at once.
#[test]
fn files_that_come_fast_are_compressed_while_the_disk_keeps_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&config::StoreSettings { memory: 0, ..settings(directory.path(), 64 * MIB) });
    let disk = store.disk.clone().unwrap();
    let stalled = disk.stalled.lock();
    let body = |number: usize| format!("# {number}{}", "-".repeat(400_000));
    (0..15).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &entry(&body(number))));
    assert!(store.is_behind());
    drop(stalled);
    store.flush();
    drop(store);
    let database = redb::Database::open(directory.path().join("robots.redb")).unwrap();
    let bodies = redb::ReadableDatabase::begin_read(&database).unwrap().open_table(tables::BODIES).unwrap();
    let longest = bodies.iter().unwrap().map(|row| row.unwrap().1.value().len()).max();
    assert!(longest.is_some_and(|longest| longest < 10_000), "{longest:?}");
}

#[test]
fn identical_files_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 64 * MIB));
    let entry = entry("User-agent: *\nDisallow: /same\n");
    for number in 0..1000 {
        store.save(SiteFile::Robots.of(&authority(number)), &entry);
    }
    drop(store);
    let disk = disk(directory.path());
    assert_eq!((disk.authorities(), disk.bodies()), (1000, 1));
}

#[test]
fn what_was_used_least_recently_is_dropped_when_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let disk = disk(directory.path());
    let noise = |number: usize| (0..6000).map(|_| fastrand::alphanumeric()).collect::<String>() + &number.to_string();
    for number in (0..2000).step_by(40) {
        let mut batch = WriteBatch::default();
        for number in number..number + 40 {
            batch.save(authority(number).to_string().into(), entry(&noise(number)));
        }
        // The first one is used in every batch.
        batch.used.insert(authority(0).to_string().into());
        disk.commit(&batch, MIB, false, || false).unwrap();
    }
    drop(disk);
    let length = fs::metadata(directory.path().join("robots.redb")).unwrap().len();
    assert!(length < 3 * MIB, "{length}");
    let store = open(&settings);
    let left: Vec<_> = (0..2000).filter(|number| load(&store, *number).is_some()).collect();
    assert!((50..350).contains(&left.len()), "{}", left.len());
    assert_eq!(left[0], 0);
    assert!(left[1..].iter().all(|number| *number >= 2000 - left.len() - 40), "the newest are left: {left:?}");
}

#[test]
fn another_bound_on_the_disk_holds_from_the_next_write() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 1024 * MIB));
    // Bodies that do not compress into each other.
    let body = |number: usize| {
        (0..2000).map(|line| format!("Disallow: /{}\n", number * 7919 + line * line)).collect::<String>()
    };
    (0..200).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &entry(&body(number))));
    store.flush();
    store.resize(&settings(directory.path(), MIB));
    store.save(SiteFile::Robots.of(&authority(200)), &entry(&body(200)));
    store.flush();
    drop(store);
    let left = disk(directory.path()).authorities();
    assert!((1..200).contains(&left), "{left}");
}

#[test]
fn a_foreign_or_damaged_file_is_set_aside_and_a_new_one_begun() {
    let good = tempfile::tempdir().unwrap();
    let store = open(&settings(good.path(), 64 * MIB));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# kept"));
    drop(store);
    let whole = fs::read(good.path().join("robots.redb")).unwrap();
    let mut cases = vec![b"this is not a database".to_vec(), vec![0; 8192], whole[..whole.len() / 2].to_vec()];
    cases.extend([0usize, 8, 64, 128, 200, 256, 300].map(|at| {
        let mut damaged = whole.clone();
        for byte in &mut damaged[at..at + 8] {
            *byte ^= 0xa5;
        }
        damaged
    }));
    for (number, bytes) in cases.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("robots.redb"), bytes).unwrap();
        let store = open(&settings(directory.path(), 64 * MIB));
        assert!(is_open(&store), "case {number}");
        store.save(SiteFile::Robots.of(&authority(1)), &entry("# new"));
        drop(store);
        let store = open(&settings(directory.path(), 64 * MIB));
        assert_eq!(load(&store, 1).as_deref(), Some("# new"), "case {number}");
        assert!(matches!(load(&store, 0).as_deref(), None | Some("# kept")), "case {number}");
        let set_aside = files(directory.path()).iter().any(|name| name.contains(".broken-"));
        assert!(set_aside || load(&store, 0).is_some(), "case {number}: {:?}", files(directory.path()));
    }
}

#[test]
fn another_databases_file_is_not_ours_to_write_in() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("robots.redb");
    let database = redb::Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(redb::TableDefinition::<u64, u64>::new("theirs")).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(is_open(&open(&settings(directory.path(), MIB))));
    assert_eq!(files(directory.path()).len(), 2);
}

#[test]
fn the_second_one_on_a_directory_runs_in_memory_until_the_first_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let first = open(&settings);
    let second = open(&settings);
    assert!(is_open(&first) && !is_open(&second));
    second.save(SiteFile::Robots.of(&authority(0)), &entry("# kept"));
    assert_eq!(load(&second, 0).unwrap(), "# kept");
    drop(first);
    drop(second);
    let third = open(&settings);
    assert!(is_open(&third));
    assert_eq!(load(&third, 0).unwrap(), "# kept");
    assert_eq!(files(directory.path()), ["robots.redb"], "nothing is set aside");
}

#[test]
fn a_directory_that_cannot_be_had_is_no_reason_to_stop() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = open(&settings(&file.path().join("below"), MIB));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# in memory"));
    store.flush();
    assert_eq!(load(&store, 0).unwrap(), "# in memory");
    assert!(!is_open(&store));
    assert!(!open(&settings(file.path(), 0)).is_on_disk());
}

#[test]
fn what_waits_for_a_disk_that_cannot_be_had_is_counted_and_bounded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = open(&settings(&file.path().join("below"), MIB));
    let long = "#".repeat(10_000);
    for number in 0..2000 {
        store.save(SiteFile::Robots.of(&authority(number)), &entry(&long));
    }
    let quarter = 16 * MIB as usize;
    // The filter of outdated authorities counts, too.
    let word = 2 * MIB as usize;
    assert!((quarter..quarter + word).contains(&store.queued_bytes()), "{}", store.queued_bytes());
}

#[test]
fn what_another_version_has_written_is_as_good_as_absent() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let store = open(&settings);
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# old"));
    store.save(SiteFile::Robots.of(&authority(1)), &entry("# old"));
    drop(store);
    let change = |change: &dyn Fn(&redb::WriteTransaction)| {
        let database = redb::Database::open(directory.path().join("robots.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        change(&transaction);
        transaction.commit().unwrap();
    };
    // A record of another version does not affect the others, and its file is dropped with it.
    change(&|transaction| {
        let mut table = transaction.open_table(tables::AUTHORITIES).unwrap();
        let name = authority(0).to_string();
        let (number, body) = table.get(&*name).unwrap().map(|row| (row.value().0, row.value().1)).unwrap();
        table.insert(&*name, (number, body, &b"\x01another"[..])).unwrap();
    });
    let store = open(&settings);
    assert_eq!((load(&store, 0), load(&store, 1).as_deref()), (None, Some("# old")));
    for number in 0..2 {
        store.save(SiteFile::Robots.of(&authority(number)), &entry("# new"));
    }
    drop(store);
    assert_eq!(disk(directory.path()).bodies(), 1);
    // A store of another format is emptied.
    change(&|transaction| {
        transaction.open_table(tables::META).unwrap().insert(tables::FORMAT_KEY, 99).unwrap();
        transaction.open_table(redb::TableDefinition::<&str, u8>::new("paces")).unwrap().insert("x", 1).unwrap();
    });
    let store = open(&settings);
    assert_eq!((is_open(&store), load(&store, 0)), (true, None));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# newest"));
    drop(store);
    assert_eq!(load(&open(&settings), 0).unwrap(), "# newest");
    assert_eq!(files(directory.path()), ["robots.redb"], "nothing is set aside");
}

/// Whether the state after a power cut at this moment opens without a scan of the whole file.
fn is_found_at_once(directory: &Path) -> bool {
    let copy = tempfile::NamedTempFile::new().unwrap();
    fs::copy(directory.join("robots.redb"), copy.path()).unwrap();
    redb::Database::builder().set_repair_callback(|repair| repair.abort()).open(copy.path()).is_ok()
}

#[test]
fn after_a_power_cut_the_file_is_as_after_the_last_commit_and_nobody_walks_through_it() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    assert!(is_found_at_once(directory.path()), "begun");
    for number in 0..10 {
        let mut batch = WriteBatch::default();
        batch.save(authority(number).to_string().into(), entry(&format!("# {number}")));
        disk.commit(&batch, MIB, false, || false).unwrap();
        assert!(is_found_at_once(directory.path()), "written");
    }
}

#[test]
fn trouble_of_the_disk_says_nothing_about_the_file() {
    let location = std::panic::Location::caller();
    for error in [
        redb::Error::PreviousIo,
        redb::Error::DatabaseClosed,
        redb::Error::LockPoisoned(location),
        redb::Error::TransactionPoisoned,
        redb::Error::Io(std::io::ErrorKind::StorageFull.into()),
        redb::Error::Io(std::io::Error::from_raw_os_error(5)),
    ] {
        assert!(matches!(disk::DiskError::from(error), disk::DiskError::Io(_)));
    }
    assert!(matches!(disk::DiskError::from(redb::Error::Corrupted("".into())), disk::DiskError::Unreadable(_)));
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

const DAY: u64 = 86_400;
const HOUR: Duration = Duration::from_secs(3600);

/// Written by one clock, read by another.
fn read_by(written: u64, read: u64) -> Entry {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let access = Access::Rules(RobotsTxt::parse(b"Disallow: /"));
    let freshness = Freshness::new(at(written), Duration::from_secs(DAY), 0.0);
    let entry =
        Entry::answered(SiteAnswer::new(access, 200, freshness)).failed(at(written), "status 503", Some(HOUR), 0.0);
    let mut batch = WriteBatch::default();
    batch.save("x".into(), Arc::new(entry));
    disk.commit(&batch, MIB, false, || false).unwrap();
    disk.read("x", at(read), |_, body| Some(Access::Rules(RobotsTxt::parse(&body(&|_| true)?)))).unwrap().unwrap()
}

#[test]
fn what_a_clock_ahead_has_written_is_believed_no_further_than_it_can_be() {
    for (written, read) in [(10 * DAY, 0), (DAY, 0), (3000, 0)] {
        let entry = read_by(written, read);
        let freshness = entry.answer.as_ref().unwrap().freshness;
        assert_eq!(freshness.age(at(read)), 0);
        assert!(freshness.validated_at() <= at(read) && freshness.expires_at() <= at(read));
        // Not fresh until the clock catches up: it is used, and revalidated as soon as the site can be asked.
        assert_eq!(entry.usable(at(read)).unwrap().1, crate::policy::freshness::CopyState::Refresh);
        let trouble = entry.trouble.as_ref().unwrap();
        assert!(trouble.since <= at(read) && trouble.retry_at <= at(read));
        assert!(entry.may_fetch(at(read)), "a pause that no failure makes holds nobody back");
    }
    let right = read_by(0, 60);
    assert_eq!(right.answer.unwrap().freshness.expires_at(), at(DAY));
    assert_eq!(right.trouble.unwrap().retry_at, at(3600));
}
