//! Tests of reading requests as a server (RFC 9112 §2–§6).

use crate::http1::{FieldKind, FieldRoom, Framing, HeadError, MAX_FIELDS, RequestHead, read_request};

const LIMIT: usize = 64 * 1024;

/// Calls `look` with the head, if it is complete.
fn read<T>(raw: &[u8], look: impl FnOnce(&RequestHead<'_>) -> T) -> Result<Option<T>, HeadError> {
    let mut room = FieldRoom::new();
    Ok(read_request(raw, &mut 0, LIMIT, &mut room)?.map(|head| look(&head)))
}

fn framing(fields: &str) -> Result<Framing, HeadError> {
    let raw = format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n");
    read(raw.as_bytes(), |head| head.framing).map(|framing| framing.expect("the head is whole"))
}

fn assert_refused(raw: &[u8]) {
    let read = read(raw, |head| format!("{head:?}"));
    assert!(matches!(read, Err(HeadError::Malformed(_))), "{}: {read:?}", raw.escape_ascii());
}

#[test]
fn request_head_is_parsed_as_sent() {
    let raw =
        b"GET http://Example.COM:80/a%2f/../b?c#d HTTP/1.1\r\nhOST:\t Example.com \t\r\nX-A:\r\nX-B: a \tb\r\n\r\nmore";
    read(raw, |head| {
        assert_eq!((head.len, head.method, head.minor), (raw.len() - 4, "GET", 1));
        assert_eq!(head.target, b"http://Example.COM:80/a%2f/../b?c#d");
        assert_eq!(head.host, Some(&b"Example.com"[..]));
        let fields: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [(&b"hOST"[..], &b"Example.com"[..]), (b"X-A", b""), (b"X-B", b"a \tb")]);
        assert_eq!(head.framing, Framing::None);
    })
    .unwrap()
    .unwrap();
}

#[test]
fn target_excludes_spaces_and_control_characters() {
    for byte in 0..=255 {
        let raw = [b"GET http://a.example/", &[byte][..], b"x HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat();
        let target = [b"http://a.example/", &[byte][..], b"x"].concat();
        match byte {
            0..=b' ' | 0x7f => assert_refused(&raw),
            _ => assert_eq!(read(&raw, |head| head.target == target), Ok(Some(true)), "{byte}"),
        }
    }
}

#[test]
fn field_names_are_tokens_and_values_are_text() {
    for byte in 0..=255u8 {
        let raw = |name: &[u8], value: &[u8]| {
            [b"GET / HTTP/1.1\r\nHost: h\r\nX", name, b"Y: a", value, b"b\r\n\r\n"].concat()
        };
        let name = raw(&[byte], b"");
        // A colon ends the name.
        if byte == b':' || byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte) {
            assert!(read(&name, |_| ()).is_ok_and(|head| head.is_some()), "{byte}");
        } else {
            assert_refused(&name);
        }
        let value = raw(b"", &[byte]);
        if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
            assert!(read(&value, |_| ()).is_ok_and(|head| head.is_some()), "{byte}");
        } else {
            assert_refused(&value);
        }
    }
}

#[test]
fn rfc_higher_minor_version_is_read_as_1_1() {
    for (version, minor) in [("1.0", 0), ("1.1", 1), ("1.2", 1), ("1.9", 1)] {
        let raw = format!("GET http://a.example/ HTTP/{version}\r\nHost: a.example\r\n\r\n");
        assert_eq!(
            read(raw.as_bytes(), |head| (head.minor, head.persists())),
            Ok(Some((minor, minor == 1))),
            "{version}"
        );
    }
}

#[test]
fn malformed_heads_are_refused() {
    for raw in [
        "GET http://a.example/ HTTP/2.0\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/0.9\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.x\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ http/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1 \r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.10\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/  HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET  http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ b HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/\r\nHost: a.example\r\n\r\n",
        "GET\thttp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        " GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "G(T http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET \r\n\r\n",
        "\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a.example\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Folded: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Folded: a\r\n\tb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX Space: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Space : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n: empty\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Nul: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n\rA: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nA: b\r\r\n\r\n",
        "GET / HTTP/1.1\r\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\nA: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\n\n",
        "\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        assert_refused(raw.as_bytes());
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: -1",
        "Content-Length: 0x3",
        "Content-Length: 3 3",
        "Content-Length: 3.0",
        "Content-Length: \u{ff13}",
        "Content-Length: ",
        "Content-Length: 9223372036854775808",
        "Content-Length: 99999999999999999999",
        "Content-Length : 3",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding:",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\r\n chunked",
    ] {
        assert!(matches!(framing(fields), Err(HeadError::Malformed(_))), "{fields:?}: {:?}", framing(fields));
    }
    assert_refused(b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn request_framing_follows_its_fields() {
    for (fields, expected) in [
        ("X: y", Framing::None),
        ("Content-Length: 0", Framing::Length(0)),
        ("content-length:  0005 ", Framing::Length(5)),
        ("Content-Length: 9223372036854775807", Framing::Length(i64::MAX as u64)),
        ("Transfer-Encoding: CHUNKED\t", Framing::Chunked),
    ] {
        assert_eq!(framing(fields), Ok(expected), "{fields}");
    }
}

#[test]
fn connection_field_lists_hop_by_hop_fields_and_persistence() {
    let raw = concat!(
        "GET / HTTP/1.1\r\nHost: h\r\nProxy-Authorization: x\r\nTE: trailers\r\nConnection: X-Secret,, close\r\n",
        "x-secret: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nConnection: via,content-length , host\r\n",
        "Connection: Cache-Control, transfer-encoding\r\nCache-Control: a\r\nVia: 1.1 x\r\nContent-Length: 0\r\nAccept: */*\r\n\r\n"
    );
    read(raw.as_bytes(), |head| {
        let passing: Vec<_> = head.fields.iter().filter(|field| !head.ends_here(field)).map(|f| f.kind).collect();
        use FieldKind::*;
        assert_eq!(passing, [Host, CacheControl, Via, ContentLength, Accept]);
        assert!(head.close && !head.persists() && head.upgrade.is_none());
        assert_eq!(head.fields.iter().filter(|field| field.kind == Connection).count(), 3);
    })
    .unwrap()
    .unwrap();
    for (version, field, persists) in [
        ("HTTP/1.1", "X: y", true),
        ("HTTP/1.1", "Connection: close, keep-alive", false),
        ("HTTP/1.0", "X: y", false),
        ("HTTP/1.0", "Connection: Keep-Alive", true),
    ] {
        let raw = format!("GET / {version}\r\nHost: h\r\n{field}\r\n\r\n");
        assert_eq!(read(raw.as_bytes(), |head| head.persists()), Ok(Some(persists)), "{raw}");
    }
}

#[test]
fn upgrade_requires_the_connection_option() {
    let upgrade = |raw: &str| read(raw.as_bytes(), |head| head.upgrade.map(<[u8]>::to_vec)).unwrap().unwrap();
    let asked = "Host: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    assert_eq!(upgrade(&format!("GET / HTTP/1.1\r\n{asked}")).as_deref(), Some(&b"WebSocket"[..]));
    assert_eq!(upgrade(&format!("GET / HTTP/1.0\r\n{asked}")), None);
    assert_eq!(upgrade("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: WebSocket\r\n\r\n"), None);
    assert_eq!(upgrade("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\n\r\n"), None);
}

#[test]
fn empty_lines_before_a_head_are_skipped() {
    let raw = b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\nnext";
    assert_eq!(read(raw, |head| (head.len, head.method.to_owned())), Ok(Some((raw.len() - 4, "GET".to_owned()))));
    assert_eq!(read(b"\r\n\r\n", |_| ()), Ok(None));
}

#[test]
fn request_head_is_parsed_for_any_split() {
    for raw in
        ["\r\nPOST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "GET /\r\n\r\n", "GET / HTTP/1.1\nA: b\n\n"]
    {
        let whole = read(raw.as_bytes(), |head| (head.len, head.framing));
        for first in 0..=raw.len() {
            for second in first..=raw.len() {
                let mut scanned = 0;
                let mut found = Ok(None);
                for end in [first, second, raw.len()] {
                    let mut room = FieldRoom::new();
                    found = read_request(&raw.as_bytes()[..end], &mut scanned, LIMIT, &mut room)
                        .map(|head| head.map(|head| (head.len, head.framing)));
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
fn a_line_that_ends_without_cr_is_refused_before_the_head_is_complete() {
    assert_refused(b"GET / HTTP/1.1\nA: b");
}

#[test]
fn heads_are_bounded() {
    let mut room = FieldRoom::new();
    let raw = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let too_large = |limit| Err(HeadError::TooLarge { limit });
    let mut len =
        |raw: &'static [u8], limit| read_request(raw, &mut 0, limit, &mut room).map(|head| head.map(|head| head.len));
    assert_eq!(len(raw, raw.len()), Ok(Some(raw.len())));
    assert_eq!(len(raw, raw.len() - 1), too_large(raw.len() - 1));
    assert_eq!(len(b"GET / HTTP/1.1\r\nHost", 20), Ok(None));
    assert_eq!(len(b"GET / HTTP/1.1\r\nHost:", 20), too_large(20));
    assert_eq!(len(b"\r\n\r\n\r\n\r\n", 6), too_large(6));

    let many = |count| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(read(many(MAX_FIELDS - 1).as_bytes(), |head| head.fields.len()), Ok(Some(MAX_FIELDS)));
    assert_eq!(read(many(MAX_FIELDS).as_bytes(), |_| ()), Err(HeadError::TooManyFields));
    assert_refused(format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: {}\r\n\r\n", "x,".repeat(33)).as_bytes());
}

#[test]
fn field_memory_is_reused() {
    let (first, second) = (b"GET / HTTP/1.1\r\nConnection: x\r\nX: y\r\n\r\n", b"GET / HTTP/1.1\r\nX: y\r\n\r\n");
    let mut room = FieldRoom::new();
    read_request(first, &mut 0, LIMIT, &mut room).unwrap().unwrap();
    let head = read_request(second, &mut 0, LIMIT, &mut room).unwrap().unwrap();
    assert_eq!(head.fields.len(), 1);
    assert!(!head.ends_here(&head.fields[0]));
}
