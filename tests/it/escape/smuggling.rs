//! One message that two readers could take for two, or two for one. Behind each comes a request for a page that must
//! never be seen, and the connection must end.

use super::siege::{Siege, WAYS, Way, refused, rest, shoot};
use crate::support::{Alpn, Origin, Proxy, Reply};

const LENGTHS: &[(&str, &str)] = &[
    ("no length", ""),
    ("a length", "Content-Length: 5\r\n"),
    ("a length of 0", "Content-Length: 0\r\n"),
    ("a length twice", "Content-Length: 5\r\nContent-Length: 5\r\n"),
    ("two lengths", "Content-Length: 5\r\nContent-Length: 0\r\n"),
    ("a list", "Content-Length: 5, 5\r\n"),
    ("a sign", "Content-Length: +5\r\n"),
    ("hexadecimal", "Content-Length: 0x5\r\n"),
    ("a point", "Content-Length: 5.0\r\n"),
    ("a space within", "Content-Length: 5 5\r\n"),
    ("beyond 64 bits", "Content-Length: 18446744073709551621\r\n"),
    ("below zero", "Content-Length: -5\r\n"),
    ("full-width digits", "Content-Length: \u{ff15}\r\n"),
    ("no digits", "Content-Length: \r\n"),
    ("an underscore in its name", "Content-Length: 5\r\nContent-Length : 0\r\n"),
];

const CODINGS: &[(&str, &str)] = &[
    ("no coding", ""),
    ("chunked", "Transfer-Encoding: chunked\r\n"),
    ("chunked in capitals", "Transfer-Encoding: CHUNKED\r\n"),
    ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    ("a list of chunked", "Transfer-Encoding: chunked, chunked\r\n"),
    ("identity", "Transfer-Encoding: identity\r\n"),
    ("chunked, identity", "Transfer-Encoding: chunked, identity\r\n"),
    ("identity, chunked", "Transfer-Encoding: identity, chunked\r\n"),
    ("gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n"),
    ("a prefix", "Transfer-Encoding: xchunked\r\n"),
    ("quotes", "Transfer-Encoding: \"chunked\"\r\n"),
    ("a parameter", "Transfer-Encoding: chunked;q=1\r\n"),
    ("a comma", "Transfer-Encoding: ,chunked\r\n"),
    ("a vertical tab", "Transfer-Encoding: \x0bchunked\r\n"),
    ("a NUL", "Transfer-Encoding: chunked\0\r\n"),
    ("a space before the colon", "Transfer-Encoding : chunked\r\n"),
    ("a folded line", "Transfer-Encoding:\r\n chunked\r\n"),
    ("a folded line with a tab", "Transfer-Encoding:\r\n\tchunked\r\n"),
    ("behind a bare LF", "X: y\nTransfer-Encoding: chunked\r\n"),
    ("behind a bare CR", "X: y\rTransfer-Encoding: chunked\r\n"),
    ("a letter beyond ASCII", "Tran\u{17f}fer-Encoding: chunked\r\nTransfer-Encoding: x\r\n"),
    ("nothing", "Transfer-Encoding:\r\n"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_framing_is_refused() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let hidden = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/hidden"));
    let mut siege = Siege::default();
    for (length_name, length) in LENGTHS {
        for (coding_name, coding) in CODINGS {
            let good_length = matches!(*length_name, "no length" | "a length" | "a length of 0");
            let good_coding = matches!(*coding_name, "chunked" | "chunked in capitals");
            if (*coding_name == "no coding" && good_length) || (*length_name == "no length" && good_coding) {
                continue;
            }
            let mut client = proxy.client().await;
            let head = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{length}{coding}\r\n");
            let answer = shoot(&mut client, head + "0\r\n\r\n" + &hidden).await;
            let more = rest(&mut client).await;
            let twice = (!more.is_empty()).then(|| "a second answer".to_owned());
            siege.tried(format!("{length_name} and {coding_name}"), refused(answer.as_ref(), &[400]).or(twice));
        }
    }
    siege.withstood(300);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

const CHUNKS: &[(&str, &str)] = &[
    ("no size", "\r\nbody\r\n0\r\n\r\n"),
    ("no number", "zz\r\nbody\r\n0\r\n\r\n"),
    ("below zero", "-4\r\nbody\r\n0\r\n\r\n"),
    ("a sign", "+4\r\nbody\r\n0\r\n\r\n"),
    ("a prefix", "0x4\r\nbody\r\n0\r\n\r\n"),
    ("an underscore", "0_4\r\nbody\r\n0\r\n\r\n"),
    ("a space before", " 4\r\nbody\r\n0\r\n\r\n"),
    ("a space behind", "4 \r\nbody\r\n0\r\n\r\n"),
    ("two sizes", "4 4\r\nbody\r\n0\r\n\r\n"),
    ("beyond 64 bits", "10000000000000004\r\nbody\r\n0\r\n\r\n"),
    ("all bits", "ffffffffffffffff\r\nbody\r\n0\r\n\r\n"),
    ("longer than said", "4\r\nbodies\r\n0\r\n\r\n"),
    ("no end of a chunk", "4\r\nbody0\r\n\r\n"),
    ("LF after the size", "4\nbody\r\n0\r\n\r\n"),
    ("LF after the chunk", "4\r\nbody\n0\r\n\r\n"),
    ("LF at the end", "4\r\nbody\r\n0\n\n"),
    ("CR after the size", "4\rbody\r\n0\r\n\r\n"),
    ("an extension with LF", "4;a=b\nc\r\nbody\r\n0\r\n\r\n"),
    ("an extension with a CR", "4;a\rb\r\nbody\r\n0\r\n\r\n"),
    ("an extension with a NUL", "4;a\0b\r\nbody\r\n0\r\n\r\n"),
    ("a trailer with LF", "4\r\nbody\r\n0\r\nA: b\n\r\n"),
    ("a trailer with a NUL", "4\r\nbody\r\n0\r\nA: \0\r\n\r\n"),
    ("a trailer without a colon", "4\r\nbody\r\n0\r\nA\r\n\r\n"),
    ("a trailer that frames", "4\r\nbody\r\n0\r\nContent-Length: 99\r\nTransfer-Encoding: x\r\n\r\n"),
    ("full-width digits", "\u{ff14}\r\nbody\r\n0\r\n\r\n"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chunk_hides_a_request() {
    let plain = echo_origin(false).await;
    let tls = echo_origin(true).await;
    let proxy = Proxy::start("").await;
    let mut siege = Siege::default();
    for way in WAYS {
        let origin = if way == Way::Tls { &tls } else { &plain };
        for (name, chunks) in CHUNKS {
            let mut client = way.open(&proxy, origin).await;
            let host = origin.authority("a.localhost");
            let target = way.target(origin, "/x");
            let head = format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
            // A request that a reader would see if it took the body for shorter or longer.
            let hidden = format!("GET {} HTTP/1.1\r\nHost: {host}\r\nX: ", way.target(origin, "/hidden"));
            client.try_send(head + chunks + &hidden).await.ok();
            client.half_close().await;
            let all = rest(&mut client).await;
            let answers = all.windows(9).filter(|window| window == b"HTTP/1.1 ").count();
            siege.tried(format!("{way:?}, {name}"), (answers > 1).then(|| format!("{answers} answers")));
        }
    }
    siege.withstood(75);
    for origin in [&plain, &tls] {
        assert_eq!(origin.log.count("/hidden"), 0);
        for seen in origin.log.of("/x").iter().filter(|seen| seen.body.complete) {
            let framing = ["content-length", "transfer-encoding"]
                .iter()
                .any(|name| seen.body.trailers.iter().any(|(trailer, _)| trailer.eq_ignore_ascii_case(name)));
            assert!(!framing && seen.body.kept == b"body", "{seen:?}");
        }
    }
}

/// Bytes after a body belong to the next request, and a refused request's body is discarded with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_never_read_as_a_request() {
    let origin = Origin::site("User-agent: *\nDisallow: /secret\n").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let hidden = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/hidden"));
    let mut siege = Siege::default();
    for (name, method, path, fields, status) in [
        ("a refused POST", "POST", "/secret", "", 403),
        ("an allowed POST", "POST", "/x", "", 200),
        ("a GET with a body", "GET", "/x", "", 200),
        ("a refused GET with a body", "GET", "/secret", "", 403),
        ("a HEAD with a body", "HEAD", "/secret", "", 403),
        ("a DELETE with a body", "DELETE", "/x", "", 200),
        ("a body that waits for 100", "POST", "/secret", "Expect: 100-continue\r\n", 403),
        ("a body of an upgrade", "POST", "/secret", "Upgrade: websocket\r\nConnection: upgrade\r\n", 403),
        ("a request for the copy", "GET", "/robots.txt", "", 200),
    ] {
        for chunked in [false, true] {
            let body = match chunked {
                true => format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()),
                false => format!("Content-Length: {}\r\n\r\n{hidden}", hidden.len()),
            };
            let mut client = proxy.client().await;
            let url = origin.url(path);
            let last = format!("GET {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", origin.url("/last"));
            client.try_send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}{body}{last}")).await.ok();
            let first = client.response_to(method).await;
            let wrong = (first.status() != status).then(|| format!("status {}", first.status()));
            let second = rest(&mut client).await;
            let answers = second.windows(9).filter(|window| window == b"HTTP/1.1 ").count();
            siege.tried(name, wrong.or((answers > 1).then(|| format!("{} answers", answers + 1))));
        }
    }
    siege.withstood(18);
    assert_eq!(origin.log.count("/hidden"), 0);
    assert_eq!(origin.log.count("/secret"), 0);
}

/// A refused request in the middle does not affect its neighbours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_judged_one_by_one() {
    let origin = Origin::site("User-agent: *\nDisallow: /secret\n").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let row = ["/a", "/secret/1", "/b", "/x/../secret/2", "/%73ecret/3", "/c", "/secret", "/d"];
    let mut client = proxy.client().await;
    let all: String =
        row.iter().map(|path| format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url(path))).collect();
    client.send(all).await;
    for path in row {
        let answer = client.response().await;
        let expected = if path.len() == 2 { (200, format!("page {path}")) } else { (403, answer.text()) };
        assert_eq!((answer.status(), answer.text()), expected, "{path}");
    }
    assert_eq!(origin.log.pages(), ["/a", "/b", "/c", "/d"]);
}

async fn echo_origin(tls: bool) -> Origin {
    let answer = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::echo(),
    };
    if tls { Origin::https(Alpn::H1, answer).await } else { Origin::http(answer).await }
}
