//! What somebody who has to sign for a crawl reads in the evidence: of one URL, and in the reports.

use super::access::{request, users};
use super::evidence::{get, kept, sent, verified};
use super::report::{asked, chain, file, report};
use crate::support::binary::{Ended, politely, politely_with};
use crate::support::{Binary, Client, Origin, Reply, eventually};
use serde_json::{Value, json};
use std::path::Path;

async fn explain(directory: &Path, url: &str, more: &[&str]) -> Ended {
    let directory = directory.to_str().expect("UTF-8");
    politely(&[&["explain", url, "--at", "2999-01-01", "--evidence", directory], more].concat()).await
}

fn parsed(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}{}", ended.stdout, ended.stderr))
}

/// The decisions on record, in order.
fn records(directory: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let text: String = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|line| line["type"] == "decision").collect()
}

async fn recorded(directory: &Path, count: usize) -> Vec<Value> {
    eventually("the records", || records(directory).len() == count).await;
    records(directory)
}

/// A site whose page refuses AI by a field. `delay`: its crawl delay.
async fn reserved_site(delay: &str) -> Origin {
    let robots = format!("User-agent: *\nDisallow: /private\n{delay}");
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(&robots),
        "/page" => Reply::text("page").field("X-Robots-Tag", "noai"),
        "/.well-known/tdmrep.json" => Reply::status(404),
        _ => Reply::text("free"),
    })
    .await
}

const KEPT: &str =
    "evidence: { directory: evidence }\nadmin: { address: '127.0.0.1:0' }\nidentity: { purpose: [ai-train] }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_attributes_a_refusal_to_the_preferences_of_the_page() {
    let origin = reserved_site("").await;
    let proxy = Binary::serve(KEPT).await;
    let url = origin.url("/page");
    for count in 1..=2 {
        assert_eq!(get(&proxy, &url).await, 403);
        recorded(&kept(&proxy), count).await;
    }
    assert_eq!(get(&proxy, &origin.url("/private")).await, 403);
    let all = recorded(&kept(&proxy), 3).await;
    let sites: Vec<_> = all.iter().map(|record| (&record["status"], &record["origin_status"])).collect();
    let none = (&json!(403), &Value::Null);
    assert_eq!(sites, [(&json!(403), &json!(200)), none, none], "the second is remembered");
    let home = proxy.stop().await;
    let directory = home.path().join("evidence");
    let ended = explain(&directory, &url, &[]).await;
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    for said in [
        "asked for 2 times: refused 2: 1 not asked, 1 refused after the site's answer (fetched, not delivered)\n",
        "refused (usage-disallowed; X-Robots-Tag: noai), the site's status 200 (",
        "refused (usage-disallowed; X-Robots-Tag: noai), the site was not asked (",
        "\nallowed by robots.txt; refused by the page's own X-Robots-Tag: noai, read at 20",
    ] {
        assert!(ended.stdout.contains(said), "{said} in {}", ended.stdout);
    }
    let told = parsed(&explain(&directory, &url, &["--format", "json"]).await);
    assert_eq!((&told["allowed"], &told["evidence"]["contradicts"]), (&json!(true), &json!(false)), "{told}");
    assert_eq!(told["evidence"]["refused_by_page"], "X-Robots-Tag: noai");
    assert_eq!(told["evidence"]["page_read"], sent(&all[0]), "not when it came, nor when the second was refused");
    // Nobody has refused it to another use.
    let ended = explain(&directory, &url, &["--purpose", "search"]).await;
    assert!(ended.code == 0 && ended.stdout.contains("\nallowed: http"), "{}{}", ended.stdout, ended.stderr);
    let text = report(&directory, &[]).await.stdout;
    let said = "3 refused: 2 not asked, 1 refused after the site's answer (fetched, not delivered)";
    assert!(text.contains(said), "{text}");
    let html = report(&directory, &["--format", "html"]).await.stdout;
    assert!(html.contains(&said.replace('\'', "&#39;")), "{html}");
}

/// Another user, who asked the host for another URL later, has other settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_judges_a_recorded_url_for_its_user() {
    let origin = reserved_site("").await;
    let proxy = Binary::serve(&format!("{KEPT}{}", users("hosts: { '*': { robots: ignore } }"))).await;
    let asks = async |path: &str, user: &str| {
        let mut client = Client::open(proxy.address()).await;
        client.send(request(&origin.url(path), user)).await;
        client.response().await.status()
    };
    assert_eq!((asks("/private/b", "bob").await, asks("/private/a", "alice").await), (403, 200));
    recorded(&kept(&proxy), 2).await;
    assert_eq!((asks("/free", "bob").await, asks("/free", "alice").await), (200, 200));
    recorded(&kept(&proxy), 4).await;
    let home = proxy.stop().await;
    for (path, code, verdict) in [("/private/b", 1, "disallowed"), ("/private/a", 0, "robots.txt is ignored")] {
        let ended = explain(&home.path().join("evidence"), &origin.url(path), &[]).await;
        assert!(ended.code == code && ended.stdout.contains(verdict), "{path}: {} {}", ended.code, ended.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_counts_answers_fetched_but_not_delivered() {
    let origin = reserved_site("").await;
    let script = format!("curl -q -s -o /dev/null {0}; curl -q -s -o /dev/null {0}", origin.url("/page"));
    let variables =
        [crate::support::binary::open().as_slice(), &[("POLITELY_IDENTITY__PURPOSE", "[ai-train]")]].concat();
    let ended = politely_with(&["run", "sh", "-c", &script], &variables).await;
    let said = "\n  1 refused after the site's answer (fetched, not delivered)\n";
    assert!(format!("{}\n", ended.stderr).contains(said), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_wait_does_not_hide_a_reservation() {
    // Waits up to `max_wait`, and beyond.
    for (delay, wait) in [(30, "held"), (200, "crawl-delay")] {
        let origin = reserved_site(&format!("Crawl-delay: {delay}\n")).await;
        let proxy = Binary::serve(&format!("{KEPT}mode: report\n")).await;
        for (count, path) in [(1, "/"), (2, "/page")] {
            assert_eq!(get(&proxy, &origin.url(path)).await, 200);
            recorded(&kept(&proxy), count).await;
        }
        let record = &records(&kept(&proxy))[1];
        let said = ["verdict", "reason", "reasons", "rule"].map(|name| record[name].clone());
        let all = json!(["usage-disallowed", wait]);
        assert_eq!(said, [json!("reported"), json!("usage-disallowed"), all, json!("X-Robots-Tag: noai")]);
        let home = proxy.stop().await;
        let told = parsed(&report(&home.path().join("evidence"), &["--format", "json"]).await);
        let reasons = &told["total"]["reasons"];
        // The first may have waited for what politely itself fetched.
        assert!(reasons[wait].as_u64() >= Some(1) && reasons["usage-disallowed"] == 1, "{told}");
        assert_eq!(told["total"]["refused_by"], json!({}), "nothing was refused");
    }
}

#[tokio::test]
async fn explain_begins_with_the_records_of_the_url() {
    let (robots, robots_hash) = file("User-agent: *\nDisallow: /private\n");
    let (tdmrep, tdmrep_hash) = file("[]");
    let (license, license_hash) = file("<rsl/>");
    let url = "https://a.example/page";
    let of = |second: u8, url: &str, more: Value| {
        let mut record = asked(
            second,
            url,
            &json!({
                "purpose": ["tdm"], "robots": { "status": 200, "sha256": robots_hash, "fetched": "2026-11-22T09:59:00.000Z" },
                "tdmrep": { "status": 200, "sha256": tdmrep_hash, "fetched": "2026-11-22T09:59:30.000Z" },
                "license_file": { "status": 200, "sha256": license_hash, "fetched": "2026-11-22T09:59:40.000Z" },
            }),
        );
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let refused = json!({ "outcome": "refused", "verdict": "refused", "reason": "crawl-delay", "status": 503, "origin_ms": null });
    let mut lines = vec![robots, tdmrep, license];
    lines.extend((0..5).map(|second| of(second, url, json!({}))));
    lines.push(of(5, url, refused.clone()));
    lines.push(of(6, url, json!({ "outcome": "failed", "status": 502, "origin_ms": null })));
    lines.push(of(
        7,
        url,
        json!({ "outcome": "refused", "verdict": "refused", "reason": "client-denied", "status": 407 }),
    ));
    lines.push(of(8, "https://a.example/private", json!({})));
    lines.push(of(9, url, json!({ "status": 404, "bytes_out": 7 })));
    let directory = chain(&lines);
    let ended = explain(directory.path(), url, &[]).await;
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    for said in [
        "asked for 8 times: delivered 5; the site answered 4xx 1; refused 1: 1 not asked; failed 1\n  the last 5:\n",
        "  2026-11-22T10:00:05.000Z by examplebot for tdm: refused (crawl-delay), the site was not asked (segment 1, line 10)\n",
        "failed, allowed (no-matching-rule), no answer of the site (segment ",
        "  2026-11-22T10:00:09.000Z by examplebot for tdm: forwarded, allowed (no-matching-rule), the site's status 404, 7 B (segment 1, line 14)\n\njudged again, by the files of that time:\nallowed: ",
        &format!(
            "  robots.txt of 2026-11-22T09:59:00.000Z, SHA-256 {robots_hash}\n  tdmrep.json of 2026-11-22T09:59:30.000Z, SHA-256 {tdmrep_hash}\n  licence file of 2026-11-22T09:59:40.000Z, SHA-256 {license_hash}\n"
        ),
    ] {
        assert!(ended.stdout.contains(said), "{said} in {}", ended.stdout);
    }
    assert!(ended.stdout.starts_with("on record up to "), "{}", ended.stdout);
    let told = parsed(&explain(directory.path(), url, &["--format", "json"]).await);
    assert_eq!(told["tdmrep"]["fetched_at"], "2026-11-22T09:59:30Z", "{told}");
    let evidence = &told["evidence"];
    assert_eq!((&evidence["asked"]["requests"], &evidence["asked"]["refused"]), (&json!(8), &json!(1)));
    assert_eq!((&evidence["last"][4]["site_status"], &evidence["last"][4]["bytes"]), (&json!(404), &json!(7)));
    assert_eq!(
        (&evidence["last"][2]["site_status"], &evidence["files"][2]["sha256"]),
        (&Value::Null, &json!(license_hash))
    );
    let ended = explain(directory.path(), "https://a.example/other", &[]).await;
    assert!(ended.stdout.starts_with("no record of a request for this URL up to "), "{}", ended.stdout);
}

#[tokio::test]
async fn explain_shows_records_without_a_verdict() {
    let url = "https://a.example/page";
    let directory = chain(&[asked(0, url, &json!({ "outcome": "client-gone", "verdict": null, "reason": null }))]);
    let ended = explain(directory.path(), url, &[]).await;
    assert!(ended.code == 2 && ended.stderr.contains("no verdict for "), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("\n  asked for once: failed 1\n"), "{}", ended.stdout);
}

/// A chain in which a robots.txt refused twice, one could not be read, a page reserved, and the operator let others through.
fn handed_over() -> tempfile::TempDir {
    let (with, with_hash) = file(&json!({ "identity": { "contact": "mailto:bot@example.com" } }).to_string());
    let (without, without_hash) = file(&json!({ "identity": { "contact": null } }).to_string());
    let of = |second: u8, outcome: &str, verdict: &str, reason: &str, origin_ms: Option<u8>, more: &Value| {
        let mut record = asked(
            second,
            "https://a.example/",
            &json!({
                "outcome": outcome, "verdict": verdict, "reason": reason, "origin_ms": origin_ms, "config": with_hash,
                "robots": { "status": 404, "fetched": "2026-11-22T09:59:00.000Z" },
            }),
        );
        record
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().into_iter().flatten().map(|(a, b)| (a.clone(), b.clone())));
        record
    };
    let no = &json!({});
    chain(&[
        with,
        of(0, "refused", "refused", "robots-disallowed", None, no),
        of(1, "refused", "refused", "robots-disallowed", None, no),
        of(2, "forwarded", "reported", "robots-disallowed", Some(5), no),
        of(3, "refused", "refused", "robots-unreachable", None, no),
        of(4, "refused", "refused", "usage-disallowed", Some(5), no),
        of(
            5,
            "forwarded",
            "reported",
            "usage-disallowed",
            Some(5),
            &json!({ "reasons": ["usage-disallowed", "held"] }),
        ),
        of(6, "forwarded", "allowed", "robots-ignored", Some(5), &json!({ "signals": "X-Robots-Tag: noai" })),
        of(7, "refused", "refused", "crawl-delay", None, no),
        of(8, "answered", "allowed", "robots-txt", None, no),
        without,
        of(9, "forwarded", "allowed", "no-matching-rule", Some(5), &json!({ "config": without_hash })),
    ])
}

#[tokio::test]
async fn html_report_and_summary_have_equal_and_consistent_figures() {
    let directory = handed_over();
    assert_eq!(verified(directory.path()).await["whole"], true);
    let summary = report(directory.path(), &["--format", "training-summary"]).await.stdout;
    for said in [
        "Of 10 requests: delivered 4; answered by the proxy 1; refused 5: 4 not asked, 1 refused after the site's answer (fetched, not delivered).",
        "robots.txt (2 refused, and 1 because it could not be read)",
        "tdm-reservation) (1 refused). For other reasons, such as the pace: 1 refused. 3 requests let through as configured: 2 only reported",
        "contact: mailto:bot@example.com",
    ] {
        assert!(summary.contains(said), "{said} in {summary}");
    }
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    let text = report(directory.path(), &[]).await.stdout;
    for out in [&summary, &html, &text] {
        let said = "3 requests let through as configured: 2 only reported (`mode: report`, or `report` under `usage`), 1 without \
                    regard to robots.txt (`robots: ignore`, `allow`); a reservation of use is on record for 2";
        assert!(out.contains(said), "{out}");
    }
    assert!(html.contains("<dt>Operator<dd>mailto:bot@example.com\n"), "{html}");
}

#[tokio::test]
async fn html_report_shows_the_verify_command_and_the_period() {
    let directory = handed_over();
    let found = verified(directory.path()).await;
    let place = std::fs::canonicalize(directory.path()).unwrap();
    let html = report(directory.path(), &["--format", "html", "--since", "2026-11-21"]).await.stdout;
    let command =
        format!("politely evidence verify {} --head {}</code>", place.display(), found["head"].as_str().unwrap());
    assert!(html.contains(&command) && html.contains("Each request through this proxy left a record"), "{html}");
    let period = html.split("<dt>Period<dd>").nth(1).and_then(|rest| rest.lines().next()).expect("a period");
    assert!(
        period.contains("2026-11-21T00:00")
            && period.contains("records from <time datetime=\"2026-11-22T10:00:00.000Z\""),
        "{period}"
    );
}

#[tokio::test]
async fn html_report_of_a_broken_chain_says_so_first() {
    let directory = handed_over();
    let segment = directory.path().join("00000001-20261122T090000Z.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("\"status\":200", "\"status\":404", 1)).unwrap();
    let found = verified(directory.path()).await;
    assert_eq!((&found["whole"], &found["head"]), (&json!(false), &Value::Null), "{found}");
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    let first = html.split("<dl>").next().unwrap();
    assert!(first.contains("<p class=\"bad\">The chain of the evidence is broken"), "{html}");
    assert!(
        html.contains(", in 1 place:</p>") && !html.contains("Head of the chain") && !html.contains("--head"),
        "{html}"
    );
    let shown = politely(&["evidence", "verify", directory.path().to_str().unwrap()]).await.stdout;
    assert!(shown.contains(": BROKEN\n") && !shown.contains("head:"), "{shown}");
    let ended =
        explain(directory.path(), "https://a.example/never", &["--purpose", "search", "--format", "json"]).await;
    let told = ended.stdout + &ended.stderr;
    assert!(ended.code == 2 && told.contains("the chain of the evidence is broken (segment 1, line "), "{told}");
}
