//! Host beside a whole URL (RFC 9112 §3.2.2): it counts for nothing, and must lead nowhere.

use super::siege::{Siege, refused, shoot};
use crate::support::h2_client::request;
use crate::support::{Alpn, Client, H2Client, Origin, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_field_cannot_redirect_an_absolute_url() {
    let (origin, other) = (Origin::site("User-agent: *\nDisallow: /no\n").await, Origin::site("").await);
    let proxy = Proxy::start("").await;
    let elsewhere = other.authority("b.localhost");
    for host in [&elsewhere, "b.localhost", "127.0.0.1", "xn--bcher-kva.example:81", &proxy.address().to_string()] {
        // The first on a connection, and behind one whose Host was right.
        for warm in [false, true] {
            let mut client = proxy.client().await;
            if warm {
                assert_eq!(client.get(&origin.url("/warm"), &origin.authority("a.localhost")).await.status(), 200);
            }
            assert_eq!(client.get(&origin.url("/x"), host).await.text(), "page /x", "{host}");
            assert_eq!(client.get(&origin.url("/no"), host).await.status(), 403, "{host}");
            assert_eq!(client.get(&origin.url("/y"), &origin.authority("a.localhost")).await.text(), "page /y");
        }
    }
    for seen in origin.log.all() {
        assert_eq!(seen.host, origin.authority("a.localhost"), "{seen:?}");
    }
    assert_eq!((other.connections(), origin.log.count("/no")), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_or_invalid_host_fields_are_refused() {
    let (origin, other) = (Origin::site("").await, Origin::site("").await);
    let proxy = Proxy::start("").await;
    let (host, elsewhere) = (origin.authority("a.localhost"), other.authority("b.localhost"));
    let mut siege = Siege::default();
    for fields in [
        format!("Host: {host}\r\nHost: {elsewhere}\r\n"),
        format!("Host: {elsewhere}\r\nHost: {host}\r\n"),
        format!("Host: {host}\r\nHost: {host}\r\n"),
        format!("Host: {host}, {elsewhere}\r\n"),
        format!("Host: x@{elsewhere}\r\n"),
        format!("Host: {elsewhere}/x\r\n"),
        format!("Host : {elsewhere}\r\n"),
        "Host: a b\r\n".to_owned(),
        "Host:\r\n".to_owned(),
        String::new(),
    ] {
        let mut client = proxy.client().await;
        let answer = shoot(&mut client, format!("GET {} HTTP/1.1\r\n{fields}\r\n", origin.url("/x"))).await;
        siege.tried(fields, refused(answer.as_ref(), &[400]));
    }
    siege.withstood(10);
    assert_eq!(origin.connections() + other.connections(), 0);
}

/// Inside CONNECT, a client addresses the origin: every field that names the host has to agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_field_inside_connect_must_match() {
    let (plain, tls) = (Origin::site("").await, Origin::tls_site(Alpn::Both, "").await);
    let other = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let elsewhere = other.authority("b.localhost");
    let mut siege = Siege::default();
    for (origin, is_tls) in [(&plain, false), (&tls, true)] {
        let host = origin.authority("a.localhost");
        for (target, named) in [
            (origin.url("/x"), &elsewhere),
            (other.url_at("b.localhost", "/x"), &host),
            (other.url_at("b.localhost", "/x"), &elsewhere),
            ("/x".to_owned(), &elsewhere),
        ] {
            let mut client = match is_tls {
                true => proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await,
                false => Client::connect(proxy.address(), &host).await,
            };
            let answer = shoot(&mut client, format!("GET {target} HTTP/1.1\r\nHost: {named}\r\n\r\n")).await;
            siege.tried(format!("{target} beside {named}"), refused(answer.as_ref(), &[421]));
        }
    }
    siege.withstood(8);
    assert_eq!(plain.connections() + tls.connections() + other.connections(), 0);
}

/// RFC 9113 §8.3.1: such a request is malformed, to the proxy and inside a CONNECT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_host_that_differs_from_authority_is_refused() {
    let (plain, tls) = (Origin::site("").await, Origin::tls_site(Alpn::Both, "").await);
    let other = Origin::site("").await;
    let proxy = Proxy::start("").await;
    for (client, origin) in
        [(H2Client::known(proxy.client().await).await, &plain), (proxy.h2(&tls, "a.localhost").await, &tls)]
    {
        let mut asked = request("GET", &origin.url("/x"));
        asked.headers_mut().insert("host", other.authority("b.localhost").parse().unwrap());
        let answer = client.send(asked, true).await.response().await;
        assert!(answer.as_ref().map_or(true, |answer| answer.status() == 400), "{answer:?}");
        assert_eq!(client.get(&origin.url("/y")).await.text(), "page /y");
        assert_eq!(origin.log.pages(), ["/y"]);
    }
    assert_eq!(other.connections(), 0);
}
