//! Clients that hold something up: each wait has an end, and those who hold many up keep nobody else from being served.

use super::frames::{self, END_HEADERS, HEADERS, SETTINGS, frame};
use super::siege::{Siege, rest};
use crate::support::message::Body;
use crate::support::{Alpn, Binary, Client, Origin, Proxy, Reply, at_once, eventually, within};
use std::time::{Duration, Instant};

/// Longer than a busy machine takes to open the connections.
const SHORT: &str = "limits: { header_timeout: 5s, idle_timeout: 5s, read_timeout: 5s }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_incomplete_clients_time_out() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start(SHORT).await;
    let host = plain.authority("a.localhost");
    let mut siege = Siege::default();
    let mut clients = Vec::new();
    for (name, bytes) in [
        ("nothing", String::new()),
        ("an empty line", "\r\n".into()),
        ("half a method", "GE".into()),
        ("half a request line", format!("GET {}", plain.url("/x"))),
        ("half a head", format!("GET {} HTTP/1.1\r\nHost: {host}\r\n", plain.url("/x"))),
        ("half a CONNECT", format!("CONNECT {host} HTTP/1.1\r\n")),
        ("a CONNECT and nothing", format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")),
        ("a CONNECT and half a head", format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nGET /x HT")),
        ("a CONNECT and half a handshake", format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n\x16\x03\x01")),
        ("no body", format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n", plain.url("/x"))),
        ("half a body", format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\nhalf", plain.url("/x"))),
        (
            "half a chunk",
            format!("POST {} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", plain.url("/x")),
        ),
        (
            "half a size",
            format!("POST {} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n9", plain.url("/x")),
        ),
        (
            "no last chunk",
            format!(
                "POST {} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
                plain.url("/x")
            ),
        ),
    ] {
        let mut client = proxy.client().await;
        client.send(bytes).await;
        clients.push((name, client));
    }
    for (name, bytes) in [
        ("TLS and nothing", &b""[..]),
        ("half a preface", b"PRI * HTTP/2.0\r\n"),
        ("a preface alone", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("half a frame", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"),
        ("settings alone", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
        ("half a block", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x82"),
    ] {
        let mut client = proxy.tls(&tls, "a.localhost", &[b"h2"]).await;
        client.send(bytes).await;
        clients.push((name, client));
    }
    for (name, mut client) in clients {
        rest(&mut client).await;
        siege.tried(name, None);
    }
    siege.withstood(20);
    assert!(plain.log.all().iter().all(|seen| seen.path() == "/robots.txt" || !seen.body.complete));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_h2_request_times_out() {
    let origin = Origin::https(Alpn::Both, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::echo(),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 1s }").await;
    let mut client = frames::open(&proxy, &origin).await;
    let block = frames::block(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", &origin.authority("a.localhost")),
        (":path", "/x"),
    ]);
    client.send(frame(HEADERS, END_HEADERS, 1, &block)).await;
    let taken = within("the end of the stream", frames::taken(&mut client, 1)).await;
    assert!(!frames::is_ok(&taken) && taken != frames::Taken::Nothing, "{taken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tunnel_times_out() {
    let origin = Origin::http(|_| Reply::silence()).await;
    let proxy = Proxy::start("intercept: { default: tunnel }\nlimits: { tunnel_idle_timeout: 5s }").await;
    let mut silent = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    let mut busy = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    let start = Instant::now();
    let talking = async {
        while start.elapsed() < Duration::from_secs(7) {
            busy.send("x").await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::join!(rest(&mut silent), talking);
    busy.send("still open").await;
}

/// The proxy's own answers would otherwise pile up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_never_reads_our_answers_is_cut_off() {
    let proxy =
        Proxy::start("intercept: { default: tunnel }\negress: { ports: [80] }\nlimits: { read_timeout: 1s }").await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let client = socket.connect(proxy.address()).await.unwrap();
    let refused = "CONNECT a.localhost:1 HTTP/1.1\r\nHost: a.localhost:1\r\n\r\n".repeat(100);
    within("the proxy to close", async {
        while client.writable().await.is_ok() {
            match client.try_write(refused.as_bytes()) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_connections_per_client_is_enforced() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/held" => Reply::silence(),
        _ => Reply::echo(),
    })
    .await;
    let proxy = Proxy::start("limits: { max_connections_per_client: 3 }").await;
    let host = origin.authority("a.localhost");
    // An idle one makes room.
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut client = proxy.client().await;
        assert_eq!(client.get(&origin.url("/x"), &host).await.status(), 200);
        idle.push(client);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (number, client) in idle.iter_mut().enumerate() {
        match number {
            0 | 1 => assert!(rest(client).await.is_empty(), "the longest idle ones were closed"),
            _ => assert_eq!(client.get(&origin.url("/x"), &host).await.status(), 200),
        }
    }
    drop(idle);
    let mut three = Vec::new();
    for number in 1..=3 {
        let mut client = proxy.client().await;
        client.send(crate::support::client::get(&origin.url("/held"), &host)).await;
        eventually("its request", || origin.log.count("/held") == number).await;
        three.push(client);
    }
    let mut fourth = proxy.client().await;
    assert!(rest(&mut fourth).await.is_empty());
    three.pop();
    within("a place", async {
        loop {
            let mut client = proxy.client().await;
            if client.try_send(crate::support::client::get(&origin.url("/x"), &host)).await.is_ok()
                && client.try_head().await.is_some()
            {
                return;
            }
        }
    })
    .await;
}

/// The idle tunnels have never received any data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tunnels_but_not_used_ones_make_room_for_their_client() {
    let origin = Origin::http(|_| Reply::silence()).await;
    at_once(["intercept", "tunnel"].map(|how| {
        let (host, url) = (origin.authority("a.localhost"), origin.url("/x"));
        async move {
            let limits = "{ max_connections_per_client: 3, header_timeout: 1h, idle_timeout: 1s }";
            let yaml = format!("intercept: {{ default: {how} }}\nlimits: {limits}\nhosts: {{ '*': {{ deny: [/x] }} }}");
            let proxy = Proxy::start(&yaml).await;
            let mut used = Client::connect(proxy.address(), &host).await;
            let mut silent = Client::connect(proxy.address(), &host).await;
            let held = Client::connect(proxy.address(), &host).await;
            let (start, mut answered) = (Instant::now(), None);
            while answered != Some(403) {
                used.send(crate::support::client::get("/y", &host)).await;
                let mut fourth = proxy.client().await;
                fourth.try_send(crate::support::client::get(&url, &host)).await.ok();
                answered = fourth.try_head().await.map(|head| head.status());
                assert!(start.elapsed() < Duration::from_secs(20), "{how}: there is no room");
            }
            // The one before it may have been asked first, before its bytes came.
            let more = [proxy.client().await, proxy.client().await];
            assert!(rest(&mut silent).await.is_empty(), "{how}");
            used.send("still open").await;
            assert!(tokio::time::timeout(Duration::from_millis(100), used.rest()).await.is_err(), "{how}: closed");
            drop((held, more));
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_requests_make_room_for_their_client() {
    let origin = Origin::site("").await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let connect = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let after_an_answer = format!("{}GET {url}", crate::support::client::get(&url, &host));
    at_once(
        [
            ("half a head", b"GET http://a.localhost/ HTTP/1.1\r\nX: ".to_vec()),
            ("half a second head", after_an_answer.into_bytes()),
            ("half a SOCKS greeting", b"\x05\x02\x00".to_vec()),
            ("a SOCKS greeting", b"\x05\x01\x00".to_vec()),
            ("half a SOCKS destination", b"\x05\x01\x00\x05\x01\x00\x03\x20a".to_vec()),
            ("half a TLS handshake", [connect.as_bytes(), b"\x16\x03\x01\x02\x00\x01"].concat()),
            ("half an HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0".to_vec()),
        ]
        .map(|(what, bytes)| {
            let (url, host) = (url.clone(), host.clone());
            async move {
                let proxy = Proxy::start("limits: { max_connections_per_client: 1, header_timeout: 1h }").await;
                let mut begun = proxy.client().await;
                begun.send(&bytes).await;
                begun.glance(Duration::from_millis(100)).await;
                let (start, mut answered) = (Instant::now(), None);
                while answered != Some(200) {
                    let mut next = proxy.client().await;
                    next.try_send(crate::support::client::get(&url, &host)).await.ok();
                    answered = next.try_head().await.map(|head| head.status());
                    assert!(start.elapsed() < Duration::from_secs(20), "{what}: there is no room");
                }
                begun.rest().await;
            }
        }),
    )
    .await;
}

/// The client may have sent its next request before it learns of the eviction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_connection_answers_a_request_in_flight_with_connection_close() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("limits: { max_connections_per_client: 1 }").await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let (mut took, mut closes) = (Duration::MAX, None);
    // On a machine that is busy, it may be too late, or the first does not wait yet.
    for _ in 0..20 {
        let mut first = proxy.client().await;
        assert_eq!(first.get(&url, &host).await.status(), 200);
        let answered = Instant::now();
        let mut second = proxy.client().await;
        second.send(crate::support::client::get(&url, &host)).await;
        second.try_head().await;
        first.try_send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")).await.ok();
        took = answered.elapsed();
        closes = first.try_head().await.map(|head| head.field("connection").map(str::to_owned));
        if took < Duration::from_millis(900) && closes == Some(Some("close".to_owned())) {
            break;
        }
    }
    assert_eq!(closes, Some(Some("close".to_owned())), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_connections_is_shared_by_all_listeners() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::silence(),
    })
    .await;
    let proxy = Proxy::start(
        "listen: [{ address: '127.0.0.1:0' }, { address: '127.0.0.1:0' }]\nlimits: { max_connections: 2 }",
    )
    .await;
    let host = origin.authority("a.localhost");
    let mut served = Vec::new();
    // Each is busy for good: an idle one would make room.
    for address in proxy.addresses() {
        let mut client = Client::open(address).await;
        client.send(crate::support::client::get(&origin.url("/held"), &host)).await;
        served.push(client);
        eventually("its request", || origin.log.count("/held") == served.len()).await;
    }
    let mut waiting = Vec::new();
    for address in proxy.addresses() {
        let mut client = Client::open(address).await;
        client.send(crate::support::client::get(&origin.url("/waits"), &host)).await;
        waiting.push(client);
    }
    assert!(waiting[0].glance(Duration::from_millis(300)).await.is_empty());
    assert!(waiting[1].glance(Duration::from_millis(300)).await.is_empty());
    assert_eq!(origin.log.count("/waits"), 0);
    // Each that leaves makes room for one of them, whichever listener that came to.
    for number in 1..=2 {
        served.pop();
        eventually("one more to be served", || origin.log.count("/waits") == number).await;
    }
}

/// The time over which the rate is measured, and after which a silent sender is cut off.
const WINDOW: Duration = Duration::from_secs(4);

/// A body that takes longer than [`WINDOW`], with pauses far shorter.
fn drops() -> Vec<&'static str> {
    vec!["x"; 60]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_below_the_minimum_rate_is_cut() {
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/drip" => Reply::drip(&drops(), PAUSE),
        _ => Reply::echo(),
    };
    at_once([("1KiB", false), ("1", true), ("0", true)].map(|(rate, passes)| async move {
        let (plain, tls) = (Origin::http(handler).await, Origin::https(Alpn::Both, handler).await);
        let proxy = Proxy::start(&format!("limits: {{ read_timeout: {}s, min_rate: {rate} }}", WINDOW.as_secs())).await;
        let up = async {
            let mut client = proxy.client().await;
            let (url, host, length) = (plain.url("/up"), plain.authority("a.localhost"), drops().len());
            client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n")).await;
            for drop in drops() {
                if client.try_send(drop).await.is_err() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            client.try_head().await.map(|head| head.status())
        };
        let (down, status) = tokio::join!(are_complete(&proxy, [&plain, &tls], "/drip"), up);
        assert_eq!(down, [passes; 2], "{rate}");
        assert_eq!(status == Some(200), passes, "{rate}: {status:?}");
        assert!(passes || matches!(status, None | Some(408)), "{status:?}");
    }))
    .await;
}

/// Whether the answers are complete that come in HTTP/1 and in h2.
async fn are_complete(proxy: &Proxy, [plain, tls]: [&Origin; 2], path: &str) -> [bool; 2] {
    let h1 = async {
        let mut client = proxy.client().await;
        client.send(crate::support::client::get(&plain.url(path), &plain.authority("a.localhost"))).await;
        let (head, mut body) = (client.head().await, Body::default());
        client.read_body(&head, "GET", &mut body).await;
        assert_eq!(head.status(), 200, "{path}");
        body.complete
    };
    let h2 = async {
        let h2 = proxy.h2(tls, "a.localhost").await;
        let asked = crate::support::h2_client::request("GET", &tls.url(path));
        h2.send(asked, true).await.response().await.is_ok()
    };
    tokio::join!(h1, h2).into()
}

/// A stream of events may have to send only a heartbeat now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_stream_may_be_slower_than_the_minimum_rate() {
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/images" => Reply::drip(&drops(), PAUSE).field("Content-Type", "multipart/x-mixed-replace; boundary=x"),
        "/stop" => Reply::drip(&["x", "x"], WINDOW * 2).field("Content-Type", "text/event-stream"),
        _ => Reply::drip(&drops(), PAUSE).field("Content-Type", "Text/Event-Stream;charset=utf-8"),
    };
    // The pause between two bytes has its limit all the same.
    at_once([("/events", true), ("/images", true), ("/stop", false)].map(|(path, passes)| async move {
        let (plain, tls) = (Origin::http(handler).await, Origin::https(Alpn::Both, handler).await);
        let proxy = Proxy::start(&format!("limits: {{ read_timeout: {}s, min_rate: 1KiB }}", WINDOW.as_secs())).await;
        assert_eq!(are_complete(&proxy, [&plain, &tls], path).await, [passes; 2], "{path}");
    }))
    .await;
}

const PAUSE: Duration = Duration::from_millis(100);

/// Memory that a nearly silent connection may cost, in KiB.
const EACH: u64 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_served_beside_2000_idle_and_dripping_ones() {
    const MANY: usize = 2_000;
    let origin = Origin::site("").await;
    let proxy = Binary::serve("limits: { header_timeout: 60s }").await;
    let host = origin.authority("a.localhost");
    let served = async || {
        let mut client = Client::open(proxy.address()).await;
        let start = Instant::now();
        assert_eq!(client.get(&origin.url("/x"), &host).await.status(), 200);
        start.elapsed()
    };
    served().await;
    let before = proxy.peak_kib();
    let mut held = Vec::new();
    for number in 0..MANY {
        // This process has a limit on open files of its own.
        let Ok(stream) = tokio::net::TcpStream::connect(proxy.address()).await else {
            break;
        };
        if number % 2 == 0 && stream.try_write(b"GET http://").is_err() {
            break;
        }
        held.push(stream);
        if number % 250 == 0 {
            for stream in held.iter().step_by(2) {
                stream.try_write(b"x").ok();
            }
        }
    }
    eventually("the proxy to have them all", || proxy.descriptors() >= held.len()).await;
    assert!(held.len() > 900, "only {} connections could be opened", held.len());
    let took = served().await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    let grown = proxy.peak_kib() - before;
    assert!(grown < EACH * held.len() as u64, "{grown} KiB for {}", held.len());
    drop(held);
    proxy.stop().await;
}

/// The client's SETTINGS ask for a table of 4 GiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_hpack_table_size_of_a_client_is_not_allocated() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let mut client = frames::open(&proxy, &origin).await;
    client.send(frame(SETTINGS, 0, 0, &[0, 1, 0xff, 0xff, 0xff, 0xff])).await;
    let block = frames::block(&frames::get(&origin.authority("a.localhost"), "/x").map(|field| field));
    client.send(frame(HEADERS, END_HEADERS | frames::END_STREAM, 1, &block)).await;
    assert!(matches!(frames::taken(&mut client, 1).await, frames::Taken::Answered(_)));
}
