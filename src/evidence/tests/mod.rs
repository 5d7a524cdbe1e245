//! Writing and reading the chain: after kills, on full disks, and after it was tampered with.

use super::reader::{Lines, MOST_LINE, Tail};
use super::segment::Stored;
use super::*;
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Authority, SiteAnswer};
use crate::robots::{ParseOptions, RobotsTxt};
use std::fs::{self, OpenOptions};
use std::io::Write;
use tempfile::TempDir;

mod compressed;
mod foreign;
mod opened;
mod past;
mod removal;
mod room;
mod synced;

const KEEP: Duration = Duration::from_secs(86_400);
const ROBOTS: &[u8] = b"User-agent: *\nDisallow: /private/\n";

fn open(directory: &Path) -> Evidence {
    Evidence::open(directory, KEEP, "test-1", "{}").unwrap()
}

/// Waits until the writer has written this many records.
fn until_written(evidence: &Evidence, count: u64) {
    while evidence.figures().written < count {
        std::thread::yield_now();
    }
}

fn record(evidence: &Evidence, url: &str, at: SystemTime) {
    let entry = entry();
    let mut draft = evidence.draft(at);
    draft.text("client", "127.0.0.1");
    draft.text("method", "GET");
    draft.text("url", url);
    draft.texts("product_tokens", ["testbot"].into_iter());
    draft.texts("purpose", std::iter::empty());
    draft.text("outcome", "forwarded");
    draft.text("verdict", "allowed");
    draft.text("reason", "no-matching-rule");
    draft.object("robots", |members| {
        members.number("status", 200);
        members.hash("sha256", &digest());
        members.time("fetched", at - Duration::from_secs(60));
    });
    draft.number("status", 200);
    evidence.put(draft, &config(), [&entry]);
}

fn entry() -> Arc<Entry> {
    let access = Access::Rules(RobotsTxt::parse(ROBOTS));
    Arc::new(Entry::answered(SiteAnswer::new(access, 200, Freshness::new(SystemTime::now(), KEEP, 0.0))))
}

fn digest() -> Hash {
    *digest_of(&entry().answer.as_ref().unwrap().access).unwrap()
}

fn config() -> (Arc<str>, Hash) {
    ("{}".into(), record::sha256(b"{}"))
}

/// A closed chain of this many records.
fn written(records: u64) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    for number in 0..records {
        record(&evidence, &format!("http://a.example/{number}"), SystemTime::now());
    }
    evidence.close();
    assert_eq!(evidence.figures().written, records);
    directory
}

fn good(directory: &Path) -> Verified {
    let verified = verify(directory, &[]).unwrap();
    assert_eq!(verified.faults, []);
    verified
}

/// The places of the faults that `verify` finds.
fn faults(directory: &Path) -> Vec<(u64, Option<u64>)> {
    verify(directory, &[]).unwrap().faults.iter().map(|fault| (fault.segment, fault.line)).collect()
}

fn first(directory: &Path) -> PathBuf {
    Stored::all(directory).unwrap().remove(0).path
}

/// Changes the lines of the first segment.
fn alter(directory: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let text = fs::read_to_string(first(directory)).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(first(directory), lines.join("\n") + "\n").unwrap();
}

/// Compresses all segments, so that the next process begins a new one, as on another day.
fn age(directory: &Path) {
    for stored in Stored::all(directory).unwrap() {
        if !stored.is_compressed {
            stored.compress().unwrap();
        }
    }
}

#[test]
fn each_segment_names_its_instance() {
    let directory = written(1);
    let named = |name: &str, version: Option<&str>, since| Instance {
        name: name.to_owned(),
        version: version.map(str::to_owned),
        since,
    };
    let found = report(directory.path(), By::Host, &Selection::default()).unwrap().basis.instances;
    assert_eq!(found, [named("test-1", Some(env!("CARGO_PKG_VERSION")), found[0].since)]);
    let (at, mut basis) = (|second| SystemTime::UNIX_EPOCH + Duration::from_secs(second), Basis::default());
    for (name, version, second) in
        [("a", None, 1), ("a", Some("1"), 2), ("a", None, 3), ("a", Some("2"), 4), ("a", None, 5), ("b", Some("2"), 6)]
    {
        basis.start(name.to_owned(), version.map(str::to_owned), at(second));
    }
    assert_eq!(
        basis.instances,
        [named("a", Some("1"), at(1)), named("a", Some("2"), at(4)), named("b", Some("2"), at(6))]
    );
    basis.between(Some(at(4)), Some(at(6)));
    assert_eq!(basis.instances, [named("a", Some("2"), at(4))]);
}

#[test]
fn written_chain_verifies() {
    let directory = written(3);
    let verified = good(directory.path());
    assert_eq!((verified.records, verified.segments, verified.bodies, verified.unclean), (3, 1, 2, 0));
    let text = fs::read_to_string(first(directory.path())).unwrap();
    let types: Vec<_> = text.lines().map(|line| line.split("\"type\":\"").nth(1).unwrap()).collect();
    let types: Vec<_> = types.iter().map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(types, ["segment", "file", "start", "file", "decision", "decision", "decision", "stop"]);
}

#[test]
fn chain_continues_after_an_orderly_stop() {
    let directory = written(2);
    let evidence = open(directory.path());
    record(&evidence, "http://a.example/", SystemTime::now());
    until_written(&evidence, 1);
    let head = from_hex(&evidence.figures().head).unwrap();
    evidence.close();
    let verified = verify(directory.path(), &[head]).unwrap();
    assert_eq!((verified.records, verified.unclean, verified.faults), (3, 0, vec![]));
}

#[test]
fn changed_line_is_detected() {
    let directory = written(3);
    alter(directory.path(), |lines| lines[5] = lines[5].replace("a.example/1", "a.example/2"));
    assert_eq!(faults(directory.path()), [(1, Some(6))]);
}

#[test]
fn removed_line_is_detected() {
    let directory = written(3);
    alter(directory.path(), |lines| drop(lines.remove(5)));
    assert_eq!(faults(directory.path()), [(1, Some(5))]);
}

#[test]
fn swapped_lines_are_detected() {
    let directory = written(4);
    alter(directory.path(), |lines| lines.swap(5, 6));
    assert!(faults(directory.path()).contains(&(1, Some(5))));
}

#[test]
fn added_line_is_detected() {
    let directory = written(2);
    alter(directory.path(), |lines| lines.insert(5, lines[5].clone()));
    assert_eq!(faults(directory.path()).first(), Some(&(1, Some(6))));
}

#[test]
fn removed_first_line_is_detected() {
    let directory = written(2);
    alter(directory.path(), |lines| drop(lines.remove(0)));
    assert_eq!(faults(directory.path()).first(), Some(&(1, Some(1))));
}

#[test]
fn removed_or_truncated_segment_is_detected() {
    let directory = written(1);
    for _ in 0..2 {
        age(directory.path());
        drop(open(directory.path()));
    }
    assert_eq!(good(directory.path()).segments, 3);
    let second = Stored::all(directory.path()).unwrap().remove(1).path;
    let kept = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    assert_eq!(faults(directory.path()), [(2, None)]);
    fs::write(&second, &kept[..kept.len() / 2]).unwrap();
    assert!(faults(directory.path()).iter().any(|(segment, _)| *segment == 2));
    fs::write(&second, &kept).unwrap();
    fs::remove_file(first(directory.path())).unwrap();
    assert_eq!(faults(directory.path()), [(1, None)], "no line records that the segment was removed");
}

#[test]
fn changed_or_removed_file_is_detected_in_a_rebuilt_chain() {
    for (change, expected) in [("Disallow", vec![(1, Some(4))]), ("gone", vec![(1, Some(4))])] {
        let directory = written(2);
        relinked(directory.path(), |line| match change {
            "gone" if line.contains("Disallow") => None,
            _ => Some(line.replace("Disallow: /private", "Disallow: /other")),
        });
        assert_eq!(faults(directory.path()), expected, "{change}");
    }
}

#[test]
fn binary_policy_file_is_stored_byte_for_byte() {
    for bytes in [&b"\xff\xfeU\0"[..], b"a\0b", b"\xef\xbb\xbfUser-agent: *\r\n\"\\\t", b""] {
        let directory = tempfile::tempdir().unwrap();
        let evidence = open(directory.path());
        let access = Access::Rules(RobotsTxt::parse(bytes));
        let entry =
            Arc::new(Entry::answered(SiteAnswer::new(access, 200, Freshness::new(SystemTime::now(), KEEP, 0.0))));
        let digest = *digest_of(&entry.answer.as_ref().unwrap().access).unwrap();
        let mut draft = evidence.draft(SystemTime::now());
        draft.object("robots", |members| members.hash("sha256", &digest));
        evidence.put(draft, &config(), [&entry]);
        evidence.close();
        good(directory.path());
        assert_eq!(stored_file(directory.path(), Some(1), &digest).unwrap(), entry.source().unwrap());
    }
}

#[test]
fn each_segment_contains_the_files_its_records_refer_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut chain = None;
    for _ in 0..3 {
        let evidence = open(directory.path());
        record(&evidence, "http://a.example/", SystemTime::now());
        record(&evidence, "http://a.example/", SystemTime::now());
        drop(evidence);
        age(directory.path());
        let last = Stored::all(directory.path()).unwrap().pop().unwrap();
        assert!(matches!(stored_file(directory.path(), Some(last.number), &digest()), Ok(body) if body == ROBOTS));
        chain = Some(last.number);
    }
    assert_eq!(chain, Some(3));
    assert_eq!(good(directory.path()).bodies, 2, "each segment has the same two files");
}

#[test]
fn truncated_end_is_detected_by_a_noted_head() {
    let directory = written(3);
    let head = good(directory.path()).head;
    alter(directory.path(), |lines| lines.truncate(5));
    assert_eq!(faults(directory.path()), [], "the chain alone does not reveal the loss");
    assert_eq!(verify(directory.path(), &[head]).unwrap().faults.len(), 1);
}

#[test]
fn line_cut_by_a_kill_is_recorded() {
    let directory = written(2);
    // Imitates kill -9: no `stop` line, and half of a record.
    alter(directory.path(), |lines| lines.truncate(6));
    let cut = "{\"prev\":\"00\",\"type\":\"decis";
    OpenOptions::new().append(true).open(first(directory.path())).unwrap().write_all(cut.as_bytes()).unwrap();
    assert!(good(directory.path()).is_cut);
    drop(open(directory.path()));
    let verified = good(directory.path());
    assert_eq!((verified.records, verified.unclean, verified.is_cut), (2, 1, false));
    let text = fs::read_to_string(first(directory.path())).unwrap();
    let start: serde_json::Value = serde_json::from_str(text.lines().nth(7).unwrap()).unwrap();
    assert_eq!((&start["cut"], &start["cut_bytes"]), (&cut.into(), &cut.len().into()));
}

#[test]
fn trailing_zeros_of_a_power_loss_are_removed() {
    let directory = written(2);
    let file = OpenOptions::new().append(true).open(first(directory.path())).unwrap();
    let length = file.metadata().unwrap().len();
    for zeros in [1, 4096, MOST_LINE as u64 + 1] {
        file.set_len(length + zeros).unwrap();
        let verified = good(directory.path());
        assert_eq!((verified.records, verified.is_cut, verified.zeros), (2, true, zeros), "the zeros are reported");
    }
    drop(open(directory.path()));
    let verified = good(directory.path());
    assert_eq!((verified.records, verified.unclean, verified.is_cut, verified.zeros), (2, 1, false, 0));
}

#[test]
fn incomplete_first_line_of_a_segment_is_rewritten() {
    for begun in ["", "{\"prev\":\""] {
        let directory = written(1);
        age(directory.path());
        fs::write(directory.path().join("00000002-20261122T183000Z.jsonl"), begun).unwrap();
        assert!(good(directory.path()).is_cut, "the incomplete start is not a fault");
        drop(open(directory.path()));
        let verified = good(directory.path());
        assert_eq!((verified.segments, verified.unclean), (2, u64::from(!begun.is_empty())));
    }
}

#[test]
fn directory_is_used_by_one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    let other = Evidence::open(directory.path(), KEEP, "test-2", "{}");
    let error = other.err().unwrap().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    assert!(good(directory.path()).is_written);
    evidence.close();
    drop(evidence);
    assert!(!good(directory.path()).is_written);
    drop(open(directory.path()));
}

fn tail_of(stored: &Stored) -> Result<Tail, ReadError> {
    Tail::of(stored, Lines::of(stored)?)
}

#[test]
fn last_line_and_torn_rest_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tail");
    for (text, length, last, torn) in
        [("", 0, None, ""), ("a\n", 2, Some("a\n"), ""), ("a\nb\nc", 4, Some("b\n"), "c"), ("torn", 0, None, "torn")]
    {
        fs::write(&path, text).unwrap();
        let stored = Stored { number: 1, began: SystemTime::UNIX_EPOCH, path: path.clone(), is_compressed: false };
        let tail = tail_of(&stored).unwrap();
        assert_eq!((tail.length, tail.last.as_deref()), (length, last.map(str::as_bytes)));
        assert_eq!(tail.torn, torn.as_bytes());
    }
}

#[test]
fn only_the_end_of_a_long_segment_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tail");
    let stored = Stored { number: 1, began: SystemTime::UNIX_EPOCH, path: path.clone(), is_compressed: false };
    let line = |length: usize| format!("{}\n", "x".repeat(length - 1));
    let begin = line(4 << 20).repeat(5);
    for (before, last, torn) in
        [(10, 10, 0), (10, 10, 7), (1 << 16, 1 << 16, 0), (9, 2, 1 << 17), (3 << 20, 2 << 20, 1 << 20), (5, 4 << 20, 3)]
    {
        let whole = begin.clone() + &line(before) + &line(last);
        fs::write(&path, whole.clone() + &"t".repeat(torn)).unwrap();
        let tail = tail_of(&stored).unwrap();
        assert_eq!((tail.length, tail.last.map(|it| it.len())), (whole.len() as u64, Some(last)), "{before} {last}");
        assert_eq!(tail.torn.len(), torn, "{before} {last}");
    }
    let file = fs::File::create(&path).unwrap();
    file.set_len(MOST_LINE as u64 + 10).unwrap();
    (&file).write_all(b"x\n").unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\n").unwrap();
    assert!(matches!(tail_of(&stored), Err(ReadError::TooLong)), "this program writes no line of this length");
}

#[test]
fn full_segment_is_compressed_and_the_chain_continues() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Arc::new(Queue::new(KEEP));
    let mut writer = Writer::open(directory.path(), queue.clone(), "test-1", "{}").unwrap();
    writer.chain.next_segment(SystemTime::now(), false);
    let (entry, config) = (entry(), config());
    for _ in 0..2 {
        let mut draft = Draft::new("decision", SystemTime::now());
        draft.hash("config", &record::sha256(b"{}"));
        draft.object("robots", |members| members.hash("sha256", &digest()));
        draft.end(|line| queue.put(line, Some(&config), [&entry], SystemTime::now()));
        let Some(batch) = queue.take(writer::Batch::default(), Duration::ZERO) else { panic!("a record is queued") };
        writer.write(&batch);
        writer.chain.next_segment(SystemTime::now(), false);
    }
    queue.close();
    // Waits for the compressing thread. Segments that became full meanwhile are left to the next start.
    writer.run();
    let verified = good(directory.path());
    assert_eq!((verified.segments, verified.records, verified.bodies), (4, 2, 2));
    drop(open(directory.path()));
    let all = Stored::all(directory.path()).unwrap();
    assert_eq!(all.iter().map(|stored| stored.is_compressed).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(good(directory.path()).records, 2);
}

#[test]
fn directory_with_the_name_of_a_segment_is_reported() {
    let directory = written(1);
    let path = directory.path().join("00000002-20261122T183000Z.jsonl");
    fs::create_dir(&path).unwrap();
    let opened = Evidence::open(directory.path(), KEEP, "test-1", "{}").err().unwrap();
    assert!(opened.to_string().contains(&*path.to_string_lossy()), "{opened}");
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let opened = Evidence::open(directory.path(), KEEP, "test-1", "{}").err().unwrap();
    assert!(opened.to_string().contains(&*path.to_string_lossy()), "{opened}");
}

/// That user could have put a link to a file of root's in the place of a segment, which would be compressed into a readable file.
#[test]
fn root_does_not_write_evidence_for_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = written(2);
    std::os::unix::fs::chown(directory.path(), Some(4711), None).unwrap();
    let before = fs::read_dir(directory.path()).unwrap().count();
    let said = Evidence::open(directory.path(), KEEP, "test-1", "{}").err().unwrap().to_string();
    assert!(said.contains("belongs to the user 4711: run this as that user"), "{said}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), before);
}

#[test]
fn foreign_files_are_not_segments_and_are_reported() {
    let directory = written(1);
    assert_eq!(good(directory.path()).others, Vec::<PathBuf>::new());
    let names = [
        "+0000001-20261122T183000Z.jsonl",
        "00000001.jsonl",
        "0-20261122T183000Z.jsonl",
        "00000000-20261122T183000Z.jsonl",
        "00000007-20261322T183000Z.jsonl",
        "00000007-20261122T1830.jsonl",
        "00000007-.jsonl",
        "1-20261122T183000Z.jsonl",
        "bodies",
        "notes.jsonl.tmp",
    ];
    let body = directory.path().join(format!("bodies/ab/{}.gz", "ab".repeat(32)));
    fs::create_dir_all(body.parent().unwrap()).unwrap();
    fs::write(&body, "another program's").unwrap();
    for name in names.into_iter().filter(|name| *name != "bodies") {
        fs::write(directory.path().join(name), "{}\n").unwrap();
    }
    let verified = good(directory.path());
    let mut sorted = names.map(PathBuf::from).to_vec();
    sorted.sort();
    assert_eq!((verified.segments, verified.others), (1, sorted));
    drop(open(directory.path()));
    assert_eq!(good(directory.path()).others.len(), names.len(), "foreign files are left alone");
    assert!(body.exists());
}

/// Rewrites the chain as if its segments had been written at these times.
fn rewritten(directory: &Path, at: impl Fn(u64) -> SystemTime) {
    let time = |number| crate::rfc3339::millis(at(number));
    relinked_as(directory, |number, line| {
        let (before, after) = line.split_once("\"time\":\"")?;
        Some(format!("{before}\"time\":\"{}{}", time(number), &after[time(number).len()..]))
    });
    for stored in Stored::all(directory).unwrap() {
        let name = format!("{:08}-{}.jsonl", stored.number, time(stored.number)[..19].replace(['-', ':'], "") + "Z");
        fs::rename(&stored.path, directory.join(name)).unwrap();
    }
}

/// Rewrites the chain with changed lines. `None`: without the line.
fn relinked(directory: &Path, change: impl Fn(&str) -> Option<String>) {
    relinked_as(directory, |_, line| change(line));
}

fn relinked_as(directory: &Path, change: impl Fn(u64, &str) -> Option<String>) {
    let mut head = NOTHING;
    for stored in Stored::all(directory).unwrap() {
        let (mut lines, mut out) = (reader::Lines::of(&stored).unwrap(), Vec::new());
        while let Some(line) = lines.next() {
            let text = String::from_utf8(line.unwrap().0.to_vec()).unwrap();
            let rest = format!("{{{}", text.split_once(',').unwrap().1);
            change(stored.number, &rest)
                .into_iter()
                .for_each(|line| record::link(&mut head, line.as_bytes(), &mut out));
        }
        fs::remove_file(&stored.path).unwrap();
        let name = stored.path.to_str().unwrap().trim_end_matches(".gz").to_owned();
        fs::write(name, out).unwrap();
    }
}
