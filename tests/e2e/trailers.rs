//! Trailer sections (RFC 9110 §6.5): those of responses pass on h2. The others end here, as §6.5.1 allows: pingora hands
//! them to nobody.

use crate::support::h2_client::request;
use crate::support::{Alpn, Origin, Protocol, Proxy, Reply, Seen};

/// Every page has a trailer section.
fn with_trailers(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("body").trailer("x-sum", "9"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_responses_pass_on_h2() {
    let origin = Origin::https(Alpn::Both, with_trailers).await;
    let proxy = Proxy::start("").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let response = client.exchange(request("POST", &origin.url("/x")), b"ping").await.unwrap();
    assert_eq!(response.trailers, [("x-sum".to_owned(), "9".to_owned())]);
    assert_eq!(origin.log.one("/x").protocol, Protocol::Http2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_requests_on_h2_end_here() {
    let origin = Origin::https(Alpn::Both, with_trailers).await;
    let proxy = Proxy::start("").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let mut pending = client.send(request("POST", &origin.url("/x")), false).await;
    pending.body(b"ping").await.unwrap();
    pending.trailers([("x-request-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect()).unwrap();
    assert_eq!(pending.response().await.unwrap().status(), 200);
    let seen = origin.log.one("/x");
    assert_eq!((seen.protocol, seen.body.kept.as_slice()), (Protocol::Http2, &b"ping"[..]));
    assert!(seen.body.trailers.is_empty() && seen.body.complete);
}

/// A chunked request with a trailer section.
fn chunked(url: &str, host: &str) -> String {
    format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n0\r\nX-In: 7\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_on_http_1_leave_bodies_and_connections_in_order() {
    let origin = Origin::http(with_trailers).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    for _ in 0..3 {
        client.send(chunked(&origin.url("/x"), &origin.authority("a.localhost"))).await;
        assert_eq!(client.response().await.text(), "body");
    }
    assert!(origin.log.of("/x").iter().all(|seen| seen.body.kept == b"ping" && seen.body.complete));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_responses_on_http_1_end_here() {
    let origin = Origin::http(with_trailers).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(chunked(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    let response = client.response().await;
    assert_eq!((response.text().as_str(), response.trailers.len()), ("body", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_requests_on_http_1_end_here() {
    let origin = Origin::http(with_trailers).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(chunked(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    assert_eq!(client.response().await.text(), "body");
    assert!(origin.log.one("/x").body.trailers.is_empty());
}
