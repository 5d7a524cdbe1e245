//! Tests of reading answers as a client (RFC 9112 §4–§6).

use crate::http1::{FieldKind, Framing, HeadError, MAX_FIELDS, ResponseHead, read_response};

const LIMIT: usize = 64 * 1024;

fn read<T>(raw: &[u8], method: &str, look: impl FnOnce(&ResponseHead<'_>) -> T) -> Result<Option<T>, HeadError> {
    read_response(&mut raw.to_vec(), &mut 0, LIMIT, method, look)
}

/// The framing, the framing fields as forwarded, and whether the connection can be reused.
fn framing(raw: &str, method: &str) -> Result<(Framing, String, bool), HeadError> {
    let told = |head: &ResponseHead<'_>| {
        let framing = head
            .fields
            .iter()
            .filter(|field| matches!(field.kind, FieldKind::ContentLength | FieldKind::TransferEncoding));
        let lines: Vec<_> = framing.map(|field| String::from_utf8_lossy(field.value).into_owned()).collect();
        (head.framing, lines.join("|"), !head.close)
    };
    read(raw.as_bytes(), method, told).map(|head| head.expect("a whole head"))
}

fn assert_refused(raw: &[u8], method: &str) {
    let read = read(raw, method, |head| format!("{head:?}"));
    assert!(matches!(read, Err(HeadError::Malformed(_))), "{}: {read:?}", raw.escape_ascii());
}

#[test]
fn response_head_is_parsed_as_sent() {
    let raw = b"HTTP/1.1 404 Not  Found\r\nDATE: x\r\nX:\r\nY: \xfc\r\n\r\nbody";
    read(raw, "GET", |head| {
        assert_eq!((head.len, head.status, head.minor), (raw.len() - 4, 404, 1));
        assert_eq!(head.reason, b"Not  Found");
        let fields: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [(&b"DATE"[..], &b"x"[..]), (b"X", b""), (b"Y", b"\xfc")]);
        assert!(!head.is_irregular && !head.is_interim());
    })
    .unwrap()
    .unwrap();
}

#[test]
fn status_line_is_version_status_and_optional_reason() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.0 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        // RFC 9110 §2.5: a higher minor version is read as the highest that is known.
        ("HTTP/1.2 200 OK", 200, "OK"),
        ("HTTP/1.9 404", 404, ""),
        ("HTTP/1.1 999 \u{e9}", 999, "\u{e9}"),
    ] {
        let raw = format!("{line}\r\n\r\n");
        let found =
            read(raw.as_bytes(), "GET", |head| (head.status, String::from_utf8_lossy(head.reason).into_owned()));
        assert_eq!(found, Ok(Some((status, reason.to_owned()))), "{line}");
    }
    for line in [
        "HTTP/1.1",
        "HTTP/1.1 ",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 OK 200",
        "HTTP/1.1 200OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.10 200 OK",
        "HTTP/1.: 200 OK",
        "HTTP/3.0 200 OK",
        "HTTP/2 200 OK",
        "http/1.1 200 OK",
        " HTTP/1.1 200 OK",
        "HTTP/1.1 200 O\0K",
        "HTTP/1.1 200 O\rK",
        "SSH-2.0-OpenSSH",
        "ICY 200 OK",
        "hello",
        "",
    ] {
        assert_refused(format!("{line}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n").as_bytes(), "GET");
    }
    assert_refused(b"HTTP/1.1 200 OK\r\n folded\r\n\r\n", "GET");
    assert_refused(b"HTTP/1.1 200 OK\r\n X: folded\r\n\r\n", "GET");
    assert_refused(b"<html>hello</html>", "GET");
    assert_refused(b"\n", "GET");
}

#[test]
fn ambiguous_framing_is_an_error() {
    for fields in [
        "Content-Length: 4\r\nContent-Length: 2",
        "Content-Length: 4, 2",
        "Content-Length: +4",
        "Content-Length: -4",
        "Content-Length: 0x4",
        "Content-Length: 4.0",
        "Content-Length: x",
        "Content-Length:",
        "Content-Length: ,",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
        "Transfer-Encoding: x",
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "X: a\0b",
        "X: a\rSet-Cookie: b",
        "X: a\r\r\nY: b",
        "X Y: z",
        ": z",
        " : z",
        "X",
        "\rX: y",
        "X\r\n : y",
        "X\r\n : y",
    ] {
        assert_refused(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nbody").as_bytes(), "GET");
    }
    assert_refused(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET");
    assert_refused(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "GET");
}

#[test]
fn response_framing_follows_status_method_and_fields() {
    let (length, chunked, kept) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", true);
    let with_both = format!("{length}{chunked}");
    for (start, method, fields, framing_of, leaves, reusable) in [
        ("HTTP/1.1 200 OK", "GET", length, Framing::Length(5), "5", kept),
        ("HTTP/1.1 200 OK", "GET", chunked, Framing::Chunked, "chunked", kept),
        ("HTTP/1.1 200 OK", "GET", "", Framing::UntilClose, "", false),
        ("HTTP/1.0 200 OK", "GET", length, Framing::Length(5), "5", false),
        ("HTTP/1.0 200 OK", "GET", "", Framing::UntilClose, "", false),
        // Transfer-Encoding overrides Content-Length, which is removed (§6.3).
        ("HTTP/1.1 200 OK", "GET", &with_both, Framing::Chunked, "chunked", false),
        ("HTTP/1.1 200 OK", "HEAD", &with_both, Framing::None, "chunked", false),
        // The same number given twice counts once.
        ("HTTP/1.1 200 OK", "GET", "Content-Length: 5\r\nContent-Length: 5\r\n", Framing::Length(5), "5", kept),
        ("HTTP/1.1 200 OK", "GET", "Content-Length: 5 , 5\r\n", Framing::Length(5), "5", kept),
        ("HTTP/1.1 200 OK", "GET", "Content-Length: ,5\r\n", Framing::Length(5), "5", kept),
        ("HTTP/1.1 200 OK", "GET", "Content-Length: 5,\r\n", Framing::Length(5), "5", kept),
        ("HTTP/1.1 200 OK", "GET", "Content-Length: 05\r\nContent-Length: 5\r\n", Framing::Length(5), "05", kept),
        // These have no body, even if fields say so. In answer to HEAD or as 304, the fields may describe the body of a GET.
        ("HTTP/1.1 200 OK", "HEAD", length, Framing::None, "5", kept),
        ("HTTP/1.1 200 OK", "HEAD", chunked, Framing::None, "chunked", kept),
        ("HTTP/1.1 200 OK", "HEAD", "", Framing::None, "", kept),
        ("HTTP/1.1 304 Not Modified", "GET", length, Framing::None, "5", kept),
        ("HTTP/1.1 304 Not Modified", "GET", chunked, Framing::None, "", kept),
        ("HTTP/1.1 304 Not Modified", "GET", "", Framing::None, "", kept),
        ("HTTP/1.1 204 No Content", "GET", "", Framing::None, "", kept),
        ("HTTP/1.1 204 No Content", "GET", "Content-Length: 0\r\n", Framing::None, "", kept),
        ("HTTP/1.1 204 No Content", "GET", length, Framing::None, "", false),
        ("HTTP/1.1 204 No Content", "GET", chunked, Framing::None, "", false),
        ("HTTP/1.1 103 Early Hints", "GET", "", Framing::None, "", kept),
        ("HTTP/1.1 103 Early Hints", "GET", length, Framing::None, "", false),
        // The tunnel begins where the body would.
        ("HTTP/1.1 200 OK", "CONNECT", length, Framing::None, "", false),
        ("HTTP/1.1 200 OK", "CONNECT", "", Framing::None, "", kept),
        ("HTTP/1.1 403 Forbidden", "CONNECT", length, Framing::Length(5), "5", kept),
    ] {
        let raw = format!("{start}\r\n{fields}\r\n");
        assert_eq!(framing(&raw, method), Ok((framing_of, leaves.to_owned(), reusable)), "{method}: {raw}");
    }
}

#[test]
fn interim_answer_has_its_own_head() {
    let raw = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let (len, interim) = read(raw, "GET", |head| (head.len, head.is_interim())).unwrap().unwrap();
    assert!(interim && raw[len..].starts_with(b"HTTP/1.1 204"));
    assert_eq!(read(b"HTTP/1.1 101 Switching\r\n\r\n", "GET", |head| head.is_interim()), Ok(Some(false)));
}

#[test]
fn sloppy_lines_are_accepted_and_flagged() {
    for (raw, value) in [
        ("HTTP/1.1 200 OK\nX: y\n\n", "y"),
        ("HTTP/1.1 200 OK\nX: y\r\n\r\n", "y"),
        ("HTTP/1.1 200 OK\r\nX: y\r\n\n", "y"),
        ("HTTP/1.1 200 OK\r\nX \t: y\r\n\r\n", "y"),
    ] {
        let read = read(raw.as_bytes(), "GET", |head| {
            (head.is_irregular, head.fields[0].name.to_vec(), head.fields[0].value.to_vec(), head.len)
        });
        assert_eq!(read, Ok(Some((true, b"X".to_vec(), value.into(), raw.len()))), "{raw:?}");
    }
    let framed = framing("HTTP/1.1 200 OK\nContent-Length : 5\n\n", "GET");
    assert_eq!(framed, Ok((Framing::Length(5), "5".to_owned(), true)));
}

#[test]
fn folded_lines_are_joined() {
    let raw = b"HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\n   c\r\nTransfer-Encoding:\r\n chunked\r\n\r\n body";
    let found = read(raw, "GET", |head| (head.fields[0].value.to_vec(), head.framing, head.len));
    assert_eq!(found, Ok(Some((b"a  \tb     c".to_vec(), Framing::Chunked, raw.len() - 5))));
}

#[test]
fn response_head_is_parsed_for_any_split() {
    for raw in [
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 3\n\n abc",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
    ] {
        let look = |head: &ResponseHead<'_>| (head.len, head.framing, format!("{:?}", head.fields));
        let whole = read(raw.as_bytes(), "GET", look);
        for first in 0..=raw.len() {
            for second in first..=raw.len() {
                let mut input = raw.as_bytes().to_vec();
                let mut scanned = 0;
                let mut found = Ok(None);
                for end in [first, second, raw.len()] {
                    found = read_response(&mut input[..end], &mut scanned, LIMIT, "GET", look);
                    if found != Ok(None) {
                        break;
                    }
                }
                assert_eq!(found, whole, "{first} {second}");
            }
        }
    }
}

#[test]
fn non_http_answer_is_reported_at_once() {
    assert_refused(b"SS", "GET");
    assert_refused(b"\r", "GET");
    assert_eq!(read(b"HTTP/", "GET", |_| ()), Ok(None));
    assert_eq!(read(b"", "GET", |_| ()), Ok(None));
}

#[test]
fn heads_are_bounded() {
    let head = |limit| read_response(&mut b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), &mut 0, limit, "GET", |head| head.len);
    assert_eq!(head(19), Ok(Some(19)));
    assert_eq!(head(18), Err(HeadError::TooLarge { limit: 18 }));
    let many = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(read(many(MAX_FIELDS).as_bytes(), "GET", |head| head.fields.len()), Ok(Some(MAX_FIELDS)));
    assert_eq!(read(many(MAX_FIELDS + 1).as_bytes(), "GET", |_| ()), Err(HeadError::TooManyFields));
}

#[test]
fn hop_by_hop_response_fields_are_marked() {
    let raw = concat!(
        "HTTP/1.1 200 OK\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n",
        "Proxy-Authenticate: x\r\nProxy-Authentication-Info: x\r\nUpgrade: h2c\r\nContent-Length: 0\r\nServer: x\r\n\r\n"
    );
    let passing = |head: &ResponseHead<'_>| {
        head.fields.iter().filter(|field| !head.ends_here(field)).map(|field| field.name.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(read(raw.as_bytes(), "GET", passing), Ok(Some(vec![b"Content-Length".to_vec(), b"Server".to_vec()])));
    let raw = "HTTP/1.1 204 No\r\nConnection: x-robots-tag, link, x-hop\r\nX-Robots-Tag: noai\r\nLink: <x>\r\nX-Hop: 1\r\n\r\n";
    let named = Ok(Some(vec![b"X-Robots-Tag".to_vec(), b"Link".to_vec()]));
    assert_eq!(read(raw.as_bytes(), "GET", passing), named, "Connection cannot remove fields about the content's use");
}
