//! The comparison of the proxy's readers with the second reading, for the tests and the fuzz targets.

use super::second_reading as second;
use politely::http1::{Body, Field, FieldRoom, Framing, MAX_FIELDS, read_request, read_response};

pub fn request(raw: &[u8]) {
    let mut room = FieldRoom::new();
    let first = read_request(raw, &mut 0, raw.len(), &mut room);
    let found = second::request(raw, MAX_FIELDS);
    let Ok(Some(head)) = first else {
        assert_eq!(found, None, "only refused by us: {first:?}: {}", raw.escape_ascii());
        return;
    };
    let start = (head.method.as_bytes().to_vec(), head.target.to_vec());
    let read = second::Head { len: head.len, start, fields: owned(head.fields), framing: framing(head.framing) };
    assert_eq!(Some(read), found, "{}", raw.escape_ascii());
    if head.framing == Framing::Chunked {
        body(&raw[head.len..], true);
    }
}

pub fn response(raw: &[u8], method: &str) {
    let mut found = second::response(raw, method, MAX_FIELDS);
    let first = read_response(&mut raw.to_vec(), &mut 0, raw.len(), method, |head| {
        let found = found.take().unwrap_or_else(|| panic!("only let through by us: {head:?}: {}", raw.escape_ascii()));
        assert_eq!((head.len, framing(head.framing)), (found.len, found.framing), "{}", raw.escape_ascii());
        assert_eq!(head.status.to_string().as_bytes(), found.start.0);
        // We leave fields out that say something about the framing, and nothing else.
        let frames =
            |name: &[u8]| [&b"content-length"[..], b"transfer-encoding"].iter().any(|f| name.eq_ignore_ascii_case(f));
        let others =
            |fields: Vec<(Vec<u8>, Vec<u8>)>| fields.into_iter().filter(|(name, _)| !frames(name)).collect::<Vec<_>>();
        assert_eq!(others(owned(head.fields)), others(found.fields), "{}", raw.escape_ascii());
        let framings = head.fields.iter().filter(|field| frames(field.name)).count();
        assert!(framings <= 1, "{head:?}");
        if head.framing == Framing::Chunked {
            body(&raw[head.len..], false);
        }
    });
    if first != Ok(Some(())) {
        assert_eq!(found, None, "only refused by us: {first:?}: {}", raw.escape_ascii());
    }
}

pub fn chunked(raw: &[u8]) {
    body(raw, true);
    body(raw, false);
}

fn body(raw: &[u8], strict: bool) {
    let mut body = if strict { Body::of_request(Framing::Chunked) } else { Body::of_response(Framing::Chunked) };
    let (mut content, mut at) = (Vec::new(), 0);
    while !body.is_done() && at < raw.len() {
        let Ok(piece) = body.decode(&raw[at..]) else { break };
        content.extend_from_slice(&raw[at..][piece.clone()]);
        at += piece.end;
    }
    let read = body.is_done().then_some((content, at));
    assert_eq!(read, second::chunked(raw, strict), "{}", raw.escape_ascii());
}

fn owned(fields: &[Field<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect()
}

fn framing(framing: Framing) -> second::Framing {
    match framing {
        Framing::None => second::Framing::None,
        Framing::Length(length) => second::Framing::Length(length),
        Framing::Chunked => second::Framing::Chunked,
        Framing::UntilClose => second::Framing::UntilClose,
    }
}
