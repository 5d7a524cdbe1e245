//! `/.well-known/tdmrep.json` (W3C TDMRep): for whom it is fetched, what it reserves, how it is kept (docs/usage.md).

use super::noted::{asked, counted};
use crate::support::binary::{open, politely_with};
use crate::support::{ADMIN_TOKEN, Client, Origin, Proxy, Reply, Seen, assert_refused, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

const FILE: &str = "/.well-known/tdmrep.json";
const ENTRIES: &str = r#"[
    { "location": "/art/free", "tdm-reservation": 0 },
    { "location": "/art/", "tdm-reservation": 1, "tdm-policy": "https://example.com/terms" },
    { "location": "/*.pdf$", "tdm-reservation": 1 }
]"#;
const TDM: &str = "identity: { purpose: [tdm] }";

/// A site that answers for the file as told.
async fn site(file: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private\n"),
        FILE => file(seen),
        "/free-but" => Reply::text("the page").field("TDM-Reservation", "1"),
        _ => Reply::text("the page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_reservation_refuses_with_file_and_entry() {
    let origin = site(|_| Reply::text(ENTRIES)).await;
    let proxy = Proxy::start(TDM).await;
    for (target, status) in
        [("/", 200), ("/art/1", 403), ("/art/free/1", 200), ("/a.pdf", 403), ("/a.pdf?x", 200), ("/x//..//art/1", 403)]
    {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{target}");
    }
    let response = proxy.get(&origin.url("/art/1")).await;
    let problem = assert_refused(&response, 403, "http_request_denied", "usage-disallowed");
    assert_eq!(problem["tdmrep_url"], origin.url(FILE));
    assert_eq!((&problem["purpose"], &problem["entry"]), (&json!("tdm"), &json!(2)));
    assert_eq!(
        (&problem["rule"], &problem["policy"]),
        (&json!("location: /art/"), &json!("https://example.com/terms"))
    );
    let refused = proxy.get(&origin.url("/private")).await;
    assert_refused(&refused, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(origin.log.count(FILE), 1, "one fetch for all");
    assert_eq!(origin.log.count("/art/1") + origin.log.count("/a.pdf"), 0);
    assert_eq!(proxy.get(&origin.url(FILE)).await.status(), 200, "or nobody could read it");
}

/// RFC 9110 §13.1: a 304 to the conditions of an error page would keep it missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_tdmrep_json_is_fetched_unconditionally() {
    let was_asked = AtomicBool::new(false);
    let origin = site(move |seen| match was_asked.swap(true, Ordering::SeqCst) {
        false => Reply::status(404).field("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"),
        true if seen.field("if-modified-since").is_some() => Reply::status(304),
        true => Reply::text(ENTRIES),
    })
    .await;
    let proxy = Proxy::start(&format!("{TDM}\nrobots: {{ min_ttl: 1s, max_ttl: 1s }}")).await;
    crate::support::within("the new file", async {
        while proxy.get(&origin.url("/art/1")).await.status() != 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Like a robots.txt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_304_with_another_etag_is_followed_by_a_full_fetch() {
    let was_asked = AtomicBool::new(false);
    let origin = site(move |seen| match was_asked.swap(true, Ordering::SeqCst) {
        false => Reply::text("[]").field("ETag", "\"a\""),
        true if seen.field("if-none-match").is_some() => {
            Reply::status(304).field("ETag", "\"b\"").field("Retry-After", "3600")
        }
        true => Reply::text(ENTRIES),
    })
    .await;
    let proxy = Proxy::start(&format!("{TDM}\nrobots: {{ min_ttl: 1s, max_ttl: 1s }}")).await;
    crate::support::within("the new file", async {
        while proxy.get(&origin.url("/art/1")).await.status() != 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Such a file reserves nothing, however long each Retry-After is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_json_answered_429_delays_pages_only_once() {
    let origin = site(|_| Reply::status(429).field("Retry-After", "1")).await;
    let proxy = Proxy::start(TDM).await;
    for target in ["/a", "/b"] {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), 200, "{target}");
    }
    assert!(origin.log.count(FILE) <= 4, "{:?}", origin.log.targets());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_json_is_fetched_only_for_tdm_purposes_after_robots_txt_allows() {
    for (yaml, fetches) in [
        ("", 0),
        ("identity: { purpose: [search, ai-input] }", 0),
        ("identity: { purpose: [ai-train] }\nusage: { tdmrep: ignore }", 0),
        ("identity: { purpose: [ai-train] }\nhosts: { a.localhost: { usage: { tdmrep: ignore } } }", 0),
        ("identity: { purpose: [search, ai-train] }", 1),
        ("hosts: { a.localhost: { purpose: [tdm] } }", 1),
    ] {
        let origin = site(|_| Reply::text(ENTRIES)).await;
        let proxy = Proxy::start(yaml).await;
        assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403, "{yaml}");
        assert_eq!(origin.log.count(FILE), 0, "{yaml}: what robots.txt disallows needs no more");
        let status = if fetches == 1 { 403 } else { 200 };
        assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), status, "{yaml}");
        assert_eq!(origin.log.count(FILE), fetches, "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_unreadable_or_unreachable_tdmrep_json_refuses_nothing() {
    for (what, reply) in [
        ("none", Reply::status(404)),
        ("a page", Reply::text("<html>not found</html>")),
        ("no array", Reply::text(r#"{ "location": "/", "tdm-reservation": 1 }"#)),
        ("an error", Reply::status(500)),
        ("a broken answer", Reply::reset()),
        ("cut at the limit", Reply::text(format!("[{}", r#"{"location":"/","tdm-reservation":1},"#.repeat(50_000)))),
        ("redirects without end", Reply::redirect(FILE)),
    ] {
        let origin = site(move |_| reply.clone()).await;
        let proxy = Proxy::start(TDM).await;
        for target in ["/art/1", "/art/2"] {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), 200, "{what} {target}");
        }
        assert!(origin.log.count(FILE) <= 3, "{what}: it is not asked for with each request");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdm_reservation_field_overrides_tdmrep_json() {
    let origin = site(|_| Reply::text(r#"[{ "location": "/", "tdm-reservation": 0 }]"#)).await;
    let proxy = Proxy::start(TDM).await;
    assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 200);
    let refused = proxy.get(&origin.url("/free-but")).await;
    let problem = assert_refused(&refused, 403, "http_request_denied", "usage-disallowed");
    assert_eq!(problem["rule"], "TDM-Reservation: 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_reservation_applies_although_robots_txt_is_only_reported() {
    let origin = site(|_| Reply::text(r#"[{ "location": "/", "tdm-reservation": 1 }]"#)).await;
    let proxy = Proxy::start(&format!("{TDM}\nhosts: {{ a.localhost: {{ robots: report }} }}")).await;
    for target in ["/a", "/private"] {
        let refused = proxy.get(&origin.url(target)).await;
        assert_refused(&refused, 403, "http_request_denied", "usage-disallowed");
        assert_eq!(origin.log.count(target), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_report_mode_fetches_and_reports() {
    for yaml in ["mode: report", "usage: { tdmrep: report }", "hosts: { a.localhost: { usage: { tdmrep: report } } }"] {
        let origin = site(|_| Reply::text(ENTRIES)).await;
        let proxy = Proxy::start(&format!("{TDM}\n{yaml}")).await;
        let response = proxy.get(&origin.url("/art/1")).await;
        assert_eq!((response.status(), response.text().as_str()), (200, "the page"), "{yaml}");
        let told = response.head.proxy_status_parameter("details").unwrap_or_default();
        assert!(told.contains("tdmrep.json") && told.contains("entry 2"), "{yaml}: {told}");
        assert_eq!(proxy.counts().reported["usage-disallowed"], 1);
    }
}

/// It is revalidated, survives a restart, and is renewed in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_json_is_cached_like_robots_txt() {
    let origin = site(|seen| match seen.field("if-none-match") {
        Some(_) => Reply::status(304),
        None => Reply::text(ENTRIES).field("ETag", "\"t1\"").field("Cache-Control", "max-age=0"),
    })
    .await;
    let yaml = format!("{TDM}\nrobots: {{ min_ttl: 0 }}");
    let proxy = Proxy::start(&yaml).await;
    assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 403);
    let proxy = Proxy::start_in(proxy.shutdown().await, &yaml).await;
    assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 403);
    let is_renewal = |seen: &Seen| seen.field("if-none-match") == Some("\"t1\"");
    eventually("the renewal", || origin.log.of(FILE).iter().any(is_renewal)).await;
    assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 403, "confirmed, it holds on");
    assert_eq!(origin.log.count("/art/1"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_json_is_renewed_although_robots_txt_is_always_stale() {
    let is_reserved = Arc::new(AtomicBool::new(false));
    let told = is_reserved.clone();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("").field("Cache-Control", "max-age=0"),
        FILE if told.load(Ordering::Relaxed) => Reply::text(ENTRIES),
        FILE => Reply::text("[]").field("Cache-Control", "max-age=0"),
        _ => Reply::text("the page"),
    })
    .await;
    let proxy = Proxy::start(&format!("{TDM}\nrobots: {{ min_ttl: 0 }}")).await;
    assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 200);
    is_reserved.store(true, Ordering::Relaxed);
    for number in 0.. {
        if proxy.get(&origin.url("/art/1")).await.status() == 403 {
            break;
        }
        assert!(number < 1000, "it has been renewed by now: {:?}", origin.log.of(FILE).len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_good_tdmrep_json_is_kept_while_unreachable() {
    // An incomplete file counts as a failure (docs/robots-txt-life.md).
    for failed in [503, 206, 207, 208, 226] {
        let status = Arc::new(AtomicU16::new(200));
        let now = status.clone();
        let origin = site(move |_| match now.load(Ordering::Relaxed) {
            200 => Reply::text(ENTRIES).field("Cache-Control", "max-age=0"),
            other => Reply::status(other).body("[]"),
        })
        .await;
        let proxy = Proxy::start(&format!("{TDM}\nrobots: {{ min_ttl: 0 }}")).await;
        assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 403, "{failed}");
        status.store(failed, Ordering::Relaxed);
        assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 403, "{failed}");
        eventually("the renewal", || origin.log.count(FILE) >= 2).await;
        for _ in 0..3 {
            assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 403, "{failed}");
        }
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200, "{failed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_fetch_takes_a_pacing_slot() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 0.3\n"),
        FILE => Reply::text(ENTRIES),
        _ => Reply::text("the page"),
    })
    .await;
    let proxy = Proxy::start(TDM).await;
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    let (file, page) = (origin.log.one(FILE), origin.log.one("/open"));
    let gap = page.at.duration_since(file.at);
    assert!(gap >= Duration::from_millis(300), "{gap:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_and_api_show_tdmrep_json() {
    let origin = site(|_| Reply::text(ENTRIES)).await;
    let url = origin.url("/art/1");
    let asked = ["explain", &url, "--purpose", "tdm"];
    let text = politely_with(&asked, &open()).await;
    assert_eq!(text.code, 1, "{}{}", text.stdout, text.stderr);
    let place = format!("  --> {}, entry 2: \"location\": \"/art/\"\n", origin.url(FILE));
    assert!(text.stdout.contains(&place), "{}", text.stdout);
    let told = politely_with(&[&asked[..], &["--format", "json"]].concat(), &open()).await;
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(
        told["rule"],
        json!({ "line": null, "entry": 2, "kind": "tdm-reservation", "pattern": "/art/", "policy": "https://example.com/terms" })
    );
    assert_eq!((&told["tdmrep"]["access"], &told["tdmrep"]["status"]), (&json!("entries"), &json!(200)));
    let free = politely_with(&["explain", &url], &open()).await;
    assert_eq!(free.code, 0, "without a purpose that it concerns it is not even fetched");
    assert_eq!(origin.log.count(FILE), 2);
}

/// Only robots.txt itself is always allowed (RFC 9309 §2.2.2): tdmrep.json obeys the rules like a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_json_disallowed_by_robots_txt_is_not_fetched() {
    for (robots, yaml, fetches) in [
        ("User-agent: *\nDisallow: /.well-known/\n", "", 0),
        ("User-agent: *\nDisallow: /\nAllow: /art/\n", "", 0),
        ("User-agent: ExampleBot\nDisallow: /.well-known/\n", "", 1),
        ("User-agent: *\nDisallow: /.well-known/\n", "\nhosts: { a.localhost: { robots: report } }", 1),
        ("", "\nhosts: { a.localhost: { deny: [/.well-known/] } }", 0),
        ("User-agent: *\nContent-Usage: /.well-known/ tdm=n\n", "", 1),
    ] {
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(robots),
            FILE => Reply::text(ENTRIES),
            _ => Reply::text("the page"),
        })
        .await;
        let proxy = Proxy::start(&format!("{TDM}{yaml}")).await;
        let status = if fetches == 1 { 403 } else { 200 };
        assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), status, "{robots}{yaml}");
        assert_eq!(origin.log.count(FILE), fetches, "{robots}{yaml}");
    }
}

/// Only robots.txt itself is exempt from the rules (RFC 9309 §2.2.2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_redirects_obey_the_robots_txt_of_their_target() {
    let other = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private/\n"),
        _ => Reply::text(ENTRIES),
    })
    .await;
    let (open, shut) = (other.url_at("b.localhost", "/t.json"), other.url_at("b.localhost", "/private/t.json"));
    for (to, status) in [("/t.json", 403), ("/private", 200), (&*open, 403), (&*shut, 200)] {
        let redirect = Reply::redirect(to);
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private\n"),
            FILE => redirect.clone(),
            "/art/1" => Reply::text("the page"),
            _ => Reply::text(ENTRIES),
        })
        .await;
        let proxy = Proxy::start(TDM).await;
        assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), status, "{to}");
        assert_eq!(origin.log.count("/private"), 0, "{to}");
    }
    assert_eq!(other.log.targets(), ["/robots.txt", "/t.json", "/robots.txt"], "by each proxy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tdmrep_redirect_to_a_site_with_unreachable_robots_txt_is_not_followed() {
    let other = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(503),
        _ => Reply::text(ENTRIES),
    })
    .await;
    let to = other.url_at("b.localhost", FILE);
    let origin = site(move |_| Reply::redirect(to.clone())).await;
    let proxy = Proxy::start(TDM).await;
    assert_eq!(proxy.get(&origin.url("/art/1")).await.status(), 200, "as with one that cannot be had at home");
    assert_eq!(other.log.targets(), ["/robots.txt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_errors_of_tdmrep_json_and_their_effect() {
    let entry = r#"{ "location": "/art/", "tdm-reservation": 1, "tdm-policy": 7 }"#;
    let shut = "User-agent: *\nDisallow: /.well-known/\n";
    for (robots, file, code, said) in [
        ("", Reply::text(format!("[{entry}]")), 1, "is partly not understood: entry 1: `tdm-policy` is not a URL"),
        ("", Reply::text("{}"), 0, "is not understood: not an array"),
        ("", Reply::status(500), 0, "is not known: status 500"),
        (shut, Reply::text(format!("[{entry}]")), 0, "is not known: it may not be fetched"),
    ] {
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(robots),
            _ => file.clone(),
        })
        .await;
        let told = politely_with(&["explain", &origin.url("/art/1"), "--purpose", "tdm"], &open()).await;
        assert_eq!(told.code, code, "{}{}", told.stdout, told.stderr);
        assert!(told.stdout.contains(&format!("  note: {} {said}", origin.url(FILE))), "{}", told.stdout);
    }
}

/// In TDMRep, the field of an answer overrides the file. A URL reserved by the file is not requested, so its answer cannot
/// lift the reservation, except with `usage.tdmrep: report`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_lifting_the_tdmrep_reservation_counts_in_report_mode() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        FILE => Reply::text(r#"[{ "location": "/", "tdm-reservation": 1 }]"#),
        "/free" => Reply::text("the page").field("TDM-Reservation", "0"),
        "/both" => Reply::text("the page").field("TDM-Reservation", "0").field("TDM-Reservation", "1"),
        _ => Reply::text("the page"),
    })
    .await;
    let proxy = Proxy::start(TDM).await;
    assert_eq!((proxy.get(&origin.url("/free")).await.status(), origin.log.count("/free")), (403, 0));
    let proxy = Proxy::start(&format!("{TDM}\nusage: {{ tdmrep: report }}")).await;
    for (target, status, is_told) in [("/free", 200, false), ("/other", 200, true), ("/both", 403, true)] {
        let response = proxy.get(&origin.url(target)).await;
        assert_eq!(response.status(), status, "{target}");
        let told = response.head.proxy_status_parameter("details").is_some();
        assert_eq!(told, is_told, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_also_fetches_tdmrep_json_and_counts_it_separately() {
    let origin = site(|_| Reply::text(ENTRIES)).await;
    let admin = "admin: { address: '127.0.0.1:0' }";
    let target = format!("/api/v1/authorities/{}/refresh", origin.url("").replace(':', "%3A").replace('/', "%2F"));
    let refresh = async |proxy: &Proxy| {
        let mut client = Client::open(proxy.admin_address()).await;
        let head = format!("Host: {}\r\nAuthorization: Bearer {ADMIN_TOKEN}", proxy.admin_address());
        client.send(format!("POST {target} HTTP/1.1\r\n{head}\r\nContent-Length: 0\r\n\r\n")).await;
        let answer = client.response().await;
        serde_json::from_str::<Value>(&answer.text()).unwrap()
    };
    let proxy = Proxy::start(&format!("{admin}\n{TDM}")).await;
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    let told = refresh(&proxy).await;
    assert_eq!((origin.log.count("/robots.txt"), origin.log.count(FILE)), (2, 2));
    assert_eq!((&told["tdmrep"]["access"], &told["tdmrep"]["failure"]), (&json!("entries"), &Value::Null));
    let metrics = asked(proxy.admin_address(), "/metrics").await;
    assert_eq!((counted(&metrics, "politely_robots_files"), counted(&metrics, "politely_tdmrep_files")), (1, 1));
    let proxy = Proxy::start_in(proxy.shutdown().await, admin).await;
    refresh(&proxy).await;
    assert_eq!(origin.log.count(FILE), 3, "it is kept, for whoever declares a purpose");
    let proxy = Proxy::start(admin).await;
    refresh(&proxy).await;
    assert_eq!(origin.log.count(FILE), 3, "it matters to nobody");
}
