//! Usage preferences of answers and pages (docs/usage.md) apply to stored pages, by the purposes of the requester.

use super::{caching, fresh, is_hit, pages, with};
use crate::support::{Reply, Seen, assert_refused};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn html(page: &str) -> Reply {
    Reply::status(200).body(page).field("Content-Type", "text/html").field("Cache-Control", "max-age=600")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_page_is_not_served_after_a_304_with_an_opt_out() {
    for (name, value) in [
        ("X-Robots-Tag", "noai"),
        ("Content-Usage", "train-ai=n"),
        ("Content-Signal", "ai-train=no"),
        ("TDM-Reservation", "1"),
    ] {
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = is_closed.clone();
        let site = move |seen: &Seen| {
            let page = if seen.field("if-none-match").is_some() { Reply::status(304) } else { Reply::text("page") };
            let page = page.field("ETag", "\"a\"").field("Cache-Control", "max-age=0");
            if closed.load(Ordering::Relaxed) { page.field(name, value) } else { page }
        };
        let origin = pages(site).await;
        let (proxy, _directory) = caching("identity: { purpose: [ai-train] }").await;
        let client = &mut proxy.client().await;
        assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
        assert_eq!(with(client, &origin, "GET", "/page", "").await.text(), "page", "confirmed");
        is_closed.store(true, Ordering::Relaxed);
        let refused = with(client, &origin, "GET", "/page", "").await;
        assert_refused(&refused, 403, "http_request_denied", "usage-disallowed");
        assert!(!refused.text().contains("page\n"));
        let again = with(client, &origin, "GET", "/page", "Cache-Control: max-stale\r\n").await;
        assert_eq!(again.status(), 403, "{name}");
    }
}

/// Other requests would otherwise still get the page from the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opt_out_seen_by_one_request_invalidates_the_stored_page() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = is_closed.clone();
    let site = move |_: &Seen| match closed.load(Ordering::Relaxed) {
        true => fresh("page").field("X-Robots-Tag", "noai"),
        false => fresh("page"),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("identity: { purpose: [ai-train] }").await;
    let client = &mut proxy.client().await;
    with(client, &origin, "GET", "/page", "").await;
    assert!(is_hit(&with(client, &origin, "GET", "/page", "").await));
    is_closed.store(true, Ordering::Relaxed);
    let asked = with(client, &origin, "GET", "/page", "Cache-Control: no-cache\r\n").await;
    assert_refused(&asked, 403, "http_request_denied", "usage-disallowed");
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferences_for_one_crawler_apply_to_its_cache_hits_only() {
    const PAGE: &str = "<html><head><meta name=otherbot content=noindex></head><body>page</body></html>";
    let site = |seen: &Seen| match seen.path().as_str() {
        "/field" => fresh("page").field("X-Robots-Tag", "otherbot: noindex"),
        "/types" => fresh(PAGE).field("Content-Type", "text/html"),
        "/list" => fresh(PAGE).field("Content-Type", "image/x, text/html; charset=utf-16"),
        "/coding" => html(PAGE).field("Content-Encoding", "br"),
        _ => html(PAGE),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("identity: { purpose: [search] }").await;
    let client = &mut proxy.client().await;
    for path in ["/field", "/meta", "/types", "/list", "/coding"] {
        let (foo, other) = ("User-Agent: FooBot\r\n", "User-Agent: otherbot\r\n");
        assert_eq!(with(client, &origin, "GET", path, foo).await.status(), 200);
        assert!(is_hit(&with(client, &origin, "GET", path, foo).await), "{path}");
        let refused = with(client, &origin, "GET", path, other).await;
        assert_refused(&refused, 403, "http_request_denied", "usage-disallowed");
        assert!(is_hit(&with(client, &origin, "GET", path, foo).await), "{path}");
        assert_eq!(origin.log.count(path), 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purpose_declared_by_reload_applies_to_stored_pages() {
    let page = "<html><head><meta name=robots content=noai></head><body>page</body></html>";
    let origin = pages(move |_| html(page)).await;
    let (proxy, directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (method, is_stored) in [("GET", false), ("GET", true), ("HEAD", true)] {
        assert_eq!(is_hit(&with(client, &origin, method, "/page", "").await), is_stored, "{method}");
    }
    proxy.reload(&super::with_cache(directory.path(), "identity: { purpose: [ai-train] }")).unwrap();
    for method in ["HEAD", "GET"] {
        assert_eq!(with(client, &origin, method, "/page", "").await.status(), 403, "{method}");
    }
    assert_eq!(origin.log.count("/page"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_with_an_opt_out_in_its_html_head_is_not_stored() {
    let page = "<html><head><meta name=robots content=noai></head><body>page</body></html>";
    let origin = pages(move |_| html(page)).await;
    let (proxy, _directory) = caching("usage: { page: report }").await;
    let client = &mut proxy.client().await;
    for _ in 0..2 {
        let response = with(client, &origin, "GET", "/page", "").await;
        assert!(response.status() == 200 && !is_hit(&response), "{response:?}");
    }
    assert_eq!(origin.log.count("/page"), 2);
}

/// A refusal by the site is therefore not remembered for the removed name, and a removed licence opens no page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_removed_by_connection_do_not_count_as_user_agent_or_licence() {
    let site = |seen: &Seen| match (seen.path().as_str(), seen.field("user-agent")) {
        ("/page", Some(_)) => fresh("page"),
        _ => fresh("page").field("X-Robots-Tag", "noai"),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("identity: { purpose: [ai-train] }").await;
    let client = &mut proxy.client().await;
    let named = "User-Agent: ABot/1\r\n";
    let removed = format!("{named}Connection: keep-alive, user-agent\r\n");
    assert_eq!(with(client, &origin, "GET", "/page", &removed).await.status(), 403);
    assert_eq!(with(client, &origin, "GET", "/page", named).await.status(), 200);
    assert_eq!(with(client, &origin, "GET", "/closed", named).await.status(), 403);
    for terms in ["Authorization: License a", "crawler-max-price: USD 1"] {
        let name = terms.split(':').next().unwrap();
        let removed = format!("{named}{terms}\r\nConnection: keep-alive, {name}\r\n");
        assert_eq!(with(client, &origin, "GET", "/closed", &removed).await.status(), 403, "{name}");
        assert_eq!(origin.log.count("/closed"), 1, "{name}");
    }
}

/// RFC 9111 §4.4: the page has changed, whether or not the client gets the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_answer_to_an_unsafe_method_still_invalidates() {
    let site = |seen: &Seen| match (seen.method.as_str(), seen.path().as_str()) {
        ("GET", _) => fresh("page"),
        (_, "/field") => Reply::text("done").field("X-Robots-Tag", "noai"),
        _ => html("<html><head><meta name=robots content=noai></head><body>done</body></html>"),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("identity: { purpose: [ai-train] }").await;
    let client = &mut proxy.client().await;
    for path in ["/field", "/meta"] {
        for method in ["POST", "PUT", "DELETE"] {
            with(client, &origin, "GET", path, "").await;
            assert!(is_hit(&with(client, &origin, "GET", path, "").await), "{method} {path}");
            let withheld = with(client, &origin, method, path, "Content-Length: 0\r\n").await;
            assert_refused(&withheld, 403, "http_request_denied", "usage-disallowed");
            assert!(!is_hit(&with(client, &origin, "GET", path, "").await), "{method} {path}");
        }
    }
}
