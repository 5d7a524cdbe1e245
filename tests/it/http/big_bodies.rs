//! Bodies of any size pass in both directions as they come; the proxy holds next to nothing of them.

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::message::{Body, Framing};
use crate::support::reply::Delimit;
use crate::support::{Alpn, Binary, Client, Origin, Reply, Seen, pattern};
use std::time::Duration;

const GIGABYTE: u64 = 1_000_000_000;
/// Larger than the proxy's memory may grow, and short enough for an unoptimised TLS.
const LARGE: u64 = 40_000_000;
/// Memory that a transfer may add to the proxy, in KiB: buffers of a few connections.
const FLAT_KIB: u64 = 24 * 1024;

fn pages(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/gigabyte" => Reply::pattern(GIGABYTE),
        "/chunked" => Reply::pattern(LARGE).framed(Delimit::Chunked),
        "/large" => Reply::pattern(LARGE),
        "/nothing" => Reply::status(204),
        _ => Reply::text("got it"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gigabyte_download_uses_constant_memory() {
    let origin = Origin::http(pages).await;
    let binary = Binary::serve("").await;
    let host = origin.authority("a.localhost");
    let mut client = Client::open(binary.address()).await;
    assert_eq!(client.get(&origin.url("/nothing"), &host).await.status(), 204);
    let before = binary.peak_kib();
    client.send(get(&origin.url("/gigabyte"), &host)).await;
    let head = client.head().await;
    assert_eq!(head.field("content-length"), Some("1000000000"));
    let mut checker = pattern::Checker::default();
    client.stream_body(head.framing("GET"), |piece| checker.update(piece)).await;
    assert_eq!((checker.length(), checker.is_intact()), (GIGABYTE, true));
    let grown = binary.peak_kib() - before;
    assert!(grown < FLAT_KIB, "{grown} KiB more");
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gigabyte_upload_uses_constant_memory() {
    let origin = Origin::http(pages).await;
    let binary = Binary::serve("").await;
    let host = origin.authority("a.localhost");
    let mut client = Client::open(binary.address()).await;
    assert_eq!(client.get(&origin.url("/nothing"), &host).await.status(), 204);
    let before = binary.peak_kib();
    let url = origin.url("/upload");
    client.send(format!("PUT {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {GIGABYTE}\r\n\r\n")).await;
    let mut sent = 0;
    while sent < GIGABYTE {
        let piece = pattern::piece(sent, GIGABYTE);
        client.send(piece).await;
        sent += piece.len() as u64;
    }
    assert_eq!(client.response().await.text(), "got it");
    let seen = origin.log.one("/upload");
    assert_eq!((seen.body.length(), seen.body.pattern.is_intact(), seen.body.complete), (GIGABYTE, true, true));
    let grown = binary.peak_kib() - before;
    assert!(grown < FLAT_KIB, "{grown} KiB more");
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_through_intercepted_tls_and_h2() {
    let binary = Binary::serve("").await;
    for alpn in [Alpn::H1, Alpn::H2] {
        let origin = Origin::https(alpn, pages).await;
        let host = origin.authority("a.localhost");
        let client = Client::connect(binary.address(), &host).await;
        let mut h1 = client.tls("a.localhost", &binary.ca_pem_path(), &[b"http/1.1"]).await;
        assert_eq!(h1.get("/nothing", &host).await.status(), 204);
        let before = binary.peak_kib();
        let target = if alpn == Alpn::H1 { "/chunked" } else { "/large" };
        h1.send(get(target, &host)).await;
        let head = h1.head().await;
        let mut checker = pattern::Checker::default();
        h1.stream_body(head.framing("GET"), |piece| checker.update(piece)).await;
        assert_eq!((checker.length(), checker.is_intact()), (LARGE, true), "{alpn:?} {target}");
        let client = Client::connect(binary.address(), &host).await;
        let client = client.tls("a.localhost", &binary.ca_pem_path(), &[b"h2"]).await;
        let h2 = crate::support::H2Client::over(client).await;
        let mut checker = pattern::Checker::default();
        checker.update(&h2.get(&origin.url("/large")).await.body);
        assert_eq!((checker.length(), checker.is_intact()), (LARGE, true), "{alpn:?}");
        let mut pending = h2.send(request("POST", &origin.url("/upload")), false).await;
        let mut sent = 0;
        while sent < LARGE {
            let piece = pattern::piece(sent, LARGE);
            pending.body(piece).await.unwrap();
            sent += piece.len() as u64;
        }
        pending.end().unwrap();
        assert_eq!(pending.response().await.unwrap().text(), "got it");
        let seen = origin.log.one("/upload");
        assert_eq!((seen.body.length(), seen.body.pattern.is_intact()), (LARGE, true), "{alpn:?}");
        let grown = binary.peak_kib() - before;
        assert!(grown < FLAT_KIB, "{grown} KiB more, {alpn:?}");
    }
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_slows_the_origin_without_buffering_in_memory() {
    let plain = Origin::http(pages).await;
    let tls = Origin::https(Alpn::H2, pages).await;
    let binary = Binary::serve("").await;
    let host = plain.authority("a.localhost");
    let mut slow = Client::open(binary.address()).await;
    assert_eq!(slow.get(&plain.url("/nothing"), &host).await.status(), 204);
    let inside = Client::connect(binary.address(), &tls.authority("a.localhost")).await;
    let mut inside = inside.tls("a.localhost", &binary.ca_pem_path(), &[b"http/1.1"]).await;
    assert_eq!(inside.get("/nothing", &tls.authority("a.localhost")).await.status(), 204);
    let before = binary.peak_kib();
    slow.send(get(&plain.url("/gigabyte"), &host)).await;
    inside.send(get("/gigabyte", &tls.authority("a.localhost"))).await;
    // Nothing is read for a while: whatever the proxy takes in now, it has to keep.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = binary.peak_kib() - before;
    assert!(grown < FLAT_KIB, "{grown} KiB more");
    drop((slow, inside));
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_request_and_answer_before_the_upload_pass() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/early" => Reply::status(413).body("too much").before_the_body(),
        _ => Reply::pattern(GIGABYTE),
    })
    .await;
    let binary = Binary::serve("").await;
    let host = origin.authority("a.localhost");
    let got = binary.curl(&["-I", &origin.url("/gigabyte")]).await;
    assert_eq!((got.code, got.status(), got.head().field("content-length")), (0, 200, Some("1000000000")));
    let mut client = Client::open(binary.address()).await;
    let url = origin.url("/early");
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\nsome")).await;
    let head = client.head().await;
    assert_eq!(head.status(), 413);
    let mut body = Body::default();
    assert_eq!(head.framing("POST"), Framing::Length(8));
    client.read_body(&head, "POST", &mut body).await;
    assert_eq!(body.kept, b"too much");
    drop(client);
    binary.stop().await;
}
