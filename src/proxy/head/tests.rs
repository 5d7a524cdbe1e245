//! RFC 9112 §2 to §6: what a request head is read as, and what of it is refused.

use super::*;

fn request(raw: &str, tunnel: Option<&Authority>) -> Result<RequestHead, Refusal> {
    match read(raw.as_bytes(), tunnel)? {
        Head::Request(head) | Head::Upgrade(head) => Ok(head),
        Head::Connect { .. } => panic!("a CONNECT: {raw}"),
    }
}

fn forwarded(raw: &str) -> String {
    String::from_utf8(request(raw, None).expect(raw).bytes.to_vec()).unwrap()
}

#[test]
fn absolute_form_becomes_origin_form_with_the_targets_host() {
    assert_eq!(
        forwarded("GET http://Example.COM:80/a%2f/../b?c HTTP/1.1\r\nHost: example.com\r\nX-A: b\r\n\r\n"),
        "GET /a%2f/../b?c HTTP/1.1\r\nHost: example.com\r\nX-A: b\r\n\r\n"
    );
    assert!(forwarded("GET http://a.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("GET /?q HTTP"));
    assert!(forwarded("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("OPTIONS * HTTP"));
    assert!(forwarded("GET http://a.example/x#y HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("GET /x HTTP"));
}

#[test]
fn odd_but_legal_octets_go_on_byte_for_byte() {
    for path in ["/%7e", "/a/../b", "/|{}^[]", "/\u{e9}", "/a;b=c"] {
        let head = forwarded(&format!("GET http://a.example{path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{head}");
    }
    let head = forwarded("GET http://a.example/<`x>?\"` HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(head.starts_with("GET /%3C%60x%3E?%22` HTTP/1.1"), "{head}");
}

#[test]
fn pingora_takes_every_target_that_is_let_through() {
    for byte in (0..=255).filter(|&byte| byte > b' ' && byte != 0x7f && byte != b'#') {
        for (before, after) in [("/a", "b"), ("/?", "b"), ("/", "")] {
            let target = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            let raw = [b"GET http://a.example", &target[..], b" HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat();
            let Ok(Head::Request(head)) = read(&raw, None) else { panic!("{}", raw.escape_ascii()) };
            let line = head.bytes.split(|&byte| byte == b' ').nth(1).unwrap();
            assert!(pingora::http::RequestHeader::build("GET", line, None).is_ok(), "{}", raw.escape_ascii());
        }
    }
}

#[test]
fn hop_by_hop_fields_stay_here() {
    let head = forwarded(concat!(
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n",
        "Connection: close, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\n",
        "Upgrade: h2c\r\nAccept: */*\r\n\r\n"
    ));
    assert_eq!(head, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nAccept: */*\r\n\r\n");
}

#[test]
fn a_websocket_handshake_keeps_its_upgrade() {
    let asking = "HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    let head = match read(format!("GET http://a.example/ {asking}\r\n").as_bytes(), None) {
        Ok(Head::Upgrade(head)) => head,
        other => panic!("{other:?}"),
    };
    assert!(head.bytes.ends_with(b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"));
    assert_eq!(header(&head.bytes).unwrap().headers.len(), 3);
    for other in [
        format!("POST http://a.example/ {asking}\r\n"),
        format!("GET http://a.example/ {asking}Content-Length: 0\r\n\r\n"),
    ] {
        assert!(matches!(read(other.as_bytes(), None), Ok(Head::Request(_))), "{other}");
    }
}

#[test]
fn inside_a_tunnel_the_authority_is_the_tunnels() {
    let tunnel = Authority::new(Scheme::Https, "a.example", None).unwrap();
    let ok = request("GET /x HTTP/1.1\r\nHost: A.example:443\r\n\r\n", Some(&tunnel)).unwrap();
    assert_eq!(ok.authority, tunnel);
    assert!(ok.bytes.starts_with(b"GET /x HTTP/1.1\r\nHost: a.example\r\n"));
    for other in [
        "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:8443\r\n\r\n",
        "GET https://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        let refusal = request(other, Some(&tunnel)).unwrap_err();
        assert!(matches!(refusal, Refusal::AuthorityMismatch { .. }), "{other:?}: {refusal}");
    }
}

#[test]
fn the_asterisk_is_for_options_alone() {
    let tunnel = Authority::new(Scheme::Https, "a.example", None).unwrap();
    assert!(request("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(&tunnel)).is_ok());
    let refusal = request("GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(&tunnel)).unwrap_err();
    assert!(matches!(refusal, Refusal::BadRequest { .. }), "{refusal}");
}

#[test]
fn connect_wants_a_host_and_a_port() {
    let read = |raw: &str| read(raw.as_bytes(), None);
    for good in ["a.example:443", "[::1]:9", "A.Example:8443"] {
        assert!(matches!(read(&format!("CONNECT {good} HTTP/1.1\r\nHost: {good}\r\n\r\n")), Ok(Head::Connect { .. })));
    }
    assert!(read("CONNECT a.example:8445 HTTP/1.1\r\nHost: a.example\r\n\r\n").is_ok());
    for bad in [
        "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:1\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nContent-Length: 3\r\n\r\n",
        "CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT u@a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        "CONNECT a.example:99999 HTTP/1.1\r\nHost: a.example:99999\r\n\r\n",
        "CONNECT http://a.example:443/ HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        "CONNECT [::1] HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    ] {
        assert!(matches!(read(bad), Err(Refusal::BadRequest { .. })), "{bad:?}");
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: -1",
        "Content-Length: 0x3",
        "Content-Length: ",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \u{b}chunked",
        "Host: b.example",
        "Host: a.example",
        "X-Folded: a\r\n b",
        "X Space: a",
        "X-Space : a",
        ": empty",
        "X-Nul: a\0b",
    ] {
        let raw = format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n");
        assert!(matches!(request(&raw, None), Err(Refusal::BadRequest { .. })), "{fields:?}");
    }
}

#[test]
fn malformed_heads_are_refused() {
    for raw in [
        "GET http://a.example/ HTTP/1.1\r\n\r\n",
        "GET http://a.example/ HTTP/2.0\r\nHost: a.example\r\n\r\n",
        "GET  http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ b HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "G(T http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nA: b\rc\r\n\r\n",
    ] {
        assert!(matches!(request(raw, None), Err(Refusal::BadRequest { .. })), "{raw:?}");
    }
    let many = "A: b\r\n".repeat(MAX_FIELDS + 1);
    assert!(request(&format!("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{many}\r\n"), None).is_err());
}

#[test]
fn origin_form_outside_a_tunnel_is_no_proxy_request() {
    let refusal = request("GET / HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n", None).unwrap_err();
    assert!(matches!(refusal, Refusal::NotAProxyRequest));
}

#[test]
fn the_end_of_a_head_is_found_in_pieces_and_bare_lf_at_once() {
    assert_eq!(end_of_head(b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest", 0).unwrap(), Some(24));
    assert_eq!(end_of_head(b"GET / HTTP/1.1\r\nA: b\r\n", 0).unwrap(), None);
    assert!(end_of_head(b"GET / HTTP/1.1\nA: b", 0).is_err());
    assert!(end_of_head(b"GET / HTTP/1.1\r\nA: b\n\n", 0).is_err());
}
