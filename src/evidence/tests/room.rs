//! Full disks, and records that cannot be written: what is lost, and what is not.

use super::removal::rest;
use super::*;

#[test]
fn records_dropped_for_lack_of_space_are_recorded_as_lost() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    record(&evidence, "http://a.example/", at);
    // This record is too long ever to be written.
    record(&evidence, &"x".repeat(writer::MOST_RECORD), at);
    evidence.close();
    let (figures, verified) = (evidence.figures(), good(directory.path()));
    assert_eq!((figures.written, figures.lost), (1, 1));
    assert_eq!((verified.records, verified.lost), (1, vec![(1, at, at)]));
}

#[test]
fn loss_on_a_full_disk_is_recorded_once_there_is_space() {
    // As on a full disk, the segment cannot grow: its file is replaced by /dev/full.
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, queue) = writer(directory.path());
    let batch = |at| {
        queue.put(b"{\"type\":\"other\",\"time\":\"2001-09-09T01:46:40.000Z\"}\n", None, [], at);
        queue.take(writer::Batch::default(), Duration::ZERO).expect("a record is queued")
    };
    let at = SystemTime::UNIX_EPOCH;
    writer.write(&batch(at));
    let room = writer.chain.segment.fill_up();
    writer.write(&batch(at));
    writer.write(&batch(at + Duration::from_secs(1)));
    assert_eq!((queue.written.load(Relaxed), queue.lost.load(Relaxed)), (1, 2));
    writer.chain.segment.make_room(room);
    writer.failed = None;
    writer.write(&batch(at));
    drop(writer);
    let verified = good(directory.path());
    assert_eq!(verified.lost, [(2, at, at + Duration::from_secs(1))]);
    assert_eq!(queue.written.load(Relaxed), 2);
}

#[test]
fn current_segment_continues_if_the_next_cannot_be_created() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, _) = writer(directory.path());
    let now = SystemTime::now();
    let name = format!("00000002-{}.jsonl", crate::rfc3339::seconds(now).replace(['-', ':'], ""));
    let taken = directory.path().join(name);
    fs::write(&taken, "").unwrap();
    writer.chain.next_segment(now, false);
    assert_eq!(writer.chain.segment.number, 1);
    fs::remove_file(&taken).unwrap();
    writer.chain.next_segment(SystemTime::now(), false);
    assert_eq!(writer.chain.segment.number, 1, "not tried again at once");
}

/// A writer without a thread: it writes when the test calls it.
fn writer(directory: &Path) -> (Writer, Arc<Queue>) {
    let queue = Arc::new(Queue::new(KEEP));
    (Writer::open(directory, queue.clone(), "test-1", "{}").unwrap(), queue)
}

#[test]
fn full_disk_expires_segments_to_record_the_loss() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..6 {
        drop(open(directory.path()));
        age(directory.path());
    }
    let now = SystemTime::now();
    // At the start, no segment is due for removal. Later the first segment is due, which ended when the second began.
    rewritten(directory.path(), |segment| now - (7 - u32::try_from(segment).unwrap()) * (KEEP / 8));
    let (mut writer, queue) = writer(directory.path());
    rest(&mut writer);
    queue.keep.store(KEEP.as_secs() / 16 * 9, Relaxed);
    let room = writer.chain.segment.fill_up();
    writer.look_after(now);
    assert_eq!(Stored::all(directory.path()).unwrap()[0].number, 2);
    writer.chain.segment.make_room(room);
    queue.close();
    writer.run();
    assert_eq!(good(directory.path()).removed_to, Some(1));
}

#[test]
fn removed_directory_is_recreated_and_the_loss_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("evidence");
    let evidence = open(&kept);
    record(&evidence, "http://a.example/1", SystemTime::now());
    until_written(&evidence, 1);
    fs::remove_dir_all(&kept).unwrap();
    record(&evidence, "http://a.example/2", SystemTime::now());
    until_written(&evidence, 2);
    record(&evidence, "http://a.example/3", SystemTime::now());
    until_written(&evidence, 3);
    assert!(Evidence::open(&kept, KEEP, "test-2", "{}").is_err(), "one process still has the lock");
    evidence.close();
    let verified = verify(&kept, &[]).unwrap();
    assert_eq!((verified.segments, verified.records), (1, 2));
    assert_eq!(verified.faults.iter().map(|fault| fault.segment).collect::<Vec<_>>(), [1], "{:?}", verified.faults);
}

#[test]
fn writing_to_a_full_disk_is_retried_periodically() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, queue) = writer(directory.path());
    let write = |writer: &mut Writer| {
        let line = b"{\"type\":\"other\",\"time\":\"2001-09-09T01:46:40.000Z\"}\n";
        queue.put(line, None, [], SystemTime::now());
        let Some(batch) = queue.take(writer::Batch::default(), Duration::ZERO) else { panic!("a record is queued") };
        writer.write(&batch);
    };
    let room = writer.chain.segment.fill_up();
    write(&mut writer);
    writer.chain.segment.make_room(room);
    write(&mut writer);
    assert_eq!(queue.lost.load(Relaxed), 2, "the retry waits, as there may be room only for the line about the loss");
    writer.failed = None;
    write(&mut writer);
    queue.close();
    writer.run();
    let verified = good(directory.path());
    assert_eq!(verified.lost.iter().map(|(count, ..)| *count).collect::<Vec<_>>(), [2], "the loss is recorded once");
}

/// A site must not be able to prevent records of its visits by serving long files.
#[test]
fn records_of_sites_with_long_files_are_all_kept() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    for number in 0..60 {
        let text = format!("# {number}\n{}", "Disallow: /a-section-of-the-site\n".repeat(15_000));
        let access = Access::Rules(RobotsTxt::parse(text.as_bytes()));
        let answer = SiteAnswer::new(access, 200, Freshness::new(SystemTime::now(), KEEP, 0.0));
        let digest = *digest_of(&answer.access).unwrap();
        let mut draft = evidence.draft(SystemTime::now());
        draft.text("url", &format!("http://host-{number}.example/"));
        draft.object("robots", |members| members.hash("sha256", &digest));
        evidence.put(draft, &config(), [&Arc::new(Entry::answered(answer))]);
    }
    evidence.close();
    let figures = evidence.figures();
    assert_eq!((figures.written, figures.lost), (60, 0));
}
