//! CONNECT for one host, a handshake or a request for another.

use super::siege::{Siege, refused, shoot};
use crate::support::{Alpn, Client, H2Client, Origin, Proxy, eventually, h2_client, test_ca};

/// b.localhost is closed to all; a.localhost is open.
const OVERRIDES: &str = "hosts: { 'b.localhost': { deny: [/] }, 'c.localhost': { intercept: deny } }";

/// The names in CONNECT, in the SNI, and in the request inside (target and Host).
const ROWS: &[(&str, &str, Option<&str>, &str, &str)] = &[
    ("Host is another", "a.localhost", Some("a.localhost"), "/x", "b.localhost:{p}"),
    ("the target is another", "a.localhost", Some("a.localhost"), "https://b.localhost:{p}/x", "b.localhost:{p}"),
    ("target and Host differ", "a.localhost", Some("a.localhost"), "https://a.localhost:{p}/x", "b.localhost:{p}"),
    ("the target is plain http", "a.localhost", Some("a.localhost"), "http://a.localhost:{p}/x", "a.localhost:{p}"),
    ("the handshake is another", "a.localhost", Some("b.localhost"), "/x", "a.localhost:{p}"),
    ("handshake and Host are another", "a.localhost", Some("b.localhost"), "/x", "b.localhost:{p}"),
    ("CONNECT is another", "b.localhost", Some("a.localhost"), "/x", "a.localhost:{p}"),
    ("CONNECT and Host are another", "b.localhost", Some("a.localhost"), "/x", "b.localhost:{p}"),
    ("all three differ", "a.localhost", Some("b.localhost"), "/x", "c.localhost:{p}"),
    ("no name in the handshake, another Host", "a.localhost", None, "/x", "b.localhost:{p}"),
    ("an address, and the closed name", "127.0.0.1", Some("b.localhost"), "/x", "b.localhost:{p}"),
    ("an address, a name, another Host", "127.0.0.1", Some("a.localhost"), "/x", "b.localhost:{p}"),
    ("an address, a name, the address as Host", "127.0.0.1", Some("a.localhost"), "/x", "127.0.0.1:{p}"),
    ("an address, no name, a name as Host", "127.0.0.1", None, "/x", "a.localhost:{p}"),
    ("another port in Host", "a.localhost", Some("a.localhost"), "/x", "a.localhost:1"),
    ("no port in Host", "a.localhost", Some("a.localhost"), "/x", "a.localhost"),
    ("Host with userinfo", "a.localhost", Some("a.localhost"), "/x", "b.localhost:{p}@a.localhost:{p}"),
    ("Host with a tail", "a.localhost", Some("a.localhost"), "/x", "a.localhost:{p}.b.localhost"),
    ("a host that is denied", "c.localhost", Some("c.localhost"), "/x", "c.localhost:{p}"),
    (
        "a denied host by CONNECT, an open one in the handshake",
        "c.localhost",
        Some("a.localhost"),
        "/x",
        "a.localhost:{p}",
    ),
    (
        "an open host by CONNECT, a denied one in the handshake",
        "a.localhost",
        Some("c.localhost"),
        "/x",
        "c.localhost:{p}",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_sni_uri_and_host_must_name_the_same_host() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start(OVERRIDES).await;
    let port = origin.port().to_string();
    let mut siege = Siege::default();
    for (name, connect, sni, target, host) in ROWS {
        let (target, host) = (target.replace("{p}", &port), host.replace("{p}", &port));
        let mut client = proxy.client().await;
        let status = client.ask_connect(&format!("{connect}:{port}")).await.status();
        if *connect == "c.localhost" {
            siege.tried(*name, (status != 403).then(|| format!("CONNECT is answered {status}")));
            continue;
        }
        assert_eq!(status, 200, "{name}");
        // An address is sent as no name at all.
        let inside = client
            .try_tls(
                sni.unwrap_or(if connect.starts_with('1') { connect } else { "127.0.0.1" }),
                &proxy.ca_pem_path(),
                &[b"http/1.1"],
            )
            .await;
        let Ok(mut client) = inside else {
            siege.tried(*name, None);
            continue;
        };
        let answer = shoot(&mut client, format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        siege.tried(*name, refused(answer.as_ref(), &[400, 403, 421]));
    }
    siege.withstood(21);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intercepted_h2_connection_refuses_other_hosts() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let h2 = proxy.h2(&origin, "a.localhost").await;
    let mut siege = Siege::default();
    for host in ["b.localhost", "c.localhost", "127.0.0.1", "localhost", "a.localhost.b.localhost"] {
        let answer = h2.get(&format!("https://{host}:{}/x", origin.port())).await;
        siege.tried(host, refused(Some(&answer), &[421]));
    }
    for url in [format!("https://a.localhost:{}/x", 1), "https://a.localhost/x".to_owned()] {
        siege.tried(&*url, refused(Some(&h2.get(&url).await), &[421]));
    }
    for host in ["b.localhost", "x@a.localhost", "a.localhost:1", ""] {
        let mut request = h2_client::request("GET", &origin.url("/x"));
        request.headers_mut().insert("host", host.parse().unwrap());
        let answer = h2.send(request, true).await.response().await.ok();
        let status = answer.map_or(400, |answer| answer.status());
        siege.tried(format!("Host {host:?} beside :authority"), (status != 400).then(|| format!("status {status}")));
    }
    siege.withstood(11);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
    assert_eq!(h2.get(&origin.url("/mine")).await.status(), 200, "and goes on serving it");
}

/// Other sites may share the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_with_the_sni_of_another_host_is_refused() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("intercept: { default: tunnel }").await;
    let h2 = H2Client::known(proxy.client().await).await;
    let (roots, port) = (test_ca().pem_file(), origin.port());
    let mut siege = Siege::default();
    // An address is sent as no name at all.
    for (connect, sni, is_let_through) in [
        ("a.localhost", "b.localhost", false),
        ("a.localhost", "localhost", false),
        ("a.localhost", "x.a.localhost", false),
        ("a.localhost", "A.localhost", true),
        ("a.localhost", "127.0.0.1", true),
        ("127.0.0.1", "b.localhost", true),
    ] {
        let connect = format!("{connect}:{port}");
        for way in ["a row", "single bytes", "HTTP/2"] {
            let client = match way {
                "HTTP/2" => h2.connect(&connect).await.expect("200"),
                "single bytes" => Client::connect(proxy.address(), &connect).await.in_single_bytes(),
                _ => Client::connect(proxy.address(), &connect).await,
            };
            let inside = client.try_tls(sni, roots, &[b"http/1.1"]).await;
            let alert = inside.as_ref().err().map(ToString::to_string).unwrap_or_default();
            let is_as_meant = if is_let_through { inside.is_ok() } else { alert.contains("UnrecognisedName") };
            siege.tried(format!("{sni} to {connect}, {way}"), (!is_as_meant).then(|| format!("{:?}", inside.err())));
        }
    }
    siege.withstood(18);
    let counts = proxy.counts();
    assert_eq!(counts.refused["authority-mismatch"], 9);
    let ended = || (proxy.counts().tunnels, proxy.counts().forwarded);
    eventually("nine tunnels that end without a refusal, each counted once", || ended() == (9, 9)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheme_http_is_refused_inside_intercepted_h2() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let h2 = proxy.h2(&origin, "a.localhost").await;
    let url = origin.url("/x").replace("https:", "http:");
    let answer = h2.send(h2_client::request("GET", &url), true).await.response().await.ok();
    assert_eq!(refused(answer.as_ref(), &[400, 421]), None);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

/// Nothing of it reaches an origin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_tls_handshakes_end_the_connection() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("limits: { header_timeout: 4s, idle_timeout: 4s }").await;
    let (mut siege, mut clients) = (Siege::default(), Vec::new());
    for (name, bytes) in [
        ("one byte", &b"\x16"[..]),
        ("a header alone", b"\x16\x03\x01\x02\x00"),
        ("an empty record", b"\x16\x03\x01\x00\x00"),
        ("a record too long", b"\x16\x03\x01\xff\xff\x01\x00\x00"),
        ("a record of zeros", &[0x16, 3, 1, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("SSL 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"),
        ("an alert", b"\x15\x03\x03\x00\x02\x02\x28"),
        ("application data", b"\x17\x03\x03\x00\x05hello"),
        ("the h2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("SSH", b"SSH-2.0-x\r\n"),
        ("SMTP", b"EHLO a.localhost\r\nMAIL FROM:<a>\r\n"),
        ("a SOCKS greeting", b"\x05\x01\x00"),
        ("HAProxy's header", b"PROXY TCP4 1.1.1.1 127.0.0.1 1 2\r\nGET /x HTTP/1.1\r\nHost: a.localhost\r\n\r\n"),
        ("HAProxy's binary header", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"),
    ] {
        let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
        client.try_send(bytes).await.ok();
        clients.push((name, client));
    }
    for (name, mut client) in clients {
        let rest = super::siege::rest(&mut client).await;
        let answered = rest.starts_with(b"HTTP/1.1 2");
        siege.tried(name, answered.then(|| String::from_utf8_lossy(&rest).into_owned()));
    }
    siege.withstood(14);
    assert_eq!(origin.log.all().len(), 0);
    let client = proxy.tls(&origin, "a.localhost", &[b"h2"]).await;
    assert_eq!(H2Client::over(client).await.get(&origin.url("/x")).await.status(), 200);
}
