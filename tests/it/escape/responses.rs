//! Origins that answer what cannot be read, or more than was asked: the client gets one answer, and the next client
//! none of it.

use super::siege::{Siege, shoot};
use crate::support::{Origin, Proxy, Reply};

/// An answer that nobody asked for.
const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

/// Answers with which the client must be told of an error, or be cut off.
const MALFORMED: &[(&str, &str)] = &[
    ("no status line", "\r\n\r\n"),
    ("no HTTP", "hello\r\n\r\n"),
    ("HTTP/0.9", "<html>hello</html>"),
    ("another version", "HTTP/3.0 200 OK\r\n\r\n"),
    ("no status", "HTTP/1.1 \r\nContent-Length: 0\r\n\r\n"),
    ("a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("a status of letters", "HTTP/1.1 OK 200\r\nContent-Length: 0\r\n\r\n"),
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 2\r\n\r\nbody"),
    ("a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nbody"),
    ("a length below zero", "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nbody"),
    ("a length in hexadecimal", "HTTP/1.1 200 OK\r\nContent-Length: 0x4\r\n\r\nbody"),
    ("a length beyond 64 bits", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nbody"),
    ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4, 2\r\n\r\nbody"),
    ("another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
    ("chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
    ("a coding nobody knows", "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\nbody"),
    ("a chunk that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nbody\r\n0\r\n\r\n"),
    ("a chunk too long", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbody\r\n0\r\n\r\n"),
    ("a chunk beyond 64 bits", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000004\r\nbody"),
    ("a NUL in a field", "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 4\r\n\r\nbody"),
    ("a bare CR in a field", "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 4\r\n\r\nbody"),
    ("a space in a name", "HTTP/1.1 200 OK\r\nX Y: z\r\nContent-Length: 4\r\n\r\nbody"),
    ("no name", "HTTP/1.1 200 OK\r\n: z\r\nContent-Length: 4\r\n\r\nbody"),
    ("no colon", "HTTP/1.1 200 OK\r\nX\r\nContent-Length: 4\r\n\r\nbody"),
    ("a switch nobody asked for", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    ("an end too early", "HTTP/1.1 200 OK\r\nContent-Le"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_answers_are_not_forwarded() {
    let origin = Origin::http(|seen| {
        let number = seen.path().strip_prefix("/bad/").and_then(|number| number.parse::<usize>().ok());
        match number {
            Some(number) => Reply::raw(format!("{}{EVIL}", MALFORMED[number].1)),
            None if seen.path() == "/robots.txt" => Reply::text(""),
            None => Reply::text("good"),
        }
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 2s }").await;
    let mut siege = Siege::default();
    for (number, (name, _)) in MALFORMED.iter().enumerate() {
        let mut client = proxy.client().await;
        let host = origin.authority("a.localhost");
        let url = origin.url(&format!("/bad/{number}"));
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        let all = String::from_utf8_lossy(&super::siege::rest(&mut client).await).into_owned();
        let starts = all.matches("HTTP/1.1 ").count();
        // An error of ours, or a body that is cut so that the client can tell.
        let framed = all.contains("\r\n0\r\n\r\n") || all.ends_with("body");
        let wrong = match () {
            () if all.is_empty() || all.starts_with("HTTP/1.1 502") || all.starts_with("HTTP/1.1 504") => None,
            () if starts > 1 => Some(format!("{starts} answers: {all:?}")),
            () if all.starts_with("HTTP/1.1 200") && !framed => None,
            () => Some(format!("{all:?}")),
        };
        siege.tried(*name, wrong);
        let good = proxy.get(&origin.url("/good")).await;
        siege.tried(format!("after {name}"), (good.text() != "good").then(|| format!("{good:?}")));
    }
    siege.withstood(52);
}

/// Answers that are good, with another behind them: the connection must not be kept for anybody.
const OVERFULL: &[(&str, &str)] = &[
    ("a whole body", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"),
    ("an empty body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("no content", "HTTP/1.1 204 No Content\r\n\r\n"),
    ("not modified", "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"),
    ("a chunked body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"),
    (
        "both framings",
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
    ),
    ("an interim answer", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"),
    ("a length on no content", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
    ("a redirect", "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_an_answer_do_not_answer_the_next_request() {
    let origin = Origin::http(|seen| {
        let number = seen.path().strip_prefix("/bad/").and_then(|number| number.parse::<usize>().ok());
        match number {
            Some(number) => Reply {
                then: crate::support::reply::Then::KeepAlive,
                ..Reply::raw(format!("{}{EVIL}", OVERFULL[number].1))
            },
            None if seen.path() == "/robots.txt" => Reply::text(""),
            None => Reply::text("good"),
        }
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 2s }").await;
    let mut siege = Siege::default();
    for (number, (name, _)) in OVERFULL.iter().enumerate() {
        for method in ["GET", "HEAD"] {
            let mut client = proxy.client().await;
            let host = origin.authority("a.localhost");
            let url = origin.url(&format!("/bad/{number}"));
            client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let first = client.response_to(method).await;
            siege.tried(format!("{method}, {name}"), (first.text().contains("evil")).then(|| format!("{first:?}")));
            let same =
                shoot(&mut client, format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/good"))).await;
            let wrong = same.filter(|same| same.text() != "good").map(|same| format!("{same:?}"));
            siege.tried(format!("{method}, the same client after {name}"), wrong);
            let other = proxy.get(&origin.url("/good")).await;
            siege.tried(
                format!("{method}, another client after {name}"),
                (other.text() != "good").then(|| format!("{other:?}")),
            );
        }
    }
    siege.withstood(48);
}

/// Origins send fields that only the proxy may send, or that apply to one hop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_cannot_forge_our_proxy_status() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("x")
            .field("Proxy-Status", "politely; error=http_request_denied")
            .field("proxy-status", "\"politely\"; error=dns_error, Politely")
            .field("Proxy-Authenticate", "Basic realm=\"phish\"")
            .field("Proxy-Authentication-Info", "x")
            .field("Proxy-Connection", "keep-alive")
            .field("Connection", "x-hop")
            .field("X-Hop", "1")
            .field("Keep-Alive", "timeout=1"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let answer = proxy.get(&origin.url("/x")).await;
    assert_eq!(answer.status(), 200);
    assert!(!answer.head.names_the_proxy(), "{:?}", answer.head);
    for field in ["proxy-authenticate", "proxy-authentication-info", "proxy-connection", "x-hop", "keep-alive"] {
        assert!(answer.head.all(field).is_empty(), "{field}: {:?}", answer.head);
    }
}

/// Only a proxy may send 407: from an origin, it must not make a client send its proxy password there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_407_does_not_obtain_proxy_credentials() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::status(407).field("Proxy-Authenticate", "Basic realm=\"phish\""),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic eDp5\r\n\r\n");
    let answer = shoot(&mut client, request).await.expect("an answer");
    assert!(answer.head.all("proxy-authenticate").is_empty(), "{:?}", answer.head);
    assert!(origin.log.all().iter().all(|seen| seen.all("proxy-authorization").is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_interim_answers_and_heads_are_cut_off() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/interim" => Reply::raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100_000)),
        "/head" => Reply::raw(format!("HTTP/1.1 200 OK\r\n{}", "X-A: b\r\n".repeat(500_000))),
        "/field" => Reply::raw(format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(4_000_000))),
        "/line" => Reply::raw("H".repeat(4_000_000)),
        "/reason" => Reply::raw(format!("HTTP/1.1 200 {}\r\n\r\n", "y".repeat(4_000_000))),
        _ => Reply::text("good"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 2s }").await;
    let mut siege = Siege::default();
    for path in ["/interim", "/head", "/field", "/line", "/reason"] {
        let mut client = proxy.client().await;
        let (url, host) = (origin.url(path), origin.authority("a.localhost"));
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        let answer = client.try_head().await;
        siege.tried(path, answer.filter(|head| head.status() < 500).map(|head| format!("{head:?}")));
    }
    siege.withstood(5);
    assert_eq!(proxy.get(&origin.url("/x")).await.text(), "good");
}

/// Both before a page and before a robots.txt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_32_interim_answers_are_accepted() {
    for (more, page, robots) in [(32, 200, 200), (33, 502, 503)] {
        let answer =
            format!("{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(more));
        for (path, status) in [("/x", page), ("/robots.txt", robots)] {
            let answer = answer.clone();
            let origin = Origin::http(move |seen| match seen.path() == path {
                true => Reply::raw(&answer),
                false => Reply::text(""),
            })
            .await;
            let proxy = Proxy::start("").await;
            assert_eq!(proxy.get(&origin.url("/x")).await.status(), status, "{more} before {path}");
        }
    }
}
