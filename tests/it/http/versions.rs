//! The HTTP version to the origin: that of the client, if the origin supports it.

use crate::support::{Alpn, Origin, Protocol, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_uses_the_clients_http_version_and_the_connection_of_robots_txt() {
    for (alpn, protocol) in [(&[b"http/1.1".as_slice()], Protocol::Http1), (&[b"h2".as_slice()], Protocol::Http2)] {
        let origin = Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /no\n").await;
        let proxy = Proxy::start("").await;
        let url = origin.url("/page");
        let response = match protocol {
            Protocol::Http1 => proxy.tls(&origin, "a.localhost", alpn).await.get("/page", &url[8..url.len() - 5]).await,
            Protocol::Http2 => proxy.h2(&origin, "a.localhost").await.get(&url).await,
        };
        assert_eq!(response.status(), 200);
        let seen = [origin.log.one("/robots.txt").protocol, origin.log.one("/page").protocol];
        assert_eq!((seen, origin.connections()), ([protocol; 2], 1));
    }
}

/// The origin is asked for HTTP/1.1 once, and refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_only_origin_is_reached_by_http1_and_http2_clients() {
    let origin = Origin::tls_site(Alpn::H2, "").await;
    let proxy = Proxy::start("").await;
    let url = origin.url("/page");
    let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
    for _ in 0..3 {
        assert_eq!(client.get("/page", &url[8..url.len() - 5]).await.status(), 200);
    }
    assert_eq!(proxy.h2(&origin, "a.localhost").await.get(&url).await.status(), 200);
    assert_eq!(origin.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_only_origin_is_reached_by_http1_and_http2_clients() {
    for alpn in [Alpn::H1, Alpn::None] {
        let origin = Origin::tls_site(alpn, "").await;
        let proxy = Proxy::start("").await;
        let url = origin.url("/page");
        assert_eq!(proxy.h2(&origin, "a.localhost").await.get(&url).await.status(), 200);
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        assert_eq!(client.get("/page", &url[8..url.len() - 5]).await.status(), 200);
        assert_eq!(origin.connections(), 1, "{alpn:?}");
    }
}
