//! Permitted destinations: not this machine and its network, unless configured.

use crate::support::{Alpn, Client, Origin, Proxy, assert_refused};

/// The default rules.
const CLOSED: &str = "egress: { allow: [] }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_addresses_are_refused_by_default() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(CLOSED).await;
    let port = origin.port();
    for host in [
        "127.0.0.1",
        "127.255.255.254",
        "localhost",
        "a.localhost",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[fe80::1]",
        "[fec0::1]",
        "[fc00::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001::1]",
        "[fd00:ec2::254]",
    ] {
        let response = proxy.get(&format!("http://{host}:{port}/x")).await;
        assert_eq!(response.status(), 403, "{host}");
        assert_refused(&response, 403, "destination_ip_prohibited", "egress-denied");
    }
    assert_eq!(origin.connections(), 0);
}

/// The lists apply to robots.txt as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_listed_hosts_and_methods_are_allowed() {
    let (origin, tls) = (Origin::site("").await, Origin::tls_site(Alpn::Both, "").await);
    let proxy = Proxy::start(
        "egress: { hosts: [a.localhost, \"*.b.localhost\"], methods: [GET, HEAD] }\n\
         intercept: { hosts: { t.b.localhost: tunnel } }",
    )
    .await;
    for (host, status) in [("a.localhost", 200), ("x.b.localhost", 200), ("b.localhost", 403), ("127.0.0.1", 403)] {
        let response = proxy.get(&origin.url_at(host, "/x")).await;
        assert_eq!(response.status(), status, "{host}");
        if status == 403 {
            assert_refused(&response, 403, "http_request_denied", "egress-denied");
            assert!(response.text().contains("egress.hosts"), "{}", response.text());
        }
    }
    for (method, status) in [("HEAD", 200), ("POST", 403), ("get", 403)] {
        let mut client = Client::open(proxy.address()).await;
        let host = origin.authority("a.localhost");
        client
            .send(format!("{method} {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n", origin.url("/m")))
            .await;
        assert_eq!(client.head().await.status(), status, "{method}");
    }
    assert_eq!(origin.log.count("/m"), 1);
    // Inside of an intercepted CONNECT it is told; a tunnel nobody sees into.
    assert_eq!(proxy.h2(&tls, "c.localhost").await.get(&tls.url_at("c.localhost", "/x")).await.status(), 403);
    for (host, status) in [("t.b.localhost", 403), ("a.localhost", 200)] {
        let answered = Client::open(proxy.address()).await.ask_connect(&tls.authority(host)).await;
        assert_eq!(answered.status(), status, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn respelled_special_addresses_are_refused() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(CLOSED).await;
    let port = origin.port();
    for host in [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0",
        "127.0.0.1.",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
    ] {
        let response = proxy.get(&format!("http://{host}:{port}/x")).await;
        assert!(matches!(response.status(), 400 | 403), "{host}: {:?}", response.head);
        assert!(response.head.names_the_proxy(), "{host}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_refusal_inside_connect_is_sent_inside_the_tunnel() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start(CLOSED).await;
    let mut client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    let response = client.get("/x", &tls.authority("a.localhost")).await;
    assert_refused(&response, 403, "destination_ip_prohibited", "egress-denied");
    let response = proxy.h2(&tls, "a.localhost").await.get(&tls.url("/x")).await;
    assert_refused(&response, 403, "destination_ip_prohibited", "egress-denied");
    let host = plain.authority("a.localhost");
    let response = Client::connect(proxy.address(), &host).await.get("/x", &host).await;
    assert_refused(&response, 403, "destination_ip_prohibited", "egress-denied");
    assert_refused(&proxy.get(&tls.url("/x")).await, 403, "destination_ip_prohibited", "egress-denied");
    assert_eq!(plain.connections() + tls.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_refusal_of_a_tunnel_is_sent_to_connect() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("egress: { allow: [] }\nintercept: { default: tunnel }").await;
    for host in ["a.localhost", "127.0.0.1"] {
        let mut client = proxy.client().await;
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.authority(host))).await;
        assert_refused(&client.response().await, 403, "destination_ip_prohibited", "egress-denied");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_ports_80_and_443_are_allowed_by_default() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("egress: { ports: ~ }").await;
    assert_refused(&proxy.get(&origin.url("/x")).await, 403, "http_request_denied", "egress-denied");
    let host = origin.authority("a.localhost");
    let response = Client::connect(proxy.address(), &host).await.get("/x", &host).await;
    assert_refused(&response, 403, "http_request_denied", "egress-denied");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_can_be_allowed_by_number_and_range() {
    let origin = Origin::site("").await;
    let port = origin.port();
    for (ports, status) in [
        (format!("[80, {port}]"), 200),
        (format!("['{}-{}']", port - 1, port.saturating_add(1)), 200),
        (format!("['{port}-{port}']"), 200),
        (format!("[80, '1-{}']", port - 1), 403),
    ] {
        let proxy = Proxy::start(&format!("egress: {{ ports: {ports} }}")).await;
        assert_eq!(proxy.get(&origin.url("/x")).await.status(), status, "{ports}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_can_be_allowed_and_denied_separately() {
    let origin = Origin::site("").await;
    let other = Origin::try_http_on("127.0.0.2:0", crate::support::origin::pages("")).await;
    for (egress, first, second) in [
        ("{ allow: [127.0.0.1/32] }", 200, 403),
        ("{ deny: [127.0.0.2/32] }", 200, 403),
        ("{ allow: [10.0.0.0/8] }", 403, 403),
        ("{ deny: [127.0.0.0/8] }", 403, 403),
    ] {
        let proxy = Proxy::start(&format!("egress: {egress}")).await;
        assert_eq!(proxy.get(&origin.url_at("127.0.0.1", "/x")).await.status(), first, "{egress}");
        // The machine may have only one loopback address.
        let Ok(other) = &other else { continue };
        assert_eq!(proxy.get(&other.url_at("127.0.0.2", "/x")).await.status(), second, "{egress}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_allowed_address_of_a_name_is_dialled() {
    // `localhost` may be ::1 and 127.0.0.1: with one of them closed, the other is dialled and nothing else is tried.
    let origin = Origin::site("").await;
    let proxy = Proxy::start("egress: { deny: ['::1/128'] }").await;
    assert_eq!(proxy.get(&origin.url_at("localhost", "/x")).await.status(), 200);
    assert_eq!(origin.log.pages(), ["/x"]);
}
