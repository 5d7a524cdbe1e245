//! Connections to origins that speak HTTP/2: how they are opened, how many are kept, how large a head may be.

use crate::support::h2_client::{H2Client, request};
use crate::support::{Alpn, Client, Origin, Proxy, Reply, Seen, eventually, test_ca, within};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const UPLOADS: usize = 4;

/// Answers uploads once all of them have come. All handshakes but the first wait for each other. Returns its port, and how many
/// connections are open.
async fn start() -> (u16, Arc<AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(test_ca().server_config(&["a.localhost"], &[b"h2"]));
    let (opened, asked) = (Arc::new(Barrier::new(UPLOADS - 1)), Arc::new(Barrier::new(UPLOADS)));
    let open = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let count = open.clone();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, opened, asked, open) = (acceptor.clone(), opened.clone(), asked.clone(), count.clone());
            let is_first = connections.is_empty();
            connections.spawn(async move {
                if !is_first {
                    opened.wait().await;
                }
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                open.fetch_add(1, Ordering::Relaxed);
                let mut answers = JoinSet::new();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let asked = asked.clone();
                    answers.spawn(async move {
                        if request.method() == "POST" {
                            asked.wait().await;
                        }
                        let Ok(mut stream) = respond.send_response(http::Response::new(()), false) else { return };
                        stream.send_data(Bytes::new(), true).ok();
                    });
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    (port, open, tasks)
}

#[tokio::test]
async fn concurrent_uploads_open_connections_in_parallel_and_excess_is_not_pooled() {
    for kept in [0, 1] {
        let (port, open, _tasks) = start().await;
        let proxy = Proxy::start(&format!("limits: {{ max_idle_connections_per_host: {kept} }}")).await;
        let host = format!("a.localhost:{port}");
        let client = Client::connect(proxy.address(), &host).await;
        let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
        let url = format!("https://{host}/x");
        let posted = (0..UPLOADS).map(|_| client.exchange(request("POST", &url), b"body"));
        let answers = within("all uploads", join_all(posted)).await;
        let statuses: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().status()).collect();
        assert_eq!(statuses, [200; UPLOADS]);
        eventually("the others are closed", || open.load(Ordering::Relaxed) <= kept).await;
    }
}

#[tokio::test]
async fn oversized_answer_head_is_reported_in_both_versions() {
    let handler = |seen: &Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => (0..80).fold(Reply::text("x"), |reply, n| reply.field(format!("x-{n}"), "v".repeat(1000))),
    };
    for alpn in [Alpn::H1, Alpn::H2] {
        let origin = Origin::https(alpn, handler).await;
        let proxy = Proxy::start("").await;
        let client = proxy.h2(&origin, "a.localhost").await;
        let answer = client.get(&origin.url("/x")).await;
        let told = answer.field("proxy-status").unwrap_or_default();
        assert!(told.contains("http_response_header_section_size"), "{}: {told}", answer.status());
    }
}
