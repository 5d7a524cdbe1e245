//! `politely report` over chains that are written here, without politely: what is selected, and what a page says.

use super::evidence::verified;
use crate::support::binary::{Ended, politely};
use openssl::sha::sha256;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use tempfile::TempDir;

/// A directory of evidence: one segment, with these lines after its first.
pub fn chain(lines: &[Value]) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut prev, mut text) = ("0".repeat(64), String::new());
    let first = json!({ "type": "segment", "time": "2026-11-22T09:00:00.000Z", "segment": 1, "format": 2 });
    for line in [&first].into_iter().chain(lines) {
        let mut line = line.clone();
        line["prev"] = prev.into();
        let line = format!("{line}\n");
        prev = hex(&sha256(line.as_bytes()));
        text.push_str(&line);
    }
    std::fs::write(directory.path().join("00000001-20261122T090000Z.jsonl"), text).expect("it is writable");
    directory
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The record of a request that was let through at this second of 2026-11-22T10:00Z, with `more` over it.
pub fn asked(second: u8, url: &str, more: &Value) -> Value {
    let mut record = json!({
        "type": "decision", "time": format!("2026-11-22T10:00:{second:02}.000Z"), "client": "192.0.2.7", "method": "GET", "url": url,
        "product_tokens": ["examplebot"], "purpose": [], "outcome": "forwarded", "verdict": "allowed", "reason": "no-matching-rule",
        "status": 200, "bytes_in": 0, "bytes_out": 1000, "held_ms": 0, "origin_ms": 5, "ms": 6,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        record[name] = value.clone();
    }
    record
}

pub async fn report(directory: &Path, arguments: &[&str]) -> Ended {
    let directory = directory.to_str().expect("UTF-8");
    politely(&[&["report", "--evidence", directory], arguments].concat()).await
}

/// The names of the groups, and their requests.
async fn groups(directory: &Path, arguments: &[&str]) -> String {
    let ended = report(directory, &[&["--format", "json"], arguments].concat()).await;
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    let groups = report["groups"].as_array().expect("a list").iter();
    groups
        .map(|group| format!("{} {}", group["name"].as_str().unwrap(), group["requests"]))
        .collect::<Vec<_>>()
        .join(", ")
}

fn example() -> TempDir {
    chain(&[
        asked(0, "https://www.example.co.uk/", &json!({ "user": "anna", "purpose": ["ai-train"] })),
        asked(1, "https://shop.example.co.uk/", &json!({ "user": "anna" })),
        asked(2, "https://a.example.org/", &json!({})),
        asked(3, "https://example.org/", &json!({ "user": "bob", "purpose": ["search"] })),
        asked(4, "http://192.0.2.1/", &json!({ "user": "bob" })),
        json!({
            "type": "lost", "time": "2026-11-22T10:01:00.000Z", "count": 7, "from": "2026-11-22T10:00:03.000Z",
            "to": "2026-11-22T10:00:04.000Z",
        }),
    ])
}

#[tokio::test]
async fn a_report_is_about_the_period_the_hosts_the_user_and_the_use_that_are_asked_for() {
    let directory = example();
    assert_eq!(verified(directory.path()).await["whole"], true);
    for (arguments, said) in [
        (&["--by", "user"][..], "anna 2, bob 2, 192.0.2.7 1"),
        (&["--by", "domain"], "example.co.uk 2, example.org 2, 192.0.2.1 1"),
        (
            &["--by", "user", "--since", "2026-11-22T10:00:01Z", "--until", "2026-11-22T10:00:03Z"],
            "192.0.2.7 1, anna 1",
        ),
        (&["--host", "*.example.co.uk"], "https://shop.example.co.uk 1, https://www.example.co.uk 1"),
        (&["--host", "EXAMPLE.org", "--host", "192.0.2.1"], "http://192.0.2.1 1, https://example.org 1"),
        (&["--by", "domain", "--user", "bob"], "192.0.2.1 1, example.org 1"),
        (&["--by", "domain", "--user", "192.0.2.7"], "example.org 1"),
        (&["--purpose", "train-ai"], "https://www.example.co.uk 1"),
        (&["--until", "2026-11-22"], ""),
    ] {
        assert_eq!(groups(directory.path(), arguments).await, said, "{arguments:?}");
    }
    for (until, lost) in [("2026-11-22T10:00:03Z", false), ("2026-11-22T10:00:03.001Z", true)] {
        let ended = report(directory.path(), &["--until", until]).await;
        assert_eq!(ended.stdout.contains("7 more requests are not recorded"), lost, "{until}: {}", ended.stdout);
    }
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_refused_with_its_place_and_a_hint() {
    let directory = example();
    for (arguments, said) in [
        (&["--host", "a*.example.com"][..], ["--host <PATTERN>", "`*.example.com`"]),
        (&["--host", "*.192.0.2.1"], ["--host <PATTERN>", "nothing is below an address"]),
        (&["--until", "soon"], ["--until <WHEN>", "write 2026-11-22T18:30:00Z, 2026-11-22, or 7d"]),
        (&["--purpose", "ai train"], ["--purpose <PURPOSE>", "such as `ai-train`"]),
        (&["--since", "2026-11-23", "--until", "2026-11-22"], ["is not before `--until`", "hint: "]),
        (&["--since", "2026-11-22", "--until", "2026-11-22"], ["is not before `--until`", "hint: "]),
    ] {
        let ended = report(directory.path(), arguments).await;
        assert!(
            ended.code == 2 && said.iter().all(|said| ended.stderr.contains(said)),
            "{arguments:?}: {}",
            ended.stderr
        );
        assert_eq!(ended.stdout, "");
    }
}
