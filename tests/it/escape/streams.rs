//! HTTP/2 by the frame: malformed requests, and floods (RFC 9113 §8.1.1, §10.5). Memory stays flat and others are
//! served.

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, Taken, WINDOW_UPDATE, block,
    frame, get, is_ok, open, taken,
};
use super::siege::Siege;
use crate::support::{Alpn, Binary, Client, H2Client, Origin, Proxy, Reply};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_h2_requests_are_not_forwarded() {
    let origin = Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /secret\n").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let other = origin.authority("b.localhost");
    let base = get(&host, "/x");
    let with = |more: &[(&'static str, &str)]| block(&[&base[..], more].concat());
    let mut siege = Siege::default();
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("a name in capitals", with(&[("X-A", "b")])),
        ("an LF in a value", with(&[("x-a", "b\nc: d")])),
        ("a CR and LF in a value", with(&[("x-a", "b\r\nHost: b.localhost")])),
        ("two line ends in a value", with(&[("x-a", "b\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n")])),
        ("a NUL in a value", with(&[("x-a", "b\0c")])),
        ("an LF in a name", with(&[("x-a\nhost", "b")])),
        ("a colon in a name", with(&[("x-a: b\r\nx-c", "d")])),
        ("a space in a name", with(&[("x a", "b")])),
        ("an empty name", with(&[("", "b")])),
        ("a connection field", with(&[("connection", "keep-alive")])),
        ("a coding", with(&[("transfer-encoding", "chunked")])),
        ("an upgrade", with(&[("upgrade", "websocket")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        ("proxy-connection", with(&[("proxy-connection", "keep-alive")])),
        ("TE of another kind", with(&[("te", "gzip")])),
        ("a length", with(&[("content-length", "5")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "5")])),
        ("a length with a sign", with(&[("content-length", "+0")])),
        ("a pseudo-field after fields", with(&[("x-a", "b"), (":path", "/secret")])),
        ("a second path", with(&[(":path", "/secret")])),
        ("a second method", with(&[(":method", "POST")])),
        ("a second authority", with(&[(":authority", &other)])),
        ("a response's field", with(&[(":status", "200")])),
        ("a field nobody knows", with(&[(":x", "y")])),
        ("another Host", with(&[("host", &other)])),
        ("two Hosts", with(&[("host", &host), ("host", &other)])),
        (
            "an extended CONNECT for what is not served",
            block(&[
                (":method", "CONNECT"),
                (":protocol", "connect-udp"),
                (":scheme", "https"),
                (":authority", &host),
                (":path", "/x"),
            ]),
        ),
        (
            "a WebSocket at a disallowed path",
            block(&[
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", &host),
                (":path", "/secret"),
            ]),
        ),
        ("a CONNECT", block(&[(":method", "CONNECT"), (":authority", &other)])),
        ("no method", block(&[(":scheme", "https"), (":authority", &host), (":path", "/x")])),
        ("no path", block(&[(":method", "GET"), (":scheme", "https"), (":authority", &host)])),
        ("no scheme", block(&[(":method", "GET"), (":authority", &host), (":path", "/x")])),
        ("no authority", block(&[(":method", "GET"), (":scheme", "https"), (":path", "/x")])),
        (
            "another authority by Host alone",
            block(&[(":method", "GET"), (":scheme", "https"), (":path", "/x"), ("host", &other)]),
        ),
        ("an empty path", block(&get(&host, ""))),
        ("a path without a slash", block(&get(&host, "secret"))),
        ("a path that is a URL", block(&get(&host, "https://b.localhost/secret"))),
        ("an asterisk", block(&get(&host, "*"))),
        ("a space in the path", block(&get(&host, "/x /secret"))),
        ("an HTTP/1 line in the path", block(&get(&host, "/x HTTP/1.1\r\nHost: b.localhost\r\n\r\nGET /hidden"))),
        ("a NUL in the path", block(&get(&host, "/x\0"))),
        ("a fragment in the path", block(&get(&host, "/secret#x"))),
        ("another scheme", block(&[(":method", "GET"), (":scheme", "http"), (":authority", &host), (":path", "/x")])),
        (
            "a scheme of its own",
            block(&[(":method", "GET"), (":scheme", "x://y/"), (":authority", &host), (":path", "/x")]),
        ),
        ("userinfo", block(&get(&format!("x@{host}"), "/x"))),
        ("an authority with a path", block(&get(&format!("{host}/secret"), "/x"))),
        ("an authority with a line end", block(&get(&format!("{host}\r\nX: y"), "/x"))),
        (
            "a method with a space",
            block(&[(":method", "GET /hidden"), (":scheme", "https"), (":authority", &host), (":path", "/x")]),
        ),
        (
            "a method with a line end",
            block(&[(":method", "GET\r\n"), (":scheme", "https"), (":authority", &host), (":path", "/x")]),
        ),
        ("a disallowed path", block(&get(&host, "/secret"))),
        ("a disallowed path, encoded", block(&get(&host, "/%73ecret"))),
        ("a block that is none", vec![0xff; 40]),
        ("a block that grows the table beyond all bounds", vec![0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f]),
    ];
    for (name, block) in rows {
        let mut client = open(&proxy, &origin).await;
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
        let taken = taken(&mut client, 1).await;
        let wrong = is_ok(&taken) || taken == Taken::Nothing;
        siege.tried(name, wrong.then(|| format!("{taken:?}")));
    }
    siege.withstood(51);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_h2_frames_end_the_connection() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let good = block(&get(&host, "/x"));
    let headers = |flags, stream| frame(HEADERS, flags, stream, &good);
    let mut siege = Siege::default();
    for (name, bytes) in [
        ("an even stream", headers(END_HEADERS | END_STREAM, 2)),
        ("stream 0", headers(END_HEADERS | END_STREAM, 0)),
        ("data before headers", frame(DATA, 0, 1, b"x")),
        ("data on stream 0", frame(DATA, 0, 0, b"x")),
        ("a stream that goes back", [headers(END_HEADERS, 3), headers(END_HEADERS, 1)].concat()),
        ("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, &good)),
        ("a block that is interrupted", [headers(0, 1), frame(PING, 0, 0, &[0; 8])].concat()),
        ("a block continued on another stream", [headers(0, 1), frame(CONTINUATION, END_HEADERS, 3, &good)].concat()),
        ("padding longer than its frame", frame(HEADERS, END_HEADERS | 8, 1, &[200, 0, 0])),
        ("a ping on a stream", frame(PING, 0, 1, &[0; 8])),
        ("a setting of no length", frame(SETTINGS, 0, 0, &[0; 5])),
        ("settings on a stream", frame(SETTINGS, 0, 1, &[])),
        ("a window beyond 31 bits", frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])),
        ("frames too small", frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1])),
        ("a window that grows by nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window that overflows", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("a ping of seven bytes", frame(PING, 0, 0, &[0; 7])),
        ("a reset of an idle stream", frame(RST_STREAM, 0, 5, &[0, 0, 0, 8])),
        ("a push", frame(5, END_HEADERS, 1, &[&[0, 0, 0, 2], &good[..]].concat())),
        ("a frame of 16 MiB", vec![0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]),
    ] {
        let mut client = open(&proxy, &origin).await;
        client.try_send(bytes).await.ok();
        let taken = taken(&mut client, 99).await;
        siege.tried(name, (taken != Taken::Closed).then(|| format!("{taken:?}")));
    }
    siege.withstood(20);
}

/// Memory that a flood may cost, in KiB.
const ROOM: u64 = 48 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_floods_neither_use_memory_nor_delay_others() {
    let origin = Origin::https(Alpn::Both, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/wait" => Reply::silence(),
        "/large" => Reply::pattern(64 << 20),
        _ => Reply::text("good"),
    })
    .await;
    let proxy = Binary::serve("limits: { read_timeout: 5s, idle_timeout: 5s }").await;
    let host = origin.authority("a.localhost");
    let waits = block(&get(&host, "/wait"));
    let large = block(&get(&host, "/large"));
    let good = block(&get(&host, "/x"));
    let open = async || {
        let client = Client::connect(proxy.address(), &host).await;
        let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await;
        client.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()).await;
        client
    };
    let mut siege = Siege::default();
    let end = |flags| END_HEADERS | flags;
    let odd = |n: usize| u32::try_from(2 * n + 1).expect("few");
    let flood = |piece: &dyn Fn(usize) -> Vec<u8>, count: usize| (0..count).flat_map(piece).collect::<Vec<u8>>();
    let rows: Vec<(&str, Vec<u8>, usize)> = vec![
        (
            "rapid reset",
            flood(
                &|n| {
                    [frame(HEADERS, end(END_STREAM), odd(n), &waits), frame(RST_STREAM, 0, odd(n), &[0, 0, 0, 8])]
                        .concat()
                },
                5_000,
            ),
            1,
        ),
        (
            "rapid reset of open requests",
            flood(
                &|n| [frame(HEADERS, end(0), odd(n), &waits), frame(RST_STREAM, 0, odd(n), &[0, 0, 0, 8])].concat(),
                5_000,
            ),
            1,
        ),
        (
            "resets made by the server",
            flood(
                &|n| {
                    [frame(HEADERS, end(END_STREAM), odd(n), &waits), frame(WINDOW_UPDATE, 0, odd(n), &[0; 4])].concat()
                },
                5_000,
            ),
            1,
        ),
        ("streams beyond the limit", flood(&|n| frame(HEADERS, end(END_STREAM), odd(n), &waits), 5_000), 1),
        ("pings", flood(&|_| frame(PING, 0, 0, &[1; 8]), 10_000), 30),
        ("settings", flood(&|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]), 10_000), 30),
        ("priorities", flood(&|n| frame(2, 0, odd(n), &[0, 0, 0, 0, 16]), 10_000), 30),
        ("windows", flood(&|n| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, u8::from(n % 2 == 0) + 1]), 10_000), 30),
        ("unknown frames", flood(&|_| frame(0xbe, 0, 0, &[0; 64]), 10_000), 10),
        (
            "a head without end",
            [frame(HEADERS, 0, 1, &good), flood(&|_| frame(CONTINUATION, 0, 1, &block(&[("x-a", "b")])), 10_000)]
                .concat(),
            30,
        ),
        (
            "empty continuations",
            [frame(HEADERS, 0, 1, &good), flood(&|_| frame(CONTINUATION, 0, 1, &[]), 10_000)].concat(),
            30,
        ),
        (
            "a head of 4 MiB",
            [
                frame(HEADERS, 0, 1, &good),
                flood(&|_| frame(CONTINUATION, 0, 1, &block(&[("x-a", &"b".repeat(16_000))])), 256),
            ]
            .concat(),
            1,
        ),
        (
            "an indexed head bomb",
            {
                // One field of 4,000 bytes in the table, then named by one byte each time.
                let mut bomb = vec![0x40, 3, b'x', b'-', b'b', 0x7f, 0xa1, 0x1e];
                bomb.extend(std::iter::repeat_n(b'a', 4_000));
                bomb.extend(std::iter::repeat_n(0xbe_u8, 10_000));
                frame(HEADERS, end(END_STREAM), 1, &[&good[..], &bomb].concat())
            },
            1,
        ),
        (
            "cookie crumbs",
            frame(HEADERS, end(END_STREAM), 1, &[&good[..], &block(&vec![("cookie", "a"); 1_600])].concat()),
            1,
        ),
        ("empty data", [frame(HEADERS, end(0), 1, &waits), flood(&|_| frame(DATA, 0, 1, &[]), 10_000)].concat(), 30),
        (
            "data of one byte",
            [frame(HEADERS, end(0), 1, &waits), flood(&|_| frame(DATA, 0, 1, b"x"), 10_000)].concat(),
            6,
        ),
        (
            "padding alone",
            [frame(HEADERS, end(0), 1, &waits), flood(&|_| frame(DATA, 8, 1, &[200; 201]), 300)].concat(),
            1,
        ),
        (
            "answers that nobody reads",
            [
                frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
                flood(&|n| frame(HEADERS, end(END_STREAM), odd(n), &large), 100),
            ]
            .concat(),
            1,
        ),
        (
            "answers read by the byte",
            [
                frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]),
                flood(&|n| frame(HEADERS, end(END_STREAM), odd(n), &large), 100),
            ]
            .concat(),
            1,
        ),
    ];
    // The flooding clients wait in the queue of one host; requests to another host must not be delayed.
    let other = Origin::tls_site(Alpn::Both, "").await;
    // One connection of each kind, so that one-time allocations are made before measuring.
    let ca = proxy.ca_pem_path();
    let served = async || {
        let client = Client::connect(proxy.address(), &other.authority("a.localhost")).await;
        let client = client.tls("a.localhost", &ca, &[b"h2"]).await;
        H2Client::over(client).await.get(&other.url("/x")).await.text()
    };
    assert_eq!(served().await, "page /x");
    let before = proxy.peak_kib();
    for (name, bytes, times) in rows {
        let mut attackers = Vec::new();
        for _ in 0..3 {
            let mut client = open().await;
            for _ in 0..times {
                // With a timeout: a client whose data is not read any more counts as cut off, too.
                let sent = tokio::time::timeout(Duration::from_secs(3), client.try_send(&bytes)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    break;
                }
            }
            attackers.push(client);
        }
        let good = served().await;
        let grown = proxy.peak_kib() - before;
        let wrong = (good != "page /x").then(|| good.clone());
        siege.tried(name, wrong.or((grown > ROOM).then(|| format!("{grown} KiB more at its peak"))));
    }
    siege.withstood(19);
    proxy.stop().await;
}
