//! Requests that would come back to the proxy.

use super::siege::{Siege, refused, shoot};
use crate::support::{Client, Origin, Proxy, assert_refused};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_the_proxys_own_addresses_are_refused() {
    let (proxy, _taken) = loop {
        let proxy = Proxy::start("listen: [{ address: '127.0.0.1:0' }, { address: '[::1]:0' }]").await;
        // Bound and not listened on, so that no other test's server answers at the same port of the other family.
        let others = proxy.addresses().into_iter().map(|address| {
            let socket = if address.is_ipv4() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
            let other: IpAddr = if address.is_ipv4() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
            socket.bind((other, address.port()).into()).map(|()| socket)
        });
        if let Ok(taken) = others.collect::<std::io::Result<Vec<_>>>() {
            break (proxy, taken);
        }
    };
    let mut siege = Siege::default();
    for address in proxy.addresses() {
        let port = address.port();
        for host in
            ["127.0.0.1", "localhost", "x.localhost", "LOCALHOST", "localhost.", "[::1]", "[::ffff:127.0.0.1]", "127.1"]
        {
            let authority = format!("{host}:{port}");
            let mut client = proxy.client().await;
            let request = format!("GET http://{authority}/x HTTP/1.1\r\nHost: {authority}\r\n\r\n");
            let answer = shoot(&mut client, request).await;
            siege.tried(&authority, refused(answer.as_ref(), &[400, 403, 502, 503, 508]));
            let mut client = proxy.client().await;
            let _ = client.ask_connect(&authority).await;
            let answer = shoot(&mut client, format!("GET /x HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
            siege.tried(format!("CONNECT {authority}"), refused(answer.as_ref(), &[400, 403, 502, 503, 508]));
        }
    }
    siege.withstood(32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_with_our_via_is_refused_as_a_loop() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    proxy.get(&origin.url("/first")).await;
    let via = origin.log.one("/first").field("via").expect("Via is added").to_owned();
    let name = via.split(' ').nth(1).expect("a protocol and a name").to_owned();
    let mut siege = Siege::default();
    for field in [
        format!("Via: {via}"),
        format!("via: 1.0 {name}"),
        format!("Via: HTTP/2 {name} (a comment)"),
        format!("Via: 1.1 first, 1.1 {name}, 1.1 last"),
        format!("Via: 1.1 first\r\nVia: 1.1 {name}"),
        format!("Via: 1.1 first (a, comment), 1.1 {name}"),
        format!("Via: 1.1 {}", name.to_uppercase()),
        format!("Via:  1.1   {name}  "),
        format!("Via: 1.1\t{name}"),
        format!("Via: 1.1 {name}\r\nConnection: via"),
        format!("Via: 1.1 \u{fc}, 1.1 {name}"),
        format!("Via: ,,1.1 {name},,"),
    ] {
        let (url, host) = (origin.url("/again"), origin.authority("a.localhost"));
        let mut client = proxy.client().await;
        let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n\r\n")).await;
        siege.tried(field, refused(answer.as_ref(), &[508]));
    }
    siege.withstood(12);
    assert_eq!(origin.log.pages(), ["/first"]);
}

/// The fetches would otherwise cause each other without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_robots_txt_that_points_at_the_proxy_is_not_followed() {
    let proxy = Proxy::start("").await;
    let own = proxy.address();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => crate::support::Reply::redirect(format!("http://{own}/robots.txt")),
        _ => crate::support::Reply::text("page"),
    })
    .await;
    let answer = proxy.get(&origin.url("/x")).await;
    assert_eq!(refused(Some(&answer), &[503]), None);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

/// The upstream proxy forwards TCP back to us, so the fetch of robots.txt comes back as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_through_a_forwarding_upstream_proxy_ends_at_once() {
    let forwarder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let parent = forwarder.local_addr().unwrap();
    let proxy =
        Proxy::start(&format!("egress: {{ upstream_proxy: 'http://{parent}' }}\nrobots: {{ timeout: 60s }}")).await;
    let to = proxy.address();
    let forwarding = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut from, _)) = forwarder.accept().await {
            connections.spawn(async move {
                let mut to = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    let start = Instant::now();
    assert_refused(&proxy.get("http://a.localhost:8080/x").await, 508, "proxy_loop_detected", "loop");
    let client = Client::connect(proxy.address(), "a.localhost:8443").await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
    assert_refused(&client.get("/x", "a.localhost:8443").await, 508, "proxy_loop_detected", "loop");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    forwarding.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_chained_instances_with_one_name_are_not_a_loop() {
    let origin = Origin::site("").await;
    let name = "identity: { instance: crawl3.example.com }";
    let second = Proxy::start(name).await;
    let yaml = format!("{name}\negress: {{ upstream_proxy: 'http://{}' }}", second.address());
    let first = Proxy::start(&yaml).await;
    assert_eq!(first.get(&origin.url("/x")).await.status(), 200);
    let vias = origin.log.one("/x").all("via").join(", ");
    let names: Vec<_> = vias.split(", ").filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(names.len() == 2 && names[0] != names[1], "{vias}");
    assert!(names.iter().all(|name| name.starts_with("crawl3.example.com-")), "{vias}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_name_survives_restarts_and_appears_in_the_log() {
    let origin = Origin::site("").await;
    let mut names = Vec::new();
    let mut home = tempfile::tempdir().unwrap();
    for target in ["/1", "/2"] {
        let proxy = Proxy::start_in(home, "").await;
        proxy.get(&origin.url(target)).await;
        let seen = origin.log.one(target);
        let via = seen.field("via").unwrap().to_owned();
        let (name, process) = via.strip_prefix("1.1 ").unwrap().rsplit_once('-').unwrap();
        names.push((name.to_owned(), process.to_owned()));
        home = proxy.shutdown().await;
    }
    assert_eq!(names[0].0, names[1].0);
    assert_ne!(names[0].1, names[1].1);
}
