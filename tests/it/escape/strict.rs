//! The origins of these tests are as strict as nginx: a request that a real server would refuse cannot pass here.

use super::frames::{
    END_HEADERS, END_STREAM, HEADERS, Taken, block, frame, get, is_bad_request, is_ok, straight, taken,
};
use crate::support::message::show;
use crate::support::{Alpn, Client, H2Client, Origin, Protocol, Proxy, h2_client};

#[tokio::test]
async fn strict_test_h2_origin_refuses_what_nginx_refuses() {
    let origin = Origin::tls_site(Alpn::H2, "").await;
    let mut client = straight(&origin).await;
    let whole = get("a.localhost", "/");
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&whole))).await;
    assert!(is_ok(&taken(&mut client, 1).await), "a request without a fault is served");
    let with = |field: (&'static str, &'static str)| [&whole[..], &[field]].concat();
    let without = |name: &str| whole.iter().copied().filter(|(key, _)| *key != name).collect::<Vec<_>>();
    let table: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("host beside :authority", with(("host", "a.localhost"))),
        ("another host beside :authority", with(("host", "b.localhost"))),
        ("a name in upper case", with(("X-Upper", "1"))),
        ("connection", with(("connection", "keep-alive"))),
        ("keep-alive", with(("keep-alive", "5"))),
        ("proxy-connection", with(("proxy-connection", "keep-alive"))),
        ("transfer-encoding", with(("transfer-encoding", "chunked"))),
        ("upgrade", with(("upgrade", "h2c"))),
        ("TE other than trailers", with(("te", "gzip"))),
        ("no :path", without(":path")),
        ("no :scheme", without(":scheme")),
        ("no :method", without(":method")),
        ("no :authority", without(":authority")),
        ("an empty :path", get("a.localhost", "").to_vec()),
        (":path without a slash", get("a.localhost", "private").to_vec()),
        (":path with a space", get("a.localhost", "/a b").to_vec()),
        (":path twice", with((":path", "/two"))),
        (":authority twice", with((":authority", "b.localhost"))),
        ("an unknown pseudo-field", with((":odd", "1"))),
        ("a pseudo-field after a field", [&[("x-first", "1")], &whole[..]].concat()),
        ("content-length twice", [with(("content-length", "0")), vec![("content-length", "0")]].concat()),
    ];
    let mut served = Vec::new();
    for (name, fields) in table {
        let mut client = straight(&origin).await;
        client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields))).await;
        let outcome = taken(&mut client, 1).await;
        if !is_bad_request(&outcome) && !matches!(outcome, Taken::Reset | Taken::Closed) {
            served.push((name, outcome));
        }
    }
    assert!(served.is_empty(), "{served:?}");
}

#[tokio::test]
async fn strict_test_http1_origin_refuses_what_nginx_refuses() {
    let origin = Origin::site("").await;
    for (fault, head) in [
        ("no Host", "GET / HTTP/1.1\r\n"),
        ("Host twice", "GET / HTTP/1.1\r\nHost: a.localhost\r\nHost: a.localhost\r\n"),
        ("an invalid Host", "GET / HTTP/1.1\r\nHost: a b\r\n"),
        ("a path without a slash", "GET private HTTP/1.1\r\nHost: a.localhost\r\n"),
        ("not HTTP/1.0 or HTTP/1.1", "GET / HTTP/1.2\r\nHost: a.localhost\r\n"),
        ("a field name that is not a token", "GET / HTTP/1.1\r\nHost: a.localhost\r\nX : 1\r\n"),
        ("a bare CR or LF", "GET / HTTP/1.1\r\nHost: a.localhost\r\nX: 1\nY: 2\r\n"),
        ("Content-Length twice", "GET / HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: 0\r\nContent-Length: 0\r\n"),
        ("an invalid Content-Length", "GET / HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: +0\r\n"),
        (
            "Content-Length and Transfer-Encoding",
            "GET / HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("an unknown coding", "GET / HTTP/1.1\r\nHost: a.localhost\r\nTransfer-Encoding: identity\r\n"),
    ] {
        let mut client = Client::open(origin.address()).await;
        client.send(format!("{head}\r\n")).await;
        let response = client.response().await;
        assert_eq!((response.status(), response.text().as_str()), (400, fault), "{head}");
    }
}

/// Both robots.txt and the page, over both HTTP versions.
#[tokio::test]
async fn strict_origin_accepts_our_requests() {
    let proxy = Proxy::start("").await;
    for (alpn, protocol) in [(Alpn::Both, Protocol::Http2), (Alpn::H1, Protocol::Http1)] {
        let origin = Origin::tls_site(alpn, "User-agent: *\nDisallow: /private/\n").await;
        let inside = proxy.h2(&origin, "a.localhost").await;
        assert_eq!(inside.get(&origin.url("/private/x")).await.status(), 403, "{alpn:?}");
        assert_eq!(inside.get(&origin.url("/open")).await.status(), 200, "{alpn:?}");
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        assert_eq!(client.get("/private/y", &origin.authority("a.localhost")).await.status(), 403, "{alpn:?}");
        assert_eq!(client.get("/too", &origin.authority("a.localhost")).await.status(), 200, "{alpn:?}");
        for seen in origin.log.all() {
            // Each client's version goes before, where the origin speaks it.
            let protocol = if seen.path() == "/too" { Protocol::Http1 } else { protocol };
            assert_eq!((seen.refused, seen.protocol), (None, protocol), "{}", show(&seen.head));
        }
        assert_eq!(origin.log.pages(), ["/open", "/too"], "{alpn:?}");
    }
}

/// A second end would be read as the next request.
#[tokio::test]
async fn upload_without_a_length_ends_with_one_end_of_body() {
    let proxy = Proxy::start("").await;
    for alpn in [Alpn::Both, Alpn::H1] {
        let origin = Origin::tls_site(alpn, "").await;
        let inside = proxy.h2(&origin, "a.localhost").await;
        for form in ["/one", "/two"] {
            let posted = h2_client::request("POST", &origin.url(form));
            assert_eq!(H2Client::exchange(&inside, posted, b"body").await.unwrap().status(), 200, "{alpn:?}");
            assert_eq!(origin.log.one(form).body.kept, b"body", "{alpn:?}");
        }
        assert_eq!(origin.log.pages(), ["/one", "/two"], "{alpn:?}");
    }
}
