//! Clients that leave, or close their half, at each moment of an exchange: what is done for nobody ends, and who listens is served.

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::message::find;
use crate::support::{Alpn, Client, Origin, Proxy, RawOrigin, Reply, eventually, within};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Far beyond any test's patience.
const LONG: &str = "limits: { read_timeout: 10m, drain_timeout: 10m }\nhosts: { '*': { robots: ignore } }";

/// Begins each answer, and never ends it.
async fn stalling(head: &'static str) -> RawOrigin {
    RawOrigin::start(move |mut stream, _| async move {
        let mut heard = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut heard).await {
            if find(&heard, b"\r\n\r\n").is_some() {
                heard.clear();
                if stream.write_all(head.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_gone_during_a_stalled_answer_is_noticed() {
    let mut all = Vec::new();
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n",
        "HTTP/1.1 200 OK\r\n\r\nsome",
    ] {
        let origin = stalling(head).await;
        let proxy = Proxy::start(LONG).await;
        let host = origin.authority("a.localhost");
        let old = get(&origin.url("/x"), &host).replace("HTTP/1.1", "HTTP/1.0");
        for asked in [get(&origin.url("/x"), &host), old] {
            let mut client = proxy.client().await;
            client.send(asked).await;
            assert_eq!(client.head().await.status(), 200);
            assert!(!client.glance(Duration::from_secs(5)).await.is_empty());
        }
        all.push((origin, proxy));
    }
    for (origin, proxy) in all {
        within("no exchange holds up the end", proxy.shutdown()).await;
        eventually("the end at the origin", || origin.open_connections() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_is_served_while_bytes_move() {
    let pieces = ["one ", "two ", "three ", "four ", "five"];
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::drip(&pieces, Duration::from_secs(2)),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    client.half_close().await;
    assert_eq!(client.response().await.text(), pieces.concat());
}

/// While the client's socket buffers are full, the proxy cannot see whether it reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_may_read_slowly() {
    const LENGTH: u64 = 32 << 20;
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::pattern(LENGTH),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    client.half_close().await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(client.rest().await.len() as u64 > LENGTH);
}

/// One interim answer shows whether the client is still there; more would add nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_gets_one_interim_answer_as_a_probe() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("slowly").after(Duration::from_secs(3)),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client
        .send(get(&origin.url("/x"), &origin.authority("a.localhost")).replace("Accept", "Connection: close\r\nAccept"))
        .await;
    client.half_close().await;
    let all = String::from_utf8(client.rest().await).unwrap();
    assert_eq!(all.matches("HTTP/1.1 102").count(), 1, "{all}");
    assert!(all.ends_with("slowly"), "{all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_while_waiting_is_noticed() {
    let origin = stalling("").await;
    let proxy = Proxy::start(LONG).await;
    let asked = get(&origin.url("/x"), &origin.authority("a.localhost"));
    for _ in 0..3 {
        let mut client = proxy.client().await;
        client.send(&asked).await;
        eventually("the request", || origin.open_connections() == 1).await;
        drop(client);
        eventually("the end at the origin", || origin.open_connections() == 0).await;
    }
}

/// The proxy's buffers are full by then, so reading the body does not reveal that the client has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_a_blocked_upload_frees_its_slot() {
    let origin = RawOrigin::start(|mut stream, _| async move {
        let mut heard = [0; 4];
        let _ = stream.read_exact(&mut heard).await;
        match &heard {
            b"GET " => {
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await)
            }
            _ => std::future::pending().await,
        }
    })
    .await;
    let proxy = Proxy::start(&format!("{LONG}\npace: {{ min_delay: 100ms, max_wait: 10m }}")).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    for is_reset in [true, false] {
        let mut tcp = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
        let head = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000000\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b'x'; 1 << 20];
        while let Ok(sent) = tokio::time::timeout(Duration::from_secs(1), tcp.write_all(&piece)).await {
            sent.unwrap();
        }
        if is_reset {
            tcp.set_zero_linger().unwrap();
        }
        drop(tcp);
        let next = within("a turn for the next request", proxy.get(&url)).await;
        assert_eq!(next.text(), "ok");
    }
}

/// The reset and the answer's head cross, in some rounds at the same moment. The host has one slot, so each later request
/// needs the slot of the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_reset_as_its_answer_arrives_frees_its_slot_without_downloading() {
    let origin = Origin::https(Alpn::H1, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::pattern(1 << 40),
    })
    .await;
    let proxy = Proxy::start("pace: { max_concurrent: 1 }\nlimits: { read_timeout: 10m }").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    for round in 0..100 {
        let pending = client.send(request("GET", &origin.url(&format!("/{round}"))), true).await;
        eventually("the request", || origin.log.count(&format!("/{round}")) == 1).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3000))).await;
        drop(pending);
    }
    eventually("the end of all downloads", || (0..100).all(|round| origin.log.one(&format!("/{round}")).cut)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_curl_is_noticed() {
    let origin = stalling("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await;
    let proxy = Proxy::start(LONG).await;
    let page = proxy.curl(&["--max-time", "1", &origin.url("/x")]).await;
    assert_eq!(page.code, 28, "{}", page.stderr);
    eventually("the end at the origin", || origin.open_connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_http_1_0_client_gets_no_interim_answer() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let mut client = Client::open(proxy.address()).await;
    client.send(get(&origin.url("/x"), &origin.authority("a.localhost")).replace("HTTP/1.1", "HTTP/1.0")).await;
    client.half_close().await;
    let all = String::from_utf8(client.rest().await).unwrap();
    assert!(all.starts_with("HTTP/1.1 200") && all.ends_with("page /x"), "{all}");
}
