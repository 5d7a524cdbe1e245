//! `min_revisit`: a page that was delivered not long ago is not fetched again.

use super::{pages, refusal};
use crate::support::{Alpn, Client, Origin, Proxy, Reply, Response, Seen, assert_refused, eventually};

const REVISIT: &str = "pace: { min_revisit: 1h }";
const MODIFIED: &str = "Sun, 06 Nov 1994 12:00:00 GMT";

async fn site() -> Origin {
    pages(|seen| match (seen.path().as_str(), seen.field("range")) {
        ("/missing", _) => Reply::status(404),
        ("/whole" | "/up", _) => Reply::text("page"),
        ("/ranges", Some("bytes=0-" | "bytes=0-99")) => {
            Reply::status(206).body("page").field("Content-Range", "bytes 0-3/4")
        }
        ("/ranges", Some(_)) => Reply::status(206).body("a").field("Content-Range", "bytes 1-1/4"),
        (_, Some(range)) if range.starts_with("bytes=") => Reply::status(206).body("p"),
        _ => Reply::text("page").field("ETag", "\"a\"").field("Last-Modified", MODIFIED),
    })
    .await
}

/// On one connection, where each is over before the next begins.
async fn with(client: &mut Client, origin: &Origin, method: &str, path: &str, fields: &str) -> Response {
    let (url, host) = (origin.url(path), origin.authority("a.localhost"));
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    client.response_to(method).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_request_is_refused_or_answered_304() {
    let origin = site().await;
    let proxy = Proxy::start(REVISIT).await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    let refused = with(client, &origin, "GET", "/page", "").await;
    assert_refused(&refused, 429, "http_request_denied", "revisit-too-soon");
    assert!((3500..=3600).contains(&refusal(&refused).1));
    for (fields, status) in [
        ("If-None-Match: \"a\"\r\n", 304),
        ("If-None-Match: \"b\", W/\"a\"\r\n", 304),
        ("If-None-Match: \"b\"\r\n", 429),
        ("If-Modified-Since: Sun, 06 Nov 1994 12:00:00 GMT\r\n", 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 11:00:00 GMT\r\n", 429),
    ] {
        let response = with(client, &origin, "GET", "/page", fields).await;
        assert_eq!(response.status(), status, "{fields}");
        if status == 304 {
            assert!(response.field("proxy-status").is_some_and(|said| said.contains("min_revisit")), "{fields}");
            assert_eq!(response.field("etag"), Some("\"a\""), "{fields}");
        }
    }
    assert_eq!(origin.log.count("/page"), 1);
    let same = with(client, &origin, "GET", "/%70ag%65", "").await;
    assert_refused(&same, 429, "http_request_denied", "revisit-too-soon");
    assert_eq!(proxy.get(&origin.url("/page?other")).await.status(), 200, "another URL is another page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_revisit_304_contains_the_caching_fields() {
    let repeated = [
        ("Date", MODIFIED),
        ("Vary", "Accept"),
        ("Vary", "Cookie"),
        ("Cache-Control", "max-age=60"),
        ("Expires", MODIFIED),
        ("ETag", "\"a,b\""),
        ("Content-Location", "/page.html"),
    ];
    let others = [("Age", "7"), ("Last-Modified", MODIFIED), ("Set-Cookie", "a=b")];
    let site = move |seen: &Seen| match seen.field("if-none-match") {
        Some("\"old\"") => Reply::status(304).field("ETag", "\"a,b\"").field("Vary", "Accept"),
        _ => {
            repeated.iter().chain(&others).fold(Reply::text("page"), |reply, (name, value)| reply.field(*name, *value))
        }
    };
    let origin = pages(site).await;
    let proxy = Proxy::start(REVISIT).await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    let same = with(client, &origin, "GET", "/page", "If-None-Match: \"x\", \"a,b\"\r\n").await;
    assert_eq!(same.status(), 304);
    let all: Vec<_> = same.head.fields.iter().map(|(name, value)| (name.to_lowercase(), value.as_str())).collect();
    let expected: Vec<_> = repeated.iter().map(|(name, value)| (name.to_lowercase(), *value)).collect();
    let age: u64 = same.field("age").expect("how old it is").parse().expect("seconds");
    assert!(all.starts_with(&expected) && (7..60).contains(&age), "{all:?}");
    assert!(same.field("set-cookie").is_none() && same.field("last-modified").is_none(), "{all:?}");
    // A 304 of the site itself counts as a visit as well.
    assert_eq!(with(client, &origin, "GET", "/other", "If-None-Match: \"old\"\r\n").await.status(), 304);
    let same = with(client, &origin, "GET", "/other", "If-None-Match: W/\"a,b\"\r\n").await;
    assert_eq!((same.status(), same.field("etag"), same.field("vary")), (304, Some("\"a,b\""), Some("Accept")));
    assert_eq!((origin.log.count("/page"), origin.log.count("/other")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_head_and_partial_requests_do_not_count_as_visits() {
    let origin = site().await;
    let proxy = Proxy::start(REVISIT).await;
    let client = &mut proxy.client().await;
    for _ in 0..2 {
        assert_eq!(with(client, &origin, "GET", "/missing", "").await.status(), 404);
        assert_eq!(with(client, &origin, "HEAD", "/page", "").await.status(), 200);
        assert_eq!(with(client, &origin, "GET", "/page", "Range: bytes=0-0\r\n").await.status(), 206);
        assert_eq!(with(client, &origin, "GET", "/robots.txt", "").await.status(), 200);
    }
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    assert_eq!(with(client, &origin, "GET", "/page", "Range: bytes=0-0\r\n").await.status(), 206, "the rest of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_revisit_applies_to_http2() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start(REVISIT).await;
    let client = proxy.h2(&origin, "a.localhost").await;
    assert_eq!(client.get(&origin.url("/page")).await.status(), 200);
    // The client sees the end of the answer a moment before the visit is recorded.
    eventually("the delivery is noted", || proxy.counts().forwarded == 1).await;
    assert_eq!(client.get(&origin.url("/page")).await.status(), 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_revisit_can_be_set_per_host_and_only_reports_in_report_mode() {
    let origin = site().await;
    let proxy = Proxy::start(&format!("{REVISIT}\nhosts: {{ b.localhost: {{ min_revisit: 0 }} }}")).await;
    for (host, again) in [("a.localhost", 429), ("b.localhost", 200)] {
        let (url, authority, mut client) = (origin.url_at(host, "/page"), origin.authority(host), proxy.client().await);
        assert_eq!(client.get(&url, &authority).await.status(), 200);
        assert_eq!(client.get(&url, &authority).await.status(), again, "{host}");
    }
    let proxy = Proxy::start(&format!("{REVISIT}\nmode: report")).await;
    let client = &mut proxy.client().await;
    for _ in 0..2 {
        assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    }
    assert_eq!(proxy.counts().reported["revisit-too-soon"], 1);
}

/// A client that may not fetch the page does not learn that another has fetched it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disallowed_client_gets_the_refusal_before_min_revisit() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: kept-out\nDisallow: /page\n"),
        _ => Reply::text("page").field("ETag", "\"a\""),
    })
    .await;
    let proxy = Proxy::start(REVISIT).await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "User-Agent: let-in\r\n").await.status(), 200);
    for (configuration, agent, status, slug) in [
        ("", "kept-out", 403, "robots-disallowed"),
        ("hosts: { a.localhost: { deny: [/page] } }", "let-in", 403, "operator-denied"),
        ("hosts: { a.localhost: { budget: { requests: 0 } } }", "let-in", 429, "budget-spent"),
        ("", "let-in", 429, "revisit-too-soon"),
    ] {
        proxy.reload(&format!("{REVISIT}\n{configuration}")).expect("a valid configuration");
        for condition in ["", "If-None-Match: \"a\"\r\n"] {
            let again = with(client, &origin, "GET", "/page", &format!("User-Agent: {agent}\r\n{condition}")).await;
            match slug == "revisit-too-soon" && !condition.is_empty() {
                true => assert_eq!(again.status(), 304),
                false => drop(assert_refused(&again, status, "http_request_denied", slug)),
            }
        }
    }
    assert_eq!(origin.log.count("/page"), 1);
}

/// The first client has declared no purpose, so the reservations of the page are unknown when another declares one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remembered_visit_does_not_reveal_a_page_to_a_refused_purpose() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("its content").field("ETag", "\"a\"").field("X-Robots-Tag", "noai"),
    })
    .await;
    let proxy = Proxy::start(REVISIT).await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    proxy.reload(&format!("{REVISIT}\nidentity: {{ purpose: [ai-train] }}")).expect("a valid configuration");
    for (condition, status) in [("", 429), ("If-None-Match: \"a\"\r\n", 304)] {
        let again = with(client, &origin, "GET", "/page", condition).await;
        assert_eq!(again.status(), status);
        assert!(!again.text().contains("content"), "{}", again.text());
    }
    assert_eq!(with(client, &origin, "GET", "/other", "").await.status(), 403);
}

/// The request is not sent: it does not wait either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_revisit_answer_uses_neither_slot_nor_budget() {
    let origin = site().await;
    let hosts = "hosts: { a.localhost: { crawl_delay: 2s, budget: { requests: 2 } } }";
    let proxy = Proxy::start(&format!("pace: {{ min_revisit: 1h, max_wait: 3s }}\n{hosts}")).await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    for _ in 0..20 {
        let same = with(client, &origin, "GET", "/page", "If-None-Match: \"a\"\r\nPrefer: wait=0\r\n").await;
        assert_eq!(same.status(), 304, "{}", same.text());
        let refused = with(client, &origin, "GET", "/page", "Prefer: wait=0\r\n").await;
        assert_refused(&refused, 429, "http_request_denied", "revisit-too-soon");
    }
    assert_eq!(
        with(client, &origin, "GET", "/other", "").await.status(),
        200,
        "one gap later, and the last that it may"
    );
}

/// Waiting requests check again when their slots come, and return them unused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_request_is_not_sent_if_the_page_was_delivered_meanwhile() {
    let origin = site().await;
    let hosts = "hosts: { a.localhost: { crawl_delay: 1s, budget: { requests: 2 } } }";
    let proxy = Proxy::start(&format!("pace: {{ min_revisit: 1h, max_wait: 30s }}\n{hosts}")).await;
    let all = (0..6).map(async |number| {
        let fields = if number % 2 == 0 { "" } else { "If-None-Match: \"a\"\r\n" };
        with(&mut proxy.client().await, &origin, "GET", "/page", fields).await.status()
    });
    let mut statuses = futures_util::future::join_all(all).await;
    statuses.sort_unstable();
    assert_eq!((statuses[0], origin.log.count("/page")), (200, 1), "{statuses:?}");
    assert!(statuses[1..].iter().all(|status| matches!(status, 304 | 429)), "{statuses:?}");
    let other = with(&mut proxy.client().await, &origin, "GET", "/other", "").await;
    assert_eq!(other.status(), 200, "the others have spent nothing: {}", other.text());
}

/// A site without support for ranges or WebSocket answers with the page, which is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_page_sent_for_a_range_or_upgrade_counts_as_a_visit() {
    let origin = site().await;
    let proxy = Proxy::start(REVISIT).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    for (count, path, fields) in [(1, "/whole", "Range: bytes=0-\r\n"), (2, "/up", upgrade)] {
        let first = with(&mut proxy.client().await, &origin, "GET", path, fields).await;
        assert_eq!((first.status(), first.text().as_str()), (200, "page"), "{path}");
        eventually("the delivery is noted", || proxy.counts().forwarded == count).await;
        for fields in [fields, ""] {
            let again = with(&mut proxy.client().await, &origin, "GET", path, fields).await;
            assert_refused(&again, 429, "http_request_denied", "revisit-too-soon");
        }
        assert_eq!(origin.log.count(path), 1);
    }
}

/// Requests on a connection that the origin has authenticated do not name their user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visits_on_an_authenticated_connection_are_not_remembered() {
    let origin = site().await;
    let proxy = Proxy::start(REVISIT).await;
    let alice = &mut proxy.client().await;
    assert_eq!(with(alice, &origin, "GET", "/keyed", "X-Api-Key: k\r\n").await.status(), 200);
    assert_eq!(with(alice, &origin, "GET", "/page", "Authorization: NTLM response\r\n").await.status(), 200);
    assert_eq!(with(alice, &origin, "GET", "/inbox", "").await.status(), 200);
    eventually("the deliveries are noted", || proxy.counts().forwarded == 3).await;
    let bob = &mut proxy.client().await;
    for path in ["/keyed", "/page", "/inbox"] {
        let refused = with(bob, &origin, "GET", path, "If-Modified-Since: Sun, 06 Nov 2033 12:00:00 GMT\r\n").await;
        assert_refused(&refused, 429, "http_request_denied", "revisit-too-soon");
        assert_eq!(refused.field("etag"), None);
    }
}

/// Answers to others do not tell whether this client's own page has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_with_credentials_gets_no_304_from_visits_of_others() {
    let origin = site().await;
    let proxy = Proxy::start(REVISIT).await;
    assert_eq!(with(&mut proxy.client().await, &origin, "GET", "/page", "").await.status(), 200);
    eventually("the delivery is noted", || proxy.counts().forwarded == 1).await;
    for (who, status) in [("", 304), ("Cookie: sid=1\r\n", 429), ("Authorization: Basic QQ\r\n", 429)] {
        let fields = format!("{who}If-None-Match: \"a\"\r\n");
        let again = with(&mut proxy.client().await, &origin, "GET", "/page", &fields).await;
        assert_eq!((again.status(), again.field("etag").is_some()), (status, status == 304), "{who}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_of_all_bytes_counts_as_a_visit() {
    for range in ["bytes=0-", "bytes=0-99"] {
        let origin = site().await;
        let proxy = Proxy::start(REVISIT).await;
        let fields = format!("Range: {range}\r\n");
        for _ in 0..2 {
            let part = with(&mut proxy.client().await, &origin, "GET", "/ranges", "Range: bytes=1-1\r\n").await;
            assert_eq!(part.status(), 206, "a part is none");
        }
        let first = with(&mut proxy.client().await, &origin, "GET", "/ranges", &fields).await;
        assert_eq!((first.status(), first.text().as_str()), (206, "page"));
        eventually("the delivery is noted", || proxy.counts().forwarded == 3).await;
        for fields in [fields.as_str(), ""] {
            let again = with(&mut proxy.client().await, &origin, "GET", "/ranges", fields).await;
            assert_refused(&again, 429, "http_request_denied", "revisit-too-soon");
        }
        assert_eq!(origin.log.count("/ranges"), 3);
    }
}

/// RFC 9110 §14.2: a Range in an unknown unit is ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_range_units_and_dot_segments_count_as_the_same_page() {
    let origin = site().await;
    let proxy = Proxy::start(REVISIT).await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    for (path, fields) in
        [("/page", "Range: pages=1\r\n"), ("/./page", ""), ("/x/../page", ""), ("/%2E/page", ""), ("/x/%2e./page", "")]
    {
        let again = with(client, &origin, "GET", path, fields).await;
        assert_refused(&again, 429, "http_request_denied", "revisit-too-soon");
    }
    for other in ["//page", "/page/", "/page?a=/../b", "/page?a=/b"] {
        assert_eq!(with(client, &origin, "GET", other, "").await.status(), 200, "{other}");
    }
}
