//! Requests through an upstream proxy (`egress.upstream_proxy`).

use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Client, Conduct, Origin, Parent, Proxy, Reply, assert_refused};

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";
const USER: &str = "alice:a%20secret@";
const SHOWN: &str = "Basic YWxpY2U6YSBzZWNyZXQ=";

async fn through(parent: &Parent, user: &str, yaml: &str) -> Proxy {
    Proxy::start(&format!("egress: {{ upstream_proxy: '{}' }}\n{yaml}", parent.url(user))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_requests_use_absolute_form_with_the_upstream_credentials() {
    let origin = Origin::site(ROBOTS).await;
    for parent in [Parent::start(Conduct::Ask("alice:a secret")).await, Parent::start_tls(Conduct::Serve).await] {
        let proxy = through(&parent, USER, "").await;
        let page = proxy.get(&origin.url("/a%2fb?c|d")).await;
        assert_eq!((page.status(), page.text().as_str()), (200, "page /a%2fb?c|d"));
        assert_refused(&proxy.get(&origin.url("/no")).await, 403, "http_request_denied", "robots-disallowed");
        let host = origin.authority("a.localhost");
        let lines = ["/robots.txt", "/a%2fb?c|d"].map(|path| format!("GET http://{host}{path} HTTP/1.1"));
        assert_eq!(parent.lines(), lines);
        for head in parent.asked() {
            assert_eq!(head.field("proxy-authorization"), Some(SHOWN));
            assert_eq!(head.field("host"), Some(host.as_str()));
        }
    }
    assert!(origin.log.of("/a%2fb?c|d").iter().all(|seen| seen.field("x-parent") == Some("yes")), "none went past it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_proxy_credentials_are_not_sent_to_the_upstream_proxy() {
    let origin = Origin::site(ROBOTS).await;
    let parent = Parent::start(Conduct::Serve).await;
    let proxy = through(&parent, "", "").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client
        .send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic eDp5\r\n\r\n", origin.url("/x")))
        .await;
    assert_eq!(client.response().await.status(), 200);
    assert!(parent.asked().iter().all(|head| head.field("proxy-authorization").is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_pages_and_robots_txt_use_connect_to_the_upstream_proxy() {
    for (tls, alpn) in [(false, Alpn::H1), (false, Alpn::Both), (true, Alpn::Both)] {
        let origin = Origin::tls_site(alpn, ROBOTS).await;
        let conduct = Conduct::Ask("alice:a secret");
        let parent = if tls { Parent::start_tls(conduct).await } else { Parent::start(conduct).await };
        let proxy = through(&parent, USER, "").await;
        let host = origin.authority("a.localhost");
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        for _ in 0..3 {
            assert_eq!(client.get("/x", &host).await.text(), "page /x");
        }
        assert_eq!(client.get("/no", &host).await.status(), 403);
        assert!(parent.lines().iter().all(|line| *line == format!("CONNECT {host} HTTP/1.1")), "{:?}", parent.lines());
        assert!(parent.asked().iter().all(|head| head.field("proxy-authorization") == Some(SHOWN)));
        // robots.txt and the pages may share a connection.
        assert!(parent.connections() <= 2, "{}", parent.connections());
        assert_eq!(origin.log.one("/robots.txt").sni.as_deref(), Some("a.localhost"));
        assert_eq!(parent.connections(), origin.connections());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_connections_are_not_shared_between_origins() {
    let first = Origin::tls_site(Alpn::H1, ROBOTS).await;
    let (plain, other) = (Origin::site(ROBOTS).await, Origin::site("").await);
    let parent = Parent::start(Conduct::Serve).await;
    let proxy = through(&parent, "", "").await;
    for _ in 0..2 {
        for host in ["a.localhost", "b.localhost"] {
            let mut client = proxy.tls(&first, host, &[b"http/1.1"]).await;
            assert_eq!(client.get("/x", &first.authority(host)).await.text(), "page /x");
            assert_eq!(proxy.get(&plain.url_at(host, "/x")).await.text(), "page /x");
            assert_eq!(proxy.get(&other.url_at(host, "/no")).await.text(), "page /no");
        }
    }
    // Six authorities, each with one for its robots.txt and its pages.
    assert_eq!(parent.connections(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_upstream_credentials_open_new_connections() {
    let origin = Origin::site("").await;
    let parent = Parent::start(Conduct::Serve).await;
    let proxy = through(&parent, "alice:1@", "hosts: { '*': { robots: ignore } }").await;
    assert_eq!(proxy.get(&origin.url("/1")).await.status(), 200);
    for (user, connections) in [("alice:2@", 2), ("", 3), ("alice:3@", 4)] {
        let yaml =
            format!("egress: {{ upstream_proxy: '{}' }}\nhosts: {{ '*': {{ robots: ignore }} }}", parent.url(user));
        proxy.reload(&yaml).unwrap();
        assert_eq!(proxy.get(&origin.url("/2")).await.status(), 200);
        assert_eq!(parent.connections(), connections, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hop_of_a_redirected_robots_txt_uses_the_upstream_proxy() {
    let last = Origin::tls_site(Alpn::H1, ROBOTS).await;
    let to = last.url("/robots.txt");
    let first = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(301).field("Location", &to),
        _ => Reply::text("page"),
    })
    .await;
    let parent = Parent::start(Conduct::Serve).await;
    let proxy = through(&parent, "", "").await;
    assert_eq!(proxy.get(&first.url("/no")).await.status(), 403);
    let expected = [
        format!("GET {} HTTP/1.1", first.url("/robots.txt")),
        format!("CONNECT {} HTTP/1.1", last.authority("a.localhost")),
    ];
    assert_eq!(parent.lines(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_resolved_by_the_upstream_proxy() {
    let origin = Origin::site(ROBOTS).await;
    let parent = Parent::start(Conduct::Serve).await;
    let proxy = through(&parent, "", "").await;
    assert_eq!(proxy.get(&origin.url_at("known-there.invalid", "/x")).await.text(), "page /x");
    assert_eq!(proxy.get(&origin.url_at("known-there.invalid", "/no")).await.status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_rules_apply_with_an_upstream_proxy() {
    let origin = Origin::site("").await;
    let parent = Parent::start(Conduct::Serve).await;
    let closed = "egress: { allow: [], deny: ['*.closed.invalid'] }";
    let proxy = Proxy::start(&format!(
        "{}\n  ",
        closed.replace("allow", &format!("upstream_proxy: '{}', allow", parent.url("")))
    ))
    .await;
    for host in ["127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "2130706433", "[::ffff:10.0.0.1]", "a.localhost"]
    {
        let response = proxy.get(&origin.url_at(host, "/x")).await;
        assert_refused(&response, 403, "destination_ip_prohibited", "egress-denied");
        let refused = Client::open(proxy.address()).await.ask_connect(&origin.authority(host)).await;
        assert_eq!(refused.status(), 200, "it is denied inside");
    }
    let response = proxy.get(&origin.url_at("a.closed.invalid", "/x")).await;
    assert_refused(&response, 403, "http_request_denied", "egress-denied");
    assert!(parent.asked().is_empty() && origin.connections() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_use_connect_to_the_upstream_proxy() {
    let origin = Origin::tls_site(Alpn::H1, ROBOTS).await;
    let parent = Parent::start(Conduct::Ask("alice:a secret")).await;
    let proxy = through(&parent, USER, "intercept: { default: tunnel }").await;
    let host = origin.authority("a.localhost");
    let client = Client::connect(proxy.address(), &host).await;
    let mut client = client.tls("a.localhost", crate::support::test_ca().pem_file(), &[]).await;
    assert_eq!(client.get("/no", &host).await.text(), "page /no");
    assert_eq!(parent.lines(), [format!("CONNECT {host} HTTP/1.1")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_use_connect_to_the_upstream_proxy() {
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        _ => Reply::websocket(),
    };
    let (plain, tls) = (Origin::http(handler).await, Origin::https(Alpn::Both, handler).await);
    let parent = Parent::start(Conduct::Serve).await;
    let proxy = through(&parent, "", "").await;
    let host = plain.authority("a.localhost");
    for (client, target, host) in [
        (proxy.client().await, plain.url("/ws"), host.clone()),
        (Client::connect(proxy.address(), &host).await, "/ws".to_owned(), host),
        (proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await, "/ws".to_owned(), tls.authority("a.localhost")),
    ] {
        let (mut socket, _) = WebSocket::open(client, &target, &host).await.expect("101");
        assert_eq!(socket.echo(b"hello").await, b"hello");
        assert!(parent.lines().contains(&format!("CONNECT {host} HTTP/1.1")), "{:?}", parent.lines());
        assert!(socket.close().await);
    }
}

/// Behaviour of the upstream proxy, and the result of a request: status, error type of RFC 9209.
const BAD: [(Conduct, u16, &str); 9] = [
    (Conduct::Ask("bob:other"), 502, "proxy_configuration_error"),
    (Conduct::Say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"), 502, "destination_unavailable"),
    (Conduct::Say("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"), 502, "destination_unavailable"),
    (Conduct::Say("HTTP/1.1 504 Slow\r\nContent-Length: 0\r\n\r\n"), 504, "connection_timeout"),
    (Conduct::Say("HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\n\r\n"), 502, "destination_unavailable"),
    (Conduct::Say("220 mail.example ESMTP\r\n"), 502, "http_protocol_error"),
    (Conduct::Say(""), 502, "connection_terminated"),
    (Conduct::Say("HTTP/1.1 200 OK\r\n"), 502, "connection_terminated"),
    (Conduct::Hang, 504, "connection_timeout"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_proxy_failures_are_reported_without_credentials() {
    let origin = Origin::tls_site(Alpn::H1, ROBOTS).await;
    for (conduct, status, error) in BAD {
        let parent = Parent::start(conduct.clone()).await;
        let limits = if matches!(conduct, Conduct::Hang) { "limits: { connect_timeout: 500ms }" } else { "" };
        let yaml = &format!("{limits}\nhosts: {{ '*': {{ robots: ignore }} }}");
        let proxy = through(&parent, USER, yaml).await;
        let host = origin.authority("a.localhost");
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        let response = client.get("/x", &host).await;
        let problem = assert_refused(&response, status, error, error);
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!("the upstream proxy http://localhost:{}", parent.port())),
            "{conduct:?}: {detail}"
        );
        let told = format!("{:?} {}", response.head, response.text());
        assert!(!told.contains("alice") && !told.contains("secret") && !told.contains("YWxp"), "{told}");
        // The same for tunnels.
        proxy
            .reload(&format!(
                "egress: {{ upstream_proxy: '{}' }}\nintercept: {{ default: tunnel }}\n{yaml}",
                parent.url(USER)
            ))
            .unwrap();
        let head = Client::open(proxy.address()).await.ask_connect(&host).await;
        assert_eq!((head.status(), head.proxy_error().as_deref()), (status, Some(error)), "{conduct:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_and_untrusted_upstream_proxies_are_reported() {
    let origin = Origin::tls_site(Alpn::H1, ROBOTS).await;
    let ignore = "hosts: { '*': { robots: ignore } }";
    let gone = Parent::start(Conduct::Serve).await;
    let proxy = through(&gone, "", ignore).await;
    let port = gone.port();
    drop(gone);
    let ask = async |proxy: &Proxy| {
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        client.get("/x", &origin.authority("a.localhost")).await
    };
    crate::support::within("the parent's end", async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_refused(&ask(&proxy).await, 502, "connection_refused", "connection_refused");

    // The upstream proxy's certificate is for `localhost`, not for the address.
    let strange = Parent::start_tls(Conduct::Serve).await;
    let url = strange.url("").replace("localhost", "127.0.0.1");
    let proxy = Proxy::start(&format!("egress: {{ upstream_proxy: '{url}' }}\n{ignore}")).await;
    assert_refused(&ask(&proxy).await, 502, "tls_certificate_error", "tls_certificate_error");
    assert!(strange.asked().is_empty(), "nothing is said to whom we do not trust");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_upstream_proxy_are_not_taken_for_robots_txt() {
    let origin = Origin::site(ROBOTS).await;
    // As an answer of the site, each would mean that everything is allowed.
    for said in [
        "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 No\r\nProxy-Status: parent; error=http_request_denied\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nX-Squid-Error: ERR_DNS_FAIL 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Squid-Error: 200 Access Denied\r\nContent-Length: 5\r\n\r\nLogin",
        "HTTP/1.1 302 Found\r\nLocation: http://a.localhost/\r\nX-Squid-Error: 403 Access Denied\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 511 Network Authentication Required\r\nContent-Length: 0\r\n\r\n",
    ] {
        let parent = Parent::start(Conduct::Say(said)).await;
        let proxy = through(&parent, "", "").await;
        let response = proxy.get(&origin.url("/x")).await;
        let problem = assert_refused(&response, 503, "destination_unavailable", "robots-unreachable");
        assert!(problem["detail"].as_str().unwrap().contains("the upstream proxy http://"), "{problem}");
    }
    // Without Proxy-Status it may be either's word.
    for status in [400, 401, 403, 418, 451] {
        let parent =
            Parent::start(Conduct::Say(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").leak())).await;
        let proxy = through(&parent, "", "").await;
        let response = proxy.get(&origin.url("/no")).await;
        let problem = assert_refused(&response, 503, "destination_unavailable", "robots-unreachable");
        let said = format!("status {status}, which may come from the upstream proxy http://");
        assert!(problem["detail"].as_str().unwrap().contains(&said), "{problem}");
    }
    for status in [404, 410] {
        let parent =
            Parent::start(Conduct::Say(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").leak())).await;
        let page = through(&parent, "", "").await.get(&origin.url("/no")).await;
        assert_eq!((page.status(), page.head.proxy_error()), (status, None), "the page itself is asked for");
    }
    // A 407 to a page is our fault, not the client's.
    let parent = Parent::start(Conduct::Ask("bob:b")).await;
    let proxy = through(&parent, USER, "hosts: { '*': { robots: ignore } }").await;
    let response = proxy.get(&origin.url("/x")).await;
    assert_refused(&response, 502, "proxy_configuration_error", "proxy_configuration_error");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_proxy_that_is_our_own_address_is_a_loop() {
    let (plain, tls) = (Origin::site("").await, Origin::tls_site(Alpn::H1, "").await);
    let proxy = Proxy::start("").await;
    let own = format!("egress: {{ upstream_proxy: 'http://{}' }}", proxy.address());
    proxy.reload(&own).unwrap();
    assert_refused(&proxy.get(&plain.url("/x")).await, 508, "proxy_loop_detected", "loop");
    let mut client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    let response = client.get("/x", &tls.authority("a.localhost")).await;
    assert_refused(&response, 508, "proxy_loop_detected", "loop");

    // Through another proxy, which tunnels.
    let other = Proxy::start(&format!("intercept: {{ default: tunnel }}\n{own}")).await;
    proxy
        .reload(&format!(
            "egress: {{ upstream_proxy: 'http://{}' }}\nhosts: {{ '*': {{ robots: ignore }} }}",
            other.address()
        ))
        .unwrap();
    let mut client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    let response = client.get("/x", &tls.authority("a.localhost")).await;
    assert_eq!((response.status(), response.head.proxy_error().as_deref()), (508, Some("proxy_loop_detected")));
    assert_eq!(plain.connections() + tls.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn politely_can_be_an_upstream_proxy_of_politely() {
    let (plain, tls) = (Origin::site(ROBOTS).await, Origin::tls_site(Alpn::Both, ROBOTS).await);
    let parent = Proxy::start("").await;
    // The child trusts the parent's authority.
    let yaml = format!(
        "egress: {{ upstream_proxy: 'http://{}', ca_file: '{}' }}",
        parent.address(),
        parent.ca_pem_path().display()
    );
    let child = Proxy::start(&yaml).await;
    assert_eq!(child.get(&plain.url("/x")).await.text(), "page /x");
    assert_eq!(child.get(&plain.url("/no")).await.status(), 403);
    let mut client = child.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    let host = tls.authority("a.localhost");
    let page = client.get("/x", &host).await;
    assert_eq!(page.text(), "page /x");
    assert_eq!(page.head.all("via").len(), 2, "{:?}", page.head);
    assert_eq!(client.get("/no", &host).await.status(), 403);
    assert_eq!(plain.log.of("/robots.txt").len() + tls.log.of("/robots.txt").len(), 2, "each file was fetched once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pace_key_address_falls_back_to_the_host_behind_an_upstream_proxy() {
    let origin = Origin::site("").await;
    let parent = Parent::start(Conduct::Serve).await;
    let pace = "pace: { key: address, min_delay: 60s, max_wait: 0 }\nhosts: { '*': { robots: ignore } }";
    let proxy = through(&parent, "", pace).await;
    for (host, status) in [("a.localhost", 200), ("b.localhost", 200), ("a.localhost", 429)] {
        assert_eq!(proxy.get(&origin.url_at(host, "/x")).await.status(), status, "{host}");
    }
    proxy.reload(pace).unwrap();
    for (host, status) in [("a.localhost", 200), ("b.localhost", 429)] {
        assert_eq!(proxy.get(&origin.url_at(host, "/x")).await.status(), status, "{host}, directly");
    }
}
