//! Origins that speak HTTP/2 and have their own ideas of how many streams a connection takes (RFC 9113 §5.1.2, §6.8, §8.7).

use crate::support::client::get;
use crate::support::h2_client::{H2Client, request};
use crate::support::{Alpn, Client, Origin, Protocol, Proxy, Reply, eventually, test_ca, within};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;

/// The origin's behaviour towards the streams of one connection.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// GOAWAY behind so many.
    GoAway(usize),
    /// The same with three, and the other streams are passed over.
    Leave,
    /// Accepts one stream at a time.
    One,
    /// The first of each connection is refused.
    Refuse,
    /// Resets with HTTP_1_1_REQUIRED, and also speaks HTTP/1.1.
    Http1,
    /// Closes the connection of a client without HTTP/2 after the handshake, like nghttpd.
    Silent,
    /// GOAWAY to the first stream of each connection, which is passed over.
    PassOver(h2::Reason),
    /// The same for a fault of the request's, as it says. It speaks HTTP/1.1 too.
    Offended,
    /// The first connection is hung up on as soon as `/fatal` is asked for on it, whoever else waits there.
    HangUp,
    /// More follows than its content-length says.
    TooMuch,
    /// The first stream of all is answered by half, all others with a field that has a control character. It speaks HTTP/1.1 too.
    BadField,
    /// The same for all streams, on an HTTP/2-only origin.
    BadFieldAlone,
    /// 101 before each answer, as only HTTP/1.1 has it.
    Switching,
    /// A status and a field in the trailers of each answer.
    TrailingStatus,
    /// The end of each answer comes late, behind all that its content-length says (nginx as a reverse proxy, at times).
    LateEnd,
    /// Each answer has no content, of this status in HPACK's static table, but several Content-Lengths, and content follows.
    ContentBehind(u8),
    /// Each answer has no status (false), or nothing of the content that its Content-Length says.
    Cut { has_status: bool },
    /// No PING is answered; each answer takes long. `one`: of one stream at a time, it says.
    Mute { one: bool },
}

struct Odd {
    port: u16,
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Odd {
    async fn start(way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let protocols: &[&[u8]] =
            if let Way::Http1 | Way::BadField | Way::Offended = way { &[b"h2", b"http/1.1"] } else { &[b"h2"] };
        let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["a.localhost"], protocols));
        let without = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["a.localhost"], &[]));
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, without, count) = (acceptor.clone(), without.clone(), count.clone());
                connections.spawn(async move {
                    let Ok(hello) = LazyConfigAcceptor::new(Acceptor::default(), stream).await else { return };
                    let offers = hello.client_hello().alpn().is_some_and(|mut offers| offers.any(|name| name == b"h2"));
                    let is_silent = matches!(way, Way::Silent) && !offers;
                    let config = if is_silent { without.config() } else { acceptor.config() };
                    let Ok(stream) = hello.into_stream(config.clone()).await else { return };
                    match stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        true => serve(stream, way, &count).await,
                        false if is_silent => {}
                        false => serve_http1(stream).await,
                    }
                });
            }
        });
        Odd { port, asked, _tasks: tasks }
    }

    fn authority(&self) -> String {
        format!("a.localhost:{}", self.port)
    }
}

type Stream = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

async fn serve(mut stream: Stream, way: Way, asked: &AtomicUsize) {
    if let Way::Leave = way {
        return serve_three(stream, asked).await;
    }
    if let Way::TooMuch = way {
        return say_too_much(stream).await;
    }
    if let Way::Mute { one } = way {
        return answer_no_ping(stream, one, asked).await;
    }
    if let Way::BadField | Way::BadFieldAlone = way {
        return say_what_none_may(stream, way, asked).await;
    }
    if let Way::Switching = way {
        return on_heads(stream, |id| [frame(1, 4, id, &[8, 3, b'1', b'0', b'1']), frame(1, 5, id, &[0x88])].concat())
            .await;
    }
    if let Way::LateEnd = way {
        let head = [0x88, 0x0f, 0x0d, 1, b'4'];
        return on_heads(stream, |id| [frame(1, 4, id, &head), frame(0, 0, id, b"body")].concat()).await;
    }
    if let Way::ContentBehind(status) = way {
        let length = [0x0f, 0x0d, 1, b'6'];
        let head = [&[status][..], &length, &length].concat();
        return on_heads(stream, |id| [frame(1, 4, id, &head), frame(0, 0, id, FORGED)].concat()).await;
    }
    if let Way::Cut { has_status } = way {
        let head: &[u8] = if has_status { &[0x88, 0x0f, 0x0d, 1, b'6'] } else { &[0x0f, 0x0d, 1, b'6'] };
        return on_heads(stream, |id| frame(1, 5, id, head)).await;
    }
    if let Way::TrailingStatus = way {
        let trailers = [&[0x8d, 0, 5][..], b"x-sum\x019"].concat();
        let answer = |id| [frame(1, 4, id, &[0x88]), frame(0, 0, id, b"body"), frame(1, 5, id, &trailers)].concat();
        return on_heads(stream, answer).await;
    }
    if let Way::PassOver(reason) = way {
        let pass_over = |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            go_away(0, reason)
        };
        return on_heads(stream, pass_over).await;
    }
    if let Way::Offended = way {
        let offended = |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            go_away(0x7fff_ffff, h2::Reason::PROTOCOL_ERROR)
        };
        // Some linger for a while.
        let _ = tokio::time::timeout(Duration::from_millis(300), on_heads(&mut stream, offended)).await;
        stream.shutdown().await.ok();
        return;
    }
    if let Way::HangUp = way
        && asked.load(Ordering::Relaxed) == 0
    {
        return hang_up(stream, asked).await;
    }
    let mut builder = h2::server::Builder::new();
    if let Way::One = way {
        builder.max_concurrent_streams(1);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
    let mut number = 0;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        number += 1;
        match way {
            Way::GoAway(most) if number == most => connection.graceful_shutdown(),
            Way::Refuse if number == 1 => {
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    while let Some(Ok(_)) = body.data().await {}
                    let _ = body.trailers().await;
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                });
                continue;
            }
            Way::Http1 => {
                respond.send_reset(h2::Reason::HTTP_1_1_REQUIRED);
                continue;
            }
            Way::GoAway(_) | Way::One | Way::Refuse | Way::HangUp | Way::Silent => {}
            Way::Leave
            | Way::TooMuch
            | Way::PassOver(_)
            | Way::Offended
            | Way::BadField
            | Way::BadFieldAlone
            | Way::Mute { .. } => {}
            Way::Switching | Way::TrailingStatus | Way::LateEnd | Way::ContentBehind(_) | Way::Cut { .. } => {}
        }
        asked.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            if request.uri().path() == "/stall" {
                std::future::pending::<()>().await;
            }
            let mut body = request.into_body();
            let mut kept = Vec::new();
            while let Some(Ok(piece)) = body.data().await {
                body.flow_control().release_capacity(piece.len()).ok();
                kept.extend_from_slice(&piece);
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let Ok(mut stream) = respond.send_response(http::Response::new(()), false) else { return };
            match body.trailers().await {
                Ok(Some(trailers)) => {
                    stream.send_data(kept.into(), false).ok();
                    stream.send_trailers(trailers).ok();
                }
                _ => drop(stream.send_data(kept.into(), true)),
            }
        });
    }
}

async fn serve_http1(stream: Stream) {
    use crate::support::message::Source;
    use tokio::io::AsyncWriteExt;
    let mut client = Source::new(stream);
    while let Some(head) = client.until(b"\r\n\r\n").await {
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let length: usize = length.unwrap_or(0);
        while client.ahead.len() < length {
            if !client.fill().await {
                return;
            }
        }
        let body = client.take(length);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        client.inner.write_all(&[head.as_bytes(), &body].concat()).await.ok();
        client.inner.flush().await.ok();
    }
}

/// Answers three streams of each connection, and passes over the others, as its GOAWAY says; all of it at once.
async fn serve_three(stream: Stream, asked: &AtomicUsize) {
    let mut number = 0;
    on_heads(stream, |id| {
        number += 1;
        if number > 3 {
            return Vec::new();
        }
        asked.fetch_add(1, Ordering::Relaxed);
        // `:status: 200` and the end.
        let mut out = frame(1, 5, id, &[0x88]);
        if number == 3 {
            out.extend(go_away(id, h2::Reason::NO_ERROR));
        }
        out
    })
    .await;
}

async fn say_too_much(stream: Stream) {
    on_heads(stream, |id| {
        // `:status: 200`, `content-length: 2`.
        let head = frame(1, 4, id, &[0x88, 0x0f, 0x0d, 1, b'2']);
        [head, frame(0, 0, id, b"ok"), frame(0, 1, id, b"evil")].concat()
    })
    .await;
}

async fn say_what_none_may(stream: Stream, way: Way, asked: &AtomicUsize) {
    on_heads(stream, |id| match (way, asked.fetch_add(1, Ordering::Relaxed)) {
        // `:status: 200`, `content-length: 2`.
        (Way::BadField, 0) => [frame(1, 4, id, &[0x88, 0x0f, 0x0d, 1, b'2']), frame(0, 0, id, b"o")].concat(),
        // `:status: 200`, `location: /` and DEL.
        _ => frame(1, 5, id, &[0x88, 0x0f, 0x1f, 2, b'/', 0x7f]),
    })
    .await;
}

/// Two requests wait for their answers; the third is fatal to all, as HAProxy's `http-request reject` makes it.
async fn hang_up(stream: Stream, asked: &AtomicUsize) {
    let mut waiting = Vec::new();
    on_heads(stream, |id| {
        asked.fetch_add(1, Ordering::Relaxed);
        waiting.push(id);
        match waiting[..] {
            [first, second, fatal] => [
                reset(fatal, h2::Reason::ENHANCE_YOUR_CALM),
                go_away(fatal, h2::Reason::ENHANCE_YOUR_CALM),
                reset(first, h2::Reason::NO_ERROR),
                reset(second, h2::Reason::NO_ERROR),
            ]
            .concat(),
            _ => Vec::new(),
        }
    })
    .await;
}

/// Begins an answer to each stream at once, and ends none; what comes in between shows that it is there.
async fn answer_no_ping(mut stream: Stream, one: bool, asked: &AtomicUsize) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok();
    let at_a_time: &[u8] = if one { &[0, 3, 0, 0, 0, 1] } else { b"" };
    stream.write_all(&frame(4, 0, 0, at_a_time)).await.ok();
    let (mut head, mut streams) = (Vec::new(), Vec::new());
    let mut next = Instant::now();
    loop {
        let wanted = if head.len() < 9 { 9 } else { 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize };
        if head.len() >= 9 && head.len() == wanted {
            let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let out = match (head[3], head[4]) {
                (4, 0) => frame(4, 1, 0, b""),
                (1, _) => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    streams.push(id);
                    // :status 200, of HPACK's static table.
                    frame(1, 4, id, &[0x88])
                }
                _ => Vec::new(),
            };
            stream.write_all(&out).await.ok();
            stream.flush().await.ok();
            head.clear();
            continue;
        }
        let mut piece = vec![0; wanted - head.len()];
        tokio::select! {
            read = stream.read(&mut piece) => match read {
                Ok(n @ 1..) => head.extend_from_slice(&piece[..n]),
                Ok(0) | Err(_) => return,
            },
            () = tokio::time::sleep_until(next.into()) => {
                next = Instant::now() + Duration::from_millis(500);
                let drops: Vec<u8> = streams.iter().flat_map(|&id| frame(0, 0, id, b".")).collect();
                stream.write_all(&drops).await.ok();
                stream.flush().await.ok();
            }
        }
    }
}

/// An origin by hand: what it says to the head of each stream.
async fn on_heads<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, mut answer: impl FnMut(u32) -> Vec<u8>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok();
    stream.write_all(&frame(4, 0, 0, b"")).await.ok();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if stream.read_exact(&mut payload).await.is_err() {
            return;
        }
        let out = match (head[3], head[4]) {
            (4, 0) => frame(4, 1, 0, b""),
            (6, 0) => frame(6, 1, 0, &payload),
            (1, _) => answer(id),
            _ => continue,
        };
        stream.write_all(&out).await.ok();
        stream.flush().await.ok();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn reset(stream: u32, reason: h2::Reason) -> Vec<u8> {
    frame(3, 0, stream, &u32::from(reason).to_be_bytes())
}

fn go_away(last: u32, reason: h2::Reason) -> Vec<u8> {
    frame(7, 0, 0, &[last.to_be_bytes(), u32::from(reason).to_be_bytes()].concat())
}

const FREE: &str = "hosts: { '*': { robots: ignore } }\npace: { max_concurrent: 50 }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unprocessed_requests_are_retried_including_posts() {
    for way in [Way::GoAway(3), Way::One, Way::Refuse, Way::Http1] {
        let origin = Odd::start(way).await;
        let proxy = Arc::new(Proxy::start(FREE).await);
        let host = origin.authority();
        let mut clients = JoinSet::new();
        for number in 0..20 {
            let (proxy, host) = (proxy.clone(), host.clone());
            clients.spawn(async move {
                let client = Client::connect(proxy.address(), &host).await;
                let body = format!("body {number}");
                let (status, text) = if number % 2 == 0 {
                    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
                    let length = body.len();
                    client
                        .send(format!("POST /x HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"))
                        .await;
                    let response = client.response().await;
                    (response.status(), response.text())
                } else {
                    let client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await;
                    let client = crate::support::H2Client::over(client).await;
                    let mut posted = request("POST", &format!("https://{host}/x"));
                    posted.headers_mut().insert("content-length", body.len().into());
                    let response = client.exchange(posted, body.as_bytes()).await.unwrap();
                    (response.status(), response.text())
                };
                assert_eq!((status, text), (200, body), "{way:?}");
            });
        }
        within("twenty answers", async {
            while let Some(ended) = clients.join_next().await {
                ended.unwrap()
            }
        })
        .await;
        if let Way::GoAway(_) | Way::One | Way::Refuse = way {
            assert_eq!(origin.asked.load(Ordering::Relaxed), 20, "{way:?}: each was processed once");
        }
    }
}

/// Any number of connections may be needed: a request that was not processed counts neither as an attempt nor as a start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_silent_over_http1_is_asked_over_http2() {
    for rules in ["robots: { timeout: 10s }", FREE] {
        let origin = Odd::start(Way::Silent).await;
        let proxy = Proxy::start(rules).await;
        let host = origin.authority();
        let client = Client::connect(proxy.address(), &host).await;
        let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
        let answer = client.get("/x", &host).await;
        assert_eq!(answer.status(), 200, "{rules}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_left_unprocessed_by_goaway_move_to_the_next_connection() {
    let origin = Odd::start(Way::Leave).await;
    let proxy = Arc::new(Proxy::start(FREE).await);
    let host = origin.authority();
    let mut clients = JoinSet::new();
    for _ in 0..30 {
        let (proxy, host) = (proxy.clone(), host.clone());
        clients.spawn(async move {
            let client = Client::connect(proxy.address(), &host).await;
            let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
            let response = client.get("/x", &host).await;
            assert_eq!(response.status(), 200, "{}", response.text());
        });
    }
    within("thirty answers", async {
        while let Some(ended) = clients.join_next().await {
            ended.unwrap()
        }
    })
    .await;
    assert_eq!(origin.asked.load(Ordering::Relaxed), 30, "each was processed once");
}

/// One client's request must not cost the others theirs: a GET is retried on its own connection. A POST may have been processed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gets_but_not_posts_on_a_dropped_shared_connection_are_retried() {
    let origin = Odd::start(Way::HangUp).await;
    let proxy = Arc::new(Proxy::start(FREE).await);
    let host = origin.authority();
    let mut clients = Vec::new();
    for (number, method) in ["GET", "POST", "GET"].into_iter().enumerate() {
        let (proxy, host) = (proxy.clone(), host.clone());
        clients.push(tokio::spawn(async move {
            let client = Client::connect(proxy.address(), &host).await;
            let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
            client.send(format!("{method} /x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")).await;
            client.response().await.status()
        }));
        crate::support::eventually("the request", || origin.asked.load(Ordering::Relaxed) > number).await;
    }
    let mut statuses = Vec::new();
    for client in clients {
        statuses.push(within("an answer", client).await.unwrap());
    }
    assert_eq!(statuses, [200, 502, 200]);
}

/// A request whose head was sent counts as a start, even if the origin ignores it: retries wait for slots, and are limited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_of_an_unprocessed_request_keep_the_gap() {
    let gap = Duration::from_millis(200);
    let origin = Odd::start(Way::PassOver(h2::Reason::NO_ERROR)).await;
    let proxy = Arc::new(Proxy::start("hosts: { '*': { robots: ignore, crawl_delay: 200ms } }").await);
    let (start, mut clients) = (Instant::now(), JoinSet::new());
    for _ in 0..2 {
        let (proxy, host) = (proxy.clone(), origin.authority());
        clients.spawn(async move {
            let client = Client::connect(proxy.address(), &host).await;
            client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await.get("/x", &host).await.status()
        });
    }
    assert_eq!(within("two answers", clients.join_all()).await, [502, 502]);
    let heads = origin.asked.load(Ordering::Relaxed) as u32;
    assert!(heads <= 8, "{heads} heads for two requests");
    assert!(start.elapsed() >= gap * (heads - 1), "{heads} heads within {:?}", start.elapsed());
}

/// Also without a gap: a connection that has served nothing is worth no more attempts than one that breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_ignoring_the_first_request_of_each_connection_is_asked_four_times() {
    let origin = Odd::start(Way::PassOver(h2::Reason::NO_ERROR)).await;
    let proxy = Proxy::start("hosts: { '*': { robots: ignore } }").await;
    let client = Client::connect(proxy.address(), &origin.authority()).await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
    assert_eq!(client.get("/x", &origin.authority()).await.status(), 502);
    assert_eq!(origin.asked.load(Ordering::Relaxed), 4);
}

/// Its head has not been sent, so the gap starts only when a stream is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_waiting_for_a_free_stream_does_not_count_as_sent() {
    let gap = Duration::from_millis(300);
    let (listener, heads) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(Mutex::new(Vec::new())));
    let host = format!("a.localhost:{}", listener.local_addr().unwrap().port());
    let (seen, opens) = (heads.clone(), Instant::now() + 4 * gap);
    let origin = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            connections.spawn(async move { without_streams_until(opens, stream, &seen).await });
        }
    });
    let proxy = Proxy::start("hosts: { '*': { robots: ignore, crawl_delay: 300ms } }").await;
    let (client, url) = (Client::connect(proxy.address(), &host).await, format!("http://{host}/x"));
    // Without TLS, nothing is sent before the origin has shown that it speaks HTTP/2.
    let client = H2Client::known(client).await;
    let answers = join_all((0..3).map(|_| client.get(&url))).await;
    assert!(answers.iter().all(|answer| answer.status() == 200));
    origin.abort();
    let heads = heads.lock().unwrap();
    let gaps: Vec<_> = heads.windows(2).map(|two: &[Instant]| two[1] - two[0]).collect();
    // Had they counted as sent while they waited, they would come together. They are noted when they are read, not when they came.
    assert!(heads.len() == 3 && gaps.iter().all(|&it| it >= gap / 2), "{gaps:?}");
}

/// An HTTP/2 connection that takes no stream before this, and then as many as there may be. Notes when heads come.
async fn without_streams_until(opens: Instant, mut stream: TcpStream, heads: &Mutex<Vec<Instant>>) -> io::Result<()> {
    let (mut from, mut to) = stream.split();
    from.read_exact(&mut [0; 24]).await?;
    to.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\0").await?;
    to.flush().await?;
    let (mut head, mut opened) = ([0; 9], false);
    loop {
        tokio::select! {
            () = sleep_until(opens.into()), if !opened => {
                opened = true;
                to.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64").await?;
            }
            // Frames come whole: what follows one is there with it.
            read = from.read_exact(&mut head) => {
                read?;
                let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                from.read_exact(&mut payload).await?;
                match (head[3], head[4]) {
                    (HEADERS, _) => {
                        heads.lock().unwrap().push(Instant::now());
                        let stream = &head[5..];
                        to.write_all(&[&[0, 0, 1, HEADERS, 0x5], stream, &[0x88]].concat()).await?;
                    }
                    (SETTINGS, 0) => to.write_all(&[0, 0, 0, SETTINGS, 0x1, 0, 0, 0, 0]).await?,
                    (PING, 0) => to.write_all(&[&[0, 0, 8, PING, 0x1, 0, 0, 0, 0], &payload[..]].concat()).await?,
                    _ => {}
                }
            }
        }
        to.flush().await?;
    }
}

const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;

/// ENHANCE_YOUR_CALM is the 429 of an HTTP/2 connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enhance_your_calm_pauses_the_host() {
    let origin = Odd::start(Way::PassOver(h2::Reason::ENHANCE_YOUR_CALM)).await;
    let proxy = Proxy::start("hosts: { '*': { robots: ignore } }\npace: { max_wait: 0 }").await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
    for target in ["/x", "/y"] {
        let refused = client.get(target, &host).await;
        assert_eq!(refused.status(), 429, "{}", refused.text());
    }
    assert_eq!(origin.asked.load(Ordering::Relaxed), 1);
}

/// The client has its complete answer, so its next request must not find the connection closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_after_a_complete_h2_answer_keeps_the_client_connection() {
    let origin = Odd::start(Way::TooMuch).await;
    let proxy = Proxy::start(FREE).await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
    for _ in 0..5 {
        let response = client.get("/x", &host).await;
        assert_eq!((response.status(), response.text()), (200, "ok".to_owned()));
    }
}

/// A field that is invalid in HTTP/2 ends the connection for all who share it. A client that knows such a page must not
/// repeat that: afterwards, the host is asked over HTTP/1.1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_with_a_field_invalid_in_http2_ends_the_shared_connection_only_once() {
    let origin = Odd::start(Way::BadField).await;
    let proxy = Proxy::start(FREE).await;
    let (host, url) = (origin.authority(), format!("https://{}/x", origin.authority()));
    let tunnel = async || {
        let client = Client::connect(proxy.address(), &host).await;
        H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await
    };
    let (one, other) = (tunnel().await, tunnel().await);
    let cut = one.send(request("GET", &url), true).await;
    crate::support::eventually("the request", || origin.asked.load(Ordering::Relaxed) == 1).await;
    assert_eq!(other.get(&url).await.status(), 200, "it is asked for over HTTP/1.1");
    assert!(cut.response().await.is_err());
    for client in [&one, &other, &one] {
        assert_eq!(client.get(&url).await.status(), 200);
    }
    assert_eq!(origin.asked.load(Ordering::Relaxed), 2, "over HTTP/2");
}

/// If the origin says that a request ended the connection, later requests use HTTP/1.1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_ending_the_shared_connection_for_a_request_does_so_only_once() {
    let origin = Odd::start(Way::Offended).await;
    let proxy = Proxy::start(FREE).await;
    let (host, url) = (origin.authority(), format!("https://{}/x", origin.authority()));
    let client = Client::connect(proxy.address(), &host).await;
    let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
    assert_eq!(client.get(&url).await.status(), 502, "it was alone on it");
    for _ in 0..3 {
        assert_eq!(client.get(&url).await.status(), 200, "it is asked for over HTTP/1.1");
    }
    assert_eq!(origin.asked.load(Ordering::Relaxed), 1, "over HTTP/2");
}

/// By default, nginx ends the connection for a field of more than 4 or 8 KiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_head_uses_kept_http1_connection_or_own_http2_connection() {
    for alpn in [Alpn::Both, Alpn::H2] {
        let origin = Origin::tls_site(alpn, "").await;
        let proxy = Proxy::start(FREE).await;
        let client = proxy.h2(&origin, "a.localhost").await;
        let large = |target: &str, count: usize, length: usize| {
            let mut request = request("GET", &origin.url_at("a.localhost", target));
            for number in 0..count {
                let name: http::HeaderName = format!("x-{number}").parse().unwrap();
                request.headers_mut().insert(name, "x".repeat(length).parse().unwrap());
            }
            request
        };
        // As Firefox sends with each request.
        let mut trailers = large("/g", 1, 4000);
        trailers.headers_mut().insert("te", "trailers".parse().unwrap());
        // In HTTP/1.1 they would be one line, which may be too long.
        let mut cookies = large("/h", 0, 0);
        for _ in 0..2 {
            cookies.headers_mut().append("cookie", "x".repeat(4000).parse().unwrap());
        }
        let has_http1 = alpn == Alpn::Both;
        let (mut shared, mut http1) = (HashSet::new(), HashSet::new());
        for (request, is_large, needs_http2) in [
            (large("/a", 1, 3000), false, false),
            (large("/b", 1, 4000), true, false),
            (large("/c", 7, 2000), true, true),
            (large(&format!("/d?{}", "x".repeat(4000)), 0, 0), true, false),
            (large("/e", 3, 2000), false, false),
            (trailers, true, false),
            (cookies, true, true),
        ] {
            let target = request.uri().path_and_query().unwrap().to_string();
            assert_eq!(client.send(request, true).await.response().await.unwrap().status(), 200, "{target:.4}");
            let at = origin.log.one(&target);
            let is_http2 = !is_large || needs_http2 || !has_http1;
            assert_eq!(at.protocol == Protocol::Http2, is_http2, "{target:.4}");
            match (is_http2, is_large) {
                (true, true) => assert!(!shared.contains(&at.connection), "{target:.4}"),
                (true, false) => _ = shared.insert(at.connection),
                (false, _) => _ = http1.insert(at.connection),
            }
        }
        assert_eq!((shared.len(), http1.len()), (1, usize::from(has_http1)), "{alpn:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_is_not_read_does_not_stall_others() {
    let origin = Odd::start(Way::One).await;
    let shared = Odd::start(Way::GoAway(1000)).await;
    for origin in [&shared, &origin] {
        let proxy = Proxy::start(FREE).await;
        let host = origin.authority();
        let client = async || {
            let client = Client::connect(proxy.address(), &host).await;
            H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await
        };
        let (alice, bob) = (client().await, client().await);
        let mut stalled = alice.send(request("POST", &format!("https://{host}/stall")), false).await;
        let before = origin.asked.load(Ordering::Relaxed);
        stalled.queue(&[b'x'; 200_000]);
        crate::support::eventually("it is asked", || origin.asked.load(Ordering::Relaxed) > before.saturating_sub(1))
            .await;
        for body in [&[b'y'; 100_000][..], b"small"] {
            let posted = request("POST", &format!("https://{host}/x"));
            let answer = within("an answer", bob.exchange(posted, body)).await.unwrap();
            assert_eq!(answer.text().len(), body.len());
        }
        assert_eq!(bob.get(&format!("https://{host}/y")).await.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_with_a_field_invalid_in_http2_is_retried_over_http1() {
    let origin = Odd::start(Way::BadField).await;
    // The second, by its count.
    origin.asked.store(1, Ordering::Relaxed);
    let proxy = Proxy::start("").await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
    let answer = client.get(&format!("https://{host}/x")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(origin.asked.load(Ordering::Relaxed), 2, "over HTTP/2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_invalid_in_http2_from_an_h2_only_origin_is_reported_as_malformed() {
    let origin = Odd::start(Way::BadFieldAlone).await;
    let proxy = Proxy::start(FREE).await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
    for asked in [2, 4] {
        let answer = client.get(&format!("https://{host}/x")).await;
        assert_eq!(answer.status(), 502);
        assert!(answer.text().contains("malformed answer: HTTP/2 ended the connection"), "{}", answer.text());
        assert!(origin.asked.load(Ordering::Relaxed) <= asked);
    }
}

/// It is retried over HTTP/1.1, which such an origin does not speak.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_head_that_an_h2_only_origin_rejects_is_reported_with_the_first_failure() {
    let origin = Odd::start(Way::PassOver(h2::Reason::PROTOCOL_ERROR)).await;
    let proxy = Proxy::start(FREE).await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
    let mut large = request("GET", &format!("https://{host}/x"));
    large.headers_mut().insert("x-large", "x".repeat(9000).parse().unwrap());
    let answer = client.send(large, true).await.response().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("HTTP/2 ended the connection"), "{}", answer.text());
}

/// The origin has not closed the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradictory_h2_answer_is_malformed() {
    for has_status in [false, true] {
        let origin = Odd::start(Way::Cut { has_status }).await;
        let proxy = Proxy::start(FREE).await;
        let host = origin.authority();
        let client = Client::connect(proxy.address(), &host).await;
        let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
        let answer = client.get(&format!("https://{host}/x")).await;
        let told = (answer.status(), answer.head.proxy_error());
        assert_eq!(told, (502, Some("http_protocol_error".into())), "{has_status}: {}", answer.text());
    }
}

/// RFC 9113 §8.6 excludes 101 from HTTP/2, both before a page and before a robots.txt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_101_over_http2_is_malformed() {
    for (rules, status, says) in
        [(FREE, 502, "malformed answer: status 101"), ("", 503, "malformed answer: status 101")]
    {
        let origin = Odd::start(Way::Switching).await;
        let proxy = Proxy::start(rules).await;
        let host = origin.authority();
        for alpn in [&b"h2"[..], b"http/1.1"] {
            let client = Client::connect(proxy.address(), &host).await;
            let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[alpn]).await;
            let answer = match alpn {
                b"h2" => H2Client::over(client).await.get(&format!("https://{host}/x")).await,
                _ => client.get("/x", &host).await,
            };
            assert_eq!(answer.status(), status, "{}", answer.text());
            assert!(answer.text().contains(says), "{}", answer.text());
        }
    }
}

/// The h2 crate ignores it, although RFC 9113 §8.1 makes the answer malformed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_in_h2_trailers_is_not_forwarded() {
    let origin = Odd::start(Way::TrailingStatus).await;
    let proxy = Proxy::start(FREE).await;
    let host = origin.authority();
    let tls = async |alpn| {
        Client::connect(proxy.address(), &host).await.tls("a.localhost", &proxy.ca_pem_path(), &[alpn]).await
    };
    let h2 = H2Client::over(tls(b"h2").await).await.get(&format!("https://{host}/x")).await;
    let mut client = tls(b"http/1.1").await;
    client.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\n\r\n")).await;
    for answer in [h2, client.response().await] {
        assert_eq!((answer.status(), answer.text().as_str()), (200, "body"));
        assert_eq!(answer.trailers, [("x-sum".to_owned(), "9".to_owned())]);
    }
}

/// Some origins end the shared connection for a value with surrounding white space (RFC 9113 §8.2.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn white_space_around_field_values_is_not_forwarded() {
    let origin = Origin::tls_site(Alpn::H2, "").await;
    let proxy = Proxy::start(FREE).await;
    let mut asked = request("POST", &origin.url("/x"));
    asked.headers_mut().insert("x-note", "\thello ".parse().unwrap());
    let client = proxy.h2(&origin, "a.localhost").await;
    let answer = client.exchange(asked, b"body").await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(origin.log.one("/x").field("x-note"), Some("hello"));
}

/// Over HTTP/1.1, the client would read it as the answer to its next request, possibly to another site.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_after_a_204_or_304_over_http2_is_not_forwarded() {
    let site = Origin::site("").await;
    let proxy = Proxy::start(FREE).await;
    for (in_table, status, lengths) in [(0x89, 204, vec![]), (0x8b, 304, vec!["6"])] {
        let origin = Odd::start(Way::ContentBehind(in_table)).await;
        let host = origin.authority();
        let mut client = proxy.client().await;
        let answer = client.get(&format!("https://{host}/x"), &host).await;
        assert_eq!((answer.status(), answer.head.all("content-length")), (status, lengths));
        let next = client.get(&site.url("/y"), &site.authority("a.localhost")).await;
        assert_eq!(next.text(), "page /y", "after a {status}");
        let client = Client::connect(proxy.address(), &host).await;
        let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
        assert_eq!(client.get(&format!("https://{host}/x")).await.status(), status);
    }
}

const FORGED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_leaves_with_a_complete_answer_is_not_recorded_as_gone() {
    let origin = Odd::start(Way::LateEnd).await;
    let proxy = Proxy::start(FREE).await;
    for version in ["--http2", "--http1.1"] {
        let answer = proxy.curl(&[version, &format!("https://{}/x", origin.authority())]).await;
        assert_eq!((answer.status(), answer.text().as_str()), (200, "body"), "{version}");
    }
    let ended = || (proxy.counts().forwarded, proxy.counts().client_gone);
    eventually("the ends of both", || ended().0 + ended().1 == 2).await;
    assert_eq!(ended(), (2, 0));
}

/// The origin echoes content and trailers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_includes_the_trailers() {
    let origin = Odd::start(Way::Refuse).await;
    let proxy = Proxy::start("hosts: { '*': { robots: ignore } }").await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await;
    let client = H2Client::known(client).await;
    let mut pending = client.send(request("PUT", &format!("https://{host}/x")), false).await;
    pending.body(b"ping").await.unwrap();
    pending.trailers([("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect()).unwrap();
    let answer = pending.response().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ping"));
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_over_max_wait_is_refused_with_retry_after() {
    let origin = Odd::start(Way::Refuse).await;
    let proxy = Proxy::start("hosts: { '*': { robots: ignore, crawl_delay: 30s } }\npace: { max_wait: 1s }").await;
    let host = origin.authority();
    let client = Client::connect(proxy.address(), &host).await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
    let refused = client.get("/x", &host).await;
    assert_eq!(refused.status(), 429, "{}", refused.text());
    assert!(refused.field("retry-after").is_some());
}

/// They use up nobody else's flow-control window, neither at the origin nor at the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_readers_do_not_stall_others() {
    let origin = Origin::https(Alpn::H2, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/huge" => Reply::pattern(1 << 30),
        _ => Reply::pattern(2_000_000),
    })
    .await;
    let proxy = Proxy::start("pace: { max_concurrent: 100 }").await;
    let host = origin.authority("a.localhost");
    let shared = proxy.h2(&origin, "a.localhost").await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        client.send(get("/huge", &host)).await;
        stalled.push(client);
    }
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(shared.send(request("GET", &origin.url("/huge")), true).await);
    }
    crate::support::eventually("them all", || origin.log.count("/huge") == 30).await;
    for _ in 0..3 {
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        assert_eq!(client.get("/x", &host).await.body.len(), 2_000_000);
    }
    drop((stalled, streams));
}

/// Its SETTINGS give the number of concurrent streams, whether it answers PINGs or not. If the number is one,
/// each further request gets its own connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_that_answers_no_ping_does_not_block_streams() {
    for one in [false, true] {
        let origin = Odd::start(Way::Mute { one }).await;
        let proxy = Proxy::start(FREE).await;
        let client = Client::connect(proxy.address(), &origin.authority()).await;
        let client = H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
        let url = format!("https://{}/x", origin.authority());
        let mut bodies = Vec::new();
        for _ in 0..3 {
            bodies.push(client.send(request("GET", &url), true).await.head().await.into_body());
        }
        // Many at once, too: none of these answers ends.
        let asked = join_all((0..40).map(|_| client.send(request("GET", &url), true))).await;
        bodies.extend(
            join_all(asked.into_iter().map(|asked| asked.head())).await.into_iter().map(|head| head.into_body()),
        );
        assert_eq!((bodies.len(), origin.asked.load(Ordering::Relaxed)), (43, 43));
    }
}
