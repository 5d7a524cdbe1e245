//! Any bytes as a request's head: however it comes, it reads the same, and what is written from it reads as what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::http1::{FieldRoom, Framing, RequestHead, put_field, read_request};

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let mut room = FieldRoom::new();
    let whole = read_request(bytes, &mut 0, LIMIT, &mut room);
    let seen = whole.map(|head| head.map(|head| look(&head)));

    let cut = usize::from(*cut).min(bytes.len());
    let (mut scanned, mut other) = (0, FieldRoom::new());
    let early = read_request(&bytes[..cut], &mut scanned, LIMIT, &mut other).map(|head| head.map(|head| look(&head)));
    if early == Ok(None) {
        let mut other = FieldRoom::new();
        let late = read_request(bytes, &mut scanned, LIMIT, &mut other).map(|head| head.map(|head| look(&head)));
        assert_eq!(late, seen);
    } else {
        assert_eq!(early.is_ok(), seen.is_ok());
    }

    let Ok(Some(head)) = whole else { return };
    assert!(head.len <= bytes.len() && bytes[..head.len].ends_with(b"\r\n\r\n"));
    let mut out = Vec::new();
    for part in [head.method.as_bytes(), b" ", head.target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    head.fields
        .iter()
        .filter(|field| !head.ends_here(field))
        .for_each(|field| put_field(&mut out, field.name, field.value));
    out.extend_from_slice(b"\r\n");
    assert_eq!(out.windows(4).position(|four| four == b"\r\n\r\n"), Some(out.len() - 4), "one head");
    let mut again = FieldRoom::new();
    let again = read_request(&out, &mut 0, out.len(), &mut again).expect("our own").expect("it is whole");
    assert_eq!((again.method, again.target, again.framing), (head.method, head.target, head.framing));
    assert_eq!((again.host, again.len, again.close), (head.host, out.len(), false));
});

type Seen = (usize, Framing, bool, String);

fn look(head: &RequestHead<'_>) -> Seen {
    (head.len, head.framing, head.persists(), format!("{:?}", (head.target, head.fields)))
}

const LIMIT: usize = 4096;
