//! Records of a hit, which name the original fetch.

use super::{fresh, is_hit, pages, with, with_cache};
use crate::support::{Binary, Client, Reply, Seen, eventually};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The decisions in the evidence.
fn records(directory: &Path) -> Vec<Value> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|file| file.path());
    let segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let text: String = segments.map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["type"] == "decision").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hit_names_its_original_fetch_in_evidence_log_and_status() {
    let site = |seen: &Seen| match (seen.path().as_str(), seen.field("if-none-match")) {
        ("/stale", Some(_)) => Reply::status(304).field("Cache-Control", "max-age=0"),
        ("/stale", None) => Reply::text("page").field("ETag", "\"a\"").field("Cache-Control", "max-age=0"),
        ("/never", _) => Reply::text("own").field("Cache-Control", "no-store"),
        _ => fresh("page"),
    };
    let origin = pages(site).await;
    let cache = tempfile::tempdir().unwrap();
    let yaml = "evidence: { directory: evidence }\nadmin: { address: '127.0.0.1:0' }\nlog: { access: ./access.log, format: json }";
    let proxy = Binary::serve(&with_cache(cache.path(), yaml)).await;
    let mut client = Client::open(proxy.address()).await;
    for path in ["/page", "/page", "/stale", "/stale", "/never"] {
        assert_eq!(with(&mut client, &origin, "GET", path, "").await.status(), 200);
    }
    assert!(is_hit(&with(&mut client, &origin, "HEAD", "/page", "").await));
    let directory = proxy.directory().join("evidence");
    eventually("the records", || records(&directory).len() == 6).await;
    let records = records(&directory);
    let found: Vec<_> = records.iter().map(|it| (it["outcome"].clone(), it["cache"]["result"].clone())).collect();
    let expected = [
        ("forwarded", "stored"),
        ("cached", "hit"),
        ("forwarded", "stored"),
        ("cached", "revalidated"),
        ("forwarded", "miss"),
        ("cached", "hit"),
    ];
    assert_eq!(found, expected.map(|(outcome, result)| (outcome.into(), result.into())));
    for (hit, fetch) in [(1, 0), (5, 0), (3, 2)] {
        let [hit, fetch] = [&records[hit]["cache"], &records[fetch]["cache"]];
        assert!(hit["fetch"].as_str().is_some_and(|name| name.len() == 16), "{hit}");
        assert_eq!((&hit["fetch"], &hit["fetched"]), (&fetch["fetch"], &fetch["fetched"]));
    }
    assert!(records[1]["robots"]["status"] == 200 && records[1]["verdict"] == "allowed", "{}", records[1]);
    assert!(records[1]["origin_ms"].is_null() && records[3]["origin_ms"].is_u64());
    assert!(records[4]["cache"]["fetch"].is_null());

    let log = || fs::read_to_string(proxy.directory().join("access.log")).unwrap_or_default();
    eventually("the access log", || log().lines().count() == 6).await;
    let lines: Vec<Value> = log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (line, record) in lines.iter().zip(&records) {
        assert_eq!((&line["cache"], &line["fetch"]), (&record["cache"]["result"], &record["cache"]["fetch"]));
    }
    assert_eq!(
        (&lines[1]["outcome"], &lines[1]["bytes_out"], &lines[1]["status"]),
        (&"cached".into(), &4.into(), &200.into())
    );

    let status = proxy.asked(&["status"], &[]).await;
    assert!(status.stdout.contains("2 hits, 1 revalidated, 3 misses"), "{}", status.stdout);
    let metrics = proxy.curl(&["--noproxy", "*", &format!("http://{}/metrics", proxy.admin())]).await.text();
    for line in [
        "politely_cache_requests_total{result=\"hit\"} 2",
        "politely_cache_requests_total{result=\"revalidated\"} 1",
        "politely_cache_requests_total{result=\"miss\"} 3",
        "politely_cache_entries 2",
        "politely_cache_up 1",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    let report = proxy.asked(&["report", "--evidence", directory.to_str().unwrap(), "--format", "json"], &[]).await;
    assert!(report.stdout.contains("\"answered\": 3"), "{}", report.stdout);
}
