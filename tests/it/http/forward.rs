//! Absolute-form: which request is it, and what reaches the origin (RFC 9112 §3.2).

use crate::support::client::get;
use crate::support::reply::Reply;
use crate::support::{Alpn, Client, Origin, Proxy, assert_refused};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_gets_path_and_body_byte_for_byte() {
    let origin = Origin::site("User-agent: *\nDisallow: /private/\n").await;
    let proxy = Proxy::start("").await;
    let got = proxy.curl(&["--path-as-is", "-g", &origin.url("/a%7eb/../c?x={1|2}&y=%2f%2F")]).await;
    assert_eq!((got.code, got.status()), (0, 200), "{}", got.stderr);
    assert_eq!(got.text(), "page /a%7eb/../c?x={1|2}&y=%2f%2F");
    assert_eq!(origin.log.targets(), ["/robots.txt", "/a%7eb/../c?x={1|2}&y=%2f%2F"]);
    assert_eq!(origin.log.all()[1].host, origin.authority("a.localhost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_is_forwarded_unchanged() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let mut changed = Vec::new();
    for target in [
        "/",
        "/%7Euser",
        "/~user",
        "/a%2Fb%2fb",
        "/a/./b/../c",
        "/%2e%2E/x",
        "//two//slashes//",
        "/|",
        "/{}",
        "/^",
        "/[]",
        "/\\",
        "/?|{}^[]\\",
        "/\u{e9}/\u{4e16}",
        "/x;p=1,2?a=b&&c==d",
        "/?",
        "/a?b?c",
        "/%",
        "/%zz",
        "/a:b@c!$&'()*+,=-._",
        "/`?`",
        "/<a>?<b>\"",
        "/\"",
    ] {
        let response = client.get(&origin.url(target), &origin.authority("a.localhost")).await;
        let arrived = origin.log.targets().pop().unwrap_or_default();
        if response.status() != 200 || arrived != target || response.body != format!("page {target}").as_bytes() {
            changed.push((target, response.status(), arrived));
            client = proxy.client().await;
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_path_becomes_a_slash_and_options_without_path_an_asterisk() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let host = origin.authority("a.localhost");
    assert_eq!(client.get(&origin.url(""), &host).await.text(), "page /");
    assert_eq!(client.get(&origin.url("?q"), &host).await.text(), "page /?q");
    client.send(format!("OPTIONS {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url(""))).await;
    assert_eq!(client.response().await.text(), "page *");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_field_is_rewritten_from_the_uri() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let port = origin.port();
    // The same authority written in other ways (RFC 9110 §4.2.3) is not a mismatch.
    for (uri_host, host) in
        [("A.LocalHost", "a.localhost"), ("a.localhost", "A.LOCALHOST"), ("a.localhost.", "a.localhost")]
    {
        let response = client.get(&format!("http://{uri_host}:{port}/x"), &format!("{host}:{port}")).await;
        assert_eq!(response.status(), 200, "{uri_host} {host}: {}", response.text());
    }
    for seen in origin.log.of("/x") {
        assert_eq!(seen.host.to_ascii_lowercase().replace(".:", ":"), origin.authority("a.localhost"));
    }
    assert_eq!(origin.log.count("/robots.txt"), 1, "they are one authority");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explicit_default_port_is_equivalent() {
    let proxy = Proxy::start("egress: { ports: [80, 443] }").await;
    // Nothing need listen on port 80: what matters is that the two names are not called a mismatch (400).
    for (uri, host) in [("http://a.localhost:80/", "a.localhost"), ("http://a.localhost/", "a.localhost:80")] {
        let response = proxy.client().await.get(uri, host).await;
        assert_ne!(response.status(), 400, "{}", response.text());
        assert!(response.head.names_the_proxy() || response.status() < 400);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_authority_is_400() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let other = origin.authority("b.localhost");
    let uri = origin.url("/x");
    let port = origin.port();
    for request in [
        get(&uri, &format!("user@{host}")),
        get(&uri, "a b"),
        get(&format!("http://user@a.localhost:{port}/x"), &host),
        get(&format!("http://user:pass@a.localhost:{port}/x"), &host),
        get(&uri, &format!("{host}\r\nHost: {host}")),
        get(&uri, &format!("{host}\r\nHost: {other}")),
        format!("GET {uri} HTTP/1.1\r\n\r\n"),
        get(&format!("http://:{port}/x"), &format!(":{port}")),
        get("http://a.localhost:99999/x", "a.localhost:99999"),
        get("http://a.localhost:0x50/x", "a.localhost:0x50"),
        get(&format!("ftp://a.localhost:{port}/x"), &host),
    ] {
        let mut client = proxy.client().await;
        client.send(&request).await;
        assert_refused(&client.response().await, 400, "http_request_error", "bad-request");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_https_uri_is_fetched_over_tls_and_enforced() {
    let origin = Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /private\n").await;
    let proxy = Proxy::start("").await;
    let allowed = proxy.get(&origin.url("/open")).await;
    assert_eq!((allowed.status(), allowed.text().as_str()), (200, "page /open"));
    assert_refused(&proxy.get(&origin.url("/private")).await, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(origin.log.targets(), ["/robots.txt", "/open"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_form_request_to_the_proxy_is_400_with_an_explanation() {
    let proxy = Proxy::start("").await;
    let host = proxy.address().to_string();
    let response = proxy.client().await.get("/", &host).await;
    assert_refused(&response, 400, "http_request_error", "bad-request");

    let mut browser = proxy.client().await;
    browser
        .send(format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nAccept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n\r\n"
        ))
        .await;
    let page = browser.response().await;
    assert_eq!(page.status(), 400);
    assert!(page.field("content-type").unwrap().starts_with("text/html"));
    assert!(page.text().contains("proxy"), "{}", page.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_to_our_own_address_is_a_loop() {
    let proxy = Proxy::start("").await;
    let port = proxy.address().port();
    for host in ["127.0.0.1", "localhost"] {
        let response = proxy.get(&format!("http://{host}:{port}/x")).await;
        assert_eq!((response.status(), response.head.proxy_error().as_deref()), (508, Some("proxy_loop_detected")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn via_with_our_instance_name_is_a_loop() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    proxy.get(&origin.url("/first")).await;
    let via = origin.log.one("/first").field("via").expect("a proxy adds Via").to_owned();
    let mut client = proxy.client().await;
    let url = origin.url("/again");
    client
        .send(
            get(&url, &origin.authority("a.localhost")).replace("Accept", &format!("Via: 1.0 other, {via}\r\nAccept")),
        )
        .await;
    let response = client.response().await;
    assert_eq!((response.status(), response.head.proxy_error().as_deref()), (508, Some("proxy_loop_detected")));
    // A Via of another proxy is not a loop.
    let url = origin.url("/onwards");
    client.send(get(&url, &origin.authority("a.localhost")).replace("Accept", "Via: 1.1 other\r\nAccept")).await;
    assert_eq!(client.response().await.status(), 200);
    assert_eq!(origin.log.pages(), ["/first", "/onwards"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_inside_connect_to_another_proxy_must_match_the_authority() {
    let origin = Origin::site("").await;
    let (first, second) = (Proxy::start("").await, Proxy::start("").await);
    let mut client = Client::open(first.address()).await;
    let authority = second.address().to_string();
    let tunnelled = client.ask_connect(&authority).await;
    assert_eq!(tunnelled.status(), 200, "plain HTTP follows");
    let response = client.get(&origin.url("/x"), &origin.authority("a.localhost")).await;
    assert_refused(&response, 421, "http_request_error", "authority-mismatch");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_all_answered_in_order() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /no\n"),
        "/1" => Reply::text("one").after(Duration::from_millis(50)),
        path => Reply::text(path),
    })
    .await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    let requests: String = ["/1", "/2", "/no", "/3"].iter().map(|target| get(&origin.url(target), &host)).collect();
    client.send(requests).await;
    assert_eq!(client.response().await.text(), "one");
    assert_eq!(client.response().await.text(), "/2");
    assert_eq!(client.response().await.status(), 403);
    assert_eq!(client.response().await.text(), "/3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_connections_are_reused() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    for number in 0..5 {
        // Connections of their own on our side. The one to the origin may still be on its way back to the pool.
        assert_eq!(proxy.get(&origin.url(&format!("/{number}"))).await.status(), 200);
    }
    assert!(origin.connections() <= 4, "{} connections for six requests", origin.connections());
}
