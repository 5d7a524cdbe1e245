//! robots.txt asked for by the crawler itself: our copy answers, as any cache would (RFC 9111, RFC 9110 §13).

use super::{KEEP_OUT, origin};
use crate::support::{Client, Proxy, Reply};

const ETAG: &str = "\"v1\"";
const MODIFIED: &str = "Tue, 02 Jan 2024 03:04:05 GMT";

async fn asked(client: &mut Client, method: &str, url: &str, fields: &str) -> crate::support::Response {
    let host = url.split('/').nth(2).expect("an absolute URL");
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    client.response_to(method).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditional_robots_requests_are_answered_by_the_copys_validators() {
    let origin = origin(|_| Reply::text(KEEP_OUT).field("ETag", ETAG).field("Last-Modified", MODIFIED)).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let url = origin.url("/robots.txt");
    for (fields, status) in [
        ("", 200),
        ("If-None-Match: \"v1\"\r\n", 304),
        ("If-None-Match: W/\"v1\"\r\n", 304),
        ("If-None-Match: \"v0\", \"v1\"\r\n", 304),
        ("If-None-Match: *\r\n", 304),
        ("If-None-Match: \"v2\"\r\n", 200),
        ("If-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT\r\n", 304),
        ("If-Modified-Since: Wed, 03 Jan 2024 00:00:00 GMT\r\n", 304),
        ("If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT\r\n", 200),
        ("If-Modified-Since: yesterday\r\n", 200),
        // RFC 9110 §13.1.3: with If-None-Match the date is not looked at.
        ("If-None-Match: \"v2\"\r\nIf-Modified-Since: Wed, 03 Jan 2024 00:00:00 GMT\r\n", 200),
        // A part of it was not asked for in a way that we answer.
        ("Range: bytes=0-3\r\n", 200),
    ] {
        let response = asked(&mut client, "GET", &url, fields).await;
        assert_eq!(response.status(), status, "{fields}");
        assert_eq!(response.text(), if status == 200 { KEEP_OUT } else { "" }, "{fields}");
        assert_eq!((response.field("etag"), response.field("last-modified")), (Some(ETAG), Some(MODIFIED)), "{fields}");
        assert!(response.field("age").is_some(), "{fields}");
    }
    assert_eq!(origin.log.targets(), ["/robots.txt"], "the origin was asked once for all of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_of_robots_txt_equals_get_without_a_body() {
    let origin = origin(|_| Reply::text(KEEP_OUT).field("ETag", ETAG)).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let url = origin.url("/robots.txt");
    let head = asked(&mut client, "HEAD", &url, "").await;
    assert_eq!((head.status(), head.text().as_str()), (200, ""));
    assert_eq!(head.field("content-length"), Some(KEEP_OUT.len().to_string().as_str()));
    // The connection is at the start of a message still.
    assert_eq!(asked(&mut client, "GET", &url, "").await.text(), KEEP_OUT);
    assert_eq!(asked(&mut client, "HEAD", &url, "If-None-Match: \"v1\"\r\n").await.status(), 304);
    assert_eq!(origin.log.targets(), ["/robots.txt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_age_counts_from_the_fetch() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start("").await;
    let age = async || -> u64 {
        let response = proxy.get(&origin.url("/robots.txt")).await;
        response.field("age").expect("how old the copy is").parse().expect("seconds")
    };
    let first = age().await;
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    assert!((first + 2..=first + 20).contains(&age().await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_methods_and_queries_for_robots_txt_go_to_the_origin() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&origin.url("/robots.txt?x")).await.status(), 200);
    let mut client = proxy.client().await;
    assert_eq!(asked(&mut client, "OPTIONS", &origin.url("/robots.txt"), "").await.status(), 200);
    let methods: Vec<_> = origin.log.of("/robots.txt").into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["GET", "OPTIONS"]);
    assert_eq!(origin.log.count("/robots.txt?x"), 1);
}

/// The copy is served as the file, whatever success status the origin sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_copy_is_served_as_200() {
    let range = format!("bytes 0-{}/{}", KEEP_OUT.len() - 1, KEEP_OUT.len());
    for (status, body) in [(203, KEEP_OUT), (204, ""), (205, ""), (206, KEEP_OUT), (299, KEEP_OUT)] {
        let range = range.clone();
        let origin = origin(move |_| match status {
            206 => Reply::status(206).field("Content-Range", range.as_str()).body(body),
            204 => Reply::status(204),
            _ => Reply::status(status).body(body),
        })
        .await;
        let proxy = Proxy::start("").await;
        let copy = proxy.get(&origin.url("/robots.txt")).await;
        assert_eq!((copy.status(), copy.text().as_str()), (200, body), "{status}");
        assert_eq!(copy.field("content-length"), Some(body.len().to_string().as_str()), "{status}");
    }
}
