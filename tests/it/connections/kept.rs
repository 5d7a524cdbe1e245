//! Connections that are kept for the next request.

use super::{get, page, route, upstream};
use crate::support::certs::key_pin;
use crate::support::{Alpn, Conduct, Origin, Parent, Reply, eventually, test_ca};
use politely::upstream::{HttpLink, Want};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

#[tokio::test]
async fn connection_carries_sequential_requests() {
    let upstream = upstream("");
    for origin in [Origin::site("").await, Origin::tls_site(Alpn::H1, "").await, Origin::tls_site(Alpn::None, "").await]
    {
        let route = route(&upstream, &origin.url("")).await;
        assert!(!page(&route, "/1").await);
        for target in ["/2", "/3"] {
            assert!(page(&route, target).await);
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[tokio::test]
async fn route_found_again_reuses_its_connections() {
    let upstream = upstream("");
    let origin = Origin::site("").await;
    for number in 0..3 {
        assert_eq!(page(&route(&upstream, &origin.url("")).await, "/").await, number > 0);
    }
    // Another name is another place, though it has the same address.
    assert!(!page(&route(&upstream, &origin.url_at("b.localhost", "")).await, "/").await);
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn dropped_or_unfinished_connection_is_not_pooled() {
    let upstream = upstream("");
    let origin = Origin::site("").await;
    let route = route(&upstream, &origin.url("")).await;
    let connection = route.connect(Want::default(), None).await.unwrap();
    assert!(!connection.reused && matches!(connection.link, HttpLink::Http1(_)));
    drop(connection);
    drop(super::fetch(&route, Want::default(), &super::asking("/unread")).await.unwrap());
    assert!(!page(&route, "/1").await);
    assert_eq!(origin.connections(), 3);
}

#[tokio::test]
async fn rest_of_a_small_body_is_drained_to_keep_the_connection() {
    let upstream = upstream("");
    let origin =
        Origin::http(
            |seen| if seen.target == b"/404" { Reply::status(404).body("none") } else { Reply::pattern(1 << 20) },
        )
        .await;
    let route = route(&upstream, &origin.url("")).await;
    let got = super::fetch(&route, Want::default(), &super::asking("/404")).await.unwrap();
    got.body.discard(1024).await;
    let got = super::fetch(&route, Want::default(), &super::asking("/large")).await.unwrap();
    assert!(got.reused);
    got.body.discard(1024).await;
    assert!(!get(&route, "/404").await.unwrap().2);
}

#[tokio::test]
async fn idle_connections_are_limited_by_the_settings() {
    let upstream = upstream("limits: { max_idle_connections: 5, max_idle_connections_per_host: 3 }");
    let first = Origin::site("").await;
    let second = Origin::site("").await;
    let open = async |origin: &Origin, count: usize| {
        let route = route(&upstream, &origin.url("")).await;
        let mut links = Vec::new();
        for _ in 0..count {
            let HttpLink::Http1(link) =
                route.connect(Want { fresh: true, ..Want::default() }, None).await.unwrap().link
            else {
                panic!("HTTP/2")
            };
            links.push(link);
        }
        links.into_iter().for_each(politely::upstream::Http1Link::keep);
    };
    open(&first, 5).await;
    eventually("two are closed", || first.open_connections() == 3).await;
    open(&second, 3).await;
    eventually("the oldest made room", || first.open_connections() + second.open_connections() <= 5).await;
    eventually("those used last stay", || second.open_connections() == 3).await;
}

#[tokio::test]
async fn idle_http2_connections_count_towards_the_limit() {
    let upstream = upstream("limits: { max_idle_connections: 2 }");
    let mut origins = Vec::new();
    for _ in 0..5 {
        let origin = Origin::tls_site(Alpn::Both, "").await;
        page(&route(&upstream, &origin.url("")).await, "/").await;
        origins.push(origin);
    }
    let open = || origins.iter().map(Origin::open_connections).sum::<usize>();
    eventually("the oldest made room", || open() <= 2).await;
    assert_eq!(origins[4].open_connections(), 1, "the one used last stays");
}

#[tokio::test]
async fn idle_connection_is_closed_after_idle_timeout() {
    let upstream = upstream("limits: { idle_timeout: 3s }");
    for (origin, alpn) in [(Origin::site("").await, 1), (Origin::tls_site(Alpn::Both, "").await, 2)] {
        let route = route(&upstream, &origin.url("")).await;
        page(&route, "/").await;
        assert_eq!(origin.open_connections(), 1, "HTTP/{alpn}");
        eventually("it is closed", || origin.open_connections() == 0).await;
    }
}

#[tokio::test]
async fn changed_settings_close_idle_connections() {
    let before = upstream("");
    let origin = Origin::site("").await;
    page(&route(&before, &origin.url("")).await, "/").await;
    super::reload(&before, &super::settings(""));
    eventually("it is closed", || origin.open_connections() == 0).await;
    assert!(!page(&route(&before, &origin.url("")).await, "/").await);
}

#[tokio::test]
async fn host_with_its_own_tls_terms_pools_connections_and_uses_http2() {
    for (alpn, link) in [(Alpn::H1, "HTTP/1.1"), (Alpn::Both, "HTTP/2.0")] {
        let origin = Origin::tls_site(alpn, "").await;
        let pin = key_pin(test_ca(), &origin).await;
        let pinned = origin.connections();
        let upstream = upstream(&format!("hosts: {{ a.localhost: {{ pin: '{pin}' }} }}"));
        let route = route(&upstream, &origin.url("")).await;
        let got = super::fetch(&route, Want::default(), &super::asking("/")).await.unwrap();
        assert_eq!(format!("{:?}", got.version), link);
        got.body.discard(1024).await;
        assert!(page(&route, "/2").await);
        assert_eq!(origin.connections() - pinned, 1);
    }
}

#[tokio::test]
async fn connections_through_a_tls_upstream_proxy_are_pooled_and_use_http2() {
    let parent = Parent::start_tls(Conduct::Serve).await;
    let upstream = upstream(&format!("egress: {{ upstream_proxy: 'https://localhost:{}' }}", parent.port()));
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let route = route(&upstream, &origin.url("")).await;
    let got = super::fetch(&route, Want::default(), &super::asking("/")).await.unwrap();
    assert_eq!(got.version, http::Version::HTTP_2);
    got.body.discard(1024).await;
    assert!(page(&route, "/2").await);
    let plain = Origin::site("").await;
    let route = super::route(&upstream, &plain.url("")).await;
    assert!(!page(&route, "/1").await && page(&route, "/2").await);
    assert_eq!((origin.connections(), parent.connections()), (1, 2));
}

#[tokio::test]
async fn tls_sessions_are_resumed() {
    let resumed = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor =
        tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["a.localhost", "*.b.localhost"], &[b"http/1.1"]));
    let count = resumed.clone();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let kind = stream.get_ref().1.handshake_kind();
            count.fetch_add(usize::from(kind == Some(rustls::HandshakeKind::Resumed)), Ordering::Relaxed);
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\npage /").await.unwrap();
            let _ = stream.shutdown().await;
        }
    });
    let upstream = upstream("");
    for round in 0..2 {
        let before = resumed.load(Ordering::Relaxed);
        for number in 0..60 {
            let route = route(&upstream, &format!("https://{number}.b.localhost:{port}")).await;
            assert!(!page(&route, "/").await);
        }
        assert_eq!(resumed.load(Ordering::Relaxed) - before, 60 * round, "as in a crawl of many hosts");
    }
    let url = format!("https://a.localhost:{port}");
    for settings in ["", "hosts: { a.localhost: { verify: off } }"] {
        let before = resumed.load(Ordering::Relaxed);
        let upstream = super::upstream(settings);
        let route = route(&upstream, &url).await;
        for _ in 0..3 {
            assert!(!page(&route, "/").await);
        }
        assert_eq!(resumed.load(Ordering::Relaxed) - before, 2, "{settings}");
    }
}
