//! Evidence on a disk that fails, and in a directory that has grown: what a start reads of it, and what a failed fsync leaves.
//! A small library between the program and the C library fails fsync on demand and notes which files are opened.

use super::evidence::{get, kept, told, verified};
use crate::support::{Binary, Origin, binary::preload, curl, eventually};
use flate2::{Compression, write::GzEncoder};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(void) {
  const char *flag = getenv("SHIM_FAIL");
  if (!flag || syscall(SYS_faccessat, AT_FDCWD, flag, 0)) return 0;
  errno = EIO;
  return 1;
}
int fsync(int fd) { return fails() ? -1 : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) {
  const char *log = getenv("SHIM_SYNCED"), *flag = getenv("SHIM_FAIL_DATA");
  if (fails()) return -1;
  if (flag && !syscall(SYS_faccessat, AT_FDCWD, flag, 0)) { errno = EIO; return -1; }
  if (log) {
    char link[64], path[4096], line[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    int to = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int size = snprintf(line, sizeof line, "%lld %s\n", (long long)lseek(fd, 0, SEEK_END), path);
    if (write(to, line, size)) {}
    close(to);
  }
  return (int)syscall(SYS_fdatasync, fd);
}
static int opened(const char *path, int flags, int mode) {
  const char *log = getenv("SHIM_OPENED");
  if (log) {
    int to = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    char line[4096];
    size_t length = strlen(path);
    if (to >= 0 && length < sizeof line - 1) {
      memcpy(line, path, length);
      line[length] = '\n';
      if (write(to, line, length + 1)) {}
    }
    if (to >= 0) close(to);
  }
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
#define MODE va_list all; va_start(all, flags); int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(all, int) : 0; va_end(all);
int open64(const char *path, int flags, ...) { MODE return opened(path, flags | O_LARGEFILE, mode); }
int open(const char *path, int flags, ...) { MODE return opened(path, flags, mode); }
"#;

/// The library, built in `directory`.
fn shim(directory: &Path) -> PathBuf {
    preload(directory, SHIM)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A chain of so many compressed segments in `directory`.
fn chain(directory: &Path, segments: u64) {
    std::fs::create_dir_all(directory).expect("room");
    let mut head = "0".repeat(64);
    for number in 1..=segments {
        let at = OffsetDateTime::now_utc() - Duration::from_secs(segments + 1 - number);
        let time = at.replace_nanosecond(0).map(|at| at.format(&Rfc3339).expect("a time")).expect("a second");
        let members = [
            format!("\"type\":\"segment\",\"time\":\"{time}\",\"segment\":{number},\"format\":2"),
            format!("\"type\":\"stop\",\"time\":\"{time}\",\"written\":0,\"lost\":0"),
        ];
        let mut text = String::new();
        for members in members {
            let line = format!("{{\"prev\":\"{head}\",{members}}}\n");
            head = sha256(line.as_bytes());
            text += &line;
        }
        let began = time.replace(['-', ':'], "");
        let file = std::fs::File::create(directory.join(format!("{number:08}-{began}.jsonl.gz"))).expect("room");
        let mut file = GzEncoder::new(file, Compression::fast());
        file.write_all(text.as_bytes()).and_then(|()| file.finish().map(drop)).expect("room");
    }
}

/// Number of evidence files opened before the listeners, and bytes read in total.
async fn cost_of_a_start(library: &Path, segments: u64) -> (usize, u64) {
    let home = tempfile::tempdir().expect("room");
    let (directory, opened) = (home.path().join("evidence"), home.path().join("opened"));
    chain(&directory, segments);
    let variables = [("LD_PRELOAD", path(library)), ("SHIM_OPENED", path(&opened))];
    let proxy = Binary::serve_with(&format!("evidence: {{ directory: '{}' }}", path(&directory)), &variables).await;
    let io = std::fs::read_to_string(format!("/proc/{}/io", proxy.pid())).expect("it runs");
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).and_then(|read| read.parse().ok());
    proxy.stop().await;
    let all = std::fs::read_to_string(&opened).expect("written by the library");
    let found = verified(&directory).await;
    assert_eq!(told(&found, ["whole", "segments"]), [true.into(), serde_json::Value::from(segments + 1)], "{found}");
    (all.lines().filter(|line| line.starts_with(path(&directory))).count(), read.expect("Linux"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_reads_a_constant_amount_of_evidence() {
    let home = tempfile::tempdir().expect("room");
    let library = shim(home.path());
    let (few, few_read) = cost_of_a_start(&library, 100).await;
    let (many, many_read) = cost_of_a_start(&library, 3000).await;
    assert!(few > 0 && few == many, "{few} files are opened with 100 segments, {many} with 3,000");
    assert!(
        many_read.abs_diff(few_read) < 1 << 16,
        "{few_read} bytes are read with 100 segments, {many_read} with 3,000"
    );
}

/// The second failure comes before the record of the first is on the disk: the power loss removes everything not synced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chain_verifies_after_two_failed_fsyncs_and_a_power_loss() {
    let origin = Origin::site("").await;
    let home = tempfile::tempdir().expect("room");
    let (library, flag, synced) = (shim(home.path()), home.path().join("fail"), home.path().join("synced"));
    let variables = [("LD_PRELOAD", path(&library)), ("SHIM_FAIL_DATA", path(&flag)), ("SHIM_SYNCED", path(&synced))];
    let directory = home.path().join("evidence");
    let yaml = format!("evidence: {{ directory: '{}' }}", path(&directory));
    let proxy = Binary::serve_with(&yaml, &variables).await;
    assert_eq!(get(&proxy, &origin.url("/synced")).await, 200);
    eventually("it is on the disk", || is_synced(&directory, &synced)).await;
    std::fs::write(&flag, "").expect("room");
    for page in ["/1", "/2", "/3"] {
        assert_eq!(get(&proxy, &origin.url(page)).await, 200);
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    std::fs::remove_file(&flag).expect("it is there");
    assert_eq!(get(&proxy, &origin.url("/later")).await, 200);
    proxy.stop().await;
    let log = std::fs::read_to_string(&synced).expect("written by the library");
    for entry in std::fs::read_dir(&directory).expect("it is there") {
        let file = entry.expect("it is there").path();
        if file.extension().is_some_and(|kind| kind == "jsonl") {
            let mut sizes = log.lines().filter_map(|line| line.split_once(' ').filter(|(_, of)| *of == path(&file)));
            let size = sizes.next_back().map_or(0, |(size, _)| size.parse().expect("a number"));
            std::fs::File::options().write(true).open(&file).and_then(|it| it.set_len(size)).expect("it is ours");
        }
    }
    let found = verified(&directory).await;
    assert_eq!(found["whole"], true, "{found}");
    assert!(found["lost"].as_array().is_some_and(|lost| !lost.is_empty()), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_fsync_is_recorded_as_a_loss_in_a_new_segment() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let home = tempfile::tempdir().expect("room");
    let (library, flag, synced) = (shim(home.path()), home.path().join("fail"), home.path().join("synced"));
    let variables = [("LD_PRELOAD", path(&library)), ("SHIM_FAIL", path(&flag)), ("SHIM_SYNCED", path(&synced))];
    let yaml = "evidence: { directory: evidence }\nadmin: { address: '127.0.0.1:0' }\n";
    let proxy = Binary::serve_with(yaml, &variables).await;
    let directory = kept(&proxy);
    assert_eq!(get(&proxy, &origin.url("/synced")).await, 200);
    // A second after each record the file is synced.
    eventually("it is on the disk", || is_synced(&directory, &synced)).await;
    std::fs::write(&flag, "").expect("room");
    assert_eq!(get(&proxy, &origin.url("/unsynced")).await, 200);
    eventually("the log", || proxy.output().contains("fsync failed")).await;
    std::fs::remove_file(&flag).expect("it is there");
    let mut asked = 2;
    let all = || text_of(&directory);
    crate::support::within("a record in the next segment", async {
        while !all().contains("\"synced\":\"") || !all().contains("/later") {
            assert_eq!(get(&proxy, &origin.url("/later")).await, 200);
            asked += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let metrics = curl(&[&format!("http://{}/metrics", proxy.admin())]).await.text();
    let count = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
        line.trim().parse::<u64>().expect("a number")
    };
    assert!(count("politely_evidence_lost_total") > 0, "{metrics}");
    let home = proxy.stop().await;
    let directory = home.path().join("evidence");
    let found = verified(&directory).await;
    assert_eq!(found["whole"], true, "{found}");
    let lost: u64 = found["lost"].as_array().unwrap().iter().map(|lost| lost["count"].as_u64().unwrap()).sum();
    assert_eq!(count("politely_evidence_lost_total"), lost, "{found}");
    assert!(found["segments"].as_u64() > Some(1) && found["records"].as_u64() <= Some(asked), "{found}");
    // Models a power loss that removes all unsynced pages: exactly the recorded loss.
    let first = segments(&directory).remove(0);
    let text = plain(&first);
    let kept: String = text.split_inclusive('\n').take_while(|line| !line.contains("/unsynced")).collect();
    assert!(kept.contains("/synced") && kept.len() < text.len());
    let replaced = first.with_extension("").with_extension("").with_extension("jsonl");
    std::fs::remove_file(&first).expect("it is there");
    std::fs::write(&replaced, format!("{kept}{}", "\0".repeat(300))).expect("room");
    assert_eq!(verified(&directory).await["whole"], true);
    let earlier: String = kept.split_inclusive('\n').take_while(|line| !line.contains("/synced")).collect();
    std::fs::write(&replaced, earlier).expect("room");
    assert_eq!(verified(&directory).await["whole"], false, "what was synced is not there");
}

/// Whether the record of `/synced` is on the disk, with all others. `log`: of the library.
fn is_synced(directory: &Path, log: &Path) -> bool {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let size = |file: &PathBuf| {
        let of_file = |line: &&str| line.ends_with(&format!(" {}", path(file)));
        log.lines().rev().find(of_file)?.split(' ').next()?.parse::<u64>().ok()
    };
    let is_whole = |file: &PathBuf| size(file) >= Some(file.metadata().expect("it is there").len());
    text_of(directory).contains("/synced") && segments(directory).iter().all(is_whole)
}

/// Segments of a directory, in their order.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("readable").path());
    let mut all: Vec<_> = all.filter(|path| path.to_string_lossy().contains(".jsonl")).collect();
    all.sort();
    all
}

fn plain(segment: &Path) -> String {
    let shown = Command::new("zcat").arg("-f").arg(segment).output().expect("gzip");
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

fn text_of(directory: &Path) -> String {
    segments(directory).iter().map(|segment| plain(segment)).collect()
}
