//! Tests of the harness itself, without the proxy: curl and our clients talk directly to the origins.

use crate::support::origin::pages;
use crate::support::reply::{Content, Delimit};
use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Client, H2Client, Origin, Protocol, Reply, curl, h2_client, test_ca};
use std::time::Duration;

#[tokio::test]
async fn test_origin_logs_requests_byte_for_byte() {
    let origin = Origin::http(|_| Reply::echo()).await;
    let url = origin.url_at("127.0.0.1", "/a/../b%7e?q={}|");
    let got = curl(&["--path-as-is", "-g", "-H", "X-Odd:  two  ", "-d", "body", &url]).await;
    assert_eq!((got.code, got.status(), got.text().as_str()), (0, 200, "body"));
    let seen = origin.log.one("/a/../b%7e?q={}|");
    assert_eq!((seen.method.as_str(), seen.host.as_str()), ("POST", origin.authority("127.0.0.1").as_str()));
    assert_eq!((seen.body.length(), seen.body.complete, seen.connection), (4, true, 0));
    assert_eq!(seen.field("x-odd"), Some("two"));
}

#[tokio::test]
async fn test_tls_origin_uses_the_test_authority_and_negotiates_alpn() {
    for (alpn, flag, protocol) in [
        (Alpn::Both, "--http2", Protocol::Http2),
        (Alpn::Both, "--http1.1", Protocol::Http1),
        (Alpn::H1, "--http2", Protocol::Http1),
        (Alpn::None, "--http2", Protocol::Http1),
    ] {
        let origin = Origin::https(alpn, pages("")).await;
        let ca = test_ca().pem_file().to_str().unwrap();
        let got = curl(&[flag, "--cacert", ca, &origin.url("/x")]).await;
        assert_eq!((got.code, got.text().as_str()), (0, "page /x"), "{}", got.stderr);
        let seen = origin.log.one("/x");
        assert_eq!((seen.protocol, seen.sni.as_deref()), (protocol, Some("a.localhost")));
    }
}

#[tokio::test]
async fn test_client_reads_every_body_framing_like_curl() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/chunked" => Reply::text("body").framed(Delimit::Chunked),
        "/trailer" => Reply::text("body").trailer("X-Sum", "9"),
        "/close" => Reply::text("body").framed(Delimit::Close),
        "/short" => Reply::text("body").framed(Delimit::Short(3)),
        "/drip" => Reply::drip(&["bo", "dy"], Duration::from_millis(1)),
        "/raw" => Reply::raw("HTTP/1.0 200 Fine\r\n\r\nbody"),
        "/pattern" => Reply::pattern(300_000),
        "/reset" => Reply::reset(),
        _ => Reply::text("body"),
    })
    .await;
    for target in ["/", "/chunked", "/trailer", "/close", "/drip", "/raw"] {
        let got = curl(&[&origin.url_at("127.0.0.1", target)]).await;
        assert_eq!((got.code, got.text().as_str()), (0, "body"), "{target}: {}", got.stderr);
        let mut client = Client::open(origin.address()).await;
        let response = client.get(target, "a.localhost").await;
        assert_eq!((response.status(), response.text().as_str()), (200, "body"), "{target}");
        if target == "/trailer" {
            assert_eq!(response.trailers, [("X-Sum".to_owned(), "9".to_owned())]);
        }
    }
    assert_eq!(curl(&[&origin.url_at("127.0.0.1", "/short")]).await.code, 18, "a partial file");
    assert!(matches!(curl(&[&origin.url_at("127.0.0.1", "/reset")]).await.code, 52 | 56));
    let mut client = Client::open(origin.address()).await;
    let response = client.get("/pattern", "a.localhost").await;
    let mut pattern = crate::support::pattern::Checker::default();
    pattern.update(&response.body);
    assert!(pattern.is_intact() && pattern.length() == 300_000);
}

#[tokio::test]
async fn test_h2_client_and_origin_exchange_trailers_and_resets() {
    let origin = Origin::https(Alpn::H2, |seen| match seen.path().as_str() {
        "/trailer" => Reply { body: Content::Echo, ..Reply::text("").trailer("x-sum", "9") },
        "/reset" => Reply::reset(),
        "/silence" => Reply::silence(),
        _ => Reply::pattern(3_000_000),
    })
    .await;
    let client = Client::open(origin.address()).await.tls("a.localhost", test_ca().pem_file(), &[b"h2"]).await;
    let client = H2Client::over(client).await;
    let response = client.exchange(h2_client::request("POST", &origin.url("/trailer")), b"ping").await.unwrap();
    assert_eq!((response.text().as_str(), response.trailers.len()), ("ping", 1));
    assert_eq!(client.get(&origin.url("/big")).await.body.len(), 3_000_000);
    let reset = client.send(h2_client::request("GET", &origin.url("/reset")), true).await.response().await;
    assert_eq!(reset.unwrap_err().reason(), Some(h2::Reason::INTERNAL_ERROR));
    drop(client.send(h2_client::request("GET", &origin.url("/silence")), true).await);
    crate::support::eventually("the cancelled stream", || origin.log.all().iter().any(|seen| seen.cut)).await;
}

#[tokio::test]
async fn test_websocket_echoes() {
    let origin = Origin::http(|_| Reply::websocket()).await;
    let client = Client::open(origin.address()).await;
    let (mut socket, _) = WebSocket::open(client, "/ws", &origin.authority("a.localhost")).await.expect("101");
    for length in [0, 5, 126, 70_000] {
        let message = vec![0xa5; length];
        assert_eq!(socket.echo(&message).await, message);
    }
    assert!(socket.close().await);
}
