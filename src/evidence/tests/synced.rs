//! A segment's record that fsync failed for the previous segment; the record may be true or forged.

use super::record::link;
use super::*;

/// Begins the second segment with a record of a failed fsync, after this line of the first.
fn says_that_fsync_failed(directory: &Path, prev: Hash, synced: &str, count: u64) -> Hash {
    let (mut head, mut out) = (prev, Vec::new());
    let time = "\"time\":\"2026-11-22T18:30:00.000Z\"";
    let synced = digits(&sha256(format!("{synced}\n").as_bytes()));
    let period = "\"from\":\"2026-11-22T18:30:00.000Z\",\"to\":\"2026-11-22T18:30:00.000Z\"";
    let segment = format!("{{\"type\":\"segment\",{time},\"segment\":2,\"format\":2,\"instance\":\"x\"}}\n");
    link(&mut head, segment.as_bytes(), &mut out);
    let loss = format!("{{\"type\":\"lost\",{time},\"count\":{count},{period},\"synced\":\"{synced}\"}}\n");
    link(&mut head, loss.as_bytes(), &mut out);
    fs::write(directory.join("00000002-20261122T183000Z.jsonl"), out).unwrap();
    head
}

fn faults_with(directory: &Path, head: Hash) -> usize {
    verify(directory, &[head]).unwrap().faults.len()
}

#[test]
fn noted_head_after_missing_lines_does_not_verify() {
    for synced in [0, 3] {
        let directory = written(5);
        let noted = good(directory.path()).head;
        let lines: Vec<_> = fs::read_to_string(first(directory.path())).unwrap().lines().map(str::to_owned).collect();
        let (synced, last) = (&lines[..=synced], lines.last().unwrap());
        fs::write(first(directory.path()), format!("{}\n{last}\n", synced.join("\n"))).unwrap();
        let head = says_that_fsync_failed(directory.path(), noted, synced.last().unwrap(), 0);
        let verified = good(directory.path());
        assert_eq!(verified.lost.len(), 1, "the possible loss is shown");
        assert_eq!(faults_with(directory.path(), noted), 1, "{}", synced.len());
        assert_eq!(faults_with(directory.path(), head), 0, "this head is later than the recorded loss");
        // Nothing changes when the proxy continues the chain.
        drop(open(directory.path()));
        assert_eq!(faults_with(directory.path(), noted), 1);
        assert_eq!(faults_with(directory.path(), good(directory.path()).head), 0);
    }
}

#[test]
fn noted_first_line_does_not_cover_missing_lines_before_it() {
    let directory = written(5);
    let last = good(directory.path()).head;
    alter(directory.path(), |lines| lines.truncate(4));
    let synced = fs::read_to_string(first(directory.path())).unwrap();
    says_that_fsync_failed(directory.path(), last, synced.lines().last().unwrap(), 0);
    good(directory.path());
    let second = Stored::all(directory.path()).unwrap().remove(1);
    let noted = Lines::of(&second).unwrap().next().unwrap().unwrap().1;
    assert_eq!(faults_with(directory.path(), noted), 1);
}

#[test]
fn each_line_verifies_as_a_head_if_nothing_is_missing() {
    let directory = written(5);
    let noted = good(directory.path()).head;
    let text = fs::read_to_string(first(directory.path())).unwrap();
    says_that_fsync_failed(directory.path(), noted, text.lines().nth(3).unwrap(), 3);
    assert_eq!(faults_with(directory.path(), noted), 0);
}
