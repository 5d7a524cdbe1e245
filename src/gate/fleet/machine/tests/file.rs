//! The file itself: new, grown, full, damaged, foreign, truncated, from an earlier boot.

use super::super::slots::FILE;
use super::*;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};

fn writable(directory: &TempDir) -> File {
    File::options().write(true).open(directory.path().join(FILE)).expect("our own file")
}

#[test]
fn new_file_is_small_and_its_disk_space_is_reserved() {
    let (directory, _one, _other) = both();
    let file = std::fs::metadata(directory.path().join(FILE)).expect("the file");
    assert!(file.len() < 5 << 20, "{}", file.len());
    assert!(file.blocks() * 512 >= file.len(), "{} of {}", file.blocks() * 512, file.len());
}

/// Bytes of the file.
fn length(directory: &TempDir) -> u64 {
    std::fs::metadata(directory.path().join(FILE)).expect("the file").len()
}

/// A crawl may wait for a million hosts at a time.
#[test]
fn debts_of_a_million_hosts_are_all_known() {
    for (hosts, most) in [(100, 5 << 20), (1_000_000, 101_000_000)] {
        let ((directory, one, other), now) = (both(), Instant::now());
        let starts = LastStarts { last_start: Some(now), ..LastStarts::default() };
        let id = |number: usize| one.id(&format!("h{number}.example#10000000us"));
        (0..hosts).for_each(|number| one.owe(id(number), starts, now + ms(600_000)));
        assert_eq!((other.keys(), one.is_full_told.load(Relaxed)), (hosts, false), "each host keeps its own slot");
        let owed = |number| other.view(id(number), now).and_then(|view| view.owed);
        assert!((0..hosts).step_by(97).all(|number| owed(number).is_some()));
        let length = length(&directory);
        assert!(length <= most, "{hosts} hosts take {length} bytes");
    }
}

#[test]
fn turn_of_a_living_process_is_not_evicted_from_a_full_bucket() {
    let (_directory, mut one, mut other) = both();
    (one.most_segments, other.most_segments) = (1, 1);
    let (now, id) = (1_000_000_000, |number: u64| number << 40 | 1);
    for number in 1..=14 {
        let taken = one.with_slot(id(number), now, |slot| slot.take(gap(0), one.me, (now, 1 << 40), |_| true));
        assert_eq!(taken, Some(Some(MachineTurn::Taken)));
    }
    assert_eq!(other.with_slot(id(15), now, |_| ()), None);
    assert!((1..=14).all(|number| other.find(id(number)).is_some()));
    assert!(one.with_slot(5 << 16, now, |_| ()).is_some(), "the lock is free again");
}

/// The kernel writes a page once for all that was written to it within half a minute.
#[test]
fn new_host_with_a_delay_writes_a_fraction_of_a_page() {
    for (hosts_a_second, delay, most) in [(30, 10, 130), (30, 60, 330), (300, 10, 100)] {
        let (directory, one, _other) = both();
        let (zero, window) = (Instant::now() + ms(1_000_000), hosts_a_second * 30);
        let (mut written, mut before) = (0, std::fs::read(directory.path().join(FILE)).expect("the file"));
        for number in 0..window * 6 {
            let at = zero + ms(number * 1000 / hosts_a_second);
            let (site, start) = (format!("h{number}.example"), gap(delay * 1000));
            let (right, id) = (format!("http://{site}"), one.id(&format!("{site}#{delay}000000us")));
            let takes_right = |slot: KeySlot<'_>| slot.take_right(one.me, |_| true);
            assert_eq!(one.with_slot(one.id(&right), micros(at), takes_right), Some(true));
            one.give_right(&right);
            let reserved = one.reserve(id, start, at).expect("no key is being added");
            assert_eq!(one.take(id, reserved, at), MachineTurn::Taken);
            [false, true].into_iter().for_each(|is_gone| one.left(id, reserved, at, is_gone));
            one.release(id);
            if (number + 1) % window == 0 {
                let now = std::fs::read(directory.path().join(FILE)).expect("the file");
                before.resize(now.len(), 0);
                let pages = before.chunks(4096).zip(now.chunks(4096)).filter(|(before, now)| before != now).count();
                // The first hosts use fresh pages.
                written += if number < window * 3 { 0 } else { pages };
                before = now;
            }
        }
        let each = written as u64 * 4096 / (window * 3);
        assert!(each <= most, "{each} bytes for each of {hosts_a_second} hosts a second with a delay of {delay} s");
    }
}

#[test]
fn a_hundred_thousand_reservations_are_found_by_others_and_expired_slots_are_reused() {
    let ((directory, one, other), now) = (both(), 1_000_000_000);
    let ids: Vec<u64> = (0..100_000).map(|number| one.id(&format!("h{number}.example"))).collect();
    let start = gap(60_000);
    for id in &ids {
        assert_eq!(one.with_slot(*id, now, |slot| slot.reserve(start, now)), Some(now));
    }
    for id in &ids {
        let slot = other.find(*id).expect("other processes find the key");
        assert_eq!(slot.reserve(start, now), now + 60_000_000);
    }
    let before = length(&directory);
    assert!(before < 32 << 20, "{before}");
    let later = now + 10_000_000_000;
    for number in 0..100_000 {
        let id = one.id(&format!("later{number}.example"));
        assert!(one.with_slot(id, later, |slot| slot.reserve(start, later)).is_some());
    }
    assert_eq!(length(&directory), before);
}

#[test]
fn full_file_evicts_the_key_that_expires_first() {
    let (_directory, mut one, mut other) = both();
    (one.most_segments, other.most_segments) = (1, 1);
    let (now, room) = (1_000_000_000, 14);
    // All keys are in one bucket.
    let id = |number: u64| number << 40 | 1;
    let owes = |machine: &Machine, number| {
        machine.with_slot(id(number), now, |slot| slot.owe(LastStarts::default(), now + 100_000_000 + number))
    };
    assert!((1..=room).all(|number| owes(&one, number).is_some()));
    let known = |machine: &Machine| (1..=room + 1).filter(|number| machine.find(id(*number)).is_some()).count() as u64;
    assert_eq!((known(&one), known(&other)), (room, room));
    // A turn held by a living process does not expire.
    let first = one.find(id(1)).expect("the key");
    let turn = first.take(gap(0), one.me, (now + 200_000_000, 1 << 40), |_| true);
    assert_eq!(turn, Some(MachineTurn::Taken));
    assert!(owes(&other, room + 1).is_some());
    assert_eq!(known(&one), room);
    assert!(one.find(id(1)).is_some() && one.find(id(2)).is_none());
}

/// Keys come and expire at random, as in a crawl for hours. A look-up ends at a slot that no key has had.
#[test]
fn no_debt_is_lost_while_others_expire_and_the_file_grows() {
    let ((directory, one, other), zero) = (both(), 1_000_000_000);
    let (mut owing, mut number) = (Vec::new(), 0);
    for round in 0..200 {
        let now = zero + round * 1_000_000;
        for _ in 0..fastrand::u64(..200) {
            let (machine, until) =
                (if number % 2 == 0 { &one } else { &other }, now + fastrand::u64(1..60) * 1_000_000);
            let id = machine.id(&format!("h{}.example#{number}us", number / 3));
            number += 1;
            let owes = |slot: KeySlot<'_>| slot.owe(LastStarts::default(), until);
            assert!(machine.with_slot(id, now, owes).is_some());
            owing.push((id, until));
        }
        owing.retain(|(_, until)| *until > now);
        assert!(owing.iter().all(|(id, _)| one.find(*id).is_some() && other.find(*id).is_some()), "{round}");
    }
    assert!(length(&directory) > 400_000, "the file has grown");
}

/// Otherwise, another key could take over the new key's slot before its first use.
#[test]
fn new_key_is_used_before_another_key_is_added() {
    let (_directory, one, other) = both();
    let used = one.with_slot(one.a(), 1, |_| other.with_slot(other.id("b"), 1, |_| ()));
    assert_eq!(used, Some(None));
    assert_eq!(one.with_slot(one.a(), 1, |_| other.with_slot(other.id("b"), 1, |_| ())), Some(Some(())), "a known key");
}

/// If buckets could be predicted, a site could choose names that share another host's bucket.
#[test]
fn bucket_of_a_host_depends_on_the_files_secret() {
    let (here, elsewhere) = (place(), place());
    let (one, again, other) = (open(&here), open(&here), open(&elsewhere));
    assert_eq!(one.a(), again.a());
    assert_ne!(one.a(), other.a());
}

#[test]
fn file_of_another_user_is_refused() {
    let directory = place();
    let file = directory.path().join(FILE);
    let opens = || Machine::open(directory.path(), MOST, NOW);
    drop(open(&directory));
    let mode = std::fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::remove_file(&file).expect("our own file");
    symlink("/etc/passwd", &file).expect("our own file");
    assert!(opens().is_err());
    std::fs::remove_file(&file).expect("our own file");
    drop(open(&directory));
    let Ok(()) = chown(&file, Some(4711), None) else { return };
    assert!(opens().is_err());
}

#[test]
fn open_fails_if_the_file_cannot_be_created_or_is_a_directory() {
    let directory = place();
    let file = directory.path().join("file");
    File::create(&file).expect("is writable");
    assert!(Machine::open(&file, MOST, NOW).is_err());
    std::fs::create_dir(directory.path().join(FILE)).expect("is writable");
    assert!(Machine::open(directory.path(), MOST, NOW).is_err());
    let read_only = place();
    std::fs::set_permissions(read_only.path(), Permissions::from_mode(0o500)).expect("our own file");
    // Root can write there nevertheless.
    let may = File::create(read_only.path().join("x")).is_ok();
    assert_eq!(Machine::open(read_only.path(), MOST, NOW).is_ok(), may);
}

#[test]
fn foreign_or_damaged_file_is_emptied_unless_another_process_uses_it() {
    let now = Instant::now();
    let damages: [&dyn Fn(&File); 5] = [
        &|file| file.write_all_at(b"something else", 0).expect("our own file"),
        &|file| file.set_len(100).expect("our own file"),
        &|file| file.set_len(50_000).expect("our own file"),
        &|file| file.write_all_at(&[0xff; 8], 24).expect("our own file"),
        &|file| file.write_all_at(&[0; 8], 16).expect("our own file"),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let directory = place();
        let one = open(&directory);
        one.starts(now, 30_000);
        damage(&writable(&directory));
        assert!(Machine::open(directory.path(), MOST, NOW).is_err(), "{number}: in use");
        drop(one);
        // A child process just started by another test keeps the descriptors open for a moment.
        let next =
            std::iter::repeat_with(|| Machine::open(directory.path(), MOST, NOW)).flatten().next().expect("endless");
        assert_eq!(next.view(next.a(), now), None, "{number}");
        next.starts(now, 30_000);
    }
}

/// Any process may write nonsense while the file is in use.
#[test]
fn invalid_words_delay_starts_by_at_most_a_gap() {
    let ((directory, one, other), now) = (both(), Instant::now());
    one.starts(now, 1000);
    for (round, nonsense) in [0xff, 0x01, 0x80, 0x7f, 0x00].into_iter().enumerate() {
        let at = now + ms(10_000_000 * (round as u64 + 1));
        writable(&directory).write_all_at(&vec![nonsense; length(&directory) as usize], 0).expect("our own file");
        for machine in [&one, &other] {
            let _ = machine.view(machine.a(), at);
            machine.reserve(machine.a(), gap(1000), at);
            machine.learn(machine.a(), Observed::default(), None);
            assert!(machine.due(at, 1000) <= ms(1020), "{nonsense}");
        }
        // Writes nonsense to each word of the key, too.
        let slot = one.slot(one.a());
        (0..super::super::slot::WORDS).for_each(|word| {
            slot.words[word].store(u64::from_le_bytes([nonsense; 8]), Ordering::Relaxed);
        });
        let view = other.view(other.a(), at).expect("the key");
        assert!(view.observed.backoff <= MOST && view.observed.latency <= MOST);
        assert!(view.starts.hold.is_none_or(|hold| hold <= at + MOST + ms(20)));
        other.reserve(other.a(), gap(1000), at);
        other.learn(other.a(), Observed::default(), None);
        assert!(other.due(at + MOST + ms(20), 1000) <= ms(1020), "{nonsense}");
        assert_eq!(other.due(at + MOST + ms(1100), 1000), NOW, "{nonsense}");
    }
}

#[test]
fn truncated_file_is_replaced_once_all_processes_have_noticed() {
    let ((directory, one, other), now) = (both(), Instant::now());
    assert_eq!(one.takes(now, 3000), MachineTurn::Taken);
    writable(&directory).set_len(100).expect("our own file");
    one.leaves(now, 3000, true);
    assert!(is_about(one.due(now, 3000), ms(3000)), "the process keeps its own pace");
    assert_eq!((other.view(other.a(), now), one.is_shared(), other.is_shared()), (None, false, false));
    let parts = [&one, &other].map(|it| it.part().expect("the process is alone"));
    assert_eq!(parts.map(|phase| phase.instances), [2, 2]);
    assert!(parts[0].rank != parts[1].rank && parts[0].epoch == parts[1].epoch, "each process has its own time slices");
    let opens = || Machine::open(directory.path(), MOST, NOW);
    assert!(!one.is_there() && opens().is_err(), "another process still has the file");
    assert!(!other.is_there() && opens().is_ok());
}

#[test]
fn removed_file_leaves_each_process_its_own_pace() {
    let ((directory, one, other), now) = (both(), Instant::now());
    one.starts(now, 3000);
    std::fs::remove_file(directory.path().join(FILE)).expect("our own file");
    let later = open(&directory);
    assert_eq!(later.takes(now, 3000), MachineTurn::Taken, "a new file");
    assert_eq!([&one, &other].map(Machine::is_shared), [true, true], "neither process has looked for the file");
    assert_eq!(other.takes(now, 3000), MachineTurn::Busy);
    assert_eq!([&one, &other, &later].map(Machine::is_shared), [true, false, true]);
    assert!(is_about(other.due(now, 3000), ms(3000)), "the process whose file was removed keeps its own pace");
}

/// When a machine restarts, its monotonic clock begins again.
#[test]
fn delays_continue_after_a_boot_as_if_no_time_had_passed() {
    let (directory, now) = (place(), Instant::now());
    {
        let one = open(&directory);
        one.starts(now, 3000);
        one.learn(one.a(), Observed { backoff: ms(500), ..Observed::default() }, Some(now + ms(60_000)));
        drop(open(&directory));
        assert!(is_about(one.due(now, 3000), ms(60_000)), "the same boot");
        // The process is killed while it has the turn.
        assert_eq!(one.takes(now + ms(60_001), 3000), MachineTurn::Taken);
        one.leaves(now + ms(10), 3000, true);
    }
    writable(&directory).write_all_at(&[7; 8], 8).expect("our own file");
    let opened = Instant::now();
    let one = open(&directory);
    let due = one.due(opened, 3000);
    assert!(due >= ms(59_980) && due <= ms(60_000) + opened.elapsed(), "the rest of the delay is kept: {due:?}");
}

#[test]
fn budget_spending_survives_a_boot() {
    let (directory, day) = (place(), crate::policy::Period::Day);
    let spend = |machine: &Machine| {
        let spends = |slot: KeySlot<'_>| budgets::spend(slot, &Spend::of(day, 1, 10), at(10)).1;
        machine.with_slot(key_id::of_budget(machine.key, "a"), 1, spends).expect("no key is being added")
    };
    let one = open(&directory);
    one.starts(Instant::now(), 3000);
    spend(&one);
    drop(one);
    writable(&directory).write_all_at(&[7; 8], 8).expect("our own file");
    let spent = spend(&open(&directory));
    assert_eq!((spent.requests, spent.bytes), (2, 20));
}

/// The file has no start from which the time of its last use could be derived.
#[test]
fn hold_without_a_start_ends_after_a_boot() {
    let (directory, now) = (place(), Instant::now());
    {
        let one = open(&directory);
        one.learn(one.a(), Observed { backoff: ms(500), ..Observed::default() }, Some(now + ms(5000)));
    }
    writable(&directory).write_all_at(&[7; 8], 8).expect("our own file");
    let one = Machine::open(directory.path(), ms(10_000), NOW).expect("the file");
    assert!(one.due(now, 0) <= ms(10_100) + now.elapsed());
    assert_eq!(one.due(now + ms(60_000), 0), NOW);
}

/// Another process is stopped in the microseconds in which it adds a key.
#[tokio::test(start_paused = true)]
async fn new_key_is_not_added_while_another_process_adds_one() {
    let ((_directory, one, other), now) = (both(), Instant::now());
    one.starts(now, 1000);
    let machine = Machine::open(_directory.path(), MOST, NOW).expect("the file");
    assert!(machine.guard());
    assert_eq!(other.take(other.id("b"), gap(1000), now), MachineTurn::Busy);
    assert_eq!(other.reserve(other.id("b"), gap(1000), now), None);
    assert_eq!(other.takes(now + ms(1001), 1000), MachineTurn::Taken, "a known key is not affected");
    let spent = timeout(Duration::from_secs(10), other.spend("c", &Spend::of(crate::policy::Period::Day, 1, 0))).await;
    assert!(spent.expect("the payment is given up in time").is_err());
    drop(machine);
    while other.take(other.id("b"), gap(1000), now) == MachineTurn::Busy {
        std::thread::yield_now();
    }
}
