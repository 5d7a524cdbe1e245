//! Limits on clients, and input that is not HTTP.

use super::access::{request as of_user, users};
use crate::support::client::{Stream, get};
use crate::support::h2_client::request;
use crate::support::{Alpn, Binary, Client, H2Client, Origin, Proxy, Reply, Seen, at_once, eventually, within};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// A head with fields of `size` bytes in all.
fn large(target: &str, host: &str, size: usize) -> String {
    let filler = "x".repeat(900);
    let lines: String = (0..size / 910).map(|number| format!("X-{number:04}: {filler}\r\n")).collect();
    get(target, host).replace("Accept: */*\r\n", &lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_more_than_64_kib_is_refused() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let host = plain.authority("a.localhost");
    let mut client = proxy.client().await;
    client.send(large(&plain.url("/fits"), &host, 60_000)).await;
    assert_eq!(client.response().await.status(), 200);
    client.try_send(large(&plain.url("/large"), &host, 80_000)).await.ok();
    let answer = client.head().await;
    assert_eq!((answer.status(), answer.proxy_error().as_deref()), (431, Some("http_request_error")));
    let mut inside = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    inside.send(large("/fits", &tls.authority("a.localhost"), 60_000)).await;
    assert_eq!(inside.response().await.status(), 200);
    inside.try_send(large("/large", &tls.authority("a.localhost"), 80_000)).await.ok();
    assert_eq!(inside.head().await.status(), 431);
    let mut head = proxy.client().await;
    head.try_send(large(&plain.url("/large"), &host, 80_000).replacen("GET", "HEAD", 1)).await.ok();
    let answer = head.head().await;
    assert_eq!((answer.status(), head.rest().await), (431, Vec::new()));
    let mut endless = proxy.client().await;
    endless.try_send(format!("GET http://{host}/{} HTTP/1.1\r\n", "x".repeat(100_000))).await.ok();
    assert!(matches!(endless.head().await.status(), 400 | 414 | 431));
    assert_eq!((plain.log.pages(), tls.log.pages()), (vec!["/fits".to_owned()], vec!["/fits".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_more_than_64_kib_is_refused_on_h2() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let h2 = proxy.h2(&origin, "a.localhost").await;
    let mut large = request("GET", &origin.url("/large"));
    for number in 0..90 {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        large.headers_mut().insert(name, "x".repeat(900).parse().unwrap());
    }
    let answer = h2.send(large, true).await.response().await.expect("an answer");
    assert_eq!((answer.status(), answer.head.proxy_error().as_deref()), (431, Some("http_request_error")));
    assert!(origin.log.pages().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn header_timeout_covers_the_whole_head() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("limits: { header_timeout: 3s }").await;
    let inside = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
    at_once([inside, proxy.client().await].map(|mut client| async move {
        client.send("GET http://").await;
        // A byte now and then: each read in time, the whole never.
        within("the end of the connection", async {
            while client.try_send("x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
        let rest = client.rest().await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn header_timeout_covers_the_tls_handshake() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("limits: { header_timeout: 4s, idle_timeout: 4s }").await;
    let mut clients = Vec::new();
    for start in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
        client.send(start).await;
        clients.push(client);
    }
    for client in &mut clients {
        client.rest().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("limits: { idle_timeout: 4s }").await;
    let host = plain.authority("a.localhost");
    let mut fresh = proxy.client().await;
    let mut used = proxy.client().await;
    assert_eq!(used.get(&plain.url("/x"), &host).await.status(), 200);
    let mut inside = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    assert_eq!(inside.get("/x", &tls.authority("a.localhost")).await.status(), 200);
    let mut in_connect = Client::connect(proxy.address(), &host).await;
    assert_eq!(in_connect.get("/y", &host).await.status(), 200);
    for client in [&mut fresh, &mut used, &mut inside, &mut in_connect] {
        let rest = client.rest().await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_h2_connection_is_closed() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("limits: { idle_timeout: 4s }").await;
    let h2 = proxy.h2(&origin, "a.localhost").await;
    assert_eq!(h2.get(&origin.url("/x")).await.status(), 200);
    crate::support::within("the end of the idle connection", h2.closed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_never_answers_is_a_504() {
    let origin =
        Origin::http(|seen| if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::silence() }).await;
    let proxy = Proxy::start("limits: { read_timeout: 3s }").await;
    let answer = proxy.get(&origin.url("/x")).await;
    assert_eq!((answer.status(), answer.head.proxy_error().as_deref()), (504, Some("http_response_timeout")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_never_reads_is_cut_off() {
    let answer = |seen: &Seen| {
        if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::pattern(500_000_000) }
    };
    let plain = Origin::http(answer).await;
    let tls = Origin::https(Alpn::H1, answer).await;
    let proxy = Proxy::start("limits: { read_timeout: 1s }").await;
    let mut outside = proxy.client().await;
    outside.send(get(&plain.url("/x"), &plain.authority("a.localhost"))).await;
    let mut inside = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    inside.send(get("/x", &tls.authority("a.localhost"))).await;
    let h2 = proxy.h2(&tls, "a.localhost").await;
    let stalled = h2.send(request("GET", &tls.url("/y")), true).await;
    for (origin, target) in [(&plain, "/x"), (&tls, "/x"), (&tls, "/y")] {
        let what = format!("the end of {target} at the origin");
        eventually(&what, || origin.log.of(target).iter().any(|seen| seen.cut)).await;
    }
    drop((outside, inside, stalled));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_stops_sending_its_body_is_cut_off() {
    let answer = |seen: &Seen| {
        if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::echo() }
    };
    let plain = Origin::http(answer).await;
    let tls = Origin::https(Alpn::Both, answer).await;
    let proxy = Proxy::start("limits: { read_timeout: 1s }").await;
    let post =
        |target: &str, host: &str| format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nsome");
    let mut outside = proxy.client().await;
    outside.send(post(&plain.url("/x"), &plain.authority("a.localhost"))).await;
    let mut inside = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    inside.send(post("/x", &tls.authority("a.localhost"))).await;
    let h2 = proxy.h2(&tls, "a.localhost").await;
    let mut stalled = h2.send(request("POST", &tls.url("/y")), false).await;
    stalled.body(b"some").await.unwrap();
    for client in [&mut outside, &mut inside] {
        let rest = client.rest().await;
        assert!(
            rest.is_empty() || rest.starts_with(b"HTTP/1.1 4") || rest.starts_with(b"HTTP/1.1 504"),
            "{}",
            String::from_utf8_lossy(&rest)
        );
    }
    assert!(stalled.response().await.map_or(true, |answer| answer.status() >= 400));
    assert!(
        plain.log.all().iter().chain(&tls.log.all()).all(|seen| seen.path() == "/robots.txt" || !seen.body.complete)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_the_origin_are_named() {
    let proxy = Proxy::start("hosts: { '*.localhost': { robots: ignore } }").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let refused = proxy.get(&format!("http://a.localhost:{port}/x")).await;
    crate::support::assert_refused(&refused, 502, "connection_refused", "connection_refused");
    let origin = Origin::http(|_| Reply::reset()).await;
    let reset = proxy.get(&origin.url("/x")).await;
    assert_eq!(reset.status(), 502);
    assert!(
        matches!(reset.head.proxy_error().as_deref(), Some("connection_terminated" | "http_response_incomplete")),
        "{:?}",
        reset.head
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_do_not_affect_other_clients() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let binary = Binary::serve("").await;
    let mut state = 0x9e37_79b9_u32;
    let mut noise = |length: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(next).collect()
    };
    let authority = origin.authority("a.localhost");
    for round in 0..150_usize {
        let mut client = Client::open(binary.address()).await;
        let mut bytes = match round % 5 {
            0 => Vec::new(),
            1 => format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").into_bytes(),
            2 => format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n").into_bytes(),
            3 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            _ => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        };
        bytes.extend(noise(1 + round * 7));
        client.try_send(&bytes).await.ok();
        client.half_close().await;
        let rest = client.rest().await;
        // In the words of HTTP/1, HTTP/2, TLS, SOCKS4 or SOCKS5, or in none.
        let words: [&[u8]; 5] = [b"HTTP/1.1 ", &[0, 0], &[0x15, 3], &[0, 91], &[5]];
        assert!(rest.is_empty() || words.iter().any(|begin| rest.starts_with(begin)), "{}", rest.escape_ascii());
    }
    let client = Client::connect(binary.address(), &authority).await;
    let mut client = client.tls("a.localhost", &binary.ca_pem_path(), &[b"http/1.1"]).await;
    assert_eq!(client.get("/x", &authority).await.status(), 200);
    drop(client);
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_requests_over_64_connections_leak_no_descriptors() {
    let plain = Arc::new(Origin::site("User-agent: *\nDisallow: /no\n").await);
    let tls = Arc::new(Origin::tls_site(Alpn::H1, "User-agent: *\nDisallow: /no\n").await);
    let binary = Arc::new(Binary::serve("pace: { max_concurrent: 64 }\nlimits: { idle_timeout: 2s }").await);
    let before = binary.descriptors();
    let mut connections = tokio::task::JoinSet::new();
    for number in 0..64 {
        let (plain, tls, binary) = (plain.clone(), tls.clone(), binary.clone());
        connections.spawn(async move {
            let origin = if number % 2 == 0 { &plain } else { &tls };
            let host = origin.authority("a.localhost");
            let mut client = Client::connect(binary.address(), &host).await;
            if number % 2 == 1 {
                client = client.tls("a.localhost", &binary.ca_pem_path(), &[b"http/1.1"]).await;
            }
            for request in 0..16 {
                let (target, status) = if request % 4 == 3 { ("/no", 403) } else { ("/yes", 200) };
                assert_eq!(client.get(target, &host).await.status(), status, "{number} {request}");
            }
        });
    }
    let outcomes = connections.join_all().await;
    assert_eq!(outcomes.len(), 64);
    assert_eq!((plain.log.count("/yes"), plain.log.count("/no")), (32 * 12, 0));
    assert_eq!((tls.log.count("/yes"), tls.log.count("/no")), (32 * 12, 0));
    assert_eq!((plain.log.count("/robots.txt"), tls.log.count("/robots.txt")), (1, 1));
    // Once the origins have gone, no pooled connection to them is left either.
    drop((plain, tls));
    eventually("the descriptors of before", || binary.descriptors() <= before + 4).await;
    Arc::into_inner(binary).expect("the connections have ended").stop().await;
}

/// No descriptor is left for a new client, but some clients are idle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_client_connections_are_closed_when_descriptors_run_out() {
    let origin = Origin::site("").await;
    let proxy = Binary::serve("log: { level: info }").await;
    let (url, host) = (origin.url("/"), origin.authority("a.localhost"));
    let mut first = Client::open(proxy.address()).await;
    assert_eq!(first.get(&url, &host).await.status(), 200);
    let most = proxy.descriptors() as u64 + 20;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: it reads one struct, and writes none.
    let limited = unsafe { libc::prlimit(proxy.pid() as i32, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(limited, 0);
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..60 {
        let mut client = Client::open(proxy.address()).await;
        assert_eq!(client.get(&url, &host).await.status(), 200);
        clients.push(client);
    }
    assert!(clients.pop().unwrap().get(&url, &host).await.status() == 200, "the one used last stays");
    let told = || proxy.output().matches("cannot accept connections").count() as u64;
    eventually("a word of it", || told() > 0).await;
    assert!(told() <= began.elapsed().as_secs() + 1, "{}", told());
}

/// Of a hundred requests with endless answers, only a part gets descriptors. Another client has its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_streams_of_one_client_leave_descriptors_for_others() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(404),
        "/endless" => {
            Reply::drip(&["data: 1\n\n"; 1000], Duration::from_secs(1)).field("Content-Type", "text/event-stream")
        }
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve_with_files(120, "pace: { max_concurrent: 100 }").await;
    let (endless, url) = (origin.url("/endless"), origin.url("/"));
    let client = H2Client::known(Client::open(proxy.address()).await).await;
    let streams: Vec<_> =
        futures_util::future::join_all((0..99).map(|_| client.send(request("GET", &endless), true))).await;
    eventually("as many as there is room for", || origin.log.count("/endless") >= 5).await;
    for _ in 0..20 {
        let mut other = Client::open(proxy.address()).await;
        assert_eq!(other.get(&url, &origin.authority("a.localhost")).await.status(), 200);
    }
    // A further one of it waits, and one of another client's does not.
    let other = H2Client::known(from_elsewhere(proxy.address()).await).await;
    let others = futures_util::future::join_all((0..3).map(|_| other.send(request("GET", &endless), true))).await;
    eventually("those of another client", || origin.log.count("/endless") >= 8).await;
    assert_eq!(origin.log.count("/endless"), 8, "its first and half of a fifth of 42, and the other's three");
    drop((streams, others));
}

/// A client at another address than all the others.
async fn from_elsewhere(address: SocketAddr) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().unwrap()).expect("an address of this machine");
    let stream = within("a TCP connection", socket.connect(address)).await.expect("the address listens");
    Client::over(Stream::Plain(stream))
}

/// There are more of them than places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_heads_are_closed_to_make_room_for_a_new_client() {
    let origin = Origin::site("").await;
    let proxy = Binary::serve_with_files(80, "limits: { header_timeout: 1h }").await;
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut client = Client::open(proxy.address()).await;
        client.send("GET http://a.localhost/ HTTP/1.1\r\nX: ").await;
        held.push(client);
    }
    let mut client = Client::open(proxy.address()).await;
    assert_eq!(client.get(&origin.url("/"), &origin.authority("a.localhost")).await.status(), 200);
}

/// A page that is never answered, at an origin that answers others.
async fn silent_at_one() -> Origin {
    Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(404),
        "/silent" => Reply::silence(),
        _ => Reply::text("page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_holding_all_places_makes_room_for_another_address() {
    let origin = silent_at_one().await;
    let (host, silent) = (origin.authority("a.localhost"), origin.url("/silent"));
    let proxy = Binary::serve_with_files(80, "pace: { max_concurrent: 100 }").await;
    let mut held = Vec::new();
    for number in 1..=4 {
        let mut client = Client::open(proxy.address()).await;
        client.send(get(&silent, &host)).await;
        eventually("alone, it has all places", || origin.log.count("/silent") == number).await;
        held.push(client);
    }
    let mut other = from_elsewhere(proxy.address()).await;
    assert_eq!(other.get(&origin.url("/"), &host).await.status(), 200);
    assert!(held.pop().expect("four").rest().await.is_empty(), "its newest was cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_users_is_limited_to_half_of_the_places() {
    let origin = silent_at_one().await;
    let yaml = format!("{}\npace: {{ max_concurrent: 100 }}", users(""));
    let proxy = Binary::serve_with_files(80, &yaml).await;
    let mut held = Vec::new();
    for number in 1..=2 {
        let mut client = Client::open(proxy.address()).await;
        client.send(of_user(&origin.url("/silent"), "alice")).await;
        eventually("half of four", || origin.log.count("/silent") == number).await;
        held.push(client);
    }
    for (user, status) in [("alice", 503), ("bob", 200)] {
        let mut client = Client::open(proxy.address()).await;
        client.send(of_user(&origin.url("/"), user)).await;
        assert_eq!(client.response().await.status(), status, "{user}");
    }
}

/// There are descriptors for a few clients and their origins. The others wait and are answered, although no earlier client closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_clients_than_descriptors_are_all_answered() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(404),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve_with_files(80, "").await;
    let warned = "leaves room for 4 client connections at a time";
    assert!(proxy.output().contains(warned), "{}", proxy.output());
    let ask = |number: usize| {
        let (host, address) = (origin.authority(&format!("h{}.localhost", number % 20)), proxy.address());
        let url = origin.url_at(&format!("h{}.localhost", number % 20), "/");
        async move {
            let mut client = Client::open(address).await;
            let status = client.get(&url, &host).await.status();
            (status, client)
        }
    };
    let answers = futures_util::future::join_all((0..20).map(ask)).await;
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200; 20]);
}
