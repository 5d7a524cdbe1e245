//! The licence file that a robots.txt names (RSL 1.0): when it is fetched, what it refuses, how it is kept (docs/usage.md).

use crate::support::{Origin, Proxy, Reply, Seen, assert_refused, eventually};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::runtime::Handle;

const FILE: &str = "/license.xml";
const LICENCES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<rsl xmlns="https://rslstandard.org/rsl">
  <content url="/"><license><permits type="usage">search ai-input</permits></license></content>
  <content url="/free/"><license><permits type="usage">all</permits></license></content>
</rsl>"#;
const TRAINS: &str = "identity: { purpose: [ai-train] }";
const ENFORCED: &str = "identity: { purpose: [ai-train] }\nusage: { license: enforce }";

/// A site whose robots.txt names that URL, or its own file.
async fn site(named: Option<String>, file: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => {
            let host = seen.field("host").unwrap_or_default();
            let named = named.clone().unwrap_or_else(|| format!("http://{host}{FILE}"));
            Reply::text(format!("License: {named}\nUser-agent: *\nDisallow: /private\n"))
        }
        FILE | "/private/license.xml" => file(seen),
        _ => Reply::text("the page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlicensed_use_is_refused_if_enforced() {
    let origin = site(None, |_| Reply::text(LICENCES)).await;
    let proxy = Proxy::start(ENFORCED).await;
    for (target, status) in [("/a", 403), ("/free/a", 200), ("/free/../a", 403), ("/private", 403), (FILE, 200)] {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{target}");
    }
    let refused = proxy.get(&origin.url("/a")).await;
    let problem = assert_refused(&refused, 403, "http_request_denied", "usage-disallowed");
    assert_eq!(problem["license_url"], origin.url(FILE));
    assert_eq!(
        (&problem["purpose"], &problem["rule"]),
        (&"ai-train".into(), &"url: /; permits: search ai-input".into())
    );
    assert_eq!(problem["entry"], 1);
    assert_eq!(origin.log.count("/a"), 0);
    assert_eq!(origin.log.count(FILE), 2, "one fetch for all, beside the client's own");
}

/// Such a file licenses nothing and refuses nothing, however long each Retry-After is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_answered_429_delays_pages_only_once() {
    let origin = site(None, |_| Reply::status(429).field("Retry-After", "1")).await;
    let proxy = Proxy::start(ENFORCED).await;
    for target in ["/a", "/b"] {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), 200, "{target}");
    }
    assert!(origin.log.count(FILE) <= 4, "{:?}", origin.log.targets());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_is_fetched_in_the_background_and_reported_by_default() {
    let origin = site(None, |_| Reply::text(LICENCES)).await;
    let proxy = Proxy::start(TRAINS).await;
    for number in 0.. {
        let response = proxy.get(&origin.url(&format!("/a{number}"))).await;
        assert_eq!((response.status(), response.text().as_str()), (200, "the page"));
        let told = response.head.proxy_status_parameter("details").unwrap_or_default();
        if told.contains("license.xml") {
            assert!(told.contains("permits: search ai-input"), "{told}");
            break;
        }
        assert!(number < 1000, "it has been read by now");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(proxy.counts().reported["usage-disallowed"] >= 1);
    assert_eq!(origin.log.count(FILE), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_is_fetched_only_for_a_declared_purpose() {
    for yaml in ["usage: { license: enforce }", "identity: { purpose: [ai-train] }\nusage: { license: ignore }"] {
        let origin = site(None, |_| Reply::text(LICENCES)).await;
        let proxy = Proxy::start(yaml).await;
        for target in ["/a", "/b", "/c"] {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), 200, "{yaml}");
        }
        assert_eq!(origin.log.count(FILE), 0, "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_or_unreachable_licence_file_refuses_nothing() {
    for (what, reply) in [
        ("none", Reply::status(404)),
        ("an error", Reply::status(500)),
        ("a broken answer", Reply::reset()),
        ("redirects without end", Reply::redirect(FILE)),
    ] {
        let origin = site(None, move |_| reply.clone()).await;
        let proxy = Proxy::start(ENFORCED).await;
        for target in ["/a", "/b"] {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), 200, "{what} {target}");
        }
        assert!(origin.log.count(FILE) <= 3, "{what}: it is not asked for with each request");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_on_another_host_obeys_its_robots_txt() {
    for (path, status) in [(FILE, 403), ("/private/license.xml", 200)] {
        let other = site(None, |_| Reply::text(LICENCES)).await;
        let origin = site(Some(other.url(path).replace("a.localhost", "b.localhost")), |_| Reply::status(404)).await;
        let proxy = Proxy::start(ENFORCED).await;
        for target in ["/a", "/b"] {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{path} {target}");
        }
        assert_eq!(other.log.count("/robots.txt"), 1, "{path}");
        assert_eq!(other.log.count(path), if status == 403 { 1 } else { 0 }, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_is_read_in_any_xml_encoding_and_form() {
    let references = LICENCES.replace(
        r#"<permits type="usage">search ai-input</permits>"#,
        r#"<prohibits type="us&#97;ge">ai&#45;tr&#x61;in</prohibits>"#,
    );
    let utf_16 = |bytes: fn(u16) -> [u8; 2]| format!("\u{feff}{LICENCES}").encode_utf16().flat_map(bytes).collect();
    let latin: Vec<u8> = LICENCES
        .replace("UTF-8", "ISO-8859-1")
        .replace("<rsl", "<!-- caf\u{e9} --><rsl")
        .chars()
        .map(|char| u8::try_from(u32::from(char)).unwrap())
        .collect();
    for (what, file) in [
        ("references", references.replacen("\"/\"", "\"&#47;\"", 1).into_bytes()),
        ("utf-16le", utf_16(u16::to_le_bytes)),
        ("utf-16be", utf_16(u16::to_be_bytes)),
        ("iso-8859-1", latin),
    ] {
        let origin = site(None, move |_| Reply::text(&file)).await;
        let proxy = Proxy::start(ENFORCED).await;
        for (target, status) in [("/a", 403), ("/free/a", 200)] {
            let response = proxy.get(&origin.url(target)).await;
            assert_eq!(response.status(), status, "{what} {target}");
            if status == 403 {
                assert_refused(&response, 403, "http_request_denied", "usage-disallowed");
            }
        }
    }
}

/// A new URL in robots.txt is fetched; until then, one fetch is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_is_fetched_once_per_url_and_robots_copy() {
    let is_new = Arc::new(AtomicBool::new(false));
    let told = is_new.clone();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => {
            let name = if told.load(Ordering::SeqCst) { "new.xml" } else { "old.xml" };
            let host = seen.field("host").unwrap_or_default();
            Reply::text(format!("License: http://{host}/{name}\n")).field("Cache-Control", "max-age=0")
        }
        "/old.xml" => Reply::text(LICENCES).field("Cache-Control", "max-age=0"),
        "/new.xml" => Reply::text(LICENCES.replace("search ai-input", "all")),
        _ => Reply::text("the page"),
    })
    .await;
    let proxy = Proxy::start(&format!("{ENFORCED}\nrobots: {{ min_ttl: 0 }}")).await;
    for number in 0..20 {
        assert_eq!(proxy.get(&origin.url(&format!("/a{number}"))).await.status(), 403);
    }
    assert_eq!(origin.log.count("/old.xml"), 1);
    is_new.store(true, Ordering::SeqCst);
    // The copy in use is renewed behind a request.
    for number in 0.. {
        if proxy.get(&origin.url(&format!("/b{number}"))).await.status() == 200 {
            break;
        }
        assert!(number < 1000, "the new one has been read by now");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((origin.log.count("/old.xml"), origin.log.count("/new.xml")), (1, 1));
}

/// A site with two licence files, whose robots.txt names the second once `is_renamed` is set. The first one licenses everything.
async fn renamed(is_renamed: &Arc<AtomicBool>, first: impl Fn() + Send + Sync + 'static) -> Origin {
    let is_renamed = is_renamed.clone();
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => {
            let name = if is_renamed.load(Ordering::SeqCst) { "second.xml" } else { "first.xml" };
            let host = seen.field("host").unwrap_or_default();
            Reply::text(format!("License: http://{host}/{name}\n")).field("Cache-Control", "max-age=0")
        }
        "/first.xml" => {
            first();
            Reply::text(LICENCES.replace("search ai-input", "all"))
        }
        "/second.xml" => Reply::text(LICENCES),
        _ => Reply::text("the page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_licence_copy_is_not_used_for_another_url_after_a_restart() {
    let is_renamed = Arc::new(AtomicBool::new(false));
    let origin = renamed(&is_renamed, || ()).await;
    let yaml = format!("{ENFORCED}\nrobots: {{ min_ttl: 0 }}");
    let proxy = Proxy::start(&yaml).await;
    assert_eq!(proxy.get(&origin.url("/a")).await.status(), 200);
    is_renamed.store(true, Ordering::SeqCst);
    let proxy = Proxy::start_in(proxy.shutdown().await, &yaml).await;
    // The stored copy, then the new one: before the licence file that is stored has been read.
    let robots = async || proxy.get(&origin.url("/robots.txt")).await.text();
    robots().await;
    assert!(robots().await.contains("second.xml"));
    assert_eq!(proxy.get(&origin.url("/b")).await.status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_replaced_in_robots_txt_during_its_fetch_is_discarded() {
    let (is_renamed, is_asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (hold, held) = mpsc::channel::<()>();
    let (asked, held) = (is_asked.clone(), Mutex::new(held));
    let first = move || {
        asked.store(true, Ordering::SeqCst);
        _ = tokio::task::block_in_place(|| held.lock().unwrap().recv());
    };
    let origin = renamed(&is_renamed, first).await;
    let proxy = Proxy::start(&format!("{ENFORCED}\nrobots: {{ min_ttl: 0 }}")).await;
    let (page, robots) = (origin.url("/a"), origin.url("/robots.txt"));
    let (waiting, ()) = tokio::join!(proxy.get(&page), async {
        eventually("the fetch", || is_asked.load(Ordering::SeqCst)).await;
        is_renamed.store(true, Ordering::SeqCst);
        let renewed = proxy.get(&robots).await;
        assert!(renewed.text().contains("second.xml"), "{renewed:?}");
        drop(hold);
    });
    assert_eq!(waiting.status(), 403);
    assert_eq!(proxy.get(&origin.url("/b")).await.status(), 403);
}

/// Nor do preferences sent to others apply to licensed requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferences_sent_to_licensed_requests_do_not_apply_to_others() {
    for terms in ["Authorization: License tok3n==", "crawler-max-price: USD 1"] {
        let origin = Origin::http(|seen| {
            let is_on_terms = seen.field("authorization").or(seen.field("crawler-max-price")).is_some();
            match seen.path().as_str() {
                "/robots.txt" => Reply::text(""),
                "/for-all-but-them" if is_on_terms => Reply::text("the page").field("X-Robots-Tag", "noai"),
                "/for-them" if !is_on_terms => Reply::text("the page").field("X-Robots-Tag", "noai"),
                _ => Reply::text("the page"),
            }
        })
        .await;
        let proxy = Proxy::start(TRAINS).await;
        let host = origin.authority("a.localhost");
        let on_terms = async |target: &str| {
            let mut client = proxy.client().await;
            client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{terms}\r\n\r\n", origin.url(target))).await;
            client.response().await.status()
        };
        for _ in 0..2 {
            assert_eq!(proxy.get(&origin.url("/for-them")).await.status(), 403, "{terms}");
            assert_eq!(on_terms("/for-them").await, 200, "{terms}");
        }
        assert_eq!(origin.log.count("/for-them"), 3, "{terms}: the others' refusal is remembered");
        assert_eq!(on_terms("/for-all-but-them").await, 403, "{terms}");
        assert_eq!(proxy.get(&origin.url("/for-all-but-them")).await.status(), 200, "{terms}");
    }
}

/// RSL §6: a licence token concerns only the client and the origin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_token_is_forwarded_unchanged() {
    let origin = Origin::http(|seen| match seen.field("authorization") {
        Some("License tok3n==") => Reply::text("licensed"),
        _ => Reply::status(401).field("WWW-Authenticate", "License error=\"invalid_request\""),
    })
    .await;
    let proxy = Proxy::start("").await;
    let (url, host) = (origin.url("/a"), origin.authority("a.localhost"));
    let mut client = proxy.client().await;
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nAuthorization: License tok3n==\r\n\r\n")).await;
    let licensed = client.response().await;
    assert_eq!((licensed.status(), licensed.text().as_str()), (200, "licensed"));
    let without = proxy.get(&origin.url("/a")).await;
    assert_eq!(without.status(), 401);
    assert_eq!(without.field("www-authenticate"), Some("License error=\"invalid_request\""));
}

/// RSL 1.0: the link applies to its answer. Another page of the host may belong to somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_linked_by_an_answer_applies_to_linking_answers() {
    const RSL: &str = r#"</terms.xml>; rel="license"; type="application/rsl+xml""#;
    let others = "</a>; rel=license, </b>; rel=license, </c>; rel=license, </d>; rel=license, ";
    let fifth = format!("{others}{RSL}").leak();
    for (named, by_robots, status) in [
        (RSL, "", 403),
        (fifth, "", 403),
        (RSL, "License: http://HOST/not-here.xml\n", 200),
        (r#"</terms.xml>; rel="license""#, "", 200),
        (r#"</private/terms.xml>; rel="license"; type="application/rsl+xml""#, "", 200),
        ("<ftp://a.localhost/>; rel=license; type=\"application/rsl+xml\"", "", 200),
    ] {
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => {
                let by_robots = by_robots.replace("HOST", seen.field("host").unwrap_or_default());
                Reply::text(format!("{by_robots}User-agent: *\nDisallow: /private\n"))
            }
            "/not-here.xml" => Reply::status(404),
            "/terms.xml" | "/private/terms.xml" => Reply::text(LICENCES),
            "/tagged" => {
                let href = named.rsplit(['<', '>']).nth(1).unwrap();
                let kind = if named.contains("rsl+xml") { "application/rsl+xml" } else { "" };
                let page = format!("<head><link rel=license href='{href}' type='{kind}'></head>");
                Reply::status(200).field("Content-Type", "text/html").body(page)
            }
            "/linked" | "/free/linked" => Reply::text("the page").field("Link", named),
            _ => Reply::text("the page"),
        })
        .await;
        for linking in ["/linked", "/tagged"] {
            let proxy = Proxy::start(ENFORCED).await;
            let before = origin.log.count("/terms.xml");
            assert_eq!(proxy.get(&origin.url(linking)).await.status(), 200, "it is not known yet: {named}");
            for number in 0.. {
                let answered = proxy.get(&origin.url(linking)).await;
                if answered.status() == status && (status == 403 || number == 10) {
                    break;
                }
                assert!(answered.status() == 200 && number < 1000, "{named} {linking}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            for target in ["/other", "/free/linked"] {
                assert_eq!(proxy.get(&origin.url(target)).await.status(), 200, "{named} {linking} {target}");
            }
            let fetched = origin.log.count("/terms.xml") - before;
            assert_eq!(fetched, if status == 403 { 1 } else { 0 }, "{named} {linking}");
        }
    }
}

/// HTML, "The base element": the first with an `href` counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_link_in_a_page_is_resolved_against_its_base() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" | "/terms.xml" | "/no/terms.xml" => Reply::status(404),
        "/sub/terms.xml" => Reply::text(LICENCES),
        _ => Reply::status(200).field("Content-Type", "text/html").body(
            "<head><base target=_top><base href='/sub/'><base href='/no/'>\
             <link rel=license href='terms.xml' type='application/rsl+xml'></head>",
        ),
    })
    .await;
    let proxy = Proxy::start(ENFORCED).await;
    for number in 0.. {
        if proxy.get(&origin.url("/tagged")).await.status() == 403 {
            break;
        }
        assert!(number < 300, "it is not found");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// RSL §3: content is not licensed by a file that cannot be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_licence_file_licenses_nothing() {
    for (what, file) in [
        ("a page", "<html><body>not found</body></html>".to_owned()),
        ("no end", LICENCES.replace("</rsl>", "")),
        ("cut at the limit", format!("{}{LICENCES}", " ".repeat(600_000))),
        ("an entity", LICENCES.replace("search ai-input", "&all;")),
    ] {
        let origin = site(None, move |_| Reply::text(&file)).await;
        let proxy = Proxy::start(ENFORCED).await;
        for target in ["/a", "/free/a"] {
            let refused = proxy.get(&origin.url(target)).await;
            let problem = assert_refused(&refused, 403, "http_request_denied", "usage-unreadable");
            assert!(problem["detail"].as_str().unwrap().contains(FILE), "{what}: {problem}");
        }
        assert_eq!(origin.log.count(FILE), 1, "{what}");
    }
}

/// Together they take no longer than one of them may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_file_and_tdmrep_json_are_fetched_in_parallel() {
    let asked = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
    let (told, answered) = (asked.clone(), Arc::new(AtomicBool::new(true)));
    let both = answered.clone();
    let origin = Origin::http(move |seen| {
        let host = seen.field("host").unwrap_or_default();
        let own = match seen.path().as_str() {
            "/robots.txt" => return Reply::text(format!("License: http://{host}{FILE}\n")),
            "/.well-known/tdmrep.json" => 0,
            FILE => 1,
            _ => return Reply::text("the page"),
        };
        told[own].store(true, Ordering::SeqCst);
        let other = async {
            while !told[1 - own].load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let within = async { tokio::time::timeout(Duration::from_secs(5), other).await };
        let is_other_asked = tokio::task::block_in_place(|| Handle::current().block_on(within)).is_ok();
        both.fetch_and(is_other_asked, Ordering::SeqCst);
        Reply::text(LICENCES)
    })
    .await;
    let proxy = Proxy::start(ENFORCED).await;
    let refused = proxy.get(&origin.url("/a")).await;
    assert_refused(&refused, 403, "http_request_denied", "usage-disallowed");
    assert_eq!(origin.log.count(FILE), 1);
    assert!(answered.load(Ordering::SeqCst), "both were asked for before either was answered");
}
