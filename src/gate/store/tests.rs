//! The store as its callers see it: what survives, what is shared, what is dropped, what is set aside.

use super::*;
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Answer, KeyBy, Validators};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn settings(directory: &Path, disk: u64) -> config::Store {
    config::Store { directory: Some(directory.to_owned()), disk, memory: MIB }
}

fn authority(number: usize) -> Authority {
    Authority::from_url(&format!("https://host{number}.example")).unwrap()
}

fn entry(body: &str) -> Arc<Entry> {
    let access = Access::Rules(RobotsTxt::parse(body.as_bytes()));
    let freshness = Freshness::new(SystemTime::now(), Duration::from_secs(3600), 0.5);
    let validators = Validators::new(Some("\"v1\""), None);
    Arc::new(Entry::answered(Answer { access, status: 200, freshness, validators }))
}

fn load(store: &Store, number: usize) -> Option<String> {
    let entry = store.load(&authority(number), |_, body| Some(RobotsTxt::parse(&body()?)))?;
    match &entry.answer.as_ref()?.access {
        Access::Rules(robots) => Some(String::from_utf8_lossy(robots.source()).into_owned()),
        Access::AllowAll | Access::DisallowAll => None,
    }
}

fn files(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn copies_survive_a_restart_and_can_be_read_before_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let store = Store::open(&settings);
    for number in 0..100 {
        store.save(&authority(number), &entry(&format!("Disallow: /{}", number % 3)));
        assert_eq!(load(&store, number).unwrap(), format!("Disallow: /{}", number % 3));
    }
    drop(store);
    let store = Store::open(&settings);
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
        let store = Store::open(&settings);
        store.save(&authority(0), &entry(&format!("# {round}")));
        store.close();
        assert_eq!(load(&Store::open(&settings), 0).unwrap(), format!("# {round}"));
    }
    let disk = Disk::open(directory.path(), MIB).unwrap();
    assert_eq!((disk.authorities(), disk.bodies()), (1, 1));
}

#[test]
fn identical_files_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&settings(directory.path(), 64 * MIB));
    let entry = entry("User-agent: *\nDisallow: /same\n");
    for number in 0..1000 {
        store.save(&authority(number), &entry);
    }
    drop(store);
    let disk = Disk::open(directory.path(), MIB).unwrap();
    assert_eq!((disk.authorities(), disk.bodies()), (1000, 1));
}

#[test]
fn what_was_used_least_recently_is_dropped_when_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let disk = Disk::open(directory.path(), MIB).unwrap();
    let noise = |number: usize| (0..6000).map(|_| fastrand::alphanumeric()).collect::<String>() + &number.to_string();
    let hour = |number: usize| SystemTime::now() + Duration::from_secs(3600 * number as u64);
    for number in (0..400).step_by(8) {
        let mut batch = disk::Batch::default();
        for number in number..number + 8 {
            batch.entries.insert(authority(number).to_string().into(), entry(&noise(number)));
        }
        // The first one is used all the time.
        batch.used.insert(authority(0).to_string().into());
        disk.commit(&batch, hour(number)).unwrap();
    }
    drop(disk);
    let store = Store::open(&settings);
    let left: Vec<_> = (0..400).filter(|number| load(&store, *number).is_some()).collect();
    assert!((50..350).contains(&left.len()), "{}", left.len());
    assert_eq!(left[0], 0);
    assert!(left[1..].iter().all(|number| *number >= 400 - left.len() - 8), "the newest are left: {left:?}");
    let length = fs::metadata(directory.path().join("robots.redb")).unwrap().len();
    assert!(length < 4 * MIB, "{length}");
}

#[test]
fn a_foreign_or_damaged_file_is_set_aside_and_a_new_one_begun() {
    let good = tempfile::tempdir().unwrap();
    let store = Store::open(&settings(good.path(), 64 * MIB));
    store.save(&authority(0), &entry("# kept"));
    drop(store);
    let whole = fs::read(good.path().join("robots.redb")).unwrap();
    let mut cases = vec![b"this is not a database".to_vec(), vec![0; 8192], whole[..whole.len() / 2].to_vec()];
    cases.extend([0usize, 8, 64, 128, 200, 256, 300].map(|at| {
        let mut damaged = whole.clone();
        for octet in &mut damaged[at..at + 8] {
            *octet ^= 0xa5;
        }
        damaged
    }));
    for (number, octets) in cases.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("robots.redb"), octets).unwrap();
        let store = Store::open(&settings(directory.path(), 64 * MIB));
        assert!(store.is_on_disk(), "case {number}");
        store.save(&authority(1), &entry("# new"));
        drop(store);
        let store = Store::open(&settings(directory.path(), 64 * MIB));
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
    assert!(Store::open(&settings(directory.path(), MIB)).is_on_disk());
    assert_eq!(files(directory.path()).len(), 2);
}

#[test]
fn the_second_one_on_a_directory_runs_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 64 * MIB);
    let first = Store::open(&settings);
    let second = Store::open(&settings);
    assert!(first.is_on_disk() && !second.is_on_disk());
    second.save(&authority(0), &entry("# lost"));
    drop((first, second));
    let third = Store::open(&settings);
    assert!(third.is_on_disk());
    assert_eq!(load(&third, 0), None);
    assert_eq!(files(directory.path()), ["robots.redb"], "nothing is set aside");
}

#[test]
fn a_directory_that_cannot_be_had_is_no_reason_to_stop() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(!Store::open(&settings(&file.path().join("below"), MIB)).is_on_disk());
    assert!(!Store::open(&settings(file.path(), 0)).is_on_disk());
}

#[test]
fn a_debt_of_a_second_or_more_is_owed_after_a_restart_and_only_once() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), MIB);
    let key = |number| PaceKey::new(KeyBy::Host, &authority(number), None);
    let now = Instant::now();
    let store = Store::open(&settings);
    let debt = |seconds| Some(Debt { until: now + Duration::from_secs_f32(seconds), backoff: Duration::from_secs(4) });
    store.owe(&key(0), now, || debt(30.0));
    store.owe(&key(0), now, || debt(60.0));
    store.owe(&key(1), now, || debt(0.5));
    store.owe(&key(2), now, || None);
    drop(store);
    let store = Store::open(&settings);
    let owed = store.debt(&key(0), Instant::now()).unwrap();
    let rest = owed.until - now;
    assert!(rest > Duration::from_secs(55) && rest <= Duration::from_secs(61), "{rest:?}");
    assert_eq!(owed.backoff, Duration::from_secs(4));
    assert_eq!([0, 1, 2].map(|number| store.debt(&key(number), now)), [None, None, None]);
}
