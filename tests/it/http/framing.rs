//! Requests that could be read in two ways, and answers that cannot be read (RFC 9112 §2.2, §5, §6, §11.2).

use crate::support::{Alpn, Origin, Proxy, Reply};
use std::time::Duration;

/// Heads that must be refused. `{u}` stands for the target, `{h}` for the authority; a second request is smuggled behind.
const AMBIGUOUS: &[(&str, &str)] = &[
    (
        "both lengths",
        "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("two lengths", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    ("the same length twice", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n"),
    ("a list of lengths", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0, 0\r\n\r\n"),
    ("a signed length", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: +0\r\n\r\n"),
    ("a negative length", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: -1\r\n\r\n"),
    ("a hexadecimal length", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0x0\r\n\r\n"),
    ("an empty length", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length:\r\n\r\n"),
    ("a length beyond 64 bits", "POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 18446744073709551616\r\n\r\n"),
    ("another coding", "POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", "POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    (
        "two codings",
        "POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    ("no such coding", "POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("chunked not last", "POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ("a coding with a tail", "POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked;x=y\r\n\r\n0\r\n\r\n"),
    ("chunks in HTTP/1.0", "POST {u} HTTP/1.0\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a folded line", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX-Folded: a\r\n b\r\n\r\n"),
    ("a folded first line", "GET {u} HTTP/1.1\r\n Host: {h}\r\nHost: {h}\r\n\r\n"),
    ("a bare CR in a value", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX-A: a\rX-B: b\r\n\r\n"),
    ("a bare LF after a field", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX-A: a\nX-B: b\r\n\r\n"),
    ("a bare LF after the request line", "GET {u} HTTP/1.1\nHost: {h}\r\n\r\n"),
    ("bare LFs all over", "GET {u} HTTP/1.1\nHost: {h}\nX-A: b\n\n"),
    ("a NUL", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX-A: a\0b\r\n\r\n"),
    ("a space before the colon", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX-A : b\r\n\r\n"),
    ("a space in a name", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX A: b\r\n\r\n"),
    ("a parenthesis in a name", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX(A): b\r\n\r\n"),
    ("no name", "GET {u} HTTP/1.1\r\nHost: {h}\r\n: b\r\n\r\n"),
    ("no colon", "GET {u} HTTP/1.1\r\nHost: {h}\r\nX-A\r\n\r\n"),
    ("two hosts", "GET {u} HTTP/1.1\r\nHost: {h}\r\nHost: {h}\r\n\r\n"),
    ("another version", "GET {u} HTTP/2.0\r\nHost: {h}\r\n\r\n"),
    ("a long version", "GET {u} HTTP/1.11\r\nHost: {h}\r\n\r\n"),
    ("a version in lower case", "GET {u} http/1.1\r\nHost: {h}\r\n\r\n"),
    ("no version", "GET {u}\r\nHost: {h}\r\n\r\n"),
    ("two spaces", "GET  {u} HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    ("a space in the target", "GET {u}/a b HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    ("a control in the target", "GET {u}/a\x01b HTTP/1.1\r\nHost: {h}\r\n\r\n"),
    ("a method that is no token", "G(T {u} HTTP/1.1\r\nHost: {h}\r\n\r\n"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_request_is_400_and_closes_the_connection() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let url = origin.url("/x");
    for (name, request) in AMBIGUOUS {
        let smuggled = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/smuggled"));
        let mut client = proxy.client().await;
        client.send(request.replace("{u}", &url).replace("{h}", &host) + &smuggled).await;
        let answer = client.response().await;
        assert_eq!(answer.status(), 400, "{name}: {:?}", answer.head);
        assert_eq!(answer.head.proxy_error().as_deref(), Some("http_request_error"), "{name}: {:?}", answer.head);
        let rest = client.rest().await;
        assert!(rest.is_empty(), "{name}: more than one answer: {}", String::from_utf8_lossy(&rest));
    }
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_request_inside_connect_or_tls_is_400_and_closes_the_connection() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    for (name, request) in AMBIGUOUS {
        for origin in [&plain, &tls] {
            let host = origin.authority("a.localhost");
            let mut client = if std::ptr::eq(origin, &plain) {
                crate::support::Client::connect(proxy.address(), &host).await
            } else {
                proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await
            };
            let smuggled = format!("GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n");
            client.send(request.replace("{u}", "/x").replace("{h}", &host) + &smuggled).await;
            let answer = client.response().await;
            assert_eq!(answer.status(), 400, "{name}: {:?}", answer.head);
            assert!(client.rest().await.is_empty(), "{name}");
        }
    }
    assert!(plain.log.pages().is_empty() && tls.log.pages().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_but_unambiguous_requests_pass() {
    let origin = Origin::http(|seen| if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::echo() }).await;
    let proxy = Proxy::start("").await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    for request in [
        format!("POST {url} HTTP/1.1\r\nhost:{host}\r\nCONTENT-LENGTH:4\r\n\r\nbody"),
        format!("POST {url} HTTP/1.1\r\nHost: \t {host} \t\r\nContent-Length: 4\t\r\nX-Empty:\r\n\r\nbody"),
        format!(
            "POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: CHUNKED\r\n\r\n0004;a=\"b\"\r\nbody\r\n00\r\n\r\n"
        ),
        // RFC 9112 §2.2: an empty line before the request line is skipped.
        format!("\r\nPOST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 004\r\n\r\nbody"),
        format!(
            "POST {url} HTTP/1.1\r\nHost: {host}\r\nX-Latin: \u{fc}\r\nX!#$%&'*+-.^_`|~: x\r\nContent-Length: 4\r\n\r\nbody"
        ),
    ] {
        let mut client = proxy.client().await;
        client.send(&request).await;
        let response = client.response().await;
        assert_eq!((response.status(), response.text().as_str()), (200, "body"), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faulty_chunk_never_completes_a_request() {
    let origin = Origin::http(|seen| if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::echo() }).await;
    let proxy = Proxy::start("").await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    for chunks in [
        "zz\r\nbody\r\n0\r\n\r\n",
        "-4\r\nbody\r\n0\r\n\r\n",
        "0x4\r\nbody\r\n0\r\n\r\n",
        "4\r\nbodyX\r\n0\r\n\r\n",
        "4\nbody\n0\n\n",
        "4\r\nbody0\r\n\r\n",
        "10000000000000000\r\nbody\r\n0\r\n\r\n",
        "4 4\r\nbody\r\n0\r\n\r\n",
        "\r\nbody\r\n0\r\n\r\n",
    ] {
        let mut client = proxy.client().await;
        let head = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let smuggled = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/smuggled"));
        client.send(head + chunks + &smuggled).await;
        client.half_close().await;
        let rest = client.rest().await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"), "{chunks:?}: {}", String::from_utf8_lossy(&rest));
    }
    assert!(origin.log.of("/x").iter().all(|seen| !seen.body.complete), "a body that was never whole");
    assert_eq!(origin.log.count("/smuggled"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_never_completes_a_request() {
    let origin = Origin::http(|seen| if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::echo() }).await;
    let proxy = Proxy::start("").await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    for body in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\na\r\nhalf"] {
        let mut client = proxy.client().await;
        client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{body}")).await;
        drop(client);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(origin.log.of("/x").iter().all(|seen| !seen.body.complete));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_content_length_on_h2_is_an_error() {
    let tls =
        Origin::https(Alpn::H1, |seen| if seen.path() == "/robots.txt" { Reply::text("") } else { Reply::echo() })
            .await;
    let proxy = Proxy::start("").await;
    let h2 = proxy.h2(&tls, "a.localhost").await;
    for length in ["3", "10"] {
        let mut request = crate::support::h2_client::request("POST", &tls.url("/x"));
        request.headers_mut().insert("content-length", length.parse().unwrap());
        let outcome = h2.exchange(request, b"body").await;
        assert!(outcome.map_or(true, |response| response.status() >= 400), "RFC 9113 §8.1.1: malformed");
    }
    assert!(tls.log.of("/x").iter().all(|seen| !seen.body.complete), "never a whole request");
    assert_eq!(h2.get(&tls.url("/y")).await.status(), 200, "one stream's fault is not the connection's");
}
