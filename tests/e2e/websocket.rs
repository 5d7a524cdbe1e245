//! WebSockets (RFC 6455) in the three ways in which clients ask a proxy for them, and refused ones.

use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Client, Origin, Protocol, Proxy, Reply, eventually};

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

async fn origins() -> (Origin, Origin) {
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        _ => Reply::websocket().field("X-Origin", "yes"),
    };
    // The TLS origin would rather speak h2, in which there is no such upgrade.
    (Origin::http(handler).await, Origin::https(Alpn::Both, handler).await)
}

async fn echoes(client: Client, target: &str, host: &str) {
    let (mut socket, head) = WebSocket::open(client, target, host).await.expect("101");
    assert_eq!(head.field("x-origin"), Some("yes"));
    for length in [1, 125, 126, 65_535, 200_000] {
        let message: Vec<u8> = (0..length).map(|octet| octet as u8).collect();
        assert!(socket.echo(&message).await == message, "{length}");
    }
    assert!(socket.close().await, "nothing after the close frame");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_absolute_form() {
    let (plain, _) = origins().await;
    let proxy = Proxy::start("").await;
    echoes(proxy.client().await, &plain.url("/ws"), &plain.authority("a.localhost")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_connect() {
    let (plain, _) = origins().await;
    let proxy = Proxy::start("").await;
    let host = plain.authority("a.localhost");
    echoes(Client::connect(proxy.address(), &host).await, "/ws", &host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_intercepted_tls() {
    let (_, tls) = origins().await;
    let proxy = Proxy::start("").await;
    let client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    echoes(client, "/ws", &tls.authority("a.localhost")).await;
    assert_eq!(tls.log.one("/ws").protocol, Protocol::Http1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disallowed_one_is_refused_like_any_request() {
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
async fn an_origin_may_decline() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let declined = WebSocket::open(proxy.client().await, &origin.url("/ws"), &origin.authority("a.localhost")).await;
    let Err(head) = declined else { panic!("upgraded") };
    assert_eq!(head.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_end_s_going_away_ends_the_other() {
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
async fn nothing_but_a_websocket_is_upgraded() {
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
