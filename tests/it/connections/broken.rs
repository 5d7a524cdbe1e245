//! Connections that are dead, addresses that are, and what a machine at its limits does.

use super::{get, get_with, page, route, upstream};
use crate::support::{Alpn, Origin, Reply};
use politely::upstream::{DialFault, GetError, Versions, Want};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A raw server; each connection is `serve`'s.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(usize, TcpStream) -> F + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://a.localhost:{}", listener.local_addr().unwrap().port());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(count.fetch_add(1, Ordering::Relaxed), stream));
        }
    });
    (url, connections)
}

async fn read_head(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    true
}

#[tokio::test]
async fn connection_closed_by_the_origin_is_not_reused() {
    let (url, connections) = serve(|_, mut stream| async move {
        if read_head(&mut stream).await {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npage /").await.unwrap();
        }
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    for number in 0..5 {
        page(&route, "/").await;
        assert!(connections.load(Ordering::Relaxed) > number);
    }
}

#[tokio::test]
async fn connection_dying_on_reuse_is_replaced_at_the_same_address() {
    let (url, connections) = serve(|_, mut stream| async move {
        for _ in 0..2 {
            if !read_head(&mut stream).await {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npage /").await.unwrap();
        }
        // The third request is read and answered with the end.
        read_head(&mut stream).await;
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    // The name has a second address, [::1], where nobody listens.
    for _ in 0..30 {
        page(&route, "/").await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 15);
}

#[tokio::test]
async fn unreachable_first_address_falls_back_to_the_second() {
    let Ok(origin) = Origin::try_http_on("[::1]:0", |seen| Reply::text(format!("page {}", seen.path()))).await else {
        return;
    };
    let upstream = upstream("");
    let route = route(&upstream, &origin.url("")).await;
    let connection = route.connect(Want::default(), None).await.unwrap();
    assert_eq!(connection.address, origin.address());
    page(&route, "/").await;
}

#[tokio::test]
async fn tls_answer_without_close_notify_is_complete_unless_shorter_than_its_length() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://a.localhost:{}", listener.local_addr().unwrap().port());
    let config = super::test_ca().server_config(&["a.localhost"], &[b"http/1.1"]);
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            let is_short = head[..read].starts_with(b"GET /short");
            let length = if is_short { "Content-Length: 20\r\n" } else { "" };
            let answer = format!("HTTP/1.1 200 OK\r\n{length}\r\nall of it");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            // No close_notify.
            drop(stream);
        }
    });
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    assert_eq!(get(&route, "/").await.unwrap().1, "all of it");
    assert!(matches!(get(&route, "/short").await, Err(GetError::Body(_))));
}

#[tokio::test]
async fn interim_answers_are_skipped_up_to_a_limit() {
    let (url, _) = serve(|number, mut stream| async move {
        read_head(&mut stream).await;
        for _ in 0..if number == 0 { 32 } else { usize::MAX } {
            if stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await.is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\npage /").await;
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    page(&route, "/").await;
    let error = get(&route, "/").await.unwrap_err();
    assert_eq!(error.to_string(), "malformed answer: too many interim answers");
}

#[tokio::test]
async fn untrusted_certificate_is_refused_in_any_http_version() {
    let other = crate::support::TestCa::new("another authority");
    for alpn in [Alpn::H1, Alpn::Both] {
        let origin = Origin::https_as(&other, &["a.localhost"], alpn, |_| Reply::text("page /")).await;
        let wrong_name = Origin::https_as(super::test_ca(), &["b.localhost"], alpn, |_| Reply::text("page /")).await;
        for origin in [origin, wrong_name] {
            let upstream = upstream("");
            let route = route(&upstream, &origin.url("")).await;
            for want in [Want::default(), Want { versions: Versions::Http1Only, ..Want::default() }] {
                match get_with(&route, "/", want).await {
                    Err(GetError::Dial(error)) => assert_eq!(error.kind, DialFault::Certificate, "{error}"),
                    _ => panic!("it was believed"),
                }
            }
            assert!(origin.log.all().is_empty());
        }
    }
}

/// Runs in its own process, as the limit applies to a process.
#[tokio::test]
async fn idle_connections_are_closed_when_descriptors_run_out() {
    let origin = Origin::site("").await;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "connections::broken::with_few_descriptors",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("ORIGIN_PORT", origin.port().to_string());
    let run = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
}

#[tokio::test]
#[ignore = "run by the one above"]
async fn with_few_descriptors() {
    let upstream = upstream("");
    let port = std::env::var("ORIGIN_PORT").unwrap();
    let at = |number: usize| format!("http://h{number}.localhost:{port}");
    // Warm: the roots and all else have been opened.
    page(&route(&upstream, &at(0)).await, "/").await;
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = libc::rlimit { rlim_cur: used + 30, rlim_max: used + 30 };
    // SAFETY: it reads the struct alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    for number in 1..100 {
        page(&route(&upstream, &at(number)).await, "/").await;
    }
    // Nothing is idle, and nothing is left.
    super::reload(&upstream, &super::settings(""));
    let held: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    match get(&route(&upstream, &at(100)).await, "/").await {
        Err(GetError::Dial(error)) => assert_eq!(error.kind, DialFault::OwnLimit, "{error}"),
        other => panic!("{other:?}"),
    }
    drop(held);
    page(&route(&upstream, &at(100)).await, "/").await;
}
