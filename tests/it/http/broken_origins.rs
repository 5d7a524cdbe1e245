//! Origins that close, reset, or send what is no head: every client that is still there is told, in its own version of HTTP.

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::{Alpn, Client, H2Client, Origin, Proxy, RawOrigin, Reply, at_once};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

const CONDUCTS: [&str; 4] = ["/closes", "/half-a-line", "/nonsense", "/resets"];

async fn origin(alpn: Option<Alpn>) -> Origin {
    let conduct = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/closes" => Reply::raw(""),
        "/half-a-line" => Reply::raw("HTTP/1.1 2"),
        "/nonsense" => Reply::raw("nonsense\r\n\r\n"),
        "/resets" => Reply::reset(),
        _ => Reply::text(""),
    };
    match alpn {
        Some(alpn) => Origin::https(alpn, conduct).await,
        None => Origin::http(conduct).await,
    }
}

/// For a client that speaks HTTP/1, through a tunnel or not.
async fn ask(client: &mut Client, origin: &Origin, path: &str, body: &[u8]) -> (u16, bool) {
    let target = if client.alpn().is_some() { path.to_owned() } else { origin.url(path) };
    let (host, length) = (origin.authority("a.localhost"), body.len());
    client.send(format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n")).await;
    client.send(body).await;
    let answer = client.response().await;
    (answer.status(), answer.head.names_the_proxy())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_of_a_broken_origin_gets_an_error_or_a_truncated_answer() {
    // HTTP/2 has but one of these.
    let cases = [(None, &CONDUCTS[..]), (Some(Alpn::H1), &CONDUCTS[..]), (Some(Alpn::H2), &CONDUCTS[3..])];
    at_once(cases.map(|(alpn, conducts)| async move {
        let (proxy, origin) = (Proxy::start("").await, origin(alpn).await);
        // Over a connection that has been there before, and over a new one.
        for (path, warm) in conducts.iter().flat_map(|path| [(path, true), (path, false)]) {
            let mut client = match alpn {
                Some(_) => proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await,
                None => proxy.client().await,
            };
            if warm {
                assert_eq!(ask(&mut client, &origin, "/warm", b"").await.0, 200);
            }
            assert_eq!(ask(&mut client, &origin, path, b"some").await, (502, true), "{alpn:?} {path} {warm}");
            if alpn.is_some() {
                let client = proxy.h2(&origin, "a.localhost").await;
                if warm {
                    assert_eq!(client.get(&origin.url("/warm")).await.status(), 200);
                }
                let answer = client.send(request("GET", &origin.url(path)), true).await.response().await;
                let answer = answer.unwrap_or_else(|error| panic!("{alpn:?} {path} {warm}: {error}"));
                assert_eq!((answer.status(), answer.head.names_the_proxy()), (502, true), "{alpn:?} {path} {warm}");
            }
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_uploads_before_reading_gets_the_error_of_a_broken_origin() {
    let proxy = Proxy::start("").await;
    for alpn in [None, Some(Alpn::H1)] {
        let conduct = |seen: &crate::support::Seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(""),
            _ => Reply::raw("HTTP/1.1 2").before_the_body(),
        };
        let origin = match alpn {
            Some(alpn) => Origin::https(alpn, conduct).await,
            None => Origin::http(conduct).await,
        };
        let mut client = match alpn {
            Some(_) => proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await,
            None => proxy.client().await,
        };
        assert_eq!(ask(&mut client, &origin, "/x", &vec![b'x'; 12 << 20]).await, (502, true), "{alpn:?}");
    }
}

/// A reused connection ends during the body; the client sends the rest of the body only afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_upload_is_resent_from_its_beginning() {
    const BODY: usize = 60_000;
    let body: Vec<u8> = (0..BODY).map(|n| (n % 251) as u8).collect();
    let (first, rest) = body.split_at(40_000);
    for is_h2 in [false, true] {
        let (puts, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, told, whole) = (puts.clone(), again.clone(), body.clone());
        let origin = RawOrigin::start(move |mut stream, _| {
            let (puts, again, whole) = (counted.clone(), told.clone(), whole.clone());
            async move {
                let mut heard = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut heard).await {
                    let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
                        continue;
                    };
                    let mut answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if heard.starts_with(b"PUT") {
                        let is_cut = puts.fetch_add(1, Ordering::Relaxed) == 0;
                        while heard.len() - end < if is_cut { 1000 } else { BODY } {
                            if !is_cut {
                                again.notify_one();
                            }
                            assert!(stream.read_buf(&mut heard).await.unwrap() > 0, "the rest comes");
                        }
                        if is_cut {
                            return;
                        }
                        if heard[end..] != whole {
                            answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother";
                        }
                    }
                    heard.clear();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        let proxy = Proxy::start("hosts: { '*': { robots: ignore } }").await;
        let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
        let mut client = proxy.client().await;
        client.send(get(&url, &host)).await;
        assert_eq!(client.response().await.status(), 200);
        let answer = if is_h2 {
            let client = H2Client::known(proxy.client().await).await;
            let mut put = request("PUT", &url);
            put.headers_mut().insert("content-length", BODY.into());
            let mut pending = client.send(put, false).await;
            pending.body(first).await.unwrap();
            again.notified().await;
            pending.body(rest).await.unwrap();
            pending.end().unwrap();
            pending.response().await.unwrap()
        } else {
            client.send(format!("PUT {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {BODY}\r\n\r\n")).await;
            client.send(first).await;
            again.notified().await;
            client.send(rest).await;
            client.response().await
        };
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"), "{is_h2}");
        assert_eq!(puts.load(Ordering::Relaxed), 2);
    }
}
