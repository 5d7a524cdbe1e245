//! No robots.txt: unavailable allows everything, unreachable disallows everything (RFC 9309 §2.3.1.3, §2.3.1.4).

use super::robots::{KEEP_OUT, origin, statuses};
use crate::support::reply::Delimit;
use crate::support::{Alpn, CLOSED_PORT, Origin, Proxy, Reply, TestCa, assert_refused};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_4xx_allows_everything() {
    for status in [400, 401, 402, 403, 404, 405, 406, 408, 410, 418, 451, 499] {
        let origin = origin(move |_| Reply::status(status).body(KEEP_OUT)).await;
        let proxy = Proxy::start("").await;
        assert_eq!(statuses(&proxy, &origin).await, (200, 200), "{status}");
        let asked = if matches!(status, 400 | 408) { 2 } else { 1 };
        assert_eq!(origin.log.count("/robots.txt"), asked, "the answer {status} is kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_auth_error_and_on_unavailable_can_disallow() {
    let gone = origin(|_| Reply::status(410)).await;
    let locked = origin(|_| Reply::status(401)).await;
    let proxy = Proxy::start("robots: { on_auth_error: disallow }").await;
    assert_eq!((statuses(&proxy, &gone).await, statuses(&proxy, &locked).await), ((200, 200), (403, 403)));
    let proxy = Proxy::start("robots: { on_unavailable: disallow }").await;
    assert_eq!((statuses(&proxy, &gone).await, statuses(&proxy, &locked).await), ((403, 403), (200, 200)));
    let refused = proxy.get(&gone.url("/open")).await;
    assert_refused(&refused, 403, "http_request_denied", "robots-disallowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_5xx_and_429_disallow_everything() {
    for status in [429, 500, 501, 502, 503, 504, 599] {
        let origin = origin(move |_| Reply::status(status).body("User-agent: *\nAllow: /\n")).await;
        let proxy = Proxy::start("").await;
        let refused = proxy.get(&origin.url("/open")).await;
        let problem = assert_refused(&refused, 503, "destination_unavailable", "robots-unreachable");
        assert_eq!(problem["robots_url"], origin.url("/robots.txt"));
        let after: u64 = refused.field("retry-after").expect("when to come back").parse().unwrap();
        assert!((1..=3600).contains(&after), "{after}");
        assert_eq!(problem["retry_after"], after);
        proxy.get(&origin.url("/open")).await;
        assert_eq!(origin.log.targets(), ["/robots.txt"], "{status}: it is not asked again at once, nor is the page");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_robots_answer_disallows_everything() {
    let whole = "User-agent: *\nAllow: /\n";
    type Answer = fn(&str) -> Reply;
    let broken: [(&str, Answer); 8] = [
        ("reset", |_| Reply::reset()),
        ("silence", |_| Reply::silence()),
        ("short", |whole| Reply::text(whole).framed(Delimit::Short(10))),
        ("short chunks", |whole| {
            Reply::raw(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n18\r\n{whole}\r\n"))
        }),
        ("no HTTP", |whole| Reply::raw(whole)),
        ("half a head", |_| Reply::raw("HTTP/1.1 200 OK\r\nContent-Le")),
        ("broken coding", |whole| Reply::text(whole).field("Content-Encoding", "gzip")),
        ("dripping", |_| {
            Reply::drip(&["User-agent", ": *\n", "Allow: /\n", "#", "#", "#", "#"], Duration::from_millis(300))
        }),
    ];
    for (name, reply) in broken {
        let origin = origin(move |_| reply(whole)).await;
        let proxy = Proxy::start("robots: { timeout: 1s }").await;
        let refused = proxy.get(&origin.url("/open")).await;
        assert_eq!(refused.status(), 503, "{name}: {}", refused.text());
        assert_refused(&refused, 503, "destination_unavailable", "robots-unreachable");
        assert!(origin.log.pages().is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_port_or_untrusted_certificate_disallows_everything() {
    let proxy = Proxy::start("").await;
    let refused = proxy.get(&format!("http://a.localhost:{CLOSED_PORT}/x")).await;
    assert_refused(&refused, 503, "destination_unavailable", "robots-unreachable");
    let stranger = Origin::https_as(&TestCa::new("a stranger"), &["a.localhost"], Alpn::H1, |_| Reply::text("")).await;
    let refused = proxy.get(&stranger.url("/x")).await;
    assert_refused(&refused, 503, "destination_unavailable", "robots-unreachable");
    assert!(stranger.log.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_status_can_be_403() {
    let origin = origin(|_| Reply::status(500)).await;
    let proxy = Proxy::start("robots: { unreachable_status: 403 }").await;
    assert_refused(&proxy.get(&origin.url("/x")).await, 403, "destination_unavailable", "robots-unreachable");
}
