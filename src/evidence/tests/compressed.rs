//! A segment beside a compressed copy of it, which a killed process or a user's gzip has left.

use super::*;
use flate2::write::GzEncoder;

/// Compresses a file beside the original, as `gzip -k` does.
fn compressed(path: &Path) {
    let file = fs::File::create_new(path.with_added_extension("gz")).unwrap();
    let mut encoder = GzEncoder::new(file, Default::default());
    encoder.write_all(&fs::read(path).unwrap()).unwrap();
    encoder.finish().unwrap();
}

fn restart(directory: &Path) {
    let evidence = open(directory);
    record(&evidence, "http://a.example/", SystemTime::now());
    evidence.close();
}

/// Two segments, of which the first is uncompressed again.
fn of_two_segments() -> (TempDir, PathBuf) {
    let directory = written(2);
    let plain = fs::read(first(directory.path())).unwrap();
    age(directory.path());
    restart(directory.path());
    let path = first(directory.path()).with_extension("");
    fs::write(&path, plain).unwrap();
    (directory, path)
}

#[test]
fn records_after_a_copy_of_the_segment_was_compressed_are_read_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let evidence = open(directory.path());
    record(&evidence, "http://a.example/before", SystemTime::now());
    until_written(&evidence, 1);
    let path = first(directory.path());
    compressed(&path);
    record(&evidence, "http://a.example/after", SystemTime::now());
    until_written(&evidence, 2);
    assert_eq!(good(directory.path()).records, 2, "the plain segment counts while it is written to");
    evidence.close();
    restart(directory.path());
    restart(directory.path());
    let verified = good(directory.path());
    assert_eq!((verified.records, verified.segments), (4, 1));
    let copy = path.with_added_extension("gz");
    assert_eq!(verified.others, [copy.file_name().unwrap()]);
    // The copy is not replaced after the segment has ended, either.
    let stored = Stored::all(directory.path()).unwrap().remove(0);
    let (before, error) = (fs::read(&copy).unwrap(), stored.compress().unwrap_err().to_string());
    assert!(error.contains(&*copy.to_string_lossy()), "{error}");
    assert_eq!((fs::read(&copy).unwrap(), good(directory.path()).records), (before, 4));
}

#[test]
fn interrupted_compression_is_repeated() {
    let (directory, path) = of_two_segments();
    let half = path.with_extension("jsonl.tmp");
    fs::write(&half, b"half").unwrap();
    assert_eq!(good(directory.path()).records, 3);
    restart(directory.path());
    let verified = good(directory.path());
    assert_eq!((verified.records, verified.segments, verified.others), (4, 2, vec![]));
    assert!(!path.exists() && !half.exists());
}

/// On a full disk, `gunzip -k` leaves an incomplete plain file.
#[test]
fn compressed_segment_wins_over_an_incomplete_plain_copy() {
    let (directory, path) = of_two_segments();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    restart(directory.path());
    assert_ne!(faults(directory.path()), []);
    fs::remove_file(&path).unwrap();
    assert_eq!(good(directory.path()).records, 4);
}
