//! Any bytes as an answer's head: however it comes, it reads the same, and what is written from it has one framing, the one
//! that was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::http1::{FieldKind, Framing, ResponseHead, put_field, put_status_line, read_response};

fuzz_target!(|bytes: &[u8]| {
    let [kind, cut, bytes @ ..] = bytes else { return };
    let method = ["GET", "HEAD", "CONNECT"][usize::from(*kind) % 3];
    let whole = read_response(&mut bytes.to_vec(), &mut 0, LIMIT, method, |head| (look(head), passed_on(head)));
    let seen = whole.as_ref().map(|head| head.as_ref().map(|(seen, _)| seen.clone())).map_err(|error| *error);

    let cut = usize::from(*cut).min(bytes.len());
    let (mut pieces, mut scanned) = (bytes.to_vec(), 0);
    let mut read = |input: &mut [u8]| read_response(input, &mut scanned, LIMIT, method, look);
    let early = read(&mut pieces[..cut]);
    if early == Ok(None) {
        assert_eq!(read(&mut pieces), seen);
    } else {
        assert_eq!(early.is_ok(), seen.is_ok());
    }

    let Ok(Some((seen, mut out))) = whole else { return };
    assert!(seen.0 <= bytes.len() && (100..1000).contains(&seen.1));
    assert_eq!(out.windows(4).position(|four| four == b"\r\n\r\n"), Some(out.len() - 4), "one head");
    assert!(out.split_inclusive(|&byte| byte == b'\n').all(|line| line.ends_with(b"\r\n")));
    let len = out.len();
    let again = read_response(&mut out, &mut 0, len, method, |again| {
        assert_eq!((again.status, again.framing), (seen.1, seen.2));
        assert_eq!((again.len, again.is_irregular), (len, false));
    });
    assert_eq!(again, Ok(Some(())), "our own");
});

type Seen = (usize, u16, Framing, bool, bool, String);

fn look(head: &ResponseHead<'_>) -> Seen {
    let text = format!("{:?}", (head.reason, head.fields));
    (head.len, head.status, head.framing, head.close, head.is_irregular, text)
}

fn passed_on(head: &ResponseHead<'_>) -> Vec<u8> {
    let is_length = |kind| matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding);
    let lengths = head.fields.iter().filter(|field| is_length(field.kind)).count();
    assert!(lengths <= 1);
    let mut out = Vec::new();
    put_status_line(&mut out, head.status, head.reason);
    head.fields
        .iter()
        .filter(|field| !head.ends_here(field))
        .for_each(|field| put_field(&mut out, field.name, field.value));
    out.extend_from_slice(b"\r\n");
    out
}

const LIMIT: usize = 4096;
