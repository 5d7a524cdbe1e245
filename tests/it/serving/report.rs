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

#[tokio::test]
async fn what_cannot_be_asked_for_is_refused_with_its_place_and_a_hint() {
    let directory = example();
    for (arguments, said) in [
        (&["--host", "a*.example.com"][..], ["--host <PATTERN>", "`*.example.com`"]),
        (&["--host", "*.192.0.2.1"], ["--host <PATTERN>", "an address has no names below it"]),
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
async fn a_page_says_who_operates_it_what_was_declared_what_sites_reserved_and_what_was_overridden() {
    let directory = full(str::to_owned);
    assert_eq!(verified(directory.path()).await["whole"], true);
    let html = report(directory.path(), &["--format", "html"]).await.stdout;
    // As text: a cell a line.
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
    assert!(text.contains("1 more request of clients that may not use the proxy is not counted"), "{text}");
}

/// The status of a site's answers, and what came of the other requests.
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
async fn what_the_site_did_not_have_or_could_not_answer_is_not_delivered() {
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
    let said = "delivered 3; the site answered 4xx 2; the site answered 5xx 2; answered from here 1; refused 1: 1 not asked; failed 1";
    assert!(summary.contains(said), "{summary}");
}

/// Each figure of the report is the number of lines that name it.
#[tokio::test]
async fn the_requests_behind_the_figures_are_lines_with_their_urls() {
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
async fn a_stored_file_is_printed_by_its_sha_256() {
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
async fn nothing_that_others_have_written_runs_in_the_page() {
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
async fn a_training_summary_has_what_a_crawler_knows_and_leaves_the_rest_to_the_provider() {
    let asked_of = |number: u8, user: &str, bytes: u32| {
        let more =
            json!({ "user": user, "purpose": ["ai-train"], "product_tokens": ["examplebot"], "bytes_out": bytes });
        asked(number, &format!("https://www.site-{number}.co.uk/"), &more)
    };
    let mut lines: Vec<_> = (0..20).map(|number| asked_of(number, "anna", 1000 + u32::from(number))).collect();
    lines.push(asked(30, "https://big.example/", &json!({ "user": "bob", "bytes_out": 1_000_000 })));
    let refused = json!({ "user": "anna", "outcome": "refused", "verdict": "refused", "reason": "usage-disallowed" });
    lines.push(asked(31, "https://www.site-3.co.uk/b", &refused));
    let directory = chain(&lines);
    let summary = report(directory.path(), &["--format", "training-summary", "--user", "anna"]).await.stdout;
    for said in [
        "- If yes, specify crawler name(s)/identifier(s): examplebot\n",
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
