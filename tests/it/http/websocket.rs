//! WebSockets (RFC 6455) in the three ways in which clients ask a proxy for them, and refused ones.

use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Binary, Client, Origin, Protocol, Proxy, Reply, eventually};

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

async fn origins() -> (Origin, Origin) {
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        _ => Reply::websocket().field("X-Origin", "yes"),
    };
    // The TLS origin prefers h2, which has no Upgrade.
    (Origin::http(handler).await, Origin::https(Alpn::Both, handler).await)
}

async fn echoes(client: Client, target: &str, host: &str) {
    let (mut socket, head) = WebSocket::open(client, target, host).await.expect("101");
    assert_eq!(head.field("x-origin"), Some("yes"));
    for length in [1, 125, 126, 65_535, 200_000] {
        let message: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
        assert!(socket.echo(&message).await == message, "{length}");
    }
    assert!(socket.close().await, "nothing after the close frame");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_in_absolute_form_works() {
    let (plain, _) = origins().await;
    let proxy = Proxy::start("").await;
    echoes(proxy.client().await, &plain.url("/ws"), &plain.authority("a.localhost")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_inside_connect_works() {
    let (plain, _) = origins().await;
    let proxy = Proxy::start("").await;
    let host = plain.authority("a.localhost");
    echoes(Client::connect(proxy.address(), &host).await, "/ws", &host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_inside_intercepted_tls_works() {
    let (_, tls) = origins().await;
    let proxy = Proxy::start("").await;
    let client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    echoes(client, "/ws", &tls.authority("a.localhost")).await;
    assert_eq!(tls.log.one("/ws").protocol, Protocol::Http1);
}

/// An empty body is no body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_with_content_length_0_works() {
    let (plain, tls) = origins().await;
    let proxy = Proxy::start("").await;
    let in_tls = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    for (mut client, target, origin) in
        [(proxy.client().await, plain.url("/ws"), &plain), (in_tls, "/ws".to_owned(), &tls)]
    {
        client
            .send(format!(
                "GET {target} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                origin.authority("a.localhost")
            ))
            .await;
        assert_eq!(client.head().await.status(), 101, "{target}");
        assert_eq!(WebSocket::over(client).echo(b"x").await, b"x");
        assert_eq!(origin.log.one("/ws").field("content-length"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disallowed_websocket_is_refused() {
    let (plain, tls) = origins().await;
    let proxy = Proxy::start("").await;
    let host = plain.authority("a.localhost");
    let in_tls = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    for (client, target, host) in [
        (proxy.client().await, plain.url("/no"), host.clone()),
        (Client::connect(proxy.address(), &host).await, "/no".to_owned(), host),
        (in_tls, "/no".to_owned(), tls.authority("a.localhost")),
    ] {
        let Err(head) = WebSocket::open(client, &target, &host).await else { panic!("{target} was upgraded") };
        assert_eq!((head.status(), head.proxy_error().as_deref()), (403, Some("http_request_denied")));
    }
    assert!(plain.log.pages().is_empty() && tls.log.pages().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_can_decline_a_websocket() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let declined = WebSocket::open(proxy.client().await, &origin.url("/ws"), &origin.authority("a.localhost")).await;
    let Err(head) = declined else { panic!("upgraded") };
    assert_eq!(head.status(), 200);
}

/// Each case: the origin's answer to a handshake, and the body that the client should get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declining_answer_keeps_its_framing() {
    for (bytes, body) in [
        ("HTTP/1.1 403 No\r\nContent-Length: 4\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nnope", "nope"),
        (
            "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n4\r\nnope\r\n0\r\n\r\n",
            "nope",
        ),
        (
            "HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\nHTTP/1.0 403 No\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nnope",
            "nope",
        ),
    ] {
        let origin = said(bytes).await;
        let proxy = Proxy::start("").await;
        let mut client = proxy.client().await;
        client.send(handshake(&origin)).await;
        let response = client.response().await;
        assert_eq!((response.status(), response.text().as_str()), (403, body), "{bytes}");
        assert_eq!(response.field("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"), "it is the origin's to say");
        assert!(response.field("via").is_some() && response.head.lists("connection", "close"), "{:?}", response.head);
        assert!(client.rest().await.is_empty(), "the connection ends");
        let seen = origin.log.one("/ws");
        assert!(seen.field("via").is_some() && seen.field("proxy-authorization").is_none(), "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_answer_to_a_handshake_is_502_and_keeps_the_connection() {
    for (bytes, status, error) in [
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 502, "http_protocol_error"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502, "http_protocol_error"),
        ("HTTP/1.1 200 OK\nContent-Length: 1\n\na", 502, "http_protocol_error"),
        ("SSH-2.0-OpenSSH\r\n\r\n", 502, "http_protocol_error"),
        ("", 502, "connection_terminated"),
    ] {
        let origin = said(bytes).await;
        let proxy = Proxy::start("").await;
        let mut client = proxy.client().await;
        client.send(handshake(&origin)).await;
        let response = client.response().await;
        assert_eq!((response.status(), response.head.proxy_error().as_deref()), (status, Some(error)), "{bytes:?}");
        let next = client.get(&origin.url("/robots.txt"), &origin.authority("a.localhost")).await;
        assert_eq!(next.status(), 200, "{bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_origin_is_504_and_closed_one_502() {
    let silent = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        _ => Reply::silence(),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 500ms }\nhosts: { '*': { robots: ignore } }").await;
    let mut client = proxy.client().await;
    client.send(handshake(&silent)).await;
    let response = client.response().await;
    assert_eq!((response.status(), response.head.proxy_error().as_deref()), (504, Some("http_response_timeout")));
    let asked = handshake(&silent);
    drop(silent);
    crate::support::within("the origin's end", async {
        loop {
            client.send(&asked).await;
            let response = client.response().await;
            if response.head.proxy_error().as_deref() == Some("connection_refused") {
                return assert_eq!(response.status(), 502);
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_sent_with_the_101_is_kept() {
    let hello = "HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n\x02\x05hello";
    let origin = said(hello).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(handshake(&origin)).await;
    assert_eq!(client.head().await.status(), 101);
    assert_eq!(client.rest().await, b"\x02\x05hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_obeys_max_wait_and_report_mode() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /ws\n"),
        _ => Reply::websocket(),
    })
    .await;
    let proxy = Proxy::start("mode: report").await;
    let host = origin.authority("a.localhost");
    let (_, head) = WebSocket::open(proxy.client().await, &origin.url("/ws"), &host).await.expect("101");
    assert!(head.proxy_status_parameter("details").unwrap().contains("disallows this URL"), "{head:?}");
    proxy.reload("pace: { min_delay: 60s, max_wait: 1s }\nhosts: { '*': { robots: ignore } }").unwrap();
    let _first = WebSocket::open(proxy.client().await, &origin.url("/ws"), &host).await;
    let Err(head) = WebSocket::open(proxy.client().await, &origin.url("/ws"), &host).await else { panic!("101") };
    assert_eq!(head.status(), 429);
}

async fn said(bytes: &'static str) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        _ => Reply::raw(bytes).then_close(),
    })
    .await
}

fn handshake(origin: &Origin) -> String {
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: foo/2, WebSocket\r\nConnection: Upgrade\r\n\
         Proxy-Authorization: Basic eDp5\r\nUser-Agent: TestBot/1.0\r\n\r\n",
        origin.url("/ws"),
        origin.authority("a.localhost")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_side_closing_ends_the_other() {
    let (plain, _) = origins().await;
    let proxy = Proxy::start("").await;
    let (mut socket, _) =
        WebSocket::open(proxy.client().await, &plain.url("/ws"), &plain.authority("a.localhost")).await.expect("101");
    assert_eq!(socket.echo(b"x").await, b"x");
    drop(socket);
    eventually("the origin's connections to end", || plain.open_connections() <= 1).await;
    let (mut socket, _) =
        WebSocket::open(proxy.client().await, &plain.url("/ws"), &plain.authority("a.localhost")).await.expect("101");
    assert_eq!(socket.echo(b"x").await, b"x");
    drop(plain);
    assert!(socket.ended().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_websocket_upgrades_are_accepted() {
    // In h2c a client could ask for whatever robots.txt disallows, and nobody would read it.
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        _ if seen.field("upgrade").is_some() => Reply::raw(switch),
        _ => Reply::text("no upgrade"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    for (target, mut client) in
        [(origin.url("/x"), proxy.client().await), ("/x".to_owned(), Client::connect(proxy.address(), &host).await)]
    {
        client
            .send(format!(
                "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                 HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
            ))
            .await;
        let head = client.head().await;
        assert!(head.status() != 101, "{head:?}");
    }
    assert!(origin.log.of("/x").iter().all(|seen| seen.field("upgrade").is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_is_counted_as_one_sent_request() {
    let (plain, _) = origins().await;
    let binary = Binary::serve("admin: { address: '127.0.0.1:0' }").await;
    let host = plain.authority("a.localhost");
    let opened = WebSocket::open(Client::open(binary.address()).await, &plain.url("/ws"), &host).await;
    assert!(opened.is_ok(), "101");
    let url = format!("http://{}/metrics", binary.admin());
    let text = crate::support::curl(&[&url]).await.text();
    for line in ["{reused=\"false\"} 1", "{reused=\"true\"} 0"] {
        assert!(text.contains(&format!("politely_origin_sends_total{line}\n")), "{line}: {text}");
    }
    drop(opened);
    binary.stop().await;
}
