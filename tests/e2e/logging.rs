//! Where the logs go: nobody waits for them.

use crate::support::binary::politely;
use crate::support::{Binary, Client, Origin, eventually, within};

/// Each request's line takes up more than a thousand bytes: a pipe is full after sixty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stalls_stops_nobody() {
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
async fn an_access_log_that_cannot_be_written_is_found_by_check_and_at_the_start() {
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
}
