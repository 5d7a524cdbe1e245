//! CONNECT (RFC 9110 §9.3.6): the tunnel, and refusals.

use crate::support::client::get;
use crate::support::h2_client::{H2Client, request};
use crate::support::{Alpn, CLOSED_PORT, Client, Origin, Proxy, Reply, assert_refused, eventually};
use std::time::Duration;

const H1: &[&[u8]] = &[b"http/1.1"];

fn connect(authority: &str, fields: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")
}

/// Asks for `/proto` through TLS inside `client`, whose CONNECT was answered.
async fn works(proxy: &Proxy, origin: &Origin, client: Client) {
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), H1).await;
    let response = client.get("/proto", &origin.authority("a.localhost")).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "page /proto"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_hello_in_the_segment_of_connect_is_kept() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let head = connect(&origin.authority("a.localhost"), "");
    works(&proxy, &origin, Client::connect_early(proxy.address(), head).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_in_the_segment_of_connect_is_kept() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let authority = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client.send(connect(&authority, "") + &get("/1", &authority) + &get("/2", &authority)).await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.response().await.text(), "page /1");
    assert_eq!(client.response().await.text(), "page /2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_of_an_earlier_request_does_not_apply_inside_connect() {
    let (origin, other) = (Origin::site("").await, Origin::site("").await);
    let proxy = Proxy::start("").await;
    let (authority, elsewhere) = (origin.authority("a.localhost"), other.authority("b.localhost"));
    let mut client = proxy.client().await;
    assert_eq!(client.get(&format!("http://{elsewhere}/1"), &elsewhere).await.status(), 200);
    client.send(connect(&authority, "")).await;
    assert_eq!(client.head().await.status(), 200);
    let refused = client.get("/2", &format!("http://{elsewhere}")).await;
    assert_refused(&refused, 400, "http_request_error", "bad-request");
    assert_eq!(other.log.pages(), ["/1"]);
}

/// The Connection field of a CONNECT applies to the answer that refuses it (escape/refused_connects.rs).
/// After a 200, the requests inside decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_close_in_connect_does_not_end_the_tunnel() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let authority = origin.authority("a.localhost");
    for yaml in ["", "intercept: { default: tunnel }"] {
        let proxy = Proxy::start(yaml).await;
        let (ca, roots) = (proxy.ca_pem_path(), crate::support::test_ca().pem_file());
        let trusted = if yaml.is_empty() { &ca } else { roots };
        for (version, fields) in [
            ("1.1", "Connection: close\r\n"),
            ("1.1", "Proxy-Connection: close\r\n"),
            ("1.1", "Proxy-Connection: keep-alive\r\n"),
            ("1.1", "Connection: keep-alive\r\nUser-Agent: x\r\n"),
            ("1.0", ""),
            ("1.0", "Connection: close\r\n"),
            ("1.0", "Connection: keep-alive\r\n"),
        ] {
            let mut client = proxy.client().await;
            client.send(format!("CONNECT {authority} HTTP/{version}\r\nHost: {authority}\r\n{fields}\r\n")).await;
            let head = client.head().await;
            assert!(head.status() == 200 && !head.lists("connection", "close"), "{yaml} {version} {fields}: {head:?}");
            let mut client = client.tls("a.localhost", trusted, H1).await;
            for _ in 0..2 {
                assert_eq!(client.get("/x", &authority).await.status(), 200, "{yaml} {version} {fields}");
            }
            client.send(get("/x", &authority).replace("Accept", "Connection: close\r\nAccept")).await;
            assert_eq!(client.response().await.status(), 200);
            assert!(client.rest().await.is_empty(), "{yaml} {version} {fields}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_connect_without_host_is_accepted() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(format!("CONNECT {} HTTP/1.0\r\n\r\n", origin.authority("a.localhost"))).await;
    assert_eq!(client.head().await.status(), 200);
    works(&proxy, &origin, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_after_other_requests_on_a_connection_is_accepted() {
    let plain = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let tls = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("intercept: { hosts: { '10.0.0.1': tunnel } }").await;
    let mut client = proxy.client().await;
    let host = plain.authority("a.localhost");
    assert_eq!(client.get(&plain.url("/x"), &host).await.status(), 200);
    assert_eq!(client.get(&plain.url("/no"), &host).await.status(), 403);
    assert_eq!(client.ask_connect(&tls.authority("a.localhost")).await.status(), 200);
    works(&proxy, &tls, client).await;
    let mut client = proxy.client().await;
    assert_eq!(client.get(&plain.url("/x"), &host).await.status(), 200);
    client.send(connect("10.0.0.1:443", "")).await;
    assert_refused(&client.response().await, 403, "destination_ip_prohibited", "egress-denied");
    assert!(client.rest().await.is_empty(), "it is closed");
}

/// Perl's Mojo::UserAgent sends this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_with_content_length_0_is_accepted() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(connect(&origin.authority("a.localhost"), "Content-Length: 0\r\n")).await;
    assert_eq!(client.head().await.status(), 200);
    works(&proxy, &origin, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_connect_has_no_framing_fields() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let head = proxy.client().await.ask_connect(&origin.authority("a.localhost")).await;
    // RFC 9110 §9.3.6: neither field in a 2xx.
    assert_eq!((head.field("content-length"), head.field("transfer-encoding")), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_with_an_invalid_target_or_host_or_a_body_is_400() {
    let proxy = Proxy::start("").await;
    let with_host = |target: &str, host: &str| format!("CONNECT {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for request in [
        with_host("a.localhost", "a.localhost"),
        with_host("a.localhost:", "a.localhost:"),
        with_host("a.localhost:0", "a.localhost:0"),
        with_host("a.localhost:99999", "a.localhost:99999"),
        with_host("a.localhost:x", "a.localhost:x"),
        with_host(":443", ":443"),
        with_host("/x", "h"),
        with_host("*", "h"),
        with_host("user@a.localhost:443", "a.localhost:443"),
        with_host("http://a.localhost:443/", "a.localhost:443"),
        with_host("a.localhost:443/x", "a.localhost:443"),
        with_host("a b:443", "a b:443"),
        with_host("[::1:443", "[::1:443"),
        with_host("a.localhost:443", "a b"),
        with_host("a.localhost:443", "x@a.localhost:443"),
        connect("a.localhost:443", "Content-Length: 3\r\n") + "abc",
        connect("a.localhost:443", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n",
    ] {
        let mut client = proxy.client().await;
        client.send(&request).await;
        let head = client.head().await;
        assert_eq!(head.status(), 400, "{request:?}");
        assert_eq!(head.proxy_error().as_deref(), Some("http_request_error"), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_ignores_a_host_that_differs_from_its_target() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    // The port left out, the proxy as in Node's documentation, any other.
    for host in ["a.localhost", &proxy.address().to_string(), "b.localhost:443"] {
        let mut client = proxy.client().await;
        client.send(format!("CONNECT {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.authority("a.localhost"))).await;
        assert_eq!(client.head().await.status(), 200, "{host}");
        works(&proxy, &origin, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_accepts_an_ipv6_literal() {
    // A machine may have no IPv6 loopback; then there is nothing to reach.
    let Ok(origin) =
        Origin::try_http_on("[::1]:0", crate::support::origin::pages("User-agent: *\nDisallow: /no\n")).await
    else {
        return;
    };
    let proxy = Proxy::start("").await;
    let authority = origin.authority("[::1]");
    let mut client = Client::connect(proxy.address(), &authority).await;
    assert_eq!(client.get("/x", &authority).await.text(), "page /x");
    let problem = assert_refused(&client.get("/no", &authority).await, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(problem["robots_url"], origin.url_at("[::1]", "/robots.txt"));
    assert_eq!(proxy.get(&origin.url_at("[::1]", "/y")).await.text(), "page /y");
    assert_eq!(origin.log.targets(), ["/robots.txt", "/x", "/y"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_inside_connect_obeys_robots_txt() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    let authority = origin.authority("a.localhost");
    let mut client = Client::connect(proxy.address(), &authority).await;
    assert_eq!(client.get("/yes", &authority).await.text(), "page /yes");
    let refused = client.get("/no", &authority).await;
    let problem = assert_refused(&refused, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(problem["url"], origin.url("/no"));
    assert_eq!(client.get(&origin.url("/absolute"), &authority).await.text(), "page /absolute");
    assert_eq!(origin.log.pages(), ["/yes", "/absolute"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authority_inside_the_tunnel_is_421() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let other = Origin::site("").await;
    for target in ["/x".to_owned(), other.url_at("b.localhost", "/x")] {
        let mut client = Client::connect(proxy.address(), &plain.authority("a.localhost")).await;
        let response = client.get(&target, &other.authority("b.localhost")).await;
        assert_refused(&response, 421, "http_request_error", "authority-mismatch");
    }
    for target in ["/x", "https://evil.localhost/x"] {
        let mut client = proxy.tls(&tls, "a.localhost", H1).await;
        let response = client.get(target, "evil.localhost").await;
        assert_refused(&response, 421, "http_request_error", "authority-mismatch");
    }
    let h2 = proxy.h2(&tls, "a.localhost").await;
    let response = h2.get("https://evil.localhost/x").await;
    assert_refused(&response, 421, "http_request_error", "authority-mismatch");
    assert_eq!(h2.get(&tls.url("/x")).await.status(), 200, "the connection is still good for its own authority");
    assert_eq!((plain.connections(), other.connections()), (0, 0));
    assert_eq!(tls.log.pages(), ["/x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_inside_a_connect_is_refused() {
    let origin = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    for authority in [host.clone(), tls.authority("b.localhost")] {
        let plain = Client::connect(proxy.address(), &host).await;
        let inside = proxy.tls(&tls, "a.localhost", H1).await;
        for mut client in [plain, inside] {
            let head = client.ask_connect(&authority).await;
            assert!((400..500).contains(&head.status()), "{head:?}");
        }
        let h2 = proxy.h2(&tls, "a.localhost").await;
        let nested = http::Request::builder().method("CONNECT").uri(&authority).body(()).unwrap();
        if let Ok(answer) = h2.send(nested, true).await.response().await {
            assert!((400..500).contains(&answer.status()), "{:?}", answer.head);
        }
    }
    assert_eq!(origin.connections() + tls.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_protocols_inside_connect_are_closed() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    for bytes in
        [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"\0\0\0\0\0\0\0\0", b"\x16\x99garbage in a TLS record", b"EHLO x\r\n\r\n"]
    {
        let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
        client.send(bytes).await;
        // Until the proxy closes: it does not wait for more.
        let rest = client.rest().await;
        // At most a TLS alert or a 400: nothing from an origin.
        assert!(rest.is_empty() || rest[0] == 0x15 || rest.starts_with(b"HTTP/1.1 400"), "{rest:?}");
    }
    // A malformed request is answered, in any segmentation.
    let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    client.send(b"GET /foo bar\r\n").await;
    assert!(client.glance(Duration::from_millis(100)).await.is_empty());
    client.send(b"Host: a.localhost\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 400);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_waits_silently_inside_connect_is_not_closed_early() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    assert!(client.glance(Duration::from_millis(300)).await.is_empty(), "nothing is made up");
    works(&proxy, &origin, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_hello_in_single_bytes_is_accepted() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let outer = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    works(&proxy, &origin, outer.in_single_bytes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnelled_hosts_pass_unmodified() {
    let origin = Origin::tls_site(Alpn::H1, "User-agent: *\nDisallow: /\n").await;
    let proxy = Proxy::start("intercept: { hosts: { 'a.localhost': tunnel } }").await;
    let client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    // The origin's own certificate.
    let mut client = client.tls("a.localhost", crate::support::test_ca().pem_file(), H1).await;
    let response = client.get("/x", &origin.authority("a.localhost")).await;
    assert_eq!(response.text(), "page /x");
    assert!(!response.head.names_the_proxy() && response.field("via").is_none());
    drop(client);
    // Anything may follow there; the server may speak first and either may end first.
    let ssh = Origin::http(|_| Reply::raw("SSH-2.0-x\r\n")).await;
    let mut client = Client::connect(proxy.address(), &ssh.authority("a.localhost")).await;
    client.send("HELLO\r\nX: y\r\n\r\n").await;
    assert_eq!(client.rest().await, b"SSH-2.0-x\r\n");
}

/// In all forms of CONNECT and with any content, of which nothing is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_to_a_host_with_intercept_deny_is_refused() {
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("intercept: { hosts: { 'a.localhost': deny } }").await;
    let host = tls.authority("a.localhost");
    let mut client = proxy.client().await;
    client.send(connect(&host, "") + &connect(&tls.authority("b.localhost"), "")).await;
    let response = client.response().await;
    assert_refused(&response, 403, "http_request_denied", "operator-denied");
    assert!(
        response.text().contains("`intercept.hosts.a.localhost: deny`") && response.head.lists("connection", "close")
    );
    assert_eq!(client.rest().await, b"");
    let h2 = H2Client::known(proxy.client().await).await;
    assert_eq!(h2.connect(&host).await.err(), Some(403));
    let mut socks = proxy.client().await;
    let port = tls.port().to_be_bytes();
    socks.send([&[5, 1, 0, 5, 1, 0, 3, 11], &b"a.localhost"[..], &port].concat()).await;
    assert_eq!(socks.rest().await, [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0], "not allowed");
    assert_eq!(tls.connections(), 0);
}

/// A request for an https URL that is sent to the proxy is refused like a CONNECT. The refusal names the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intercept_deny_applies_to_https_urls_without_connect() {
    let (tls, plain) = (Origin::tls_site(Alpn::Both, "").await, Origin::site("").await);
    for (yaml, key) in [
        ("intercept: { hosts: { '*.localhost': deny } }", "intercept.hosts.*.localhost"),
        ("hosts: { a.localhost: { intercept: deny } }", "hosts.a.localhost.intercept"),
        ("intercept: { default: deny }", "intercept.default"),
    ] {
        let proxy = Proxy::start(yaml).await;
        let (url, host) = (tls.url("/page"), tls.authority("a.localhost"));
        let mut client = proxy.client().await;
        client.send(connect(&host, "")).await;
        let h2 = H2Client::known(proxy.client().await).await;
        let refused = [client.response().await, proxy.get(&url).await, h2.get(&url).await];
        for response in refused {
            assert_refused(&response, 403, "http_request_denied", "operator-denied");
            assert!(response.text().contains(&format!("`{key}: deny`")), "{key}: {}", response.text());
            assert_eq!(response.problem()["rule"], format!("{key}: deny"));
        }
        let mut websocket = request("CONNECT", &url);
        websocket.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
        websocket.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        h2.takes_protocols().await;
        assert_eq!(h2.open(websocket).await.err(), Some(403));
        assert_eq!(proxy.get(&plain.url("/page")).await.status(), 200, "plain http is not concerned");
    }
    assert_eq!(tls.connections(), 0);
}

/// CONNECT to an address is granted, and the SNI names the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intercept_deny_applies_to_a_host_named_only_in_the_sni() {
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("intercept: { hosts: { 'a.localhost': deny } }").await;
    let client = Client::connect(proxy.address(), &tls.authority("127.0.0.1")).await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), H1).await;
    let response = client.get("/x", &tls.authority("a.localhost")).await;
    assert_refused(&response, 403, "http_request_denied", "operator-denied");
    assert_eq!(tls.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_cannot_be_opened_is_a_502() {
    let proxy = Proxy::start("intercept: { hosts: { 'a.localhost': tunnel } }").await;
    let mut client = proxy.client().await;
    client.send(connect(&format!("a.localhost:{CLOSED_PORT}"), "")).await;
    let response = client.response().await;
    assert_eq!((response.status(), response.head.proxy_error().as_deref()), (502, Some("connection_refused")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_a_tunnel_closes_the_origin_connection() {
    let origin = Origin::http(|_| Reply::silence()).await;
    let proxy = Proxy::start("intercept: { hosts: { 'a.localhost': tunnel } }").await;
    let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    client.send("GET /x HTTP/1.1\r\nHost: a.localhost\r\n\r\n").await;
    eventually("the request", || origin.log.count("/x") == 1).await;
    drop(client);
    eventually("the end at the origin", || origin.log.one("/x").cut).await;
}
