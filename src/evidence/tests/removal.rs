//! The removal of segments by `keep`, even if the clock is wrong.

use super::super::reader::{Kind, verify_each};
use super::*;
use flate2::read::MultiGzDecoder;
use std::io::Read;

const CONFIG: &str = "{\"evidence\":{\"keep\":\"9d\"}}";

/// A chain with one segment of each of these ages.
fn aged(times: &[Duration]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for _ in times {
        let evidence = Evidence::open(directory.path(), KEEP, "test-1", CONFIG).unwrap();
        record(&evidence, "http://a.example/", SystemTime::now());
        drop(evidence);
        age(directory.path());
    }
    let now = SystemTime::now();
    rewritten(directory.path(), |segment| now - times[usize::try_from(segment).unwrap() - 1]);
    good(directory.path());
    age(directory.path());
    directory
}

fn segments(directory: &Path) -> Vec<u64> {
    Stored::all(directory).unwrap().iter().map(|stored| stored.number).collect()
}

/// Ages of this many days.
fn days<const N: usize>(days: [u32; N]) -> [Duration; N] {
    days.map(|days| days * KEEP)
}

/// Waits for the writer's helper thread.
pub fn rest(writer: &mut Writer) {
    writer.helper.take().into_iter().for_each(|helper| helper.join().unwrap());
}

/// Opens the chain, and closes it again.
fn restart(directory: &Path) {
    drop(Evidence::open(directory, 9 * KEEP, "test-1", CONFIG).unwrap());
}

#[test]
fn expired_segments_are_removed_and_the_removal_is_recorded() {
    let directory = aged(&days([18, 16, 13, 11, 9, 7, 4, 2]));
    let third = Stored::all(directory.path()).unwrap()[3].first().unwrap().prev;
    let stamp = directory.path().join(format!("00000004-{}.tsr", "ab".repeat(32)));
    fs::write(&stamp, "").unwrap();
    restart(directory.path());
    assert!(!stamp.exists(), "a time stamp is removed with its segment");
    let verified = good(directory.path());
    // Segment 4 ended when segment 5 began, a little over nine days ago.
    assert_eq!((verified.removed_to, segments(directory.path())), (Some(4), (5..=9).collect()));
    // The head of a removed segment is known, but not its records.
    let faults = verify(directory.path(), &[third]).unwrap().faults;
    assert!(faults[0].what.ends_with("belongs to a removed segment, so its records cannot be verified"), "{faults:?}");
    restart(directory.path());
    assert_eq!(good(directory.path()).removed_to, Some(4));
}

/// A segment may be immutable or a mount point; here, a directory has its name.
#[test]
fn segment_that_cannot_be_removed_is_logged_once_and_does_not_block_others() {
    let directory = aged(&days([18, 16, 13, 11, 9, 7, 4, 2]));
    let stored = &Stored::all(directory.path()).unwrap()[1];
    let aside = directory.path().join("aside");
    fs::rename(&stored.path, &aside).unwrap();
    fs::create_dir(&stored.path).unwrap();
    let mut writer = Writer::open(directory.path(), Arc::new(Queue::new(9 * KEEP)), "test-1", CONFIG).unwrap();
    for _ in 0..3 {
        rest(&mut writer);
        writer.look_after(SystemTime::now());
    }
    drop(writer);
    assert_eq!(segments(directory.path()), [2, 5, 6, 7, 8, 9]);
    fs::remove_dir(&stored.path).unwrap();
    fs::rename(&aside, &stored.path).unwrap();
    let mut said = Vec::new();
    let verified = verify_each(directory.path(), &[], |_, _, line| {
        if let Kind::Removed { segment, .. } = line.kind {
            said.push(segment);
        }
    });
    let verified = verified.unwrap();
    assert_eq!((said, verified.faults, verified.removed_to), (vec![1, 2, 3, 4], vec![], Some(4)));
    restart(directory.path());
    assert_eq!(segments(directory.path()), [5, 6, 7, 8, 9], "the segment is removed once that is possible");
    fs::remove_file(&Stored::all(directory.path()).unwrap()[1].path).unwrap();
    let missing = verify(directory.path(), &[]).unwrap().faults;
    let missing: Vec<_> = missing.iter().map(|fault| (fault.segment, &*fault.what)).collect();
    assert_eq!(missing, [(6, "the segment is missing, and no line records its removal")]);
}

/// A removed file takes up disk space for as long as it is open.
#[test]
fn externally_removed_segment_is_closed() {
    let directory = aged(&days([2]));
    let mut writer = Writer::open(directory.path(), Arc::new(Queue::new(9 * KEEP)), "test-1", CONFIG).unwrap();
    let last = *segments(directory.path()).last().unwrap();
    fs::remove_file(&Stored::all(directory.path()).unwrap().pop().unwrap().path).unwrap();
    rest(&mut writer);
    writer.look_after(SystemTime::now());
    assert_eq!(segments(directory.path()).last(), Some(&(last + 1)));
}

/// A damaged segment must not keep itself and later ones from ever being removed.
#[test]
fn damaged_segment_expires_like_others() {
    for damaged in 1..=5 {
        let directory = aged(&days([18, 16, 13, 11, 9, 7, 4, 2]));
        let stored = &Stored::all(directory.path()).unwrap()[damaged - 1];
        fs::write(&stored.path, [0xff; 1000]).unwrap();
        restart(directory.path());
        assert_eq!(segments(directory.path()), (5..=9).collect::<Vec<_>>(), "{damaged}");
        let faults = verify(directory.path(), &[]).unwrap().faults;
        let begins = faults.iter().all(|fault| fault.segment == 5);
        assert!(if damaged <= 4 { faults.is_empty() } else { begins && !faults.is_empty() }, "{damaged}: {faults:?}");
    }
}

/// The copy may have fewer records, if `gzip -k` made it while the segment was written to.
#[test]
fn copy_of_a_segment_is_removed_with_it() {
    let directory = aged(&days([18, 16, 13, 11, 9, 7, 4, 2]));
    let copy = first(directory.path());
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(&copy).unwrap()).read_to_string(&mut text).unwrap();
    fs::write(copy.with_extension(""), &text).unwrap();
    fs::write(&copy, [0xff; 1000]).unwrap();
    restart(directory.path());
    assert!(!copy.exists(), "a remaining copy would count as the segment");
    assert_eq!((good(directory.path()).removed_to, segments(directory.path())), (Some(4), (5..=9).collect()));
}

#[test]
fn report_skips_only_the_damaged_segment() {
    let directory = aged(&days([5, 4, 3, 2]));
    let of = |directory: &TempDir| {
        report::report(directory.path(), report::By::Host, &report::Selection::default()).unwrap().total.requests
    };
    assert_eq!(of(&directory), 4);
    fs::write(&Stored::all(directory.path()).unwrap()[1].path, [0xff; 1000]).unwrap();
    assert_eq!(of(&directory), 3);
    assert!(!verify(directory.path(), &[]).unwrap().faults.is_empty());
}

#[test]
fn clock_far_ahead_expires_at_most_a_third_of_keep() {
    let directory = aged(&days([9, 7, 5, 4, 2, 1]));
    let mut writer = Writer::open(directory.path(), Arc::new(Queue::new(9 * KEEP)), "test-1", CONFIG).unwrap();
    assert_eq!(segments(directory.path()), (1..=7).collect::<Vec<_>>());
    let year = SystemTime::now() + 365 * KEEP;
    rest(&mut writer);
    writer.look_after(year);
    // The first one ended seven days ago, and three days of the clock's jump count: ten days, more than `keep`.
    assert_eq!(segments(directory.path()), (2..=8).collect::<Vec<_>>());
    rest(&mut writer);
    writer.look_after(year + Duration::from_secs(60));
    assert_eq!(segments(directory.path()), (2..=8).collect::<Vec<_>>(), "a later run removes no further segment");
    drop(writer);
    good(directory.path());
}

#[test]
fn clock_in_1970_at_a_start_removes_nothing() {
    let far = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let [a, b, c] = days([6, 5, 1]);
    let directory = aged(&[a, b, far, c]);
    restart(directory.path());
    assert_eq!(segments(directory.path()), (1..=5).collect::<Vec<_>>());
}

#[test]
fn shortened_keep_removes_older_segments_at_once() {
    let (directory, queue) = (aged(&days([8, 7, 6, 5, 4, 2, 1])), Arc::new(Queue::new(9 * KEEP)));
    let mut writer = Writer::open(directory.path(), queue.clone(), "test-1", CONFIG).unwrap();
    queue.keep.store(2 * KEEP.as_secs(), Relaxed);
    rest(&mut writer);
    writer.look_after(SystemTime::now());
    drop(writer);
    assert_eq!(good(directory.path()).removed_to, Some(5));
}

#[test]
fn segment_before_ones_dated_in_the_future_expires_like_others() {
    let directory = aged(&days([24, 23, 22, 20, 18, 12]));
    let (now, ago) = (SystemTime::now(), days([24, 0, 0, 20, 18, 12]));
    rewritten(directory.path(), |segment| match segment {
        2 => now + 7 * KEEP,
        3 => now + 9 * KEEP,
        _ => now - ago[usize::try_from(segment).unwrap() - 1],
    });
    age(directory.path());
    restart(directory.path());
    assert_eq!(good(directory.path()).removed_to, Some(1));
}

/// Appends to the last segment, which is uncompressed, a line that says that `segment` was removed.
fn forge(directory: &Path, segment: u64, of: Hash) {
    let last = Stored::all(directory).unwrap().pop().unwrap();
    let (mut head, mut forged) = (verify(directory, &[]).unwrap().head, Vec::new());
    let (name, time) = (digits(&of), crate::rfc3339::millis(SystemTime::now()));
    let line = format!("{{\"type\":\"removed\",\"time\":\"{time}\",\"segment\":{segment},\"head\":\"{name}\"}}\n");
    record::link(&mut head, line.as_bytes(), &mut forged);
    OpenOptions::new().append(true).open(last.path).unwrap().write_all(&forged).unwrap();
}

#[test]
fn removal_record_about_a_later_segment_is_a_forgery() {
    let directory = written(1);
    forge(directory.path(), 7, good(directory.path()).head);
    assert_eq!(faults(directory.path()), [(1, Some(7))]);
}

#[test]
fn noted_head_of_a_removed_segment_does_not_verify() {
    let (directory, noted) = (tempfile::tempdir().unwrap(), [7; 32]);
    let path = directory.path().join("00000002-20261122T183000Z.jsonl");
    let (mut head, mut out) = (noted, Vec::new());
    let time = "\"time\":\"2026-11-22T18:30:00.000Z\"";
    record::link(&mut head, format!("{{\"type\":\"segment\",{time},\"segment\":2}}\n").as_bytes(), &mut out);
    fs::write(&path, out).unwrap();
    forge(directory.path(), 1, noted);
    good(directory.path());
    assert_eq!(verify(directory.path(), &[noted]).unwrap().faults.len(), 1);
}
