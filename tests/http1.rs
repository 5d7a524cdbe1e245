//! One message, two readers: the proxy's own, and httparse with the words of RFC 9112. Both must find the same, or both refuse.

#[path = "support/second_reading.rs"]
mod second_reading;
#[path = "support/two_readers.rs"]
mod two_readers;

use proptest::prelude::*;
use proptest::sample::select;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_parse_the_same_in_two_readers(
        line in select(vec![
            "GET / HTTP/1.1", "POST http://a.example/x?y HTTP/1.1", "GET /\u{e9} HTTP/1.0", "CONNECT a.example:443 HTTP/1.1",
            "\r\nGET / HTTP/1.1", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET /", "G\tET / HTTP/1.1", "GET / HTTP/2.0",
        ]),
        fields in fields(),
        (at, odd) in mutation(),
        body in body(),
    ) {
        two_readers::request(&message(line, &fields, at, odd, &body));
    }

    #[test]
    fn responses_parse_the_same_in_two_readers(
        line in select(vec![
            "HTTP/1.1 200 OK", "HTTP/1.1 204", "HTTP/1.1 304 \u{e9}", "HTTP/1.0 200 OK", "HTTP/1.1 103 Early Hints",
            "HTTP/1.1 99 x", "HTTP/1.1 099 x", "\r\nHTTP/1.1 200 OK", "HTTP/1.1  200 OK", "HTTP/1.2 200 OK",
        ]),
        method in select(vec!["GET", "HEAD", "CONNECT"]),
        fields in fields(),
        (at, odd) in mutation(),
        body in body(),
    ) {
        two_readers::response(&message(line, &fields, at, odd, &body), method);
    }

    #[test]
    fn chunked_bodies_parse_the_same_in_two_readers(pieces in prop::collection::vec(select(PIECES.to_vec()), 0..10), (at, odd) in mutation()) {
        let mut bytes = pieces.concat().into_bytes();
        mutate(&mut bytes, at, odd);
        two_readers::chunked(&bytes);
    }
}

fn fields() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(FIELDS.to_vec()), 0..5)
}

fn body() -> impl Strategy<Value = String> {
    prop::collection::vec(select(PIECES.to_vec()), 0..5).prop_map(|pieces| pieces.concat())
}

/// A byte put somewhere into the message, more often than not.
fn mutation() -> impl Strategy<Value = (prop::sample::Index, Option<u8>)> {
    (any::<prop::sample::Index>(), prop::option::weighted(0.6, select(b"\r\n\0\t :;,x5\x7f\x80\xff".to_vec())))
}

fn message(line: &str, fields: &[&str], at: prop::sample::Index, odd: Option<u8>, body: &str) -> Vec<u8> {
    let mut head = format!("{line}\r\n{}\r\n", fields.concat()).into_bytes();
    mutate(&mut head, at, odd);
    [&head[..], body.as_bytes()].concat()
}

fn mutate(bytes: &mut Vec<u8>, at: prop::sample::Index, odd: Option<u8>) {
    if let Some(odd) = odd {
        let at = at.index(bytes.len() + 1);
        bytes.insert(at, odd);
    }
}

const FIELDS: &[&str] = &[
    "Host: a.example\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "content-length: 05\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: \r\n",
    "Content-Length : 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:CHUNKED \r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Connection: close, x-a\r\n",
    "X-A: b\n",
    "X-A: b\r\n\tc\r\n",
    "X-A:\r\n",
    " X-A: b\r\n",
    ": b\r\n",
    "X A: b\r\n",
    "X-A\r\n",
    "X-A: \u{e9}\r\n",
];

const PIECES: &[&str] = &[
    "5\r\nhello\r\n",
    "1;x=\"y\"\r\n\n\r\n",
    "A \r\n0123456789\r\n",
    "05\r\nhello\r\n",
    "5\r\nhell\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "X: y\r\n",
    "Content-Length: 5\r\n",
    "\r\n",
    "fffffffffffffffff\r\n",
    "next",
];
