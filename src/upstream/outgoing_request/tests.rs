//! Outgoing requests, byte for byte, in both versions of HTTP.

use super::*;
use crate::http1::{FieldRoom, read_request};
use crate::upstream::tests::upstream;

/// The head sent to the origin for a request received over HTTP/1.
async fn written(settings: &str, url: &str, request: &str) -> String {
    let (mut scanned, mut room) = (0, FieldRoom::new());
    let head = read_request(request.as_bytes(), &mut scanned, 65_536, &mut room).unwrap().unwrap();
    let route = route(settings, url).await;
    let target = head.target.strip_prefix(url.as_bytes()).unwrap_or(head.target);
    let outgoing = Outgoing {
        method: head.method,
        target,
        fields: OutgoingFields::Http1(&head),
        framing: head.framing,
        expects_continue: false,
        received: if head.minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 },
        user_agent: None,
        upgrade: head.upgrade,
        asked: None,
        conditions: &[],
    };
    let mut out = Vec::new();
    outgoing.write_http1(&route, &mut out);
    read_request(&out, &mut 0, 65_536, &mut FieldRoom::new())
        .expect("the written head can be read")
        .expect("the head is complete");
    String::from_utf8(out).unwrap().replace(&*route.0.via.name, "us")
}

async fn route(settings: &str, url: &str) -> Route {
    let upstream = upstream(settings);
    upstream.resolver.remember("a.example", &["198.41.0.4".parse().unwrap()]);
    upstream.reach_for(&crate::policy::Authority::from_url(url).unwrap(), None, None, None).await.unwrap()
}

fn own<'a>(method: &'a str, target: &'a str, fields: &'a [(&'a str, &'a [u8])]) -> Outgoing<'a> {
    Outgoing {
        method,
        target: target.as_bytes(),
        fields: OutgoingFields::Own(fields),
        framing: Framing::None,
        expects_continue: false,
        received: Version::HTTP_11,
        user_agent: None,
        upgrade: None,
        asked: None,
        conditions: &[],
    }
}

#[tokio::test]
async fn hop_by_hop_fields_are_removed() {
    let request = "POST http://a.example/x?y HTTP/1.0\r\nhost: A.example:80\r\nConnection: x-mine, close, Via, TE\r\n\
        Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n\
        X-Mine: 1\r\nX-Its: 2\r\nVia: 1.0 before\r\nUpgrade: h2c\r\nTrailer: X-Sum\r\nContent-Length: 05\r\n\r\n";
    assert_eq!(
        written("", "http://a.example", request).await,
        "POST /x?y HTTP/1.1\r\nHost: a.example\r\nX-Its: 2\r\nVia: 1.0 before\r\nTrailer: X-Sum\r\nVia: 1.0 us\r\n\
         Content-Length: 5\r\n\r\n"
    );
}

#[tokio::test]
async fn cookies_and_signature_named_by_connection_are_removed() {
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: cookie, signature\r\nCookie: a=1\r\nCookie: b=2\r\n\
        Signature: x\r\n\r\n";
    let out = written("", "http://a.example", request).await;
    assert_eq!(out, "GET / HTTP/1.1\r\nHost: a.example\r\nVia: 1.1 us\r\n\r\n");
    let mut room = FieldRoom::new();
    let head = read_request(request.as_bytes(), &mut 0, 65_536, &mut room).unwrap().unwrap();
    let outgoing = Outgoing { fields: OutgoingFields::Http1(&head), ..own("GET", "/", &[]) };
    assert!(!outgoing.is_signed(), "the request gets our signature");
}

#[tokio::test]
async fn target_is_forwarded_byte_for_byte() {
    for (sent, goes_on) in [
        ("GET /%7e/..//`{}|^[]<>\"?a=`b", "GET /%7e/..//`{}|^[]<>\"?a=`b"),
        ("GET http://a.example", "GET /"),
        ("GET http://a.example?q", "GET /?q"),
        ("OPTIONS http://a.example", "OPTIONS *"),
        ("OPTIONS *", "OPTIONS *"),
    ] {
        let request = format!("{sent} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let out = written("", "http://a.example", &request).await;
        assert_eq!(out, format!("{goes_on} HTTP/1.1\r\nHost: a.example\r\nVia: 1.1 us\r\n\r\n"));
    }
}

#[tokio::test]
async fn upstream_proxy_gets_the_whole_url_and_credentials() {
    let settings = "egress: { upstream_proxy: 'http://u:p@192.0.2.1:3128', ports: [80, 443, 8080] }";
    let request = "GET http://a.example:8080/x HTTP/1.1\r\nHost: a.example:8080\r\n\r\n";
    let out = written(settings, "http://a.example:8080", request).await;
    assert_eq!(
        out,
        "GET http://a.example:8080/x HTTP/1.1\r\nHost: a.example:8080\r\nVia: 1.1 us\r\n\
         Proxy-Authorization: Basic dTpw\r\n\r\n"
    );
    let out = written(settings, "http://a.example", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(out.starts_with("OPTIONS http://a.example HTTP/1.1\r\n"), "{out}");
    // Through the upstream proxy, the request goes to the origin.
    let out = written(settings, "https://a.example", "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert_eq!(out, "GET /x HTTP/1.1\r\nHost: a.example\r\nVia: 1.1 us\r\n\r\n");
}

#[tokio::test]
async fn max_forwards_is_decremented_for_options_and_trace_only() {
    for (method, left) in [("OPTIONS", "4"), ("TRACE", "4"), ("GET", "5")] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: 5\r\n\r\n");
        let out = written("", "http://a.example", &request).await;
        assert!(out.contains(&format!("\r\nMax-Forwards: {left}\r\n")), "{out}");
    }
}

#[tokio::test]
async fn upgrade_and_transfer_encoding_are_written_anew() {
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: x\r\n\r\n";
    let out = written("", "http://a.example", request).await;
    assert!(
        out.ends_with("Sec-WebSocket-Key: x\r\nVia: 1.1 us\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        "{out}"
    );
    let request = "PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n";
    let out = written("", "http://a.example", request).await;
    assert!(out.ends_with("Via: 1.1 us\r\nTransfer-Encoding: chunked\r\n\r\n"), "{out}");
}

#[tokio::test]
async fn configured_user_agent_replaces_any_received() {
    let route = route("", "http://a.example").await;
    let named: &[(&str, &[u8])] = &[("user-agent", b"curl"), ("A", b"b"), ("User-Agent", b"other")];
    for (fields, expected) in [
        (named, "GET / HTTP/1.1\r\nHost: a.example\r\nuser-agent: Bot\r\nA: b\r\nVia: 1.1 us\r\n\r\n"),
        (&[], "GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: Bot\r\nVia: 1.1 us\r\n\r\n"),
    ] {
        let mut out = Vec::new();
        Outgoing { user_agent: Some("Bot"), ..own("GET", "/", fields) }.write_http1(&route, &mut out);
        assert_eq!(String::from_utf8(out).unwrap().replace(&*route.0.via.name, "us"), expected);
    }
}

#[tokio::test]
async fn translation_joins_cookies_for_http1_and_drops_http1_fields_for_http2() {
    let route = route("", "https://a.example:443").await;
    let mut map = HeaderMap::new();
    for (name, value) in
        [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("te", "trailers"), ("proxy-authorization", "x")]
    {
        map.append(name, HeaderValue::from_static(value));
    }
    let outgoing = Outgoing {
        fields: OutgoingFields::Http2(&map),
        received: Version::HTTP_2,
        framing: Framing::Length(7),
        ..own("POST", "/x?y", &[])
    };
    let mut out = Vec::new();
    outgoing.write_http1(&route, &mut out);
    let out = String::from_utf8(out).unwrap().replace(&*route.0.via.name, "us");
    assert_eq!(
        out,
        "POST /x?y HTTP/1.1\r\nHost: a.example\r\nx: y\r\nVia: 2 us\r\nCookie: a=1; b=2\r\nContent-Length: 7\r\n\r\n"
    );

    let request = "POST /x HTTP/1.1\r\nHost: a.example\r\nConnection: x-mine\r\nX-Mine: 1\r\nX-Its: 2\r\nTE: gzip, trailers\r\n\
        Keep-Alive: 5\r\nTransfer-Encoding: chunked\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n";
    let (mut scanned, mut room) = (0, FieldRoom::new());
    let head = read_request(request.as_bytes(), &mut scanned, 65_536, &mut room).unwrap().unwrap();
    let outgoing = Outgoing { fields: OutgoingFields::Http1(&head), framing: head.framing, ..outgoing };
    let sent = outgoing.to_http2(&route).unwrap();
    assert_eq!(sent.uri(), "https://a.example/x?y");
    let mut names: Vec<_> =
        sent.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    names.sort();
    let via = format!("via: 2 {}", route.0.via.name);
    assert_eq!(names, ["cookie: a=1", "cookie: b=2", "te: trailers", &via, "x-its: 2"]);
}

#[tokio::test]
async fn request_that_http2_cannot_carry_is_refused_before_sending() {
    let route = route("", "https://a.example").await;
    for target in ["/a`b", "/<x>", "/?a=\"b\"<"] {
        assert!(!own("GET", target, &[]).fits_http2(), "{target}");
        assert_eq!(own("GET", target, &[]).to_http2(&route).unwrap_err(), NotForHttp2);
    }
    for target in ["/", "/%7e/..//x?y", "?q", "/{}|^[]"] {
        let sent = own("GET", target, &[]).to_http2(&route).unwrap();
        assert!(sent.uri().path_and_query().unwrap().as_str().ends_with(target), "{target}");
    }
    assert!(own("GET", "/", &[("Bad Name", b"x")]).to_http2(&route).is_err());
}
