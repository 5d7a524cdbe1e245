//! What passes through unchanged, and what a proxy must do to messages (RFC 9110 §7.6, RFC 9112 §6, RFC 9113 §8).

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::message::{Body, Head};
use crate::support::reply::Delimit;
use crate::support::{Alpn, Origin, Protocol, Proxy, Reply};
use std::time::Duration;

const DATE: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_fields_and_encoded_bodies_pass_unchanged() {
    const BODY: &[u8] = b"\x1f\x8bnot really gzip\0\xff";
    let origin = Origin::http(|_| {
        Reply::status(418)
            .field("Content-Encoding", "gzip")
            .field("ETag", "W/\"x\"")
            .field("Set-Cookie", "a=1")
            .field("Set-Cookie", "b=2")
            .field("Server", "origin")
            .field("Cache-Control", "max-age=60")
            .body(BODY)
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    for _ in 0..2 {
        let response = client.get(&origin.url("/x"), &origin.authority("a.localhost")).await;
        assert_eq!((response.status(), response.body.as_slice()), (418, BODY));
        assert_eq!(response.head.all("set-cookie"), ["a=1", "b=2"]);
        let fields = ["content-encoding", "etag", "server", "cache-control"].map(|name| response.field(name).unwrap());
        assert_eq!(fields, ["gzip", "W/\"x\"", "origin", "max-age=60"]);
    }
    assert_eq!(origin.log.count("/x"), 2, "we are no cache");
}

/// RFC 9110 §6.6.1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_without_date_gets_its_arrival_time() {
    let plain = Origin::http(|_| Reply::text("x")).await;
    let tls = Origin::https(Alpn::Both, |_| Reply::text("x")).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    let answers = [
        proxy.get(&plain.url("/")).await,
        client.get("/", &tls.authority("a.localhost")).await,
        proxy.h2(&tls, "a.localhost").await.get(&tls.url("/")).await,
    ];
    for answer in answers {
        let date = httpdate::parse_http_date(answer.field("date").expect("it has one")).unwrap();
        let age = std::time::SystemTime::now().duration_since(date).unwrap();
        assert!(age < std::time::Duration::from_secs(60), "{age:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn date_of_the_origin_is_kept() {
    let plain = Origin::http(|_| Reply::text("x").field("Date", DATE)).await;
    let tls = Origin::https(Alpn::Both, |_| Reply::text("x").field("date", DATE)).await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&plain.url("/")).await.field("date"), Some(DATE));
    let mut client = proxy.tls(&tls, "a.localhost", &[b"http/1.1"]).await;
    assert_eq!(client.get("/", &tls.authority("a.localhost")).await.field("date"), Some(DATE));
    let client = proxy.h2(&tls, "a.localhost").await;
    assert_eq!(client.get(&tls.url("/")).await.field("date"), Some(DATE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_without_a_body_keep_their_fields_and_the_connection() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/204" => Reply::status(204).field("X-Kind", "empty"),
        "/304" => Reply::status(304).field("ETag", "\"x\"").field("Content-Length", "12345"),
        _ => Reply::text("twelve bytes"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/head"), &host).replacen("GET", "HEAD", 1)).await;
    let head = client.response_to("HEAD").await;
    assert_eq!((head.status(), head.field("content-length"), head.body.len()), (200, Some("12"), 0));
    let empty = client.get(&origin.url("/204"), &host).await;
    assert_eq!((empty.status(), empty.field("x-kind"), empty.field("content-length")), (204, Some("empty"), None));
    assert!(empty.field("transfer-encoding").is_none());
    let unchanged = client.get(&origin.url("/304"), &host).await;
    assert_eq!((unchanged.status(), unchanged.field("etag")), (304, Some("\"x\"")));
    assert_eq!(client.get(&origin.url("/"), &host).await.text(), "twelve bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_and_its_body_pass() {
    let origin = Origin::http(|seen| if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::echo() }).await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    for method in ["POST", "PUT", "PATCH", "DELETE", "PROPFIND", "X-OWN"] {
        let url = origin.url("/x");
        client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody")).await;
        assert_eq!(client.response().await.text(), "body", "{method}");
        let chunks = "3\r\nbod\r\n1;extension=x\r\ny\r\n0\r\n\r\n";
        client
            .send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"))
            .await;
        assert_eq!(client.response().await.text(), "body", "{method}, chunked");
        assert!(origin.log.of("/x").iter().rev().take(2).all(|seen| seen.method == method));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_client_gets_no_chunked_body() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/length" => Reply::text("body"),
        _ => Reply::text("body").framed(Delimit::Chunked),
    })
    .await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    for (target, version) in
        [("/chunked", "1.0\r\n"), ("/length", "1.0\r\n"), ("/chunked", "1.0\r\nConnection: keep-alive\r\n")]
    {
        let mut client = proxy.client().await;
        client.send(format!("GET {} HTTP/{version}Host: {host}\r\n\r\n", origin.url(target))).await;
        let head = client.head().await;
        assert!(head.field("transfer-encoding").is_none(), "{head:?}");
        let mut body = Body::default();
        client.read_body(&head, "GET", &mut body).await;
        assert_eq!(body.kept, b"body");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_request_without_host_uses_its_uri() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    for (target, status) in [("/yes", 200), ("/no", 403)] {
        let mut client = proxy.client().await;
        client.send(format!("GET {} HTTP/1.0\r\n\r\n", origin.url(target))).await;
        assert_eq!(client.head().await.status(), status);
    }
    assert_eq!(origin.log.pages(), ["/yes"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expect_100_continue_is_answered_before_the_body() {
    let origin = Origin::http(|seen| {
        if seen.path() == "/robots.txt" { Reply::text("User-agent: *\nDisallow: /no\n") } else { Reply::echo() }
    })
    .await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let head = |target: &str| {
        format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
            origin.url(target)
        )
    };
    let mut client = proxy.client().await;
    client.send(head("/yes")).await;
    let interim = client.source.until(b"\r\n\r\n");
    let interim = crate::support::within("100 Continue", interim).await.unwrap();
    assert_eq!(Head::parse(&interim).status(), 100);
    client.send("body").await;
    assert_eq!(client.response().await.text(), "body");
    // A refusal comes instead of the 100, and the body need not be sent.
    let mut client = proxy.client().await;
    client.send(head("/no")).await;
    let refusal = crate::support::within("403", client.source.until(b"\r\n\r\n")).await.unwrap();
    assert_eq!(Head::parse(&refusal).status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_responses_do_not_end_the_exchange() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    let origin = Origin::http(move |seen| if seen.path() == "/x" { Reply::raw(early) } else { Reply::text("") }).await;
    let proxy = Proxy::start("").await;
    let response = proxy.get(&origin.url("/x")).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "body"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsolicited_101_is_502() {
    let unsolicited = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: evil\r\nConnection: Upgrade\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n";
    let origin =
        Origin::http(move |seen| if seen.path() == "/x" { Reply::raw(unsolicited) } else { Reply::text("") }).await;
    let proxy = Proxy::start("").await;
    let response = proxy.get(&origin.url("/x")).await;
    assert_eq!(response.status(), 502, "{:?}", response.head);
    assert!(response.head.proxy_error().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_cookie_crumbs_are_joined_for_http1() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let mut crumbs = request("GET", &origin.url("/x"));
    for crumb in ["a=1", "b=2", "c=3"] {
        crumbs.headers_mut().append("cookie", crumb.parse().unwrap());
    }
    assert_eq!(client.send(crumbs, true).await.response().await.unwrap().status(), 200);
    let seen = origin.log.one("/x");
    assert_eq!((seen.protocol, seen.field("cookie")), (Protocol::Http1, Some("a=1; b=2; c=3")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_a_body_are_forwarded_immediately() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::drip(&["first", "second"], Duration::from_secs(4)),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    let head = client.head().await;
    assert_eq!(head.status(), 200);
    crate::support::within("the first piece", client.source.until(b"first")).await.unwrap();
    assert!(client.glance(Duration::from_millis(200)).await.len() <= 2, "the second piece is not sent yet");
    crate::support::within("the second piece", client.source.until(b"second")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_request_that_may_have_been_processed_is_not_resent() {
    // A kept connection may end just as a request is sent on it (RFC 9112 §9.3.1.1, RFC 9110 §9.2.2).
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("").then_close(),
        "/first" => Reply::text("first"),
        _ if seen.connection % 2 == 1 => Reply::reset(),
        _ => Reply::text("second"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    assert_eq!(client.get(&origin.url("/first"), &host).await.text(), "first");
    client
        .send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody", origin.url("/post")))
        .await;
    assert_eq!(client.response().await.status(), 502);
    assert_eq!(origin.log.count("/post"), 1, "it may have been acted on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_forwards_is_decremented_and_0_is_answered_by_the_proxy() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let options = |left: u32| {
        let url = origin.url("/x");
        format!("OPTIONS {url} HTTP/1.1\r\nHost: {host}\r\nMax-Forwards: {left}\r\n\r\n")
    };
    let mut client = proxy.client().await;
    client.send(options(3)).await;
    assert_eq!(client.response().await.status(), 200);
    assert_eq!(origin.log.one("/x").field("max-forwards"), Some("2"));
    // RFC 9110 §7.6.2: it must answer itself.
    client.send(options(0)).await;
    let answer = client.response().await;
    assert_eq!(answer.head.all("proxy-status"), ["politely; details=\"Max-Forwards is 0\""]);
    let url = origin.url("/x");
    client.send(format!("TRACE {url} HTTP/1.1\r\nHost: {host}\r\nMax-Forwards: 0\r\n\r\n")).await;
    let answer = client.response().await;
    let told = ["politely; error=http_request_error; details=\"Max-Forwards is 0\""];
    assert_eq!((answer.status(), answer.head.all("proxy-status")), (405, told.to_vec()));
    assert_eq!(answer.head.all("allow"), ["OPTIONS"], "RFC 9110 §15.5.6");
    assert_eq!(origin.log.count("/x"), 1);
}
