//! Records of decisions, and reading them with our own commands and with standard tools.

use crate::support::binary::politely;
use crate::support::{Alpn, Binary, Client, Origin, Reply, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

const RULES: &str = "User-agent: *\nDisallow: /private\nAllow: /private/open\n";
const KEPT: &str = "evidence: { directory: evidence }\nadmin: { address: '127.0.0.1:0' }\n";

pub fn kept(proxy: &Binary) -> PathBuf {
    proxy.directory().join("evidence")
}

/// The lines of the first segment that are whole.
fn lines(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(first(directory)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn records(directory: &Path) -> Vec<Value> {
    lines(directory).into_iter().filter(|line| line["type"] == "decision").collect()
}

/// The records, when there are so many.
async fn recorded(directory: &Path, count: usize) -> Vec<Value> {
    eventually("the records", || records(directory).len() >= count).await;
    assert_eq!(records(directory).len(), count, "{:?}", records(directory));
    records(directory)
}

pub async fn get(proxy: &Binary, url: &str) -> u16 {
    let mut client = Client::open(proxy.address()).await;
    let host = url.split('/').nth(2).unwrap_or("a.example");
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: ExampleBot/1.0\r\n\r\n")).await;
    client.response().await.status()
}

pub fn told<const N: usize>(line: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| line[name].clone())
}

/// When the request of a record was sent.
pub fn sent(record: &Value) -> String {
    let came = OffsetDateTime::parse(record["time"].as_str().unwrap(), &Rfc3339).unwrap();
    let sent = came + Duration::from_millis(record["sent_ms"].as_u64().expect("it was sent"));
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    sent.format(form).unwrap()
}

fn path(directory: &Path) -> &str {
    directory.to_str().expect("UTF-8")
}

pub async fn verified(directory: &Path) -> Value {
    let ended = politely(&["evidence", "verify", path(directory), "--format", "json"]).await;
    let verified: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    assert_eq!(ended.code == 0, verified["whole"] == true, "{verified}");
    verified
}

/// Clients without a password must not fill the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_of_unauthenticated_requests_is_shortened() {
    let origin = Origin::site(RULES).await;
    let url = origin.url(&format!("/private/{}", "x".repeat(40_000)));
    let proxy = Binary::serve(&format!("{KEPT}log: {{ access: ./access.log }}\n{}", super::access::users(""))).await;
    let agent = format!("{} {}", "y".repeat(5000), "Bot/1 ".repeat(1000));
    let stranger = format!("GET {url} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
    let malformed = format!("GET {}://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "z".repeat(40_000));
    for (number, (request, status)) in (1..).zip([(stranger, 407), (malformed, 400)]) {
        let mut client = Client::open(proxy.address()).await;
        client.send(request).await;
        assert_eq!(client.response().await.status(), status);
        recorded(&kept(&proxy), number).await;
    }
    // A client that leaves while its password is verified is unauthenticated, too.
    let mut leaves = Client::open(proxy.address()).await;
    leaves.send(super::access::request(&url, "mallory")).await;
    drop(leaves);
    recorded(&kept(&proxy), 3).await;
    let log = || std::fs::read_to_string(proxy.directory().join("access.log")).unwrap_or_default();
    eventually("their lines", || log().lines().count() == 3).await;
    for text in log().lines().map(str::to_owned).chain(records(&kept(&proxy)).iter().map(Value::to_string)) {
        assert!(text.len() < 2500, "{text}");
    }
    assert!(proxy.output().len() < 10_000, "the log's warnings, too: {}", proxy.output());
    let told_length = format!("{}… ({} bytes)", &url[..256], url.len());
    assert_eq!(records(&kept(&proxy))[0]["url"], told_length);
    assert!(log().contains(&told_length), "{}", log());
    let mut client = Client::open(proxy.address()).await;
    client.send(super::access::request(&url, "alice")).await;
    assert_eq!(client.response().await.status(), 403);
    assert_eq!(recorded(&kept(&proxy), 4).await[3]["url"], url);
    assert_eq!(verified(&kept(&proxy)).await["whole"], true);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_decision_is_recorded_with_its_basis() {
    let origin = Origin::site(RULES).await;
    let proxy = Binary::serve(&format!("{KEPT}identity: {{ purpose: [search] }}")).await;
    let requests = [
        (origin.url("/private/open?q=%20"), 200),
        (origin.url("/private/x"), 403),
        (origin.url("/"), 200),
        (origin.url("/robots.txt"), 200),
        ("http://10.0.0.1/".to_owned(), 403),
        ("http://127.0.0.1:1/".to_owned(), 503),
        ("/".to_owned(), 400),
    ];
    for (number, (url, status)) in (1..).zip(&requests) {
        assert_eq!(get(&proxy, url).await, *status, "{url}");
        // A record is made when all is over, which is after the client has its answer.
        recorded(&kept(&proxy), number).await;
    }
    let all = records(&kept(&proxy));
    let names = ["outcome", "verdict", "reason", "rule", "line", "status"];
    let said: Vec<_> = all.iter().map(|record| Value::from(told(record, names).to_vec()).to_string()).collect();
    assert_eq!(
        said,
        [
            r#"["forwarded","allowed","allowed-by-rule","Allow: /private/open",3,200]"#,
            r#"["refused","refused","robots-disallowed","Disallow: /private",2,403]"#,
            r#"["forwarded","allowed","no-matching-rule",null,null,200]"#,
            r#"["answered","allowed","robots-txt",null,null,200]"#,
            r#"["refused","refused","egress-denied",null,null,403]"#,
            r#"["refused","refused","robots-unreachable",null,null,503]"#,
            r#"["refused","refused","bad-request",null,null,400]"#,
        ]
    );
    let first = &all[0];
    assert_eq!(told(first, ["client", "method", "url"]), ["127.0.0.1", "GET", &origin.url("/private/open?q=%20")]);
    assert_eq!((&first["product_tokens"][0], &first["purpose"][0]), (&"ExampleBot".into(), &"search".into()));
    assert_eq!((&first["robots"]["status"], &first["bytes_in"]), (&200.into(), &0.into()));
    assert!(first["bytes_out"].as_u64() > Some(0) && first["origin_ms"].is_u64() && first["ms"].is_u64(), "{first}");
    // The file itself is in the segment, once.
    let hash = first["robots"]["sha256"].as_str().unwrap();
    let file = lines(&kept(&proxy)).into_iter().find(|line| line["type"] == "file" && line["sha256"] == hash);
    assert_eq!(file.unwrap()["text"], RULES);
    let unreachable = &all[5]["robots"];
    assert!(unreachable["sha256"].is_null() && unreachable["failure"].is_string(), "{unreachable}");
    assert!(all[4]["why"].as_str().is_some_and(|why| why.contains("10.0.0.1")), "{}", all[4]);
    assert!(all.iter().all(|record| record["config"] == first["config"]));
    let admin = proxy.admin();
    let head = verified(&kept(&proxy)).await;
    assert_eq!((&head["records"], &head["open"]), (&7.into(), &true.into()));
    let metrics = crate::support::curl(&[&format!("http://{admin}/metrics")]).await.text();
    assert!(
        metrics.contains("politely_evidence_records_total 7\n") && metrics.contains("politely_evidence_lost_total 0\n")
    );
    let directory = proxy.stop().await;
    assert_eq!(lines(&directory.path().join("evidence")).last().unwrap()["type"], "stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_inside_connect_have_their_own_records() {
    let origin = Origin::tls_site(Alpn::Both, RULES).await;
    let proxy = Binary::serve(KEPT).await;
    let ca = proxy.ca_pem_path();
    let got = crate::support::curl(&["-x", &proxy.url(), "--cacert", path(&ca), &origin.url("/private")]).await;
    assert_eq!(got.status(), 403, "{}", got.stderr);
    let all = recorded(&kept(&proxy), 2).await;
    assert_eq!(told(&all[0], ["method", "outcome"]), ["CONNECT", "intercepted"]);
    assert_eq!(told(&all[1], ["url", "reason"]), [origin.url("/private").as_str(), "robots-disallowed"]);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_is_off_without_a_directory() {
    let proxy = Binary::serve("admin: { address: '127.0.0.1:0' }").await;
    assert_eq!(get(&proxy, "http://10.0.0.1/").await, 403);
    let metrics = crate::support::curl(&[&format!("http://{}/metrics", proxy.admin())]).await.text();
    assert!(!metrics.contains("evidence"), "{metrics}");
    proxy.stop().await;
    let ended = politely(&["evidence", "verify"]).await;
    assert!(ended.code == 2 && ended.stderr.contains("no evidence is configured"), "{}", ended.stderr);
    let empty = tempfile::tempdir().unwrap();
    let ended = politely(&["evidence", "verify", path(empty.path())]).await;
    assert!(ended.code == 2 && ended.stderr.contains("there is no evidence in"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_keeps_written_evidence_and_verify_reports_the_unclosed_segment() {
    let origin = Origin::site(RULES).await;
    let mut proxy = Binary::serve(KEPT).await;
    for round in 1..=3 {
        assert_eq!(get(&proxy, &origin.url("/")).await, 200);
        let directory = kept(&proxy);
        eventually("the record", || records(&directory).len() == round).await;
        let home = proxy.kill().await;
        // Models a kill during a write.
        let file = first(&home.path().join("evidence"));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text + "{\"prev\":\"0").unwrap();
        proxy = Binary::serve_in(home, KEPT).await;
    }
    let found = verified(&kept(&proxy)).await;
    assert_eq!(told(&found, ["whole", "records", "unclean"]), [Value::from(true), 3.into(), 3.into()]);
    let cuts = lines(&kept(&proxy)).into_iter().filter(|line| line["cut"] == "{\"prev\":\"0").count();
    assert_eq!(cuts, 3);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_records_the_loss_without_stopping_requests() {
    let origin = Origin::site(RULES).await;
    let proxy = Binary::serve(KEPT).await;
    let limit = |bytes| {
        let pid = Pid::from_raw(i32::try_from(proxy.pid()).unwrap()).unwrap();
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    assert_eq!(get(&proxy, &origin.url("/")).await, 200);
    recorded(&kept(&proxy), 1).await;
    // In the middle of a line.
    limit(Some(std::fs::metadata(first(&kept(&proxy))).unwrap().len() + 100));
    assert_eq!(get(&proxy, &origin.url("/private")).await, 403);
    eventually("the loss", || proxy.output().contains("evidence cannot be written")).await;
    assert_eq!(get(&proxy, &origin.url("/")).await, 200);
    limit(None);
    // Room is looked for now and then.
    let mut asked = 3;
    crate::support::within("a record", async {
        while records(&kept(&proxy)).len() < 2 {
            assert_eq!(get(&proxy, &origin.url("/private/open")).await, 200);
            asked += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let directory = proxy.stop().await;
    let found = verified(&directory.path().join("evidence")).await;
    let lost: u64 = found["lost"].as_array().unwrap().iter().map(|lost| lost["count"].as_u64().unwrap()).sum();
    assert!(found["whole"] == true && lost > 0, "{found}");
    assert_eq!(found["records"].as_u64(), Some(asked - lost), "all are in it, or said to be lost");
    assert_eq!(found["lost"].as_array().unwrap().len(), 1, "said once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_evidence_is_logged_and_the_next_segment_continues() {
    let origin = Origin::site(RULES).await;
    let proxy = Binary::serve(KEPT).await;
    assert_eq!(get(&proxy, &origin.url("/a")).await, 200);
    recorded(&kept(&proxy), 1).await;
    std::fs::rename(kept(&proxy), proxy.directory().join("taken")).expect("it is there");
    assert_eq!(get(&proxy, &origin.url("/b")).await, 200);
    eventually("it is said", || proxy.output().contains("a segment of evidence was removed")).await;
    let next = kept(&proxy);
    eventually("the next", || std::fs::read_to_string(first(&next)).is_ok_and(|text| text.contains("/b"))).await;
    assert_eq!(verified(&kept(&proxy)).await["whole"], false);
    let taken = first(&proxy.directory().join("taken"));
    std::fs::rename(&taken, kept(&proxy).join(taken.file_name().unwrap())).expect("room");
    assert_eq!(verified(&kept(&proxy)).await["segments"], 2, "the chain goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_directory_is_used_by_one_process_at_a_time() {
    let proxy = Binary::serve(KEPT).await;
    let directory = kept(&proxy);
    let variables = [("POLITELY_EVIDENCE__DIRECTORY", path(&directory)), ("POLITELY_ADMIN__ADDRESS", "off")];
    let arguments = ["serve", "--listen", "127.0.0.1:0"];
    let ended = crate::support::binary::politely_with(&arguments, &variables).await;
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let who = format!("another `politely` (process {}) keeps its evidence in {}", proxy.pid(), path(&directory));
    assert!(ended.stderr.contains(&who) && ended.stderr.contains("hint: give each its own"), "{}", ended.stderr);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_at_a_time_uses_the_robots_txt_of_that_time() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = is_closed.clone();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" if closed.load(Relaxed) => Reply::text("User-agent: *\nDisallow: /\n"),
        "/robots.txt" => Reply::text(RULES),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve(KEPT).await;
    assert_eq!(get(&proxy, &origin.url("/page")).await, 200);
    let before = sent(&recorded(&kept(&proxy), 1).await[0]);
    is_closed.store(true, Relaxed);
    let token = proxy.directory().join("store/admin-token");
    let admin = proxy.admin();
    let refresh = ["refresh", &origin.url(""), "--admin", &admin, "--token-file", path(&token)];
    let ended = politely(&refresh).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(get(&proxy, &origin.url("/page")).await, 403);
    let all = recorded(&kept(&proxy), 2).await;
    assert_ne!(all[0]["robots"]["sha256"], all[1]["robots"]["sha256"]);
    let directory = proxy.stop().await;
    let (kept, url) = (directory.path().join("evidence"), origin.url("/page"));
    let explain = ["explain", &url, "--at", &before, "--evidence", path(&kept)];
    let then = politely(&explain).await;
    assert!(then.code == 0 && then.stdout.contains("allowed: "), "{}{}", then.stdout, then.stderr);
    assert!(then.stdout.contains(all[0]["robots"]["sha256"].as_str().unwrap()), "{}", then.stdout);
    let now = all[1]["time"].as_str().unwrap();
    let explain = ["explain", &url, "--at", now, "--evidence", path(&kept), "--format", "json"];
    let ended = politely(&explain).await;
    let later: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    assert_eq!((ended.code, &later["rule"]["line"], &later["product_tokens"][0]), (1, &2.into(), &"ExampleBot".into()));
    assert_eq!(
        told(&later["evidence"], ["sha256", "config_of_then"]),
        [all[1]["robots"]["sha256"].clone(), true.into()]
    );
    assert_eq!(later["evidence"]["same_url"]["verdict"], "refused");
    let ended = politely(&["explain", &url, "--at", "2001-01-01", "--evidence", path(&kept)]).await;
    assert!(ended.code == 2 && ended.stderr.contains("the evidence has no decision about"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_counts_requests_and_escapes_urls() {
    let origin = Origin::site("User-agent: *\nDisallow: /<script>alert(1)</script>\n").await;
    let proxy = Binary::serve(KEPT).await;
    assert_eq!(get(&proxy, &origin.url("/<script>alert(1)</script>")).await, 403);
    assert_eq!(get(&proxy, &origin.url("/")).await, 200);
    recorded(&kept(&proxy), 2).await;
    let kept = kept(&proxy);
    let report = |by: &'static str, format: &'static str| {
        let arguments = ["report", "--evidence", path(&kept), "--by", by, "--format", format].map(str::to_owned);
        async move { politely(&arguments.each_ref().map(String::as_str)).await }
    };
    let json: Value = serde_json::from_str(&report("host", "json").await.stdout).unwrap();
    assert_eq!(told(&json["total"], ["requests", "forwarded", "refused"]), [2, 1, 1]);
    assert_eq!((&json["groups"][0]["name"], &json["evidence"]["whole"]), (&origin.url("").into(), &true.into()));
    let html = report("rule", "html").await.stdout;
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;") && html.contains("</html>"), "{html}");
    let text = report("user", "text").await.stdout;
    assert!(text.contains("127.0.0.1") && text.contains("the chain is whole"), "{text}");
    let since = ["report", "--evidence", path(&kept), "--since", "2999-01-01"];
    assert!(politely(&since).await.stdout.starts_with("no requests"));
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_is_recorded_with_its_configuration() {
    let proxy = Binary::serve(KEPT).await;
    assert_eq!(get(&proxy, "http://10.0.0.1/").await, 403);
    recorded(&kept(&proxy), 1).await;
    let ended = proxy
        .reload(&format!("{KEPT}identity: {{ purpose: [tdm] }}\n").replace("evidence }", "evidence, keep: 1h }"))
        .await;
    assert!(ended.code == 0 && ended.stdout.contains("evidence.keep"), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(get(&proxy, "http://10.0.0.1/").await, 403);
    let all = recorded(&kept(&proxy), 2).await;
    assert_ne!(all[0]["config"], all[1]["config"]);
    let ended = proxy.reload("evidence: { directory: other }\nadmin: { address: '127.0.0.1:0' }\n").await;
    assert!(ended.code == 1 && ended.stdout.contains("needs a restart: evidence.directory"), "{}", ended.stdout);
    let directory = proxy.stop().await;
    assert_eq!(verified(&directory.path().join("evidence")).await["bodies"], 2);
}

/// Uses only the shell and coreutils, as docs/evidence.md describes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_can_be_verified_with_standard_tools() {
    let origin = Origin::site(RULES).await;
    let proxy = Binary::serve(KEPT).await;
    for (number, path) in (1..).zip(["/a\\\"b", "/c", "/private"]) {
        get(&proxy, &origin.url(path)).await;
        recorded(&kept(&proxy), number).await;
    }
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    let head = verified(&kept).await["head"].as_str().unwrap().to_owned();
    let document = include_str!("../../../docs/evidence.md");
    let script = document.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let run = |script: String| {
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let script = script.replace("DIR", path(&kept));
    assert_eq!(run(script.clone()), format!("head: {head}\n"));
    let file = first(&kept);
    let text = std::fs::read_to_string(&file).unwrap();
    if std::process::Command::new("jq").arg("--version").output().is_ok_and(|it| it.status.success()) {
        let urls = run(format!("jq -r 'select(.verdict == \"refused\") | .url' {}", path(&file)));
        assert_eq!(urls.trim_end(), origin.url("/private"));
    }
    std::fs::write(&file, text.replace("\"verdict\":\"refused\"", "\"verdict\":\"allowed\"")).unwrap();
    assert!(run(script).starts_with("broken before line 8\n"));
    let found = politely(&["evidence", "verify", path(&kept)]).await;
    assert!(found.code == 1 && found.stdout.contains("broken: segment 1, line 7: "), "{}", found.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tdmrep_json_is_on_record_and_decides_again() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/.well-known/tdmrep.json" => Reply::text(r#"[{ "location": "/art/", "tdm-reservation": 1 }]"#),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve(&format!("{KEPT}identity: {{ purpose: [tdm] }}")).await;
    assert_eq!(get(&proxy, &origin.url("/art/1")).await, 403);
    let record = &recorded(&kept(&proxy), 1).await[0];
    assert_eq!(told(record, ["reason", "rule"]), ["usage-disallowed", "location: /art/"]);
    assert_eq!((&record["entry"], record["tdmrep"]["sha256"].is_string()), (&1.into(), true));
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    assert_eq!(verified(&kept).await["bodies"], 3);
    let url = origin.url("/art/2");
    let ended = politely(&["explain", &url, "--at", "2999-01-01", "--evidence", path(&kept)]).await;
    assert!(ended.code == 1 && ended.stdout.contains("tdmrep.json"), "{}{}", ended.stdout, ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_writes_the_configured_evidence() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("evidence");
    let variables = [("POLITELY_EVIDENCE__DIRECTORY", path(&kept))];
    let ended = crate::support::binary::politely_with(&["run", "-q", "true"], &variables).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let found = verified(&kept).await;
    assert_eq!(told(&found, ["whole", "records", "open"]), [Value::from(true), 0.into(), false.into()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_preferences_of_answers_are_recorded() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/pay" => Reply::status(402).field("crawler-price", "USD 0.01"),
        _ => Reply::text("page").field("X-Robots-Tag", "noai").field("Link", "</l>; rel=license"),
    })
    .await;
    let proxy = Binary::serve(KEPT).await;
    assert_eq!(get(&proxy, &origin.url("/pay")).await, 402);
    recorded(&kept(&proxy), 1).await;
    assert_eq!(get(&proxy, &origin.url("/")).await, 200);
    let all = recorded(&kept(&proxy), 2).await;
    assert_eq!(told(&all[0], ["price", "signals", "license"]), [Value::from("USD 0.01"), Value::Null, Value::Null]);
    assert_eq!(told(&all[1], ["price", "signals", "license"]), [Value::Null, "X-Robots-Tag: noai".into(), "/l".into()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_cut_off_by_a_stop_are_recorded() {
    const MANY: usize = 60;
    let under_way = Arc::new(AtomicUsize::new(0));
    let asked = under_way.clone();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => {
            asked.fetch_add(1, Relaxed);
            Reply::silence()
        }
    })
    .await;
    let limits = "limits: { drain_timeout: 100ms }\npace: { min_delay: 0s, max_concurrent: 1000 }\n";
    let proxy = Binary::serve(&format!("{KEPT}{limits}")).await;
    let mut clients = Vec::new();
    for number in 0..MANY {
        let mut client = Client::open(proxy.address()).await;
        let url = origin.url(&format!("/{number}"));
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", url.split('/').nth(2).unwrap())).await;
        clients.push(client);
    }
    eventually("all to be under way", || under_way.load(Relaxed) == MANY).await;
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    assert_eq!(records(&kept).len(), MANY);
    let found = verified(&kept).await;
    assert_eq!(told(&found, ["whole", "records"]), [Value::from(true), MANY.into()]);
    drop(clients);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_at_a_time_uses_the_configuration_and_users_of_that_time() {
    let origin = Origin::site("User-agent: *\nDisallow: /\n").await;
    let users = super::access::users("hosts: { '*.localhost': { robots: ignore } }");
    let config = format!("{KEPT}{users}\n");
    let proxy = Binary::serve(&config).await;
    let mut client = Client::open(proxy.address()).await;
    let url = origin.url("/page");
    client.send(super::access::request(&url, "alice")).await;
    assert_eq!(client.response().await.status(), 200);
    let all = recorded(&kept(&proxy), 1).await;
    assert_eq!(told(&all[0], ["user", "reason"]), ["alice", "robots-ignored"]);
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    let explain = ["explain", &url, "--at", "2999-01-01", "--evidence", path(&kept), "--format", "json"];
    let ended = politely(&explain).await;
    let then: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    assert_eq!((ended.code, &then["reason"]), (0, &"robots-ignored".into()), "{then}");
    assert_eq!(then["evidence"]["config_of_then"], true);
    // Without a record, nothing is taken for allowed.
    let ended = politely(&["explain", &url, "--at", "2999-01-01", "--evidence", path(&kept), "--purpose", "tdm"]).await;
    assert!(
        ended.code == 2 && ended.stderr.contains("tdmrep.json has not been fetched"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_counts_each_request_once() {
    let origin = Origin::tls_site(Alpn::Both, RULES).await;
    let proxy = Binary::serve(KEPT).await;
    let ca = proxy.ca_pem_path();
    for (path_asked, status) in [("/private", 403), ("/robots.txt", 200), ("/", 200)] {
        let url = origin.url(path_asked);
        let got = crate::support::curl(&["-x", &proxy.url(), "--cacert", path(&ca), &url]).await;
        assert_eq!(got.status(), status, "{}", got.stderr);
    }
    recorded(&kept(&proxy), 6).await;
    let ended = politely(&["report", "--evidence", path(&kept(&proxy)), "--format", "json"]).await;
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let names = ["requests", "forwarded", "answered", "refused"];
    assert_eq!(told(&report["total"], names), [3, 1, 1, 1], "{report}");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_at_a_time_uses_the_included_files_of_that_time() {
    let origin = Origin::site("User-agent: *\nDisallow: /\n").await;
    let home = tempfile::tempdir().unwrap();
    let included = home.path().join("more.yaml");
    std::fs::write(&included, "hosts: { '*.localhost': { robots: ignore }, '127.0.0.1': { robots: ignore } }\n")
        .unwrap();
    let proxy = Binary::serve(&format!("{KEPT}include: ['{}']\n", path(&included))).await;
    let url = origin.url("/page");
    assert_eq!(get(&proxy, &url).await, 200);
    recorded(&kept(&proxy), 1).await;
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    let explain = ["explain", &url, "--at", "2999-01-01", "--evidence", path(&kept), "--format", "json"];
    for today in [Some("hosts: {}\n"), Some("nonsense: ["), None] {
        match today {
            Some(today) => std::fs::write(&included, today).unwrap(),
            None => std::fs::remove_file(&included).unwrap(),
        }
        let ended = politely(&explain).await;
        let then: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
        assert_eq!((ended.code, &then["reason"]), (0, &"robots-ignored".into()), "{today:?}: {then}");
        assert_eq!(told(&then["evidence"], ["config_of_then", "contradicts"]), [true, false], "{today:?}: {then}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_reports_a_verdict_that_contradicts_the_record() {
    let origin = Origin::site(RULES).await;
    let proxy = Binary::serve(KEPT).await;
    let url = origin.url("/private/x");
    assert_eq!(get(&proxy, &url).await, 403);
    recorded(&kept(&proxy), 1).await;
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    let explain = |format: &'static str| {
        let arguments =
            ["explain", &url, "--at", "2999-01-01", "--evidence", path(&kept), "--format", format].map(str::to_owned);
        async move { politely(&arguments.each_ref().map(String::as_str)).await }
    };
    assert_eq!(explain("json").await.code, 1);
    let file = first(&kept);
    let text = std::fs::read_to_string(&file).unwrap();
    let altered = text.replace(
        r#""verdict":"refused","reason":"robots-disallowed""#,
        r#""verdict":"allowed","reason":"no-matching-rule""#,
    );
    assert_ne!(text, altered);
    std::fs::write(&file, altered).unwrap();
    let ended = explain("json").await;
    let then: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    assert_eq!((ended.code, &then["evidence"]["contradicts"]), (2, &true.into()), "{then}");
    let ended = explain("text").await;
    assert!(ended.code == 2 && ended.stdout.contains("contradicts the record"), "{}", ended.stdout);
}

/// The segment that was begun first.
fn first(directory: &Path) -> PathBuf {
    let all = std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut all: Vec<_> = all.filter(|path| path.to_string_lossy().contains(".jsonl")).collect();
    all.sort();
    all.into_iter().next().unwrap_or_else(|| directory.join("none"))
}
