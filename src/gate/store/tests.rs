//! Tests of the store's interface: which copies survive, are shared or are dropped, and what happens to damaged files.

use super::batch::WriteBatch;
use super::disk::Disk;
use super::queue::Outage;
use super::segments::Segments;
use super::*;
use crate::policy::freshness::Freshness;
use crate::policy::{Authority, SiteAnswer, SiteFile, Validators};
use crate::robots::RobotsTxt;
use futures_util::FutureExt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

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
    Store::open(settings)
}

/// A store without a writer thread, so that changes stay in its queue until the test removes them.
pub(in crate::gate) fn unwritten() -> Store {
    let directory = tempfile::tempdir().unwrap().path().to_owned();
    let disk = WriterShared::new(directory, MIB, LEAST_QUEUED);
    Store { disk: Some(Arc::new(disk)), writer: Mutex::default() }
}

impl Store {
    /// Returns when all queued changes are written, or the disk has failed.
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

fn times(store: &Store, name: &Authority) -> Option<CopyTimes> {
    let key = RecordName::of_entry(&SiteFile::Robots.of(name).to_string());
    let disk = store.disk.as_ref().unwrap();
    disk.on_disk(ReadFrom::Disk, |open| open.times(key, ReadFrom::Disk)).unwrap().flatten()
}

fn is_open(store: &Store) -> bool {
    store.disk.as_ref().is_some_and(|disk| disk.disk.read().is_some())
}

/// Opens the same store as another process would.
fn disk(directory: &Path) -> Disk {
    Disk::open(directory).unwrap()
}

fn key(number: usize) -> RecordName {
    RecordName::of_entry(&SiteFile::Robots.of(&authority(number)).to_string())
}

/// Characters that do not compress to less than half.
fn noise(number: usize, length: usize) -> String {
    let mut random = fastrand::Rng::with_seed(number as u64);
    (0..length).map(|_| random.alphanumeric()).collect()
}

/// Bytes of the records.
fn records(directory: &Path) -> u64 {
    segments::Segments::bytes(directory)
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
fn files_are_readable_by_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), MIB));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# kept"));
    drop(store);
    assert_eq!(files(directory.path()), ["robots.copies.1", "robots.index"]);
    for name in files(directory.path()) {
        let mode = fs::metadata(directory.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
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
fn newest_entry_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    for round in 0..3 {
        let store = open(&settings);
        store.save(SiteFile::Robots.of(&authority(0)), &entry(&format!("# {round}")));
        store.close();
        assert_eq!(load(&open(&settings), 0).unwrap(), format!("# {round}"));
    }
}

#[test]
fn all_of_a_hundred_thousand_entries_are_found() {
    for count in [100, 100_000] {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let (mut batch, robots) = (WriteBatch::default(), entry("Disallow: /x"));
        (0..count).for_each(|number| batch.save(key(number), robots.clone()));
        disk.write(&batch, 1024 * MIB).unwrap();
        let found = |number: usize| disk.times(key(number), ReadFrom::Disk).unwrap().is_some();
        assert_eq!((0..count).filter(|number| found(*number)).count(), count);
        assert!(!found(count));
        let bytes = records(directory.path()) / count as u64;
        assert!(bytes < 120, "{bytes} bytes for each");
    }
}

/// Each store stands for a process.
#[test]
fn entries_written_by_several_processes_at_once_are_found_by_all() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let stores = [open(&settings), open(&settings), open(&settings)];
    thread::scope(|scope| {
        for (which, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for number in (which..3000).step_by(3) {
                    store.save(SiteFile::Robots.of(&authority(number)), &entry(&format!("# {number}")));
                    thread::yield_now();
                }
                store.flush();
            });
        }
    });
    for store in &stores {
        let found: Vec<_> = (0..3000).filter_map(|number| load(store, number).map(|robots| (number, robots))).collect();
        assert_eq!(found.len(), 3000);
        assert!(found.iter().all(|(number, robots)| *robots == format!("# {number}")));
    }
}

#[tokio::test]
async fn written_entry_is_found_by_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let (one, other) = (open(&settings), Arc::new(open(&settings)));
    let name = SiteFile::Robots.of(&authority(0)).to_string();
    let robots = entry("# shared");
    one.save(SiteFile::Robots.of(&authority(0)), &robots);
    one.written(&name).await;
    assert_eq!(load(&other, 0).as_deref(), Some("# shared"));
    let times = other.times(&name).await.unwrap();
    let validated = robots.answer.as_ref().unwrap().freshness.validated_at();
    let milliseconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    assert_eq!(times.validated_at.map(milliseconds), Some(milliseconds(validated)));
    assert!(times.fresh_until > SystemTime::now());
    one.save(SiteFile::Robots.of(&authority(0)), &Arc::new(robots.failed(SystemTime::now(), "gone", None, 0.0)));
    one.written(&name).await;
    assert!(other.times(&name).await.unwrap().has_failed);
}

#[test]
fn entry_refused_by_a_full_queue_is_not_replaced_by_an_older_one() {
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
    assert_eq!(load(&store, 29).as_deref(), Some(&*large), "a queued copy can be read");
    assert_eq!(load(&store, 0), None, "there was no room for the new copy, and the old one is outdated");
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
fn full_queue_takes_bounded_memory_and_keeps_other_stored_entries() {
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
    assert!(store.queued_bytes() < LEAST_QUEUED + 8 * MIB as usize, "{}", store.queued_bytes());
    assert!((500..1000).all(|number| load(&store, number).is_none_or(|robots| robots == "# new")));
    drop(stalled);
    store.flush();
    assert!((0..500).all(|number| load(&store, number).as_deref() == Some("# old")));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# newest"));
    drop(store);
    let store = open(&settings);
    assert!((500..1000).all(|number| load(&store, number).is_none_or(|robots| robots == "# new")));
    assert_eq!(load(&store, 0).as_deref(), Some("# newest"));
}

#[test]
fn store_is_emptied_if_the_queue_has_no_room_for_names() {
    let directory = tempfile::tempdir().unwrap();
    let settings = config::StoreSettings { memory: 0, ..settings(directory.path(), 64 * MIB) };
    let store = open(&settings);
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# old"));
    store.flush();
    let stalled = store.disk.as_ref().unwrap().stalled.lock();
    let new = entry("# new");
    (1..400_000).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &new));
    store.save(SiteFile::Robots.of(&authority(0)), &new);
    assert_eq!(load(&store, 0), None);
    assert!(store.queued_bytes() < LEAST_QUEUED + 24 * MIB as usize, "{}", store.queued_bytes());
    drop(stalled);
    store.flush();
    assert_eq!((load(&store, 0), load(&store, 1).as_deref()), (None, Some("# new")));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# newest"));
    drop(store);
    assert_eq!(load(&open(&settings), 0).as_deref(), Some("# newest"));
}

#[test]
fn entry_refused_twice_is_loaded_once_it_is_written() {
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

#[test]
fn close_gives_up_if_the_disk_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 64 * MIB));
    let disk = store.disk.clone().unwrap();
    let stalled = disk.stalled.lock();
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# lost"));
    store.close();
    drop(stalled);
}

#[tokio::test]
async fn new_files_wait_for_a_slow_disk_but_not_for_a_failing_one() {
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
    assert!((&mut room).now_or_never().is_none(), "fetches wait once the queue is half full");
    drop(stalled);
    room.await;
    assert!((0..15).all(|number| load(&store, number).is_some()));
    let stalled = disk.stalled.lock();
    save(&store, 15..30);
    assert!(store.room().now_or_never().is_none());
    disk.queue.lock().outage = Some(Outage { until: Instant::now(), pause: Duration::ZERO });
    assert!(store.room().now_or_never().is_some(), "fetches do not wait for a disk that fails");
    disk.queue.lock().outage = None;
    drop(stalled);
    store.close();
    assert!(store.room().now_or_never().is_some());
}

/// The time of a write counts from before the queued changes are taken, until they are written.
#[test]
fn write_time_includes_opening_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 64 * MIB));
    let disk = store.disk.clone().unwrap();
    let stalled = disk.stalled.lock();
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# kept"));
    let until = Instant::now() + Duration::from_secs(10);
    while disk.queue.lock().began.is_none() {
        assert!(Instant::now() < until, "the write has not begun");
        std::thread::yield_now();
    }
    drop(stalled);
    store.flush();
    while disk.queue.lock().began.is_some() {
        assert!(Instant::now() < until, "the write has not ended");
        std::thread::yield_now();
    }
}

#[test]
fn identical_files_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let robots = noise(0, 20_000);
    for from in [0, 500] {
        let (store, entry) = (open(&settings), entry(&robots));
        (from..from + 500).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &entry));
    }
    let bytes = records(directory.path());
    assert!(bytes < 20_100 + 1000 * 120, "{bytes}");
    let store = open(&settings);
    assert!([0, 499, 999].iter().all(|number| load(&store, *number).as_ref() == Some(&robots)));
}

/// Host 0's copy is read again and again, and outlives newer ones.
#[test]
fn least_recently_used_copies_are_dropped_when_the_store_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let store = open(&settings);
    for from in (0..2000).step_by(10) {
        (from..from + 10)
            .for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &entry(&noise(number, 6000))));
        store.flush();
        assert!(load(&store, 0).is_some(), "a copy in constant use is kept: {from}");
        store.flush();
    }
    drop(store);
    let bytes = records(directory.path());
    assert!((MIB / 2..MIB).contains(&bytes), "{bytes}");
    let store = open(&settings);
    let left: Vec<_> = (0..2000).filter(|number| load(&store, *number).is_some()).collect();
    assert!((80..300).contains(&left.len()), "{}", left.len());
    assert_eq!(left[0], 0);
    assert!(
        left[1..].iter().all(|number| *number > 1700) && left.ends_with(&[1997, 1998, 1999]),
        "the newest are left: {left:?}"
    );
}

/// The room of a removed file is free only when all processes have closed it.
#[test]
fn idle_process_closes_files_that_others_have_removed() {
    let directory = tempfile::tempdir().unwrap();
    let held = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        let name = |path: PathBuf| path.to_str().unwrap_or_default().to_owned();
        let names = open.filter(|path| path.starts_with(directory.path())).map(name);
        names.filter(|name| name.ends_with(" (deleted)")).count()
    };
    let idle = open(&settings(directory.path(), MIB / 4));
    idle.save(SiteFile::Robots.of(&authority(0)), &entry("# first"));
    idle.flush();
    assert_eq!(load(&idle, 0).as_deref(), Some("# first"));
    let busy = open(&settings(directory.path(), MIB / 4));
    for number in 1..40 {
        busy.save(SiteFile::Robots.of(&authority(number)), &entry(&noise(number, 20_000)));
        busy.flush();
    }
    assert!(held() >= 2, "{}", held());
    idle.disk.as_ref().unwrap().close_removed();
    assert_eq!(held(), 0);
    drop(busy);
    fs::remove_file(directory.path().join(index::FILE)).unwrap();
    idle.disk.as_ref().unwrap().close_removed();
    assert_eq!(held(), 0);
}

#[test]
fn changed_disk_limit_applies_from_the_next_write() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&settings(directory.path(), 1024 * MIB));
    let save = |number: usize| store.save(SiteFile::Robots.of(&authority(number)), &entry(&noise(number, 20_000)));
    (0..200).for_each(save);
    store.flush();
    assert!(records(directory.path()) > 2 * MIB);
    store.resize(&settings(directory.path(), MIB));
    (200..205).for_each(save);
    store.flush();
    assert!(records(directory.path()) < MIB, "{}", records(directory.path()));
    assert_eq!((load(&store, 204), load(&store, 0)), (Some(noise(204, 20_000)), None));
}

/// A command may have a lower limit than the service.
#[test]
fn lower_limit_of_another_process_drops_no_copies_for_a_day() {
    let directory = tempfile::tempdir().unwrap();
    let save = |store: &Store, numbers: std::ops::Range<usize>| {
        numbers.for_each(|n| store.save(SiteFile::Robots.of(&authority(n)), &entry(&noise(n, 20_000))));
        store.flush();
    };
    let service = open(&settings(directory.path(), 1024 * MIB));
    save(&service, 0..200);
    let command = |numbers| save(&open(&settings(directory.path(), MIB)), numbers);
    command(200..205);
    drop(service);
    command(205..210);
    let again = open(&settings(directory.path(), 1024 * MIB));
    assert!((0..210).all(|number| load(&again, number).is_some()));
    drop(again);
    let index = fs::OpenOptions::new().write(true).open(directory.path().join("robots.index")).unwrap();
    let yesterday = SystemTime::now() - Duration::from_secs(25 * 3600);
    std::os::unix::fs::FileExt::write_all_at(&index, &snapshot::millis(yesterday).to_le_bytes(), 40).unwrap();
    command(210..215);
    assert!(records(directory.path()) < MIB, "{}", records(directory.path()));
}

#[test]
fn foreign_or_damaged_index_is_replaced_by_a_new_one() {
    let good = tempfile::tempdir().unwrap();
    let store = open(&settings(good.path(), 64 * MIB));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# kept"));
    drop(store);
    let whole = fs::read(good.path().join("robots.index")).unwrap();
    let mut longer = whole.clone();
    longer.push(0);
    let mut garbled = whole.clone();
    garbled[24..32].fill(0xff);
    let damaged = [whole[..whole.len() / 2].to_vec(), longer, garbled].map(|bytes| (bytes, 0));
    let foreign = [b"".to_vec(), b"no index".to_vec(), vec![0; 8192]].map(|bytes| (bytes, 1));
    for (bytes, set_aside) in damaged.into_iter().chain(foreign) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("robots.index"), &bytes).unwrap();
        fs::copy(good.path().join("robots.copies.1"), directory.path().join("robots.copies.1")).unwrap();
        let store = open(&settings(directory.path(), 64 * MIB));
        assert!(is_open(&store));
        assert_eq!(load(&store, 0), None);
        store.save(SiteFile::Robots.of(&authority(1)), &entry("# new"));
        drop(store);
        assert_eq!(load(&open(&settings(directory.path(), 64 * MIB)), 1).as_deref(), Some("# new"));
        let files = files(directory.path());
        assert_eq!(
            files.iter().filter(|name| name.starts_with("robots.index.broken-")).count(),
            set_aside,
            "{files:?}"
        );
    }
}

/// A process that was stopped meanwhile, or waited for a site that does not answer, may write last.
#[test]
fn entry_validated_earlier_does_not_replace_a_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let (one, other) = (open(&settings), open(&settings));
    let at = |days: u64, robots: &str| {
        let freshness = Freshness::new(SystemTime::now() - Duration::from_secs(days * DAY), HOUR, 0.0);
        let access = Access::Rules(RobotsTxt::parse(robots.as_bytes()));
        Arc::new(Entry::answered(SiteAnswer::new(access, 200, freshness)))
    };
    let fails = |entry: &Entry| Arc::new(entry.failed(SystemTime::now(), "gone", None, 0.0));
    let (old, new) = (at(3, "# old"), at(2, "# new"));
    other.save(SiteFile::Robots.of(&authority(0)), &new);
    other.flush();
    for late in [old.clone(), fails(&old), fails(&Entry::default())] {
        one.save(SiteFile::Robots.of(&authority(0)), &late);
        one.flush();
        assert_eq!(load(&other, 0).as_deref(), Some("# new"));
    }
    one.save(SiteFile::Robots.of(&authority(0)), &fails(&new));
    one.flush();
    assert!(times(&other, &authority(0)).unwrap().has_failed);
    // A copy dated in the future, by a clock that was ahead, does not count as later.
    let ahead = Freshness::new(SystemTime::now() + Duration::from_secs(DAY), HOUR, 0.0);
    let access = Access::Rules(RobotsTxt::parse(b"# ahead"));
    one.save(SiteFile::Robots.of(&authority(0)), &Arc::new(Entry::answered(SiteAnswer::new(access, 200, ahead))));
    one.flush();
    other.save(SiteFile::Robots.of(&authority(0)), &new);
    other.flush();
    assert_eq!(load(&one, 0).as_deref(), Some("# new"));
}

/// An entry is forgotten, for example, if there was no room for its replacement.
#[test]
fn forgotten_entry_does_not_come_back_if_the_next_fetch_fails() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let (store, other) = (open(&settings), open(&settings));
    let (name, failed) = (authority(0), Arc::new(Entry::default().failed(SystemTime::now(), "gone", None, 0.0)));
    for is_written_between in [true, false] {
        store.save(SiteFile::Robots.of(&name), &entry("# old"));
        store.flush();
        let stalled = (!is_written_between).then(|| store.disk.as_ref().unwrap().stalled.lock());
        store.disk.as_ref().unwrap().queue.lock().next.forget(key(0));
        assert_eq!(load(&store, 0), None);
        if is_written_between {
            store.flush();
        }
        store.save(SiteFile::Robots.of(&name), &failed);
        drop(stalled);
        store.flush();
        assert_eq!((load(&store, 0), load(&other, 0)), (None, None));
        assert!(times(&other, &name).unwrap().has_failed);
    }
}

#[test]
fn foreign_files_in_the_directory_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let names = ["robots.2026112902", "robots.copies.4294967295", "robots.copies.0x1", "robots.copies.1.bak"];
    let numbers = ["robots.copies.0", "robots.copies.01", "robots.copies.+2"];
    let names = [&names[..], &numbers].concat();
    names.iter().for_each(|name| fs::write(directory.path().join(name), "theirs").unwrap());
    assert!(!Segments::are_there(directory.path()).unwrap());
    let store = open(&settings);
    (0..400).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &entry(&noise(number, 6000))));
    drop(store);
    assert!(load(&open(&settings), 399).is_some());
    assert!(names.iter().all(|name| fs::read(directory.path().join(name)).unwrap() == b"theirs"));
}

/// The entries of the old index point into segments that no longer exist, and would seem newer than new records.
#[test]
fn index_without_records_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let store = open(&settings);
    (0..400).for_each(|number| store.save(SiteFile::Robots.of(&authority(number)), &entry(&noise(number, 6000))));
    drop(store);
    let all = files(directory.path()).into_iter().filter(|name| name.starts_with("robots.copies."));
    all.for_each(|name| fs::remove_file(directory.path().join(name)).unwrap());
    let store = open(&settings);
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# new"));
    drop(store);
    let index = fs::metadata(directory.path().join("robots.index")).unwrap().len();
    assert_eq!((index, load(&open(&settings), 0).as_deref()), (8192, Some("# new")));
}

/// Whatever bytes are in the files, a read returns the right record or nothing.
#[test]
fn garbled_records_are_never_returned() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let good = open(&settings);
    (0..20).for_each(|number| good.save(SiteFile::Robots.of(&authority(number)), &entry(&noise(number, 100))));
    drop(good);
    for name in ["robots.copies.1", "robots.index"] {
        let path = directory.path().join(name);
        let (whole, mut random) = (fs::read(&path).unwrap(), fastrand::Rng::with_seed(7));
        for round in 0..200 {
            let mut bytes = whole.clone();
            // Damage to the head of the index, in which case the index is replaced, is the subject of another test.
            let from = if name == "robots.copies.1" { 0 } else { 32 };
            let at = random.usize(from..bytes.len());
            let until = (at + random.usize(1..2000)).min(bytes.len());
            match round % 3 {
                0 => bytes[at..until].fill_with(|| random.u8(..)),
                1 => bytes[at..until].fill(0),
                _ if name == "robots.copies.1" => bytes.truncate(at),
                _ => bytes[at..until].reverse(),
            }
            fs::write(&path, bytes).unwrap();
            let store = open(&settings);
            let found = (0..20).filter_map(|number| load(&store, number).map(|robots| (number, robots)));
            assert!(found.into_iter().all(|(number, robots)| robots == noise(number, 100)), "{name} {round}");
        }
        fs::write(&path, whole).unwrap();
    }
    let store = open(&settings);
    assert!((0..20).all(|number| load(&store, number).is_some()));
}

/// The directory is emptied, or another file put there, while the store is open.
#[test]
fn writes_succeed_after_the_files_are_removed_or_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let store = open(&settings);
    let removals: [&dyn Fn(); 4] = [
        &|| fs::remove_file(directory.path().join("robots.index")).unwrap(),
        &|| {
            let all = files(directory.path()).into_iter().filter(|name| name != "robots.index");
            all.for_each(|name| fs::remove_file(directory.path().join(name)).unwrap());
        },
        &|| fs::remove_dir_all(directory.path()).unwrap(),
        &|| {
            fs::write(directory.path().join("robots.new"), "no index")
                .and_then(|()| fs::rename(directory.path().join("robots.new"), directory.path().join("robots.index")))
                .unwrap()
        },
    ];
    for (number, remove) in removals.iter().enumerate() {
        store.save(SiteFile::Robots.of(&authority(0)), &entry("# before"));
        store.flush();
        remove();
        store.save(SiteFile::Robots.of(&authority(1)), &entry(&format!("# {number}")));
        store.flush();
        let other = open(&settings);
        for store in [&store, &other] {
            assert_eq!(load(store, 1), Some(format!("# {number}")), "{number}");
        }
    }
}

/// If the index is full for one process, it grows, and all processes find the records in it.
#[test]
fn index_grows_for_all_processes_up_to_a_sixteenth_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 4 * MIB);
    let (one, other) = (open(&settings), open(&settings));
    let length = || fs::metadata(directory.path().join("robots.index")).unwrap().len();
    let robots = entry("# the same for all");
    other.save(SiteFile::Robots.of(&authority(1_000_000)), &robots);
    other.flush();
    let mut before = length();
    assert!(before < 16 << 10);
    for (from, until) in [(0, 600), (600, 3000), (3000, 30_000)] {
        (from..until).for_each(|number| one.save(SiteFile::Robots.of(&authority(number)), &robots));
        one.flush();
        assert!(length() > before && length() < 270 << 10, "{}", length());
        before = length();
        assert!(until > 3000 || load(&other, until - 1).is_some(), "{until}");
    }
    let found = (3000..30_000).filter(|number| load(&other, *number).is_some()).count();
    assert!((12_000..17_000).contains(&found), "{found}: the index has 16,384 places");
    other.save(SiteFile::Robots.of(&authority(1_000_000)), &robots);
    other.flush();
    assert!(load(&one, 1_000_000).is_some());
}

#[test]
fn unusable_directory_leaves_the_entries_in_memory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = open(&settings(&file.path().join("below"), MIB));
    store.save(SiteFile::Robots.of(&authority(0)), &entry("# in memory"));
    store.flush();
    assert_eq!(load(&store, 0).unwrap(), "# in memory");
    assert!(!is_open(&store));
    assert!(open(&settings(file.path(), 0)).disk.is_none());
}

#[test]
fn queue_for_an_unusable_directory_is_counted_and_bounded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = open(&settings(&file.path().join("below"), MIB));
    let long = "#".repeat(10_000);
    for number in 0..2000 {
        store.save(SiteFile::Robots.of(&authority(number)), &entry(&long));
    }
    let quarter = 16 * MIB as usize;
    // The names of entries for which there was no room count, too.
    let word = 2 * MIB as usize;
    assert!((quarter..quarter + word).contains(&store.queued_bytes()), "{}", store.queued_bytes());
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

const DAY: u64 = 86_400;
const HOUR: Duration = Duration::from_secs(3600);

/// Writes an entry by a clock that shows `written`, and reads it by one that shows `read`.
fn read_by(written: u64, read: u64) -> Entry {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let access = Access::Rules(RobotsTxt::parse(b"Disallow: /"));
    let freshness = Freshness::new(at(written), Duration::from_secs(DAY), 0.0);
    let entry =
        Entry::answered(SiteAnswer::new(access, 200, freshness)).failed(at(written), "status 503", Some(HOUR), 0.0);
    let mut batch = WriteBatch::default();
    batch.save(key(0), Arc::new(entry));
    disk.write(&batch, MIB).unwrap();
    let read =
        disk.read(key(0), at(read), ReadFrom::Disk, |_, body| Some(Access::Rules(RobotsTxt::parse(&body(&|_| true)?))));
    read.unwrap().unwrap().entry
}

#[test]
fn times_written_by_a_clock_ahead_are_limited_to_now() {
    for (written, read) in [(10 * DAY, 0), (DAY, 0), (3000, 0)] {
        let entry = read_by(written, read);
        let freshness = entry.answer.as_ref().unwrap().freshness;
        assert_eq!(freshness.age(at(read)), 0);
        assert!(freshness.validated_at() <= at(read) && freshness.expires_at() <= at(read));
        // The copy is not fresh until the clock catches up: it is used, and revalidated as soon as the site can be asked.
        assert_eq!(entry.usable(at(read)).unwrap().1, crate::policy::freshness::CopyState::Refresh);
        let trouble = entry.trouble.as_ref().unwrap();
        assert!(trouble.since <= at(read) && trouble.retry_at <= at(read));
        assert!(entry.may_fetch(at(read)), "a pause longer than any failure causes is ignored");
    }
    let right = read_by(0, 60);
    assert_eq!(right.answer.unwrap().freshness.expires_at(), at(DAY));
    assert_eq!(right.trouble.unwrap().retry_at, at(3600));
}
