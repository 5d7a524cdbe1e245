//! Bodies: RFC 9112 §6.3 and §7.1, read and written.

use crate::http1::put_status_line;
use crate::http1::{Body, BodyError, Field, FieldKind, Framing, put_chunk_head, put_field, put_last_chunk, put_number};

fn chunked(strict: bool) -> Body {
    if strict { Body::of_request(Framing::Chunked) } else { Body::of_response(Framing::Chunked) }
}

fn passed(strict: bool, bytes: &[u8]) -> Result<(usize, bool), BodyError> {
    let mut body = chunked(strict);
    let used = advance(&mut body, bytes)?;
    Ok((used, body.is_done()))
}

/// Counts the bytes that belong to the body.
fn advance(body: &mut Body, bytes: &[u8]) -> Result<usize, BodyError> {
    let mut at = 0;
    while at < bytes.len() && !body.is_done() {
        at += body.decode(&bytes[at..])?.end;
    }
    Ok(at)
}

/// The content of the body, read in pieces of at most `most` bytes; the number of bytes read; and the trailers.
fn decoded(mut body: Body, bytes: &[u8], most: usize) -> Result<(Vec<u8>, usize, String), BodyError> {
    let (mut content, mut at) = (Vec::new(), 0);
    while !body.is_done() && at < bytes.len() {
        let there = &bytes[at..bytes.len().min(at + most)];
        let piece = body.decode(there)?;
        assert!(piece.end > 0, "{piece:?}");
        content.extend_from_slice(&there[piece.clone()]);
        at += piece.end;
    }
    body.on_end_of_stream()?;
    let mut trailers = Vec::new();
    body.trailers().for_each(|field| put_field(&mut trailers, field.name, field.value));
    Ok((content, at, String::from_utf8(trailers).unwrap()))
}

#[test]
fn a_body_ends_after_its_last_chunk_and_trailers() {
    for body in ["0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "A;x=y\r\n0123456789\r\n000\r\nDigest: z\r\nX:\r\n\r\n"] {
        let next = [body.as_bytes(), b"GET / HTTP/1.1"].concat();
        for strict in [true, false] {
            assert_eq!(passed(strict, &next), Ok((body.len(), true)), "{body:?}");
        }
    }
}

#[test]
fn chunked_body_ends_the_same_for_any_split() {
    let bytes = b"5;ext\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\nrest";
    let end = bytes.len() - 4;
    for cut in 0..bytes.len() {
        let mut body = chunked(true);
        let first = advance(&mut body, &bytes[..cut]).unwrap();
        assert_eq!(first + advance(&mut body, &bytes[first..]).unwrap(), end, "cut at {cut}");
        assert_eq!(advance(&mut body, b"more"), Ok(0));
    }
}

#[test]
fn broken_framing_is_an_error() {
    for strict in [true, false] {
        for bytes in [
            "\r\n",
            "x\r\n",
            " 5\r\n",
            "+5\r\nhello\r\n",
            "-5\r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "5\nhello\r\n",
            "5 x\r\nhello\r\n",
            "5\r\nhello!\r\n",
            "5\r\nhello\n",
            "5\r\nhello\rX",
            "0\r\n\rX",
            "0\r\n\n",
            "5;a\nb\r\nhello",
            "5;a\0b\r\nhello",
            "0\r\nA: b\n\r\n",
            "0\r\nA: b\0\r\n\r\n",
            "0\r\nA: b\rX",
            "0\r\nA\r\n\r\n",
            "0\r\nA b: c\r\n\r\n",
            "0\r\n: c\r\n\r\n",
            "0\r\n A: b\r\n\r\n",
            "0\r\nA: b\r\n c\r\n\r\n",
            "10000000000000004\r\n",
            "ffffffffffffffff\r\n",
            "0000010000000000000004\r\n",
            "000000000000000000000000000000005\r\nhello\r\n",
            "fffffffffffffffff\r\n",
        ] {
            assert!(matches!(passed(strict, bytes.as_bytes()), Err(BodyError::Malformed(_))), "{bytes:?}");
            assert!(decoded(chunked(strict), bytes.as_bytes(), 3).is_err(), "{bytes:?}");
        }
    }
}

/// Some servers write sizes with a fixed width.
#[test]
fn leading_zeros_of_a_chunk_size_are_ignored() {
    for zeros in 0..=31 {
        let zeros = "0".repeat(zeros);
        let body = format!("{zeros}5\r\nhello\r\n{zeros}0\r\n\r\n");
        for strict in [true, false] {
            assert_eq!(passed(strict, body.as_bytes()), Ok((body.len(), true)), "{body:?}");
            assert_eq!(decoded(chunked(strict), body.as_bytes(), 3).unwrap().0, b"hello", "{body:?}");
        }
    }
}

#[test]
fn spaces_after_a_chunk_size_are_accepted_only_in_answers() {
    let bytes = b"5  \r\nhello\r\n0\t\r\n\r\n";
    assert_eq!(passed(false, bytes), Ok((bytes.len(), true)));
    assert!(passed(true, bytes).is_err());
}

#[test]
fn request_trailers_with_framing_or_routing_fields_are_refused() {
    for name in ["Content-Length", "transfer-encoding", "HOST", "Connection"] {
        let bytes = format!("0\r\nX: y\r\n{name}: 5\r\n\r\n");
        assert!(passed(true, bytes.as_bytes()).is_err(), "{name}");
        assert!(passed(false, bytes.as_bytes()).is_ok(), "{name}");
        let (.., trailers) = decoded(chunked(false), bytes.as_bytes(), 100).unwrap();
        assert_eq!(trailers, "X: y\r\n", "{name}");
    }
    assert!(passed(true, b"0\r\nTransfer-Encoding-: x\r\nHos: t\r\n\r\n").is_ok());
    for strict in [true, false] {
        assert!(passed(strict, b"0\r\n:status: 204\r\n\r\n").is_err(), "a name has no colon");
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    assert!(passed(true, format!("5;{}", "e".repeat(9000)).as_bytes()).is_err());
    assert!(passed(false, format!("5{}", " ".repeat(9000)).as_bytes()).is_err());
    assert!(passed(true, format!("0\r\n{}", "A: b\r\n".repeat(1025)).as_bytes()).is_err());
    assert!(passed(true, format!("0\r\nA: {}\r\n", "b".repeat(17_000)).as_bytes()).is_err());
    assert!(passed(true, format!("0\r\n{}", "b".repeat(17_000)).as_bytes()).is_err());
    // Many small chunks with long extensions are refused as well.
    assert!(passed(true, "1;extension\r\na\r\n".repeat(2000).as_bytes()).is_err());
    assert!(passed(true, "b;extension\r\nhello world\r\n".repeat(20_000).as_bytes()).is_ok());
    // Padding of an answer's chunk sizes is accepted in answers of any length: some servers pad each size.
    assert!(passed(false, "1       \r\na\r\n".repeat(20_000).as_bytes()).is_ok());
}

#[test]
fn content_is_decoded_for_any_split() {
    let bytes = b"5;x=y\r\nhello\r\n1\r\n \r\n6\r\nworld!\r\n0\r\nA:  b \r\nProxy-Authenticate: x\r\nC:\r\n\r\nnext";
    for most in 1..=bytes.len() {
        let expected = (b"hello world!".to_vec(), bytes.len() - 4, "A: b\r\nC: \r\n".to_owned());
        assert_eq!(decoded(chunked(false), bytes, most), Ok(expected), "{most}");
        let length = decoded(Body::of_response(Framing::Length(5)), bytes, most).unwrap();
        assert_eq!((length.0.as_slice(), length.1), (&bytes[..5], 5));
        let all = decoded(Body::of_response(Framing::UntilClose), bytes, most).unwrap();
        assert_eq!(all.0, bytes);
    }
}

#[test]
fn early_end_of_a_body_is_reported() {
    for (framing, there, whole) in [
        (Framing::None, "", true),
        (Framing::Length(0), "", true),
        (Framing::Length(3), "abc", true),
        (Framing::Length(3), "ab", false),
        (Framing::Length(3), "", false),
        (Framing::UntilClose, "", true),
        (Framing::UntilClose, "abc", true),
        (Framing::Chunked, "1\r\na\r\n0\r\n\r\n", true),
        (Framing::Chunked, "1\r\na\r\n0\r\n", false),
        (Framing::Chunked, "", false),
    ] {
        let mut body = Body::of_response(framing);
        assert_eq!(advance(&mut body, there.as_bytes()), Ok(there.len()));
        let expected = if whole { Ok(()) } else { Err(BodyError::CutShort) };
        assert_eq!(body.on_end_of_stream(), expected, "{framing:?} {there:?}");
        assert_eq!(body.is_done(), whole);
    }
}

#[test]
fn bytes_after_content_length_do_not_belong_to_the_body() {
    let mut body = Body::of_request(Framing::Length(5));
    assert_eq!((advance(&mut body, b"abc"), body.is_done()), (Ok(3), false));
    assert_eq!((advance(&mut body, b"defg"), body.is_done()), (Ok(2), true));
    assert_eq!(advance(&mut Body::of_request(Framing::None), b"next"), Ok(0));
}

#[test]
fn written_chunks_round_trip() {
    for size in [1, 9, 10, 15, 16, 255, 256, 4096, 65_535, 65_536, 1_000_000] {
        let mut out = Vec::new();
        put_chunk_head(&mut out, size);
        assert_eq!(out, format!("{size:x}\r\n").as_bytes());
        out.resize(out.len() + size, b'x');
        out.extend_from_slice(b"\r\n");
        put_last_chunk(&mut out, [Field { name: b"A", value: b"b", kind: FieldKind::Other }]);
        let (content, used, trailers) = decoded(chunked(true), &out, 8192).unwrap();
        assert_eq!((content.len(), used, trailers.as_str()), (size, out.len(), "A: b\r\n"));
    }
    let written = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(written(&|out| put_status_line(out, 404, b"Not Found")), "HTTP/1.1 404 Not Found\r\n");
    assert_eq!(written(&|out| put_status_line(out, 200, b"")), "HTTP/1.1 200 \r\n");
    for number in [0, 9, 10, 65_536, u64::MAX] {
        assert_eq!(written(&|out| put_number(out, number)), number.to_string());
    }
}
