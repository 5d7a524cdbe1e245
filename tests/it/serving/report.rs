//! `politely report` on chains written by the test: selection and content.

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
async fn report_filters_by_period_host_user_and_purpose() {
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
        (&["--host", "https://EXAMPLE.org:443/page?x"], "https://example.org 1"),
        (&["--host", "https://example.org:8443"], ""),
        (&["--host", "http://192.0.2.1"], "http://192.0.2.1 1"),
        (&["--host", "http://example.org"], ""),
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

/// A site's log contains the time at which a request was sent, not how long its client had waited.
#[tokio::test]
async fn report_selects_requests_by_the_time_sent() {
    let (config, hash) = file("{}");
    let url = "https://a.example/page";
    let of = |second: u8, more: Value| {
        let basis = json!({ "config": hash, "robots": { "status": 404, "fetched": "2026-11-22T10:00:00.000Z" } });
        let mut record = asked(second, url, &basis);
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let reserved = json!({
        "verdict": "refused", "outcome": "refused", "reason": "usage-disallowed", "rule": "meta robots: noai", "sent_ms": 30_250,
        "held_ms": 30_000,
    });
    let directory = chain(&[
        config,
        of(0, json!({ "reason": "no-robots-txt", "sent_ms": 20_125, "held_ms": 20_000 })),
        of(0, reserved),
        of(1, json!({ "outcome": "refused", "verdict": "refused", "reason": "crawl-delay", "origin_ms": null })),
    ]);
    let of = |from: &str, to: &str| [from, to].map(|at| format!("2026-11-22T10:00:{at}Z"));
    for ((since, until), found) in [
        (("00", "01"), 0),
        (("01", "02"), 1),
        (("02", "20"), 0),
        (("20", "21"), 1),
        (("30", "31"), 1),
        (("00", "31"), 3),
    ] {
        let [since, until] = of(since, until);
        let selected = ["--since", &since, "--until", &until, "--host", "a.example"];
        let json: Value = serde_json::from_str(
            &report(directory.path(), &[&selected[..], &["--format", "json"]].concat()).await.stdout,
        )
        .unwrap();
        assert_eq!(json["total"]["requests"], found, "{selected:?}: {json}");
        let csv = report(directory.path(), &[&selected[..], &["--format", "csv"]].concat()).await.stdout;
        assert_eq!(csv.lines().count(), 1 + found, "{selected:?}: {csv}");
    }
    let json: Value = serde_json::from_str(&report(directory.path(), &["--format", "json"]).await.stdout).unwrap();
    let times = ["from", "to"].map(|name| json["total"][name].as_str().unwrap());
    assert_eq!(times, ["2026-11-22T10:00:01.000Z", "2026-11-22T10:00:30.250Z"], "{json}");
    let place = directory.path().to_str().unwrap();
    let by_page = "refused by the page's own meta robots: noai, read at 2026-11-22T10:00:30.250Z";
    for (at, times, said) in [
        ("10:00:19Z", "once", "\n  2026-11-22T10:00:01.000Z by examplebot for no declared use: refused (crawl-delay)"),
        // The time as in a site's log, in whole seconds.
        ("10:00:20Z", "2 times", "\n  2026-11-22T10:00:20.125Z by examplebot "),
        ("10:00:30.249Z", "2 times", "\nallowed: "),
        ("10:00:30.250Z", "3 times", by_page),
    ] {
        let at = format!("2026-11-22T{at}");
        let ended = politely(&["explain", url, "--at", &at, "--evidence", place]).await;
        assert!(ended.stdout.contains(&format!("\n  asked for {times}: ")), "{at}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains(said), "{at}: {}", ended.stdout);
    }
}

/// The site's own log contains these fetches, too.
#[tokio::test]
async fn report_names_fetches_by_politely_itself() {
    let shown = |contact: &str| {
        file(&json!({ "identity": { "product_tokens": ["ExampleBot"], "contact": contact } }).to_string())
    };
    let [(one, one_hash), (other, other_hash)] = ["https://one.example", "https://other.example"].map(shown);
    let (robots, robots_hash) = file("User-agent: *\nDisallow: /private\nLicense: https://a.example/license.xml\n");
    let (tdmrep, tdmrep_hash) = file("[]");
    let of = |second: u8, config: &str, fetched: u8| {
        let at = |second: u8| format!("2026-11-22T10:00:{second:02}.500Z");
        let more = json!({
            "config": config, "robots": { "status": 200, "sha256": robots_hash, "fetched": at(fetched) },
            "tdmrep": { "status": 200, "sha256": tdmrep_hash, "fetched": at(fetched + 1) },
            "license_file": { "failure": "connection refused", "failing_since": at(fetched + 2) },
        });
        asked(second, "https://a.example/page", &more)
    };
    let directory = chain(&[
        one,
        json!({ "type": "start", "time": "2026-11-22T10:00:00.000Z", "version": "1.0.0", "instance": "i", "config": one_hash }),
        other,
        robots,
        tdmrep,
        of(9, &one_hash, 1),
        of(20, &other_hash, 1),
        of(40, &other_hash, 41),
    ]);
    let place = directory.path().to_str().unwrap();
    let explain = async |path: &str, at: &str, more: &[&str]| {
        let (url, at) = (format!("https://a.example{path}"), format!("2026-11-22T10:00:{at}Z"));
        politely(&[&["explain", &url, "--at", &at, "--evidence", place], more].concat()).await
    };
    let agent = |contact: &str| format!("ExampleBot politely/1.0.0 (+https://{contact}.example)");
    let by = |contact: &str| {
        format!("\n  fetched or confirmed by the proxy itself as \"{}\", most recently:\n", agent(contact))
    };
    for (path, at, said) in [
        (
            "/robots.txt",
            "01",
            [
                by("one"),
                format!(
                    "  2026-11-22T10:00:01.500Z: status 200, SHA-256 {robots_hash} (recorded in segment 1, line 7)\n"
                ),
            ],
        ),
        ("/robots.txt", "41", [by("other"), format!("  2026-11-22T10:00:01.500Z as \"{}\": status 200", agent("one"))]),
        (
            "/.well-known/tdmrep.json",
            "02",
            [by("one"), format!("  2026-11-22T10:00:02.500Z: status 200, SHA-256 {tdmrep_hash} (")],
        ),
        (
            "/license.xml",
            "03",
            [by("one"), "  2026-11-22T10:00:03.500Z: failing since then: connection refused (".to_owned()],
        ),
    ] {
        let ended = explain(path, at, &[]).await;
        for said in said.iter().map(String::as_str).chain(["\n  no client has asked for it\n"]) {
            assert!(ended.stdout.contains(said), "{path} at {at}: {said} in {}{}", ended.stdout, ended.stderr);
        }
    }
    let none = explain("/other.xml", "50", &[]).await.stdout;
    assert!(none.starts_with("no record of a request for this URL up to "), "{none}");
    let told: Value = serde_json::from_str(&explain("/robots.txt", "01", &["--format", "json"]).await.stdout).unwrap();
    let fetches = told["evidence"]["own_fetches"].as_array().unwrap();
    assert_eq!(fetches.len(), 1, "the second is later: {told}");
    assert_eq!(fetches[0]["agent"], agent("one"));
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    let agents = html.split("<dt>User-Agents that sites saw<dd>").nth(1).and_then(|rest| rest.lines().next());
    assert_eq!(agents, Some(format!("{}<br>{}", agent("one"), agent("other")).as_str()), "{html}");
}

#[tokio::test]
async fn report_names_the_file_of_each_rule_and_explains_each_term() {
    let refused = |second: u8, more: Value| {
        let mut record = asked(
            second,
            "https://a.example/",
            &json!({
                "outcome": "refused", "verdict": "refused", "reason": "usage-disallowed", "status": 403, "origin_ms": null,
                "signals": "meta robots: noai",
            }),
        );
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    let directory = chain(&[
        refused(0, json!({ "rule": "location: /photos/*", "entry": 1 })),
        refused(1, json!({ "rule": "url: /*; prohibits: ai-train", "entry": 2 })),
        refused(2, json!({ "rule": "meta robots: noai" })),
    ]);
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    let (rule, license) = ("tdmrep.json: location: /photos/*", "licence file: url: /*; prohibits: ai-train");
    let [text, csv] = [&["--by", "rule"][..], &["--format", "csv"]].map(|it| it.to_vec());
    for out in [&html, &report(directory.path(), &text).await.stdout, &report(directory.path(), &csv).await.stdout] {
        assert!(out.contains(rule) && out.contains(license) && out.contains("meta robots: noai"), "{out}");
    }
    let ended = politely(&[
        "explain",
        "https://a.example/",
        "--at",
        "2999-01-01",
        "--evidence",
        directory.path().to_str().unwrap(),
    ])
    .await;
    assert!(ended.stdout.contains(&format!("(usage-disallowed; {rule})")), "{}{}", ended.stdout, ended.stderr);
    assert!(html.contains("<h2>What each site says: its files, and what its answers reserve</h2>"), "{html}");
    assert!(html.contains(">fields and <code>&lt;meta&gt;</code> of answers<"), "{html}");
    for word in ["Delivered", "Answered here", "Not asked", "no-matching-rule", "SHA-256", "Head"] {
        assert!(html.contains(&format!("<dt>{word}<dd>")), "{word} in {html}");
    }
}

#[tokio::test]
async fn invalid_report_arguments_are_refused_with_a_hint() {
    let directory = example();
    for (arguments, said) in [
        (&["--host", "a*.example.com"][..], ["--host <PATTERN>", "`*.example.com`"]),
        (&["--host", "*.192.0.2.1"], ["--host <PATTERN>", "an address has no names below it"]),
        (&["--until", "soon"], ["--until <WHEN>", "write 2026-11-22T18:30:00Z, 2026-11-22, now, or 7d"]),
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

/// The line that stores a file, and the file's SHA-256.
pub fn file(text: &str) -> (Value, String) {
    let hash = hex(&sha256(text.as_bytes()));
    (json!({ "type": "file", "time": "2026-11-22T09:00:01.000Z", "sha256": hash, "text": text }), hash)
}

/// A chain in which each text that comes from outside is what `outside` makes of it.
fn full(outside: impl Fn(&str) -> String) -> TempDir {
    let said = |text: &str| outside(text);
    let config = json!({
        "mode": "enforce", "identity": { "contact": said("mailto:bot@example.com") },
        "hosts": { "a.example": { "robots": "ignore", "verify": "off", "allow": [said("/open/")] } },
    });
    let (config, config_hash) = file(&config.to_string());
    let robots = format!("User-agent: *\nContent-Signal: ai-train=no, {}\nDisallow: /private\n", said("search=yes"));
    let (robots, robots_hash) = file(&robots);
    let (tdmrep, tdmrep_hash) = file(&json!([{ "location": said("/articles/*"), "tdm-reservation": 1 }]).to_string());
    let copy = |hash: &str, fetched: &str| json!({ "status": 200, "sha256": hash, "fetched": fetched });
    let basis = json!({
        "user": said("anna"), "purpose": [said("ai-train")], "product_tokens": [said("examplebot")], "config": config_hash,
        "robots": copy(&robots_hash, "2026-11-22T09:59:00.000Z"), "tdmrep": copy(&tdmrep_hash, "2026-11-22T09:59:30.000Z"),
        "signals": said("Content-Usage: train-ai=n"),
    });
    let with = |more: Value| {
        let mut all = basis.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    chain(&[
        config,
        json!({
            "type": "start", "time": "2026-11-22T09:00:02.000Z", "version": said("1.0.0"), "instance": said("crawl3.example.com"),
            "config": config_hash,
        }),
        robots,
        tdmrep,
        asked(0, "https://a.example/open/", &with(json!({ "reason": "robots-ignored" }))),
        asked(
            1,
            &format!("https://a.example/{}", said("private")),
            &with(json!({
                "outcome": "refused", "verdict": "refused", "reason": said("robots-disallowed"), "rule": said("Disallow: /private"), "line": 3,
                "origin_ms": null,
            })),
        ),
        asked(
            2,
            "https://a.example/",
            &with(json!({
                "purpose": [], "robots": { "failure": said("connection refused"), "failing_since": "2026-11-22T09:59:50.000Z" },
            })),
        ),
        asked(
            3,
            "https://a.example/",
            &json!({
                "client": said("192.0.2.99"), "outcome": "refused", "verdict": "refused", "reason": "client-denied", "status": 407,
            }),
        ),
    ])
}

#[tokio::test]
async fn html_report_shows_operator_purposes_reservations_and_overrides() {
    let directory = full(str::to_owned);
    assert_eq!(verified(directory.path()).await["whole"], true);
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    // The page as text, one cell per line.
    let text =
        html.split("</style>").nth(1).unwrap().replace("<td", "\n<td").replace("<d", "\n<d").replace("<br>", " | ");
    let mut is_tag = false;
    let text: String = text
        .chars()
        .filter(|c| {
            is_tag = *c == '<' || is_tag && *c != '>';
            !is_tag && *c != '>'
        })
        .collect();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let (robots, config) = (r"Content-Signal", r"bot@example.com");
    assert!(!html.contains(robots), "the value is shown, in its line: {html}");
    assert!(lines.contains(&"mailto:bot@example.com"), "{config}: {text}");
    for cells in [
        &["crawl3.example.com (politely 1.0.0), since 2026-11-22 09:00:02 UTC"][..],
        &["2026-11-22 10:00:00 UTC to 2026-11-22 10:00:02 UTC"],
        // Requests, delivered, the site's 4xx and 5xx, answered here, refused, failed, received.
        &["https://a.example", "3", "2", "0", "0", "0", "1", "0", "2.0 KiB"],
        // Requests, declared, none declared, delivered, the site's 4xx and 5xx, refused.
        &["anna", "3", "ai-train × 2", "1", "2", "0", "0", "1"],
        &["2026-11-22 09:59:00 UTC", "2", "line 2: ai-train=no, search=yes"],
        &["2026-11-22 09:59:30 UTC", "3", "entry 1: /articles/* is reserved"],
        &["failed: connection refused | since 2026-11-22 09:59:50 UTC"],
        &["Content-Usage: train-ai=n"],
        &["3", "a.example: allow: [&quot;/open/&quot;] | a.example: robots: ignore | a.example: verify: off"],
        &["192.0.2.99", "1", "2026-11-22 10:00:03 UTC"],
    ] {
        assert!(lines.windows(cells.len()).any(|found| found == cells), "{cells:?} in {lines:#?}");
    }
    let json: Value = serde_json::from_str(&report(directory.path(), &["--format", "json"]).await.stdout).unwrap();
    assert_eq!(json["total"]["requests"], 3, "who was turned away asked no site: {json}");
    assert_eq!(json["sites"][0]["robots"][0]["reservations"], json!([["line 2", "ai-train=no, search=yes"]]));
    assert_eq!(json["configurations"][0]["contact"], "mailto:bot@example.com");
    let text = report(directory.path(), &[]).await.stdout;
    assert!(text.contains("1 more request from clients that may not use the proxy is not counted"), "{text}");
}

/// A chain with answers of several statuses, and requests with other outcomes.
fn ended() -> TempDir {
    let none = json!(null);
    chain(&[
        asked(0, "https://a.example/page", &json!({})),
        asked(1, "https://a.example/moved", &json!({ "status": 301 })),
        asked(2, "https://a.example/gone", &json!({ "status": 404 })),
        asked(
            3,
            "https://a.example/too,many",
            &json!({ "status": 429, "user": "=anna", "purpose": ["ai-train", "search"] }),
        ),
        asked(4, "https://a.example/down", &json!({ "status": 503 })),
        asked(5, "https://a.example/odd", &json!({ "status": 200, "origin_status": 500 })),
        // A tunnel has no status of the site's.
        asked(6, "https://b.example/", &json!({ "method": "CONNECT", "outcome": "tunnelled", "origin_ms": none })),
        asked(7, "https://a.example/robots.txt", &json!({ "outcome": "answered", "origin_ms": none })),
        asked(8, "https://a.example/cut", &json!({ "outcome": "cut" })),
        asked(
            9,
            "https://a.example/private",
            &json!({
                "outcome": "refused", "verdict": "refused", "reason": "robots-disallowed", "rule": "Disallow: /private", "status": 403,
                "origin_ms": none,
            }),
        ),
        asked(10, "https://a.example/", &json!({ "method": "CONNECT", "outcome": "intercepted" })),
        asked(
            11,
            "https://a.example/",
            &json!({ "outcome": "refused", "reason": "client-denied", "status": 407, "origin_ms": none }),
        ),
    ])
}

#[tokio::test]
async fn report_does_not_count_4xx_and_5xx_as_delivered() {
    let directory = ended();
    let text = report(directory.path(), &[]).await.stdout;
    let row = text.lines().find(|line| line.ends_with("https://a.example")).expect("a row");
    // Requests, delivered, 4xx, 5xx, answered, refused, failed.
    assert_eq!(row.split_whitespace().take(7).collect::<Vec<_>>(), ["9", "2", "2", "2", "1", "1", "1"], "{text}");
    let json: Value = serde_json::from_str(&report(directory.path(), &["--format", "json"]).await.stdout).unwrap();
    let total = &json["total"];
    assert_eq!([&total["forwarded"], &total["status_4xx"], &total["status_5xx"]], [&json!(7), &json!(2), &json!(2)]);
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    for said in ["<b class=\"\">3</b> delivered", "<b class=\"\">2</b> answered with 4xx by the site"] {
        assert!(html.contains(said), "{html}");
    }
    assert!(html.contains("counter(page)") && html.contains("--format csv"), "{html}");
    let summary = report(directory.path(), &["--format", "training-summary"]).await.stdout;
    let said = "delivered 3; the site answered 4xx 2; the site answered 5xx 2; answered by the proxy 1; refused 1: 1 not asked; failed 1";
    assert!(summary.contains(said), "{summary}");
}

/// Each figure of the report is the number of lines that name it.
#[tokio::test]
async fn csv_report_lists_requests_with_their_urls() {
    let directory = ended();
    let ended = report(directory.path(), &["--format", "csv"]).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(
        lines[0],
        "time,figure,url,status,site_status,bytes,reason,rule,method,client,user,product_tokens,purpose,record,sent,held_ms,verdict,\
         decided_by,agent"
    );
    let of = |figure: &str| lines.iter().filter(|line| line.split(',').nth(1) == Some(figure)).count();
    assert_eq!(
        ["delivered", "4xx", "5xx", "answered", "refused", "failed", "turned-away"].map(of),
        [3, 2, 2, 1, 1, 1, 1],
        "{lines:#?}"
    );
    assert_eq!(lines.len(), 1 + 11, "what is inside an intercepted CONNECT has lines of its own");
    assert_eq!(
        lines[4],
        "2026-11-22T10:00:03.000Z,4xx,\"https://a.example/too,many\",429,429,1000,no-matching-rule,,GET,192.0.2.7,'=anna,examplebot,ai-train search,segment 1 line 5,,0,allowed,robots.txt,"
    );
    assert!(
        lines[10].contains(",refused,https://a.example/private,403,,,robots-disallowed,Disallow: /private,"),
        "{}",
        lines[10]
    );
    let some = report(directory.path(), &["--format", "csv", "--host", "b.example"]).await.stdout;
    assert_eq!(some.lines().count(), 2, "{some}");
}

#[tokio::test]
async fn evidence_file_prints_a_stored_file_by_its_sha_256() {
    let text = "User-agent: *\nDisallow: /\u{1b}[2J\n";
    let (line, hash) = file(text);
    let directory = chain(&[line]);
    let place = directory.path().to_str().unwrap();
    let ended = politely(&["evidence", "file", &hash, place]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, text), "{}", ended.stderr);
    let ended = politely(&["evidence", "file", &"0".repeat(64), place]).await;
    assert!(ended.code == 2 && ended.stderr.contains("it is missing\nhint: "), "{}", ended.stderr);
}

#[tokio::test]
async fn html_report_escapes_untrusted_text() {
    let hostile =
        "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}<!--</style><svg/onload=alert(3)>&lt;";
    let directory = full(|text| format!("{text}{hostile}"));
    for by in ["host", "domain", "user", "rule"] {
        let html = report(directory.path(), &["--by", by, "--format", "html"]).await.stdout;
        let body = html.split_once("</style>").expect("a page").1;
        assert!(body.matches("&lt;script&gt;").count() > 10, "all of it is in the page: {body}");
        for tag in body.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("`<{tag}` in {body}"));
            let mut words = tag.trim_start_matches('/').split(' ');
            let name = words.next().unwrap_or_default();
            assert!(OURS.contains(&name), "<{tag}> by {by}");
            let attributes = words.collect::<Vec<_>>().join(" ");
            for (number, piece) in attributes.split('"').enumerate() {
                let is_ours = match number % 2 {
                    0 => ["", "class=", "data-name=", "datetime="].contains(&piece.trim()),
                    _ => piece.chars().all(|c| c.is_ascii_alphanumeric() || " -:.".contains(c) || c == ','),
                };
                assert!(is_ours, "`{piece}` in <{tag}> by {by}");
            }
        }
        assert!(!body.contains('\u{202e}'), "the direction of the text is ours");
    }
}

#[tokio::test]
async fn training_summary_contains_recorded_data_and_leaves_other_fields_empty() {
    let asked_of = |number: u8, user: &str, bytes: u32| {
        let more = json!({
            "user": user, "purpose": ["ai-train"], "product_tokens": ["examplebot"], "bytes_out": bytes,
            "agent": format!("Bot/{number}"), "sent_ms": 0,
        });
        asked(number, &format!("https://www.site-{number}.co.uk/"), &more)
    };
    let mut lines: Vec<_> = (0..20).map(|number| asked_of(number, "anna", 1000 + u32::from(number))).collect();
    lines.push(asked(30, "https://big.example/", &json!({ "user": "bob", "bytes_out": 1_000_000 })));
    let refused = json!({ "user": "anna", "outcome": "refused", "verdict": "refused", "reason": "usage-disallowed" });
    lines.push(asked(31, "https://www.site-3.co.uk/b", &refused));
    let directory = chain(&lines);
    let summary = report(directory.path(), &["--format", "training-summary", "--user", "anna"]).await.stdout;
    for said in [
        "- If yes, specify crawler name(s)/identifier(s): examplebot, User-Agent \"Bot/0\", ",
        "User-Agent \"Bot/9\", perhaps more User-Agents\n",
        "- Purposes of the crawler(s): as declared: ai-train (20 requests), no purpose declared (1 request); \\[…\\]\n",
        "- Period of data collection: from 11/2022 to 11/2022\n".replace("2022", "2026").as_str(),
        "below: 2 of 20, the top 10 % by the size of the content",
        "|---|---:|---:|---:|\n| site-19.co.uk | 1019 | 1 | 0 |\n| site-18.co.uk | 1018 | 1 | 0 |\n\n## 3.1",
        "tdm-reservation) (1 refused)",
        "- Type of modality covered: \\[…\\]\n",
    ] {
        assert!(summary.contains(said), "{said} in {summary}");
    }
    assert!(!summary.contains("big.example"), "it is another user's: {summary}");
}

const OURS: [&str; 25] = [
    "head", "body", "html", "h1", "h2", "p", "dl", "dt", "dd", "ul", "li", "b", "table", "thead", "tbody", "tr", "th",
    "td", "time", "code", "br", "span", "title", "meta", "style",
];
