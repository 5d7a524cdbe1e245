//! HTTP/2 connections, which requests share.

use super::{asking, get, page, route, upstream};
use crate::support::{Alpn, Origin, Reply, eventually, test_ca, within};
use bytes::Bytes;
use politely::upstream::{HttpLink, Versions, Want};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A raw HTTP/2 server; each connection is `serve`'s.
pub async fn serve<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(usize, tokio_rustls::server::TlsStream<TcpStream>) -> F + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://a.localhost:{}", listener.local_addr().unwrap().port());
    let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["a.localhost"], &[b"h2"]));
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = count.fetch_add(1, Ordering::Relaxed);
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(number, stream));
            }
        }
    });
    (url, connections)
}

fn answer(mut respond: h2::server::SendResponse<Bytes>, target: &str) {
    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
    body.send_data(format!("page {target}").into(), true).unwrap();
}

#[tokio::test]
async fn twenty_at_once_share_one_connection() {
    let origin = Origin::https(Alpn::Both, |seen| Reply::text(format!("page {}", seen.path()))).await;
    let upstream = upstream("");
    let route = route(&upstream, &origin.url("")).await;
    let mut all = JoinSet::new();
    for number in 0..20 {
        let route = route.clone();
        all.spawn(async move { page(&route, &format!("/{number}")).await });
    }
    assert_eq!(all.join_all().await.len(), 20);
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn an_origin_that_takes_one_stream_at_a_time_gets_connections_enough() {
    let most = Arc::new(AtomicUsize::new(0));
    let refused = most.clone();
    let (url, connections) = serve(move |_, stream| {
        let refused = refused.clone();
        async move {
            let mut builder = h2::server::Builder::new();
            let mut connection = builder.max_concurrent_streams(1).handshake::<_, Bytes>(stream).await.unwrap();
            let streams = Arc::new(AtomicUsize::new(0));
            while let Some(Ok((request, respond))) = connection.accept().await {
                refused.fetch_max(streams.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let streams = streams.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    streams.fetch_sub(1, Ordering::Relaxed);
                    answer(respond, request.uri().path());
                });
            }
        }
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    let mut all = JoinSet::new();
    for number in 0..20 {
        let route = route.clone();
        all.spawn(async move { page(&route, &format!("/{number}")).await });
    }
    assert_eq!(all.join_all().await.len(), 20);
    assert_eq!(most.load(Ordering::Relaxed), 1);
    assert!(connections.load(Ordering::Relaxed) <= 20);
}

#[tokio::test]
async fn an_origin_that_closes_after_three_requests_loses_none() {
    let (url, connections) = serve(|_, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut answered = 0;
        while let Some(Ok((request, respond))) = connection.accept().await {
            answered += 1;
            answer(respond, request.uri().path());
            if answered == 3 {
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    for round in 0..4 {
        let mut all = JoinSet::new();
        for number in 0..10 {
            let route = route.clone();
            all.spawn(async move { page(&route, &format!("/{round}/{number}")).await });
        }
        assert_eq!(all.join_all().await.len(), 10);
    }
    assert!(connections.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn streams_that_were_not_processed_are_asked_for_again() {
    let (url, _) = serve(|number, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            match number {
                0 => respond.send_reset(h2::Reason::REFUSED_STREAM),
                _ => answer(respond, request.uri().path()),
            }
        }
    })
    .await;
    let upstream = upstream("");
    assert!(!page(&route(&upstream, &url).await, "/1").await);
}

#[tokio::test]
async fn an_origin_that_wants_http1_gets_it() {
    let origin = Origin::https(Alpn::Both, |seen| {
        if seen.protocol == crate::support::Protocol::Http2 { Reply::reset() } else { Reply::text("page /") }
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &origin.url("")).await;
    let want = Want { versions: Versions::Http1Only, ..Want::default() };
    assert_eq!(super::get_with(&route, "/", want).await.unwrap().1, "page /");
    // A target that is invalid in HTTP/2 is sent over HTTP/1.1.
    assert_eq!(get(&route, "/<`>").await.unwrap().1, "page /");
    assert_eq!(origin.log.of("/<`>").len(), 1);
}

#[tokio::test]
async fn stalled_readers_do_not_delay_other_clients() {
    let origin = Origin::https(Alpn::H2, |seen| match seen.target.as_slice() {
        b"/large" => Reply::pattern(64 << 20),
        target => Reply::text([b"page ", target].concat()),
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &origin.url("")).await;
    let mut stalled = Vec::new();
    for _ in 0..60 {
        let mut got = super::fetch(&route, Want::default(), &asking("/large")).await.unwrap();
        assert!(got.body.chunk().await.unwrap().is_some());
        stalled.push(got);
    }
    for number in 0..20 {
        assert!(page(&route, &format!("/{number}")).await);
    }
    assert_eq!(origin.connections(), 1);
}

/// The paused clock advances as soon as all tasks wait.
#[tokio::test]
async fn a_connection_on_which_nothing_comes_back_is_ended() {
    let (url, connections) = serve(|number, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            if number == 0 && request.uri().path() == "/2" {
                // The origin neither answers, not even a PING, nor closes.
                std::future::pending::<()>().await;
            }
            answer(respond, request.uri().path());
        }
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    page(&route, "/1").await;
    let HttpLink::Http2(link) = route.connect(Want::default(), None).await.unwrap().link else { panic!("HTTP/1") };
    tokio::time::pause();
    let began = Instant::now();
    let (response, ..) = link.send_request(asking("/2").to_http2(&route).unwrap(), true).unwrap();
    assert!(response.await.is_err());
    assert!(began.elapsed() <= Duration::from_secs(26), "{:?}", began.elapsed());
    assert!(!link.is_alive());
    tokio::time::resume();
    assert!(!page(&route, "/2").await);
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn endless_interim_answers_end_the_request() {
    let (url, _) = serve(|_, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let early = || http::Response::builder().status(103).body(()).unwrap();
                while respond.send_informational(early()).is_ok() {
                    tokio::task::yield_now().await;
                }
            });
        }
    })
    .await;
    let upstream = upstream("");
    let error = get(&route(&upstream, &url).await, "/").await.unwrap_err();
    assert_eq!(error.to_string(), "malformed answer: too many interim answers");
}

#[tokio::test]
async fn connect_timeout_fails_all_waiting_requests_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let upstream = upstream("limits: { connect_timeout: 1s }");
    let route = route(&upstream, &url).await;
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let route = route.clone();
        all.spawn(async move { get(&route, "/").await.unwrap_err().to_string() });
    }
    let began = std::time::Instant::now();
    let told = within("all of them", all.join_all()).await;
    assert!(told.iter().all(|error| error.contains("after 1s")), "{told:?}");
    assert!(began.elapsed() < Duration::from_secs(7), "one after the other: {:?}", began.elapsed());
    drop(listener);
    eventually("nothing", || true).await;
}
