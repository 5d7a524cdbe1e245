//! Trailer sections (RFC 9110 §6.5) pass in both directions, from each version of HTTP to each, as far as the client's can
//! carry them.

use crate::escape::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, block, frame};
use crate::support::h2_client::request;
use crate::support::{Alpn, Origin, Protocol, Proxy, Reply, Seen};

/// Every page has a trailer section.
fn with_trailers(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("body").trailer("x-sum", "9"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_responses_pass_on_h2() {
    let origin = Origin::https(Alpn::Both, with_trailers).await;
    let proxy = Proxy::start("").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let response = client.exchange(request("POST", &origin.url("/x")), b"ping").await.unwrap();
    assert_eq!(response.trailers, [("x-sum".to_owned(), "9".to_owned())]);
    assert_eq!(origin.log.one("/x").protocol, Protocol::Http2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_requests_pass_from_h2() {
    for (alpn, protocol) in [(Alpn::Both, Protocol::Http2), (Alpn::H1, Protocol::Http1)] {
        let origin = Origin::https(alpn, with_trailers).await;
        let proxy = Proxy::start("").await;
        let client = proxy.h2(&origin, "a.localhost").await;
        let mut pending = client.send(request("POST", &origin.url("/x")), false).await;
        pending.body(b"ping").await.unwrap();
        pending.trailers([("x-request-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect()).unwrap();
        let response = pending.response().await.unwrap();
        assert_eq!((response.status(), response.trailers), (200, vec![("x-sum".to_owned(), "9".to_owned())]));
        let seen = origin.log.one("/x");
        assert_eq!((seen.protocol, seen.body.kept.as_slice(), seen.body.complete), (protocol, &b"ping"[..], true));
        assert_eq!(seen.body.trailers, [("x-request-sum".to_owned(), "7".to_owned())]);
    }
}

/// A chunked request with a trailer section.
fn chunked(url: &str, host: &str) -> String {
    format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n0\r\nX-In: 7\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_on_http1_keep_bodies_and_connections_intact() {
    let origin = Origin::http(with_trailers).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    for _ in 0..3 {
        client.send(chunked(&origin.url("/x"), &origin.authority("a.localhost"))).await;
        assert_eq!(client.response().await.text(), "body");
    }
    assert!(origin.log.of("/x").iter().all(|seen| seen.body.kept == b"ping" && seen.body.complete));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_pass_from_http_1() {
    let (plain, tls) = (Origin::http(with_trailers).await, Origin::https(Alpn::H2, with_trailers).await);
    let proxy = Proxy::start("").await;
    for (origin, mut client, target) in [
        (&plain, proxy.client().await, plain.url("/x")),
        (&tls, proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await, "/x".to_owned()),
    ] {
        client.send(chunked(&target, &origin.authority("a.localhost"))).await;
        let response = client.response().await;
        let lower =
            |fields: &[(String, String)]| fields.iter().map(|(n, v)| (n.to_lowercase(), v.clone())).collect::<Vec<_>>();
        let seen = origin.log.one("/x");
        // Over HTTP/2 the origin tells the length of its body, behind which HTTP/1 has no trailers.
        let is_told = target.starts_with("http:");
        assert_eq!(response.head.lists("transfer-encoding", "chunked"), is_told, "{:?}", response.head);
        let trailers = if is_told { vec![("x-sum".to_owned(), "9".to_owned())] } else { Vec::new() };
        assert_eq!(lower(&response.trailers), trailers);
        assert_eq!(
            (response.text().as_str(), lower(&seen.body.trailers)),
            ("body", vec![("x-in".to_owned(), "7".to_owned())])
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_client_gets_no_trailers() {
    let origin = Origin::http(with_trailers).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(format!("GET {} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", origin.url("/x"))).await;
    let all = String::from_utf8(client.rest().await).unwrap();
    assert!(all.ends_with("\r\n\r\nbody") && all.contains("Connection: close\r\n"), "{all}");
}

/// Fields that are forbidden in trailers, or reserved to us (RFC 9110 §6.5.1); the last names another proxy, and passes.
const FORBIDDEN: [(&str, &str); 7] = [
    ("keep-alive", "timeout=5"),
    ("set-cookie", "a=b"),
    ("authorization", "Basic eDp5"),
    ("cache-control", "no-store"),
    ("content-type", "text/html"),
    ("proxy-authenticate", "Basic"),
    ("proxy-status", "politely; error=http_request_denied"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_trailers_are_not_forwarded() {
    let answer = |seen: &Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => {
            // In HTTP/2, Keep-Alive would make the message malformed.
            let forbidden = FORBIDDEN.iter().filter(|it| seen.protocol == Protocol::Http1 || it.0 != "keep-alive");
            let reply = forbidden.fold(Reply::text("body"), |reply, (name, value)| reply.trailer(name, value));
            reply.trailer("x-sum", "9").trailer("proxy-status", "other; received-status=200")
        }
    };
    let sorted = |mut fields: Vec<(String, String)>| {
        fields.sort();
        fields
    };
    let passed = [("proxy-status".to_owned(), "other; received-status=200".to_owned()), ("x-sum".into(), "9".into())];
    let proxy = Proxy::start("").await;
    for origin in
        [Origin::http(answer).await, Origin::https(Alpn::H1, answer).await, Origin::https(Alpn::H2, answer).await]
    {
        let is_tls = origin.url("").starts_with("https");
        let (mut client, target) = match is_tls {
            true => (proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await, "/x".to_owned()),
            false => (proxy.client().await, origin.url("/x")),
        };
        let trailers: String = FORBIDDEN.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let host = origin.authority("a.localhost");
        for _ in 0..2 {
            client
                .send(format!(
                    "POST {target} HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                     4\r\nping\r\n0\r\n{trailers}X-In: 7\r\n\r\n"
                ))
                .await;
            let response = client.response().await;
            assert_eq!(response.text(), "body");
            if response.head.lists("transfer-encoding", "chunked") {
                assert_eq!(sorted(response.trailers), passed);
            }
        }
        for seen in origin.log.of("/x") {
            assert_eq!((seen.body.kept.as_slice(), seen.body.complete), (&b"ping"[..], true));
            assert_eq!(seen.body.trailers, [("x-in".to_owned(), "7".to_owned())]);
        }
        if is_tls {
            let h2 = proxy.h2(&origin, "a.localhost").await;
            let mut pending = h2.send(request("POST", &origin.url("/y")), false).await;
            pending.body(b"ping").await.unwrap();
            let sent = FORBIDDEN.iter().filter(|(name, _)| *name != "keep-alive");
            let sent =
                sent.chain(&[("x-in", "7")]).map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            pending.trailers(sent.collect()).unwrap();
            let response = pending.response().await.unwrap();
            assert_eq!((response.status(), sorted(response.trailers).as_slice()), (200, &passed[..]));
            assert_eq!(origin.log.one("/y").body.trailers, [("x-in".to_owned(), "7".to_owned())]);
        }
    }
}

/// The pseudo-fields are those of a request. If they follow other fields, the request is malformed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pseudo_fields_in_request_trailers_are_not_forwarded() {
    let origin = Origin::https(Alpn::Both, with_trailers).await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    for (path, trailers, is_taken) in [
        ("/first", [(":path", "/secret"), ("x-in", "7")], true),
        ("/last", [("x-in", "7"), (":path", "/secret")], false),
    ] {
        let mut client = frames::open(&proxy, &origin).await;
        let mut head = frames::get(&host, path);
        head[0].1 = "POST";
        client
            .send(
                [
                    frame(HEADERS, END_HEADERS, 1, &block(&head)),
                    frame(DATA, 0, 1, b"ping"),
                    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&trailers)),
                ]
                .concat(),
            )
            .await;
        let taken = frames::taken(&mut client, 1).await;
        assert_eq!(frames::is_ok(&taken), is_taken, "{path}: {taken:?}");
    }
    let seen = origin.log.one("/first");
    assert_eq!(seen.body.trailers, [("x-in".to_owned(), "7".to_owned())]);
    assert!(origin.log.of("/last").iter().all(|seen| !seen.body.complete) && origin.log.count("/secret") == 0);
}
