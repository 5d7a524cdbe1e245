//! Log destinations: logging blocks no request, and follows the configuration.

use crate::support::binary::politely;
use crate::support::{Binary, Client, Origin, eventually, within};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Each log line has over a thousand bytes: a pipe is full after sixty lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_log_reader_does_not_block_requests() {
    for access in ["stdout", "journal"] {
        let origin = Origin::site("").await;
        let binary = Binary::serve(&format!("log: {{ access: {access}, level: debug }}")).await;
        binary.stall(true);
        let long = "x".repeat(1000);
        within("2,000 requests whose lines nobody reads", async {
            let mut client = Client::open(binary.address()).await;
            for number in 0..2000 {
                let url = origin.url(&format!("/{number}?{long}"));
                assert_eq!(client.get(&url, &origin.authority("a.localhost")).await.status(), 200);
            }
        })
        .await;
        binary.stall(false);
        eventually("what was dropped to be told", || binary.output().contains("log lines were dropped")).await;
        binary.stall(true);
        within("the end", binary.stop()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_log_that_was_moved_away_is_reopened_on_sighup() {
    let origin = Origin::site("").await;
    let directory = tempfile::tempdir().unwrap();
    let (log, moved) = (directory.path().join("access.log"), directory.path().join("access.log.1"));
    let yaml = format!("log: {{ access: {} }}", log.display());
    let binary = Binary::serve(&yaml).await;
    assert_eq!(binary.curl(&[&origin.url("/before")]).await.status(), 200);
    eventually("the line", || text(&log).contains("/before")).await;
    std::fs::rename(&log, &moved).unwrap();
    binary.signal(libc::SIGHUP);
    eventually("the reload", || binary.output().contains("configuration reloaded")).await;
    assert_eq!(binary.curl(&[&origin.url("/after")]).await.status(), 200);
    eventually("the line", || text(&log).contains("/after")).await;
    assert!(!text(&moved).contains("/after") && !text(&log).contains("/before"));
    binary.stop().await;
}

/// The log names users and their URLs. An existing file keeps its mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_access_log_has_mode_0640() {
    let origin = Origin::site("").await;
    let directory = tempfile::tempdir().unwrap();
    let (made, there) = (directory.path().join("made.log"), directory.path().join("there.log"));
    std::fs::write(&there, "").unwrap();
    std::fs::set_permissions(&there, Permissions::from_mode(0o604)).unwrap();
    for (log, mode) in [(&made, 0o640), (&there, 0o604)] {
        let binary = Binary::serve(&format!("log: {{ access: {} }}", log.display())).await;
        assert_eq!(binary.curl(&[&origin.url("/x")]).await.status(), 200);
        eventually("the line", || text(log).contains("/x")).await;
        assert_eq!(log.metadata().unwrap().mode() & 0o777, mode, "{}", log.display());
        binary.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_level_format_and_path_are_reloadable() {
    let origin = Origin::site("").await;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let binary = Binary::serve("").await;
    binary.reconfigure(&format!("log: {{ level: debug, format: json, access: {} }}", log.display()));
    eventually("the reload", || binary.output().contains("configuration reloaded")).await;
    assert_eq!(binary.curl(&[&origin.url("/x")]).await.status(), 200);
    eventually("a line of JSON", || text(&log).contains("/x")).await;
    let line: serde_json::Value = serde_json::from_str(text(&log).lines().last().unwrap()).unwrap();
    assert_eq!(line["status"], 200, "{line}");
    binary.reconfigure("log: { level: debug, access: 'off' }");
    eventually("the reload", || binary.output().matches("configuration reloaded").count() == 2).await;
    assert_eq!(binary.curl(&[&origin.url("/y")]).await.status(), 200);
    binary.stop().await;
    assert!(!text(&log).contains("/y"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwritable_access_log_is_refused_by_check_start_and_reload() {
    let directory = tempfile::tempdir().unwrap();
    let (file, nowhere) = (directory.path().join("politely.yaml"), directory.path().join("none/access.log"));
    std::fs::write(&file, format!("log: {{ access: {} }}\n", nowhere.display())).unwrap();
    for command in ["check", "serve"] {
        let ended = politely(&[command, "--config", file.to_str().unwrap()]).await;
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains("none/access.log") && ended.stderr.contains("hint: "), "{ended:?}");
    }
    let there = directory.path().join("access.log");
    std::fs::write(&file, format!("log: {{ access: {} }}\n", there.display())).unwrap();
    assert_eq!(politely(&["check", "--config", file.to_str().unwrap()]).await.code, 0);
    assert!(!there.exists(), "it only looks");
    let origin = Origin::site("").await;
    let binary = Binary::serve("").await;
    binary.reconfigure(&format!("mode: report\nlog: {{ access: {} }}", nowhere.display()));
    eventually("the refusal", || binary.output().contains("configuration not reloaded")).await;
    assert_eq!(binary.curl(&[&origin.url("/x")]).await.status(), 200);
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_access_log_is_reported_once_with_the_reason() {
    let origin = Origin::site("").await;
    let binary = Binary::serve("log: { access: /dev/full }").await;
    for number in 0..10 {
        assert_eq!(binary.curl(&[&origin.url(&format!("/{number}"))]).await.status(), 200);
        eventually("the warning", || binary.output().contains("log lines were dropped")).await;
    }
    let output = binary.output();
    assert_eq!(output.matches("log lines were dropped").count(), 1, "{output}");
    assert!(output.contains("No space left on device"), "{output}");
    binary.stop().await;
}

/// The log is moved from a full disk to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_log_lines_are_reported_after_reopening() {
    let origin = Origin::site("").await;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let binary = Binary::serve(&format!("log: {{ access: {} }}", log.display())).await;
    let told = || {
        let output = binary.output();
        let lines = output.lines().filter(|line| line.contains("log lines were dropped"));
        lines.filter_map(|line| line.split("lines=").nth(1)?.split(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    assert_eq!(binary.curl(&[&origin.url("/first")]).await.status(), 200);
    eventually("the first", || told() == 1).await;
    for page in ["/second", "/third"] {
        assert_eq!(binary.curl(&[&origin.url(page)]).await.status(), 200);
    }
    std::fs::remove_file(&log).unwrap();
    binary.signal(libc::SIGHUP);
    eventually("the reload", || binary.output().contains("configuration reloaded")).await;
    for _ in 0..100 {
        assert_eq!(binary.curl(&[&origin.url("/after")]).await.status(), 200);
        // A line may come after its answer, and here after the reload.
        let late = ["/second", "/third"].iter().filter(|page| text(&log).contains(**page)).count();
        if told() == 3 - late as u64 {
            assert_eq!(binary.output().matches("too slow").count(), 0, "{}", binary.output());
            return;
        }
    }
    panic!("{}", binary.output());
}
