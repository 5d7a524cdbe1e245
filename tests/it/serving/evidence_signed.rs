//! What a compliance officer looks for in the evidence before signing: what was sent when and under which name, who has decided,
//! what was delivered, and what is missing.

use super::evidence::{get, kept, sent, verified};
use super::report::{asked, chain, file, report};
use crate::support::binary::politely;
use crate::support::{Binary, Origin, Reply, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const KEPT: &str = "evidence: { directory: evidence }\nadmin: { address: '127.0.0.1:0' }\n";

/// The decisions on record, in order.
fn records(directory: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let text: String = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|line| line["type"] == "decision").collect()
}

async fn recorded(directory: &Path, count: usize) {
    eventually("the records", || records(directory).len() == count).await;
}

/// The cells of the lines, without the heading; none of them has a comma.
fn cells(csv: &str) -> Vec<Vec<String>> {
    csv.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[tokio::test]
async fn csv_line_shows_the_time_sent_and_who_decided() {
    let none = json!(null);
    let refused = |second: u8, reason: &str, more: Value| {
        let mut record = asked(
            second,
            "https://a.example/",
            &json!({ "outcome": "refused", "verdict": "refused", "reason": reason, "status": 403, "origin_ms": none }),
        );
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let directory = chain(&[
        asked(
            0,
            "https://a.example/",
            &json!({
                "reason": "allowed-by-rule", "rule": "Allow: /", "line": 2, "held_ms": 995, "sent_ms": 1004,
                "agent": "ExampleBot/1.0",
            }),
        ),
        refused(1, "robots-disallowed", json!({ "rule": "Disallow: /", "line": 3 })),
        refused(2, "usage-disallowed", json!({ "rule": "meta robots: noai", "origin_ms": 4, "origin_status": 200 })),
        refused(3, "usage-disallowed", json!({ "rule": "location: /*", "entry": 1 })),
        refused(4, "usage-disallowed", json!({ "rule": "url: /*; prohibits: ai-train", "entry": 2 })),
        refused(5, "operator-denied", json!({ "rule": "hosts.a.example.deny: /" })),
        refused(6, "robots-unreachable", json!({})),
        refused(7, "crawl-delay", json!({ "held_ms": 60_000 })),
        asked(
            8,
            "https://a.example/",
            &json!({ "verdict": "reported", "reason": "usage-disallowed", "rule": "X-Robots-Tag: noai" }),
        ),
    ]);
    let csv = report(directory.path(), &["--format", "csv"]).await.stdout;
    let heading: Vec<_> = csv.lines().next().unwrap().split(',').collect();
    assert_eq!(heading[13..], ["record", "sent", "held_ms", "verdict", "decided_by", "agent"], "columns are added");
    let all = cells(&csv);
    assert_eq!(all[0][14..], ["2026-11-22T10:00:01.004Z", "995", "allowed", "robots.txt line 2", "ExampleBot/1.0"]);
    let said: Vec<_> = all.iter().map(|cells| [&cells[5], &cells[16], &cells[17]].map(String::as_str)).collect();
    assert_eq!(
        said,
        [
            ["1000", "allowed", "robots.txt line 2"],
            ["", "refused", "robots.txt line 3"],
            ["", "refused", "the page"],
            ["", "refused", "tdmrep.json entry 1"],
            ["", "refused", "licence file content 2"],
            ["", "refused", "the operator"],
            ["", "refused", "robots.txt"],
            ["", "refused", ""],
            ["1000", "reported", "the page"],
        ],
        "what was refused has no bytes of the site's"
    );
    assert!(all.iter().skip(1).all(|cells| cells[14].is_empty()), "it was not sent, or is not on record: {csv}");
}

#[tokio::test]
async fn csv_report_of_a_broken_chain_warns_on_stderr() {
    let directory = chain(&[asked(0, "https://a.example/", &json!({})), asked(1, "https://a.example/2", &json!({}))]);
    let whole = report(directory.path(), &["--format", "csv"]).await;
    assert_eq!((whole.code, whole.stderr.as_str()), (0, ""));
    let segment = directory.path().join("00000001-20261122T090000Z.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("\"bytes_out\":1000", "\"bytes_out\":1001", 1)).unwrap();
    let ended = report(directory.path(), &["--format", "csv"]).await;
    assert_eq!((ended.code, ended.stdout.lines().count()), (1, 3), "{}", ended.stderr);
    let said = "warning: the chain of the evidence is broken (segment 1, line 2: ";
    assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_contains_the_sent_user_agent_and_time() {
    for (identity, agent) in [("", "ExampleBot/1.0"), ("identity: { user_agent: 'OurBot/2.0' }\n", "OurBot/2.0")] {
        let origin = Origin::site("User-agent: *\nDisallow: /private\nCrawl-delay: 1\n").await;
        let proxy = Binary::serve(&format!("{KEPT}{identity}")).await;
        assert_eq!(get(&proxy, &origin.url("/private")).await, 403);
        let (one, other) = (origin.url("/1"), origin.url("/2"));
        let (one, other) = tokio::join!(get(&proxy, &one), get(&proxy, &other));
        assert_eq!((one, other), (200, 200));
        recorded(&kept(&proxy), 3).await;
        let home = proxy.stop().await;
        let directory = home.path().join("evidence");
        assert_eq!(origin.log.one("/1").field("user-agent"), Some(agent));
        let all = records(&directory);
        let agents: Vec<_> = all.iter().map(|record| record["agent"].as_str()).collect();
        assert_eq!(agents, [None, Some(agent), Some(agent)], "what was refused no site has seen");
        let csv = report(&directory, &["--format", "csv"]).await.stdout;
        let sent: Vec<_> = cells(&csv)
            .iter()
            .filter(|cells| !cells[14].is_empty())
            .map(|cells| OffsetDateTime::parse(&cells[14], &Rfc3339).expect("a time"))
            .collect();
        assert!(sent.len() == 2 && (sent[1] - sent[0]).abs().as_seconds_f64() > 0.9, "a second apart: {csv}");
        let html = report(&directory, &["--format", "html"]).await.stdout;
        let robots = origin.log.one("/robots.txt");
        let own = robots.field("user-agent").expect("politely names itself");
        let all = if own == agent { agent.to_owned() } else { format!("{agent}<br>{own}") };
        assert!(html.contains(&format!("<dt>User-Agents that sites saw<dd>{all}\n")), "{html}");
        let json: Value = serde_json::from_str(&report(&directory, &["--format", "json"]).await.stdout).unwrap();
        assert_eq!(json["own_agents"], json!([own]));
        let summary = report(&directory, &["--format", "training-summary"]).await.stdout;
        assert!(summary.contains(&format!(", User-Agent \"{agent}\"")), "{summary}");
    }
}

#[tokio::test]
async fn training_summary_counts_delivered_content_and_honoured_preferences() {
    let none = json!(null);
    let directory = chain(&[
        asked(0, "https://a.example/", &json!({ "bytes_out": 100 })),
        asked(1, "https://a.example/part", &json!({ "status": 206, "bytes_out": 20 })),
        asked(2, "https://a.example/gone", &json!({ "status": 404, "bytes_out": 5000 })),
        asked(3, "https://a.example/moved", &json!({ "status": 301, "bytes_out": 300 })),
        asked(4, "https://a.example/same", &json!({ "status": 304, "bytes_out": 0 })),
        asked(5, "https://a.example/same", &json!({ "outcome": "cached", "origin_status": 304, "bytes_out": 700 })),
        asked(6, "https://a.example/cut", &json!({ "outcome": "cut", "bytes_out": 9000 })),
        asked(7, "https://b.example/gone", &json!({ "status": 404, "bytes_out": 90_000 })),
        asked(
            8,
            "https://c.example/",
            &json!({ "method": "CONNECT", "outcome": "tunnelled", "origin_ms": none, "bytes_out": 1 }),
        ),
    ]);
    let summary = report(directory.path(), &["--format", "training-summary"]).await.stdout;
    for said in [
        "3 brought content (answers 2xx, and tunnels): 121 bytes; 2 had not changed since an earlier fetch (304). ",
        "below: 1 of 2, the top 10 % by the size of the content\n",
        "| Domain | Bytes | Requests | Unchanged (304) |\n|---|---:|---:|---:|\n| a.example | 120 | 2 | 2 |\n\n",
        "`<meta>` elements in the head of a page (robots, tdm-reservation)",
        "no purpose declared (9 requests)",
    ] {
        assert!(summary.contains(said), "{said} in {summary}");
    }
    let json: Value = serde_json::from_str(&report(directory.path(), &["--format", "json"]).await.stdout).unwrap();
    let total = &json["total"];
    assert_eq!([&total["content"], &total["content_bytes"], &total["not_modified"]], [3, 121, 2], "{total}");
}

#[tokio::test]
async fn report_lists_the_most_refusing_rules_and_undeclared_purposes() {
    let mut lines = Vec::new();
    for (line, count) in [(2, 3), (3, 1), (4, 4), (5, 2)] {
        let more = json!({
            "outcome": "refused", "verdict": "refused", "reason": "robots-disallowed", "rule": format!("Disallow: /{line}"), "line": line,
            "status": 403, "origin_ms": null, "purpose": ["search"],
        });
        lines.extend((0..count).map(|second| asked(second, "https://a.example/", &more)));
    }
    lines.push(asked(9, "https://a.example/", &json!({})));
    let directory = chain(&lines);
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    let rule = |line: u8, count: u8| format!("https://a.example/robots.txt:{line}: Disallow: /{line} × {count}");
    let shown = [rule(4, 4), rule(2, 3), rule(5, 2)].join("<br>");
    assert!(html.contains(&format!("data-name=\"Rules that refused most\">{shown}</tr>")), "{html}");
    let said = "no purpose declared for 1 of 11 requests: the sites' reservations of use were not applied to them";
    let text = report(directory.path(), &[]).await.stdout;
    assert!(html.contains(said) && text.contains(said), "{text}");
    let declared = report(directory.path(), &["--purpose", "search"]).await.stdout;
    assert!(!declared.contains("no purpose declared"), "{declared}");
}

/// A site with many rules must not make the report long.
#[tokio::test]
async fn report_names_the_first_of_many_rules_and_counts_all() {
    let lines: Vec<_> = (0..50u8)
        .map(|line| {
            let rule = format!("Disallow: /{line}{}", "x".repeat(5000));
            let more = json!({
                "outcome": "refused", "verdict": "refused", "reason": "robots-disallowed", "rule": rule, "line": line, "status": 403,
                "origin_ms": null,
            });
            asked(0, "https://a.example/", &more)
        })
        .collect();
    let directory = chain(&lines);
    let json: Value = serde_json::from_str(&report(directory.path(), &["--format", "json"]).await.stdout).unwrap();
    let rules = json["groups"][0]["refused_rules"].as_object().unwrap();
    assert_eq!((rules.len(), &rules["robots-disallowed"]), (21, &json!(30)), "{rules:?}");
    assert!(rules.keys().all(|rule| rule.len() < 1100));
}

#[tokio::test]
async fn report_host_filter_with_a_port_matches_only_that_port() {
    let directory = chain(&[
        asked(0, "https://a.example/", &json!({})),
        asked(1, "http://a.example:8080/", &json!({})),
        asked(2, "https://b.example:8080/", &json!({})),
        asked(3, "http://[2001:db8::1]:8080/", &json!({})),
    ]);
    for (host, sites) in [
        ("a.example", &["https://a.example", "http://a.example:8080"][..]),
        ("a.example:8080", &["http://a.example:8080"]),
        ("A.example:443", &["https://a.example"]),
        ("*.example:8080", &["http://a.example:8080", "https://b.example:8080"]),
        ("[2001:db8::1]:8080", &["http://[2001:db8::1]:8080"]),
        ("2001:db8::1", &["http://[2001:db8::1]:8080"]),
        ("[2001:db8::1]:80", &[]),
    ] {
        let ended = report(directory.path(), &["--host", host, "--format", "json"]).await;
        let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
        let mut found: Vec<_> = told["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str()).collect();
        found.sort_by_key(|name| sites.iter().position(|site| Some(*site) == *name));
        assert_eq!(found, sites.iter().copied().map(Some).collect::<Vec<_>>(), "{host}");
    }
    for host in ["a.example:x", "a.example:70000"] {
        let ended = report(directory.path(), &["--host", host]).await;
        assert_eq!(ended.code, 2, "{host}: {}", ended.stdout);
    }
}

#[tokio::test]
async fn verify_shows_the_period_of_the_records() {
    let directory = chain(&[asked(7, "https://a.example/", &json!({})), asked(3, "https://a.example/2", &json!({}))]);
    let found = verified(directory.path()).await;
    let times = ["2026-11-22T10:00:03.000Z", "2026-11-22T10:00:07.000Z"];
    assert_eq!([&found["from"], &found["to"]], times, "of requests, not of when a process started: {found}");
    let place = directory.path().to_str().unwrap();
    let text = politely(&["evidence", "verify", place]).await.stdout;
    let said = format!("  period:   {} to {}, by arrival of the requests\n", times[0], times[1]);
    assert!(text.contains(&said), "{text}");
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    let whole = html.lines().find(|line| line.contains("The chain is whole: 2 records")).expect("it says so");
    assert!(times.iter().all(|time| whole.contains(time)), "{whole}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_why_it_differs_from_the_record() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private\n"),
        "/.well-known/tdmrep.json" => Reply::status(404),
        _ => Reply::text("<html><head><meta name=robots content=noai></head>page").field("Content-Type", "text/html"),
    })
    .await;
    let identity = "identity: { purpose: [ai-train] }\n";
    for (config, by, judged) in [
        ("usage: { page: report }\n", "robots.txt", "no-matching-rule"),
        ("usage: { page: report }\nhosts: { '*': { robots: ignore } }\n", "the operator", "robots-ignored"),
    ] {
        let proxy = Binary::serve(&format!("{KEPT}{identity}{config}")).await;
        let url = origin.url("/page");
        assert_eq!(get(&proxy, &url).await, 200);
        recorded(&kept(&proxy), 1).await;
        let home = proxy.stop().await;
        let directory = home.path().join("evidence");
        let record = &records(&directory)[0];
        assert_eq!([&record["verdict"], &record["reason"]], ["reported", "usage-disallowed"], "{record}");
        let arguments = ["explain", &url, "--at", "2999-01-01", "--evidence", directory.to_str().unwrap()];
        let ended = politely(&arguments).await;
        let at = sent(record);
        for said in [
            "forwarded, reported (usage-disallowed; meta robots: noai), the site's status 200".to_owned(),
            format!(
                "\nallowed by {by}; the page's own meta robots: noai says no, which was only reported, as configured: "
            ),
            format!(
                "\n  note: the record of {at} says reported (usage-disallowed); judged again, it is allowed ({judged}): the page itself \
                 decided, and pages are not in the evidence\n"
            ),
        ] {
            assert!(ended.stdout.contains(&said), "{said} in {}", ended.stdout);
        }
        assert!(ended.code == 0 && !ended.stdout.contains("contradicts"), "{}", ended.stdout);
        let json = politely(&[&arguments[..], &["--format", "json"]].concat()).await;
        let told: Value = serde_json::from_str(&json.stdout).unwrap();
        let evidence = &told["evidence"];
        assert_eq!(
            [&evidence["reported_by_page"], &evidence["refused_by_page"]],
            [&json!("meta robots: noai"), &Value::Null]
        );
        assert!(evidence["differs"].as_str().is_some_and(|said| said.contains("the page itself decided")), "{told}");
    }
}

#[tokio::test]
async fn explain_attributes_a_difference_to_time_copies_or_configuration() {
    let (config, config_hash) = file("{}");
    let (later, later_hash) = file("{\"mode\":\"enforce\"}");
    let (robots, robots_hash) = file("User-agent: *\nDisallow: /page\n");
    let basis = |hash: Option<&String>, config: &String| {
        let mut robots = json!({ "status": 404, "fetched": "2026-11-22T09:59:00.000Z" });
        if let Some(hash) = hash {
            (robots["status"], robots["sha256"]) = (200.into(), hash.as_str().into());
        }
        json!({ "config": config, "robots": robots })
    };
    let of = |second: u8, url: &str, basis: &Value, more: Value| {
        let mut record = asked(second, url, basis);
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let (url, missing) = ("https://a.example/page", basis(None, &config_hash));
    let allowed = json!({ "reason": "no-robots-txt" });
    let none = Value::Null;
    let refused =
        |reason: &str| json!({ "outcome": "refused", "verdict": "refused", "reason": reason, "origin_ms": none });
    for (first, second, why) in [
        (of(0, url, &missing, allowed.clone()), None, None),
        (
            of(0, url, &missing, refused("crawl-delay")),
            None,
            Some(
                "says refused (crawl-delay); judged again, it is allowed (no-robots-txt): it depended on the time or on earlier requests",
            ),
        ),
        (
            of(0, url, &missing, allowed.clone()),
            Some(of(1, "https://a.example/", &basis(Some(&robots_hash), &config_hash), json!({}))),
            Some("it is refused (robots-disallowed): it was decided by another copy of the site's files"),
        ),
        (
            of(0, url, &missing, refused("operator-denied")),
            Some(of(1, "https://a.example/", &basis(None, &later_hash), allowed.clone())),
            Some("it is allowed (no-robots-txt): it was decided under another configuration"),
        ),
        (
            of(
                0,
                url,
                &basis(Some(&robots_hash), &config_hash),
                json!({ "reason": "robots-disallowed", "verdict": "reported" }),
            ),
            None,
            Some("says reported (robots-disallowed); judged again, it is refused (robots-disallowed): "),
        ),
    ] {
        let lines: Vec<_> = [config.clone(), later.clone(), robots.clone(), first].into_iter().chain(second).collect();
        let directory = chain(&lines);
        let place = directory.path().to_str().unwrap();
        let ended = politely(&["explain", url, "--at", "2999-01-01", "--evidence", place]).await;
        let note = ended.stdout.lines().find(|line| line.starts_with("  note: the record of "));
        assert_eq!(note.is_some(), why.is_some(), "{why:?}: {}{}", ended.stdout, ended.stderr);
        assert!(note.is_none_or(|note| note.contains(why.unwrap())), "{why:?}: {}", ended.stdout);
    }
}

/// Sites decide how long their files are: an oversized file may cost only records of its own site.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_policy_file_over_the_queue_limit_does_not_cost_other_records() {
    let small = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let large = Origin::site(&format!("User-agent: *\n{}", "Disallow: /a-section-of-the-site\n".repeat(3_000))).await;
    let proxy = Binary::serve(KEPT).await;
    assert_eq!(get(&proxy, &small.url("/1")).await, 200);
    recorded(&kept(&proxy), 1).await;
    let directory = kept(&proxy);
    let written: u64 =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let limit = |bytes| {
        let pid = Pid::from_raw(i32::try_from(proxy.pid()).unwrap()).unwrap();
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    limit(Some(written + 8_000));
    // Both are in one batch, or the second comes at once after the first.
    let (big, next) = (large.url("/x"), small.url("/2"));
    let (big, next) = tokio::join!(get(&proxy, &big), get(&proxy, &next));
    assert_eq!((big, next), (200, 200));
    assert_eq!(get(&proxy, &small.url("/3")).await, 200);
    recorded(&directory, 3).await;
    eventually("the end of it in the log", || proxy.output().contains("evidence is written again")).await;
    let log = proxy.output();
    for said in ["evidence cannot be written, and is lost: ", "evidence is written again; these records were lost"] {
        assert_eq!(log.matches(said).count(), 1, "{said} in {log}");
    }
    let line = log.lines().find(|line| line.contains("is written again")).unwrap();
    assert!(line.contains("records=1"), "{line}");
    limit(None);
    let home = proxy.stop().await;
    let found = verified(&home.path().join("evidence")).await;
    assert_eq!((&found["whole"], &found["records"], &found["lost"][0]["count"]), (&json!(true), &json!(3), &json!(1)));
}
