//! The state at a past time, and the totals of records.

use super::*;

/// Writes a record of a request to a.example, with these additional members.
fn put(evidence: &Evidence, at: SystemTime, members: impl FnOnce(&mut Draft)) {
    let mut draft = evidence.draft(at);
    draft.text("method", "GET");
    draft.text("url", "http://a.example/");
    members(&mut draft);
    evidence.put(draft, &config(), [&entry()]);
}

#[test]
fn past_rules_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    let second = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + second);
    record(&evidence, "http://a.example/1", second(0));
    record(&evidence, "http://b.example/1", second(50));
    record(&evidence, "http://a.example/2", second(100));
    evidence.close();
    let authority = Authority::from_url("http://a.example").unwrap();
    let past = |at, url| find(directory.path(), &authority, url, at).unwrap().0;
    let found = past(second(70), "http://a.example/1").unwrap();
    assert_eq!((found.known.at(), found.last.last().map(|same| same.at())), (second(0), Some(second(0))));
    assert!(matches!(found.robots, Some(PastCopy { file: PastFile::Body(ref body), .. }) if body == ROBOTS));
    assert_eq!(found.config.as_deref(), Some("{}"));
    assert!(found.robots(&ParseOptions::default(), second(70)).usable(second(70)).is_some());
    // A time before the first record, but after its robots.txt had been fetched.
    assert_eq!(past(second(0) - Duration::from_secs(30), "").unwrap().known.at(), second(0));
    assert!(past(second(0) - Duration::from_secs(90), "").is_none());
}

#[test]
fn report_counts_add_up() {
    let directory = written(3);
    let by = |by| report(directory.path(), by, &Selection::default()).unwrap();
    let hosts = by(By::Host);
    assert_eq!((hosts.total.requests, hosts.groups.len(), hosts.groups[0].name.as_str()), (3, 1, "http://a.example"));
    assert_eq!(hosts.groups[0].reasons.get("no-matching-rule"), Some(&3));
    assert_eq!(
        (by(By::User).groups[0].name.as_str(), by(By::Rule).groups[0].name.as_str()),
        ("127.0.0.1", "no-matching-rule")
    );
    let none = report(
        directory.path(),
        By::Host,
        &Selection { since: Some(SystemTime::now() + KEEP), ..Selection::default() },
    )
    .unwrap();
    assert_eq!((none.total.requests, none.groups.len()), (0, 0));
}

#[test]
fn past_files_are_found_by_the_last_record_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    let second = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + second);
    put(&evidence, second(0), |draft| {
        draft.object("robots", |members| members.hash("sha256", &digest()));
        draft.object("tdmrep", |members| members.number("status", 404));
    });
    put(&evidence, second(1), |draft| draft.object("robots", |members| members.hash("sha256", &digest())));
    // The client of this request left while robots.txt was fetched.
    put(&evidence, second(2), |draft| draft.object("robots", |_| {}));
    put(&evidence, second(3), |_| {});
    evidence.close();
    let authority = Authority::from_url("http://a.example").unwrap();
    let past = find(directory.path(), &authority, "http://a.example/", second(9)).unwrap().0.unwrap();
    assert_eq!(past.known.at(), second(3));
    let (robots, tdmrep) = (past.robots.unwrap(), past.tdmrep.unwrap());
    assert_eq!((robots.found.at(), tdmrep.found.at()), (second(1), second(0)));
    assert!(matches!((robots.file, tdmrep.file), (PastFile::Body(_), PastFile::Missing(404))));
}

#[test]
fn past_long_unreachable_state_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    let (now, month) = (SystemTime::now(), Duration::from_secs(31 * 86_400));
    put(&evidence, now, |draft| {
        draft.text("reason", "long-unreachable");
        draft.object("robots", |members| {
            members.hash("sha256", &digest());
            members.text("failure", "connection refused");
            members.time("failing_since", now - month);
        });
    });
    evidence.close();
    let authority = Authority::from_url("http://a.example").unwrap();
    let past = find(directory.path(), &authority, "http://a.example/", now + KEEP).unwrap().0.unwrap();
    let trouble = past.robots(&ParseOptions::default(), now + KEEP).trouble.unwrap();
    assert!(now.duration_since(trouble.since).unwrap() >= month - Duration::from_secs(1), "{trouble:?}");
}

#[test]
fn received_bytes_count_only_answers_of_sites() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    for (outcome, is_asked) in [
        ("forwarded", true),
        ("refused", true),
        ("failed", true),
        ("cached", true),
        ("cached", false),
        ("answered", false),
        ("tunnelled", false),
    ] {
        put(&evidence, SystemTime::now(), |draft| {
            draft.text("outcome", outcome);
            draft.number("bytes_out", 100);
            if is_asked {
                draft.number("origin_ms", 1);
            }
        });
    }
    evidence.close();
    let total = report(directory.path(), By::Host, &Selection::default()).unwrap().total;
    assert_eq!((total.requests, total.answered, total.bytes_out), (7, 3, 200), "bytes of the page and of the tunnel");
}
