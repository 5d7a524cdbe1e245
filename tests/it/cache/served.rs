//! Serving from the cache (RFC 9111).

use super::{caching, fresh, is_hit, pages, with};
use crate::support::pattern::Checker;
use crate::support::reply::Delimit;
use crate::support::{Alpn, Origin, Proxy, Reply, Response, Seen, assert_refused};
use std::sync::atomic::{AtomicBool, Ordering};

const MODIFIED: &str = "Sun, 06 Nov 1994 12:00:00 GMT";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_fetched_once_for_all_clients() {
    let origin = pages(|_| fresh("page").field("X-Odd", "a").field("x-odd", "b").field("Age", "7")).await;
    let (proxy, _directory) = caching("").await;
    let first = proxy.curl(&[&origin.url("/page")]).await;
    assert_eq!((first.status(), first.text().as_str()), (200, "page"));
    assert_eq!(first.head().field("cache-status"), Some("politely; fwd=uri-miss; fwd-status=200; stored"));
    for _ in 0..3 {
        let again = proxy.curl(&[&origin.url("/page")]).await;
        assert_eq!((again.status(), again.text().as_str()), (200, "page"));
        let head = again.head();
        assert_eq!(head.field("cache-status"), Some("politely; hit"));
        let age: u64 = head.field("age").unwrap().parse().unwrap();
        assert!((7..60).contains(&age), "{head:?}");
        assert_eq!((head.all("x-odd"), head.field("content-length")), (vec!["a", "b"], Some("4")));
        assert!(head.field("via").is_some_and(|via| via.contains("1.1 politely")), "{head:?}");
    }
    let head = proxy.curl(&["-I", &origin.url("/page")]).await;
    assert_eq!((head.status(), head.head().field("content-length")), (200, Some("4")));
    assert_eq!(origin.log.count("/page"), 1);
}

/// RFC 9111 §4.3.5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_answer_with_other_validators_invalidates_the_stored_page() {
    let is_new = std::sync::Arc::new(AtomicBool::new(false));
    let seen = is_new.clone();
    let origin = pages(move |_| {
        let page = if seen.load(Ordering::Relaxed) { "new" } else { "old" };
        Reply::text(page).field("Cache-Control", "max-age=600").field("ETag", format!("\"{page}\""))
    })
    .await;
    let (proxy, _directory) = caching("").await;
    let url = origin.url("/page");
    assert_eq!(proxy.get(&url).await.text(), "old");
    proxy.curl(&["-I", "-H", "Cache-Control: no-cache", &url]).await;
    assert!(is_hit(&proxy.get(&url).await), "it is the same");
    is_new.store(true, Ordering::Relaxed);
    proxy.curl(&["-I", "-H", "Cache-Control: no-cache", &url]).await;
    assert_eq!(proxy.get(&url).await.text(), "new");
}

fn is_pattern(body: &[u8]) -> bool {
    let mut checker = Checker::default();
    checker.update(body);
    checker.is_intact()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_and_empty_answers_are_cached_over_http1_and_http2() {
    const LENGTH: u64 = 3 << 20;
    let origin = Origin::https(Alpn::Both, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/chunked" => Reply { framing: Delimit::Chunked, ..long() },
        "/empty" => Reply::status(204).field("Cache-Control", "max-age=600"),
        _ => long(),
    })
    .await;
    fn long() -> Reply {
        Reply::pattern(LENGTH).field("Cache-Control", "max-age=600")
    }
    let (proxy, _directory) = caching("").await;
    for path in ["/page", "/chunked"] {
        for (number, version) in ["--http2", "--http1.1", "--http2"].into_iter().enumerate() {
            let curl = proxy.curl(&[version, &origin.url(path)]).await;
            assert_eq!(curl.code, 0, "{}", curl.stderr);
            assert!(curl.stdout.len() as u64 == LENGTH && is_pattern(&curl.stdout), "{path} {version}");
            let is_hit = curl.head().field("cache-status").unwrap().starts_with("politely; hit");
            assert_eq!(is_hit, number > 0, "{path} {version}");
        }
        assert_eq!(origin.log.count(path), 1);
    }
    for version in ["--http2", "--http1.1", "--http2"] {
        let curl = proxy.curl(&[version, &origin.url("/empty")]).await;
        assert_eq!((curl.code, curl.status(), curl.stdout.len()), (0, 204, 0));
    }
    assert_eq!(origin.log.count("/empty"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_page_is_revalidated_on_the_same_connection() {
    let site = |seen: &Seen| {
        let page = match (seen.field("if-none-match"), seen.field("if-modified-since")) {
            (Some("\"a\""), Some(MODIFIED)) => Reply::status(304).field("X-New", "1"),
            (None, None) => Reply::text("page"),
            other => panic!("{other:?}"),
        };
        page.field("ETag", "\"a\"").field("Last-Modified", MODIFIED).field("Cache-Control", "max-age=0")
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.text(), "page");
    let connections = origin.connections();
    for _ in 0..3 {
        let again = with(client, &origin, "GET", "/page", "").await;
        assert_eq!((again.status(), again.text().as_str(), again.field("x-new")), (200, "page", Some("1")));
        assert_eq!(again.field("cache-status"), Some("politely; fwd=stale; fwd-status=304"));
    }
    let head = with(client, &origin, "HEAD", "/page", "").await;
    assert_eq!((head.status(), head.field("content-length")), (200, Some("4")));
    assert_eq!((origin.log.count("/page"), origin.connections()), (5, connections));
}

/// RFC 9111 §3.4, RFC 9110 §14.2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_request_is_served_from_the_stored_page() {
    let origin = pages(|_| fresh("0123456789").field("Last-Modified", MODIFIED)).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for is_stored in [false, true] {
        assert_eq!(is_hit(&with(client, &origin, "GET", "/page", "").await), is_stored);
    }
    for (fields, status, range, body) in [
        ("Range: bytes=2-4\r\n", 206, Some("bytes 2-4/10"), "234"),
        ("Range: bytes=7-\r\n", 206, Some("bytes 7-9/10"), "789"),
        ("Range: bytes=-3\r\nIf-Range: \"a\"\r\n", 206, Some("bytes 7-9/10"), "789"),
        ("Range: bytes=-3\r\nIf-Range: \"b\"\r\n", 200, None, "0123456789"),
        ("Range: bytes=10-\r\n", 416, Some("bytes */10"), ""),
        ("Range: bytes=2-4\r\nIf-None-Match: \"a\"\r\n", 304, None, ""),
    ] {
        let response = with(client, &origin, "GET", "/page", fields).await;
        assert!(response.status() == status && is_hit(&response), "{fields}: {response:?}");
        assert_eq!((response.field("content-range"), response.text().as_str()), (range, body), "{fields}");
    }
    let head = with(client, &origin, "HEAD", "/page", "Range: bytes=2-4\r\n").await;
    assert_eq!((head.status(), head.field("content-length")), (200, Some("10")), "it is for GET alone");
    assert_eq!(origin.log.count("/page"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_a_long_stored_page_match_those_of_the_site() {
    const LENGTH: usize = 3 << 20;
    let origin = Origin::https(Alpn::Both, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::pattern(LENGTH as u64).field("Cache-Control", "max-age=600"),
    })
    .await;
    let (proxy, _directory) = caching("").await;
    let whole = proxy.curl(&[&origin.url("/page")]).await.stdout;
    let again = proxy.curl(&[&origin.url("/page")]).await;
    assert!(whole.len() == LENGTH && again.stdout == whole, "it is stored by now");
    for (range, expected) in [
        ("0-0", 0..1),
        ("262143-262144", 262_143..262_145),
        ("300000-1299999", 300_000..1_300_000),
        ("2000000-", 2_000_000..LENGTH),
        ("-1", LENGTH - 1..LENGTH),
    ] {
        for version in ["--http2", "--http1.1"] {
            let part = proxy.curl(&[version, "-r", range, &origin.url("/page")]).await;
            assert_eq!((part.code, part.status()), (0, 206), "{range} {}", part.stderr);
            assert!(part.stdout == whole[expected.clone()], "{range} {version}");
        }
    }
    assert_eq!(origin.log.count("/page"), 1);
}

/// If no whole page is stored, a range request goes to the site, and its answer is not stored as a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_answer_of_the_site_is_not_stored() {
    let site = |seen: &Seen| {
        let said = match (seen.path().as_str(), seen.field("range")) {
            ("/none", Some(_)) => Reply { status: 416, ..fresh("") }.field("Content-Range", "bytes */10"),
            (_, Some("bytes=2-4")) => Reply { status: 206, ..fresh("234") }.field("Content-Range", "bytes 2-4/10"),
            _ => fresh("0123456789"),
        };
        said.field("Last-Modified", MODIFIED)
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (path, status) in [("/page", 206), ("/none", 416)] {
        for _ in 0..2 {
            let part = with(client, &origin, "GET", path, "Range: bytes=2-4\r\n").await;
            assert_eq!((part.status(), is_hit(&part)), (status, false));
        }
        let whole = with(client, &origin, "GET", path, "").await;
        assert_eq!((whole.status(), whole.text().as_str(), is_hit(&whole)), (200, "0123456789", false));
        assert!(is_hit(&with(client, &origin, "GET", path, "").await));
        let part = with(client, &origin, "GET", path, "Range: bytes=2-4\r\n").await;
        assert_eq!((part.status(), part.text().as_str(), is_hit(&part)), (206, "234", true));
        assert_eq!(origin.log.count(path), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditional_request_is_answered_304_from_the_cache() {
    let origin = pages(|_| fresh("page").field("Last-Modified", MODIFIED)).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    for (fields, status) in [
        ("If-None-Match: \"x\", W/\"a\"\r\n", 304),
        ("If-None-Match: \"x\"\r\n", 200),
        ("If-Modified-Since: Sun, 06 Nov 1994 12:00:00 GMT\r\n", 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 11:00:00 GMT\r\n", 200),
    ] {
        let response = with(client, &origin, "GET", "/page", fields).await;
        assert!(response.status() == status && is_hit(&response), "{fields}: {response:?}");
        assert_eq!(response.field("etag"), Some("\"a\""));
        assert_eq!(response.field("content-type").is_some(), status == 200, "{fields}");
    }
    assert_eq!(origin.log.count("/page"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_cache_directives_are_obeyed() {
    let origin = pages(|_| fresh("page")).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    let absent = with(client, &origin, "GET", "/page", "Cache-Control: only-if-cached\r\n").await;
    assert_refused(&absent, 504, "http_request_denied", "not-stored");
    assert_eq!((absent.field("cache-status"), origin.log.count("/page")), (None, 0));
    let own = with(client, &origin, "GET", "/page", "Cache-Control: only-if-cached\r\nCookie: a=b\r\n").await;
    assert_eq!((own.status(), origin.log.count("/page")), (504, 0), "nothing is stored for one client");
    assert!(!is_hit(&with(client, &origin, "GET", "/page", "").await));
    for (fields, expected) in [
        ("Cache-Control: only-if-cached\r\n", true),
        ("Cache-Control: max-age=600\r\n", true),
        ("Cache-Control: min-fresh=1000\r\n", false),
        ("Cache-Control: no-cache\r\n", false),
        ("Pragma: no-cache\r\n", false),
        ("Cache-Control: no-store\r\n", false),
        ("", true),
    ] {
        let response = with(client, &origin, "GET", "/page", fields).await;
        assert_eq!((response.status(), is_hit(&response)), (200, expected), "{fields}");
    }
}

/// RFC 9211 §2.2, §2.6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_status_shows_forward_reason_and_stored() {
    let site = |seen: &Seen| match (seen.path().as_str(), seen.field("if-none-match")) {
        ("/stale" | "/same", Some("\"a\"")) => Reply::status(304).field("ETag", "\"a\""),
        ("/stale", _) => fresh("page").field("Cache-Control", "max-age=0"),
        ("/varied", _) => fresh("page").field("Vary", "Accept-Language"),
        ("/long", _) => Reply::pattern(1_100_000).field("Cache-Control", "max-age=600"),
        _ => fresh("page"),
    };
    let origin = pages(site).await;
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!("cache: {{ directory: '{}', size: 8MiB }}\n", directory.path().display());
    let proxy = Proxy::start(&yaml).await;
    let client = &mut proxy.client().await;
    for (path, fields, said) in [
        ("/other", "Cache-Control: no-cache\r\n", "fwd=uri-miss; fwd-status=200; stored"),
        ("/page", "", "fwd=uri-miss; fwd-status=200; stored"),
        ("/page", "", "hit"),
        ("/page", "Cache-Control: no-cache\r\n", "fwd=request; fwd-status=200; stored"),
        ("/page", "Cache-Control: min-fresh=1000\r\n", "fwd=request; fwd-status=200; stored"),
        ("/same", "", "fwd=uri-miss; fwd-status=200; stored"),
        ("/same", "", "hit"),
        ("/same", "Cache-Control: no-cache\r\n", "fwd=request; fwd-status=304"),
        ("/stale", "", "fwd=uri-miss; fwd-status=200; stored"),
        ("/stale", "If-None-Match: \"a\"\r\n", "fwd=stale; fwd-status=304"),
        ("/stale", "If-None-Match: \"b\"\r\n", "fwd=stale; fwd-status=200; stored"),
        ("/varied", "Accept-Language: de\r\n", "fwd=uri-miss; fwd-status=200; stored"),
        ("/varied", "Accept-Language: en\r\n", "fwd=vary-miss; fwd-status=200; stored"),
        ("/long", "", "fwd=uri-miss; fwd-status=200"),
        ("/long", "", "fwd=uri-miss; fwd-status=200"),
    ] {
        let response = with(client, &origin, "GET", path, fields).await;
        assert_eq!(response.field("cache-status"), Some(&*format!("politely; {said}")), "{path} {fields}");
    }
}

/// RFC 9111 §5.2.1.7, also for requests that bypass the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_if_cached_never_contacts_the_site() {
    let origin = pages(|_| fresh("page")).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (method, path, fields) in [
        ("GET", "/page", "Range: bytes=0-0,2-2\r\n"),
        ("GET", "/page", "Range: lines=0-0\r\n"),
        ("GET", "/page", "Cache-Control: no-store\r\n"),
        ("GET", "/page", "X-Api-Key: a\r\n"),
        ("POST", "/page", "Content-Length: 0\r\n"),
        ("GET", "/.well-known/tdmrep.json", ""),
    ] {
        let only = format!("{fields}Cache-Control: only-if-cached\r\n");
        let response = with(client, &origin, method, path, &only).await;
        assert_eq!((response.status(), origin.log.count(path)), (504, 0), "{method} {fields}");
    }
    let robots = with(client, &origin, "GET", "/robots.txt", "Cache-Control: only-if-cached\r\n").await;
    assert_eq!(robots.status(), 200, "it has copies of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vary_selects_among_stored_variants() {
    let site = |seen: &Seen| {
        let language = seen.field("accept-language").unwrap_or("none").to_owned();
        fresh(&language).field("Vary", "Accept-Language")
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for round in 0..2 {
        for language in ["en", "de", "none"] {
            let field = format!("Accept-Language: {language}\r\n");
            let field = if language == "none" { "" } else { &field };
            let response = with(client, &origin, "GET", "/page", field).await;
            assert_eq!((response.text().as_str(), is_hit(&response)), (language, round > 0));
        }
    }
    assert_eq!(origin.log.count("/page"), 3);
}

/// RFC 9111 §4.3.4: a 304 may bring another Vary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vary_of_a_304_replaces_the_stored_vary() {
    let site = |seen: &Seen| {
        let language = seen.field("accept-language").unwrap_or("none");
        let tag = format!("\"{language}\"");
        let (page, vary) = match seen.field("if-none-match") {
            Some(known) if known == tag => (Reply::status(304), "Accept-Language"),
            _ => (Reply::text(language), "Accept-Encoding"),
        };
        let max_age = if vary == "Accept-Language" { "max-age=600" } else { "max-age=0" };
        page.field("ETag", tag).field("Vary", vary).field("Cache-Control", max_age)
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (language, expected_hit) in [("en", false), ("en", false), ("en", true), ("de", false)] {
        let response = with(client, &origin, "GET", "/page", &format!("Accept-Language: {language}\r\n")).await;
        assert_eq!((response.text().as_str(), is_hit(&response)), (language, expected_hit));
    }
}

/// RFC 9110 §13.1: a 304 stands for a 200.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_stored_200_answers_are_revalidated() {
    for status in [404, 410, 301, 204] {
        let site = move |seen: &Seen| {
            let page = match (seen.field("if-none-match"), seen.field("if-modified-since")) {
                (None, None) => Reply::text("page"),
                _ => Reply::status(304),
            };
            page.field("ETag", "\"a\"").field("Cache-Control", "max-age=600")
        };
        let is_first = AtomicBool::new(true);
        let origin = pages(move |seen| match is_first.swap(false, Ordering::SeqCst) {
            true => Reply::status(status)
                .field("ETag", "\"a\"")
                .field("Last-Modified", MODIFIED)
                .field("Cache-Control", "max-age=0"),
            false => site(seen),
        })
        .await;
        let (proxy, _directory) = caching("").await;
        let client = &mut proxy.client().await;
        assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), status);
        // A client may have a 200 by the same tag.
        assert_eq!(with(client, &origin, "GET", "/page", "If-None-Match: \"a\"\r\n").await.status(), 304);
        let page = with(client, &origin, "GET", "/page", "").await;
        assert_eq!((page.status(), page.text().as_str()), (200, "page"), "{status}");
        assert!(is_hit(&with(client, &origin, "GET", "/page", "").await));
    }
}

/// RFC 9111 §4.4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_methods_invalidate_the_stored_page() {
    let site = |seen: &Seen| match (seen.method.as_str(), seen.path().as_str()) {
        ("GET", _) => fresh("page"),
        (_, "/fails") => Reply::status(500),
        _ => Reply::status(201).field("Location", "/other#part").field("Content-Location", "http://b.localhost/page"),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (method, path, is_over) in [
        ("POST", "/page", true),
        ("PUT", "/page", true),
        ("DELETE", "/page", true),
        ("PATCH", "/page", true),
        ("POST", "/fails", false),
        ("OPTIONS", "/page", false),
    ] {
        for path in [path, "/other"] {
            with(client, &origin, "GET", path, "").await;
            assert!(is_hit(&with(client, &origin, "GET", path, "").await), "{method} {path}");
        }
        with(client, &origin, method, path, "Content-Length: 0\r\n").await;
        for path in [path, "/other"] {
            assert_eq!(is_hit(&with(client, &origin, "GET", path, "").await), !is_over, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hit_uses_neither_a_pacing_slot_nor_budget() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 3600\n"),
        _ => fresh("page"),
    })
    .await;
    let yaml = "pace: { max_crawl_delay: 1h, max_wait: 0s, budget: { requests: 1, per: day } }";
    let (proxy, _directory) = caching(yaml).await;
    // The first page may follow its robots.txt at once.
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    let other = with(client, &origin, "GET", "/other", "").await;
    assert_eq!(other.status(), 429, "it would have to wait");
    let (proxy, _directory) = caching("pace: { max_crawl_delay: 1h, max_wait: 0s }").await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    for _ in 0..3 {
        let again = with(client, &origin, "GET", "/page", "").await;
        assert!(again.status() == 200 && is_hit(&again));
    }
    let (proxy, _directory) = caching("pace: { budget: { requests: 2, per: day }, max_crawl_delay: 0s }").await;
    let client = &mut proxy.client().await;
    for (path, status) in [("/page", 200), ("/page", 200), ("/page", 200), ("/other", 200), ("/third", 429)] {
        assert_eq!(with(client, &origin, "GET", path, "").await.status(), status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_revisit_serves_the_stored_page_or_refuses() {
    let site = |seen: &Seen| match seen.path().as_str() {
        "/unstored" => Reply::text("page").field("Cache-Control", "no-store"),
        _ => Reply::text("page").field("ETag", "\"a\"").field("Cache-Control", "max-age=0"),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("pace: { min_revisit: 1h }").await;
    let client = &mut proxy.client().await;
    for (path, fields, status) in [
        ("/page", "", 200),
        ("/page", "", 200),
        ("/page", "If-None-Match: \"a\"\r\n", 304),
        ("/page", "Cache-Control: no-cache\r\n", 429),
        ("/unstored", "", 200),
        ("/unstored", "", 429),
    ] {
        assert_eq!(with(client, &origin, "GET", path, fields).await.status(), status, "{path} {fields}");
    }
    assert_eq!((origin.log.count("/page"), origin.log.count("/unstored")), (1, 1));
}

/// `limits.max_header_size` applies to heads sent to clients as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_head_grown_beyond_the_limit_by_304s_is_dropped() {
    let origin = pages(|seen| {
        let page = match seen.field("if-none-match") {
            Some(_) => Reply::status(304).field(format!("X-{}", fastrand::u32(..)), "x".repeat(20_000)),
            None => Reply::text("page"),
        };
        page.field("ETag", "\"a\"").field("Cache-Control", "max-age=0")
    })
    .await;
    let (proxy, _directory) = caching("").await;
    let mut client = proxy.client().await;
    for number in 0..12 {
        // The next is answered from what this one has left.
        let length = |response: &Response| {
            response.head.fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>()
        };
        let response = with(&mut client, &origin, "GET", "/page", "").await;
        assert_eq!((response.status(), response.text()), (200, "page".into()));
        assert!(length(&response) < 64 * 1024, "{number}: {}", length(&response));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let asked = origin.log.all();
    let unconditional = asked.iter().filter(|seen| seen.path() == "/page" && seen.field("if-none-match").is_none());
    assert!(unconditional.count() > 1, "it is fetched again");
}

/// The site has answered, so a slow reader of the stored page delays nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_of_a_revalidated_page_holds_no_pacing_slot() {
    let origin = pages(|seen| match (seen.path().as_str(), seen.field("if-none-match")) {
        ("/long", None) => Reply::pattern(10 << 20).field("ETag", "\"a\"").field("Cache-Control", "no-cache"),
        ("/long", Some(_)) => Reply::status(304).field("ETag", "\"a\""),
        _ => Reply::text("page"),
    })
    .await;
    let (proxy, _directory) = caching("hosts: { '*': { crawl_delay: 10ms } }\npace: { max_wait: 3s }").await;
    let stored = proxy.curl(&[&origin.url("/long")]).await;
    assert!(stored.head().field("cache-status").is_some_and(|it| it.ends_with("stored")), "{:?}", stored.head());
    let mut slow = proxy.client().await;
    slow.send(crate::support::client::get(&origin.url("/long"), &origin.authority("a.localhost"))).await;
    assert_eq!(slow.head().await.field("cache-status"), Some("politely; fwd=stale; fwd-status=304"));
    assert_eq!(proxy.curl(&[&origin.url("/other")]).await.text(), "page");
}
