//! Files that another user has put beside the segments.

use super::*;
use std::os::unix::fs::{chown, lchown, symlink};

/// Runs as root only, as nobody else can give a file to another user.
#[test]
fn files_of_other_users_are_neither_read_nor_changed() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let (directory, other) = (written(2), written(5));
    let path = |name: &str| directory.path().join(name);
    let (next, last) = (path("00000002-20260101T000000Z.jsonl"), path("00000007-20260101T000000Z.jsonl"));
    let stamp = path(&format!("00000001-{}.tsr", "ab".repeat(32)));
    fs::copy(first(other.path()), &next).unwrap();
    symlink(first(other.path()), &last).unwrap();
    fs::write(&stamp, "signed by whom?").unwrap();
    for planted in [&next, &last, &stamp] {
        lchown(planted, Some(61184), None).unwrap();
    }
    // If this file were ours, it would be removed as an uncompressed segment beside its compressed form.
    age(directory.path());
    let beside = first(directory.path()).with_extension("");
    fs::write(&beside, "theirs").unwrap();
    chown(&beside, Some(61184), None).unwrap();

    let mut planted = foreign(directory.path()).unwrap();
    planted.sort();
    assert_eq!(planted, [beside.clone(), next.clone(), last.clone()]);
    let evidence = open(directory.path());
    record(&evidence, "http://a.example/", SystemTime::now());
    evidence.close();
    let verified = good(directory.path());
    assert_eq!((verified.records, verified.segments, verified.stamps.len()), (3, 2, 0));
    let others: Vec<_> = verified.others.iter().map(|name| path(name.to_str().unwrap())).collect();
    assert!([&beside, &next, &last, &stamp].iter().all(|planted| others.contains(planted)), "{others:?}");
    let told = report(directory.path(), By::Host, &Selection::default()).unwrap();
    assert_eq!(told.total.requests, 3);
    assert_eq!(fs::read(&next).unwrap(), fs::read(first(other.path())).unwrap());
    assert_eq!((fs::read(&beside).unwrap(), last.is_symlink()), (b"theirs".to_vec(), true));
    // Another user's file replaces a segment after the directory was read.
    let stored = Stored::all(directory.path()).unwrap().remove(0);
    chown(&stored.path, Some(61184), None).unwrap();
    assert_eq!(stored.open().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn link_at_the_temporary_compression_path_is_not_followed() {
    let directory = written(2);
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, first(directory.path()).with_extension("jsonl.tmp")).unwrap();
    age(directory.path());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(good(directory.path()).records, 2);
}

#[test]
fn time_stamp_of_another_user_is_not_removed_with_its_segment() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let directory = tempfile::tempdir().unwrap();
    let [own, other] = ["ab", "cd"].map(|digit| directory.path().join(format!("00000001-{}.tsr", digit.repeat(32))));
    [&own, &other].into_iter().for_each(|stamp| fs::write(stamp, "").unwrap());
    chown(&other, Some(61184), None).unwrap();
    timestamp::remove_before(directory.path(), 2).unwrap();
    assert_eq!((own.exists(), other.exists()), (false, true));
}
