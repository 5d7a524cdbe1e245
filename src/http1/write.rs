//! What a message is written with. Everything is appended; nothing is checked: names and values come from a reader.

use super::Field;

/// `GET /x HTTP/1.1`
#[inline]
pub fn put_request_line(out: &mut Vec<u8>, method: &str, target: &[u8]) {
    put(out, [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"]);
}

/// `HTTP/1.1 200 OK`
#[inline]
pub fn put_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    let digit = |divisor: u16| b'0' + (status / divisor % 10) as u8;
    put(out, [b"HTTP/1.1 ", &[digit(100), digit(10), digit(1), b' '], reason, b"\r\n"]);
}

/// One field line.
#[inline]
pub fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put(out, [name, b": ", value, b"\r\n"]);
}

/// A number in decimal.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// What stands before a chunk of this size. The chunk is followed by CRLF; one of size 0 would be the last.
pub fn put_chunk_head(out: &mut Vec<u8>, size: usize) {
    debug_assert!(size > 0, "an empty chunk ends the body");
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| b"0123456789abcdef"[size >> (4 * place) & 0xf]));
    out.extend_from_slice(b"\r\n");
}

/// The end of a chunked body, with its trailers.
pub fn put_last_chunk<'a>(out: &mut Vec<u8>, trailers: impl IntoIterator<Item = Field<'a>>) {
    out.extend_from_slice(b"0\r\n");
    for field in trailers {
        put_field(out, field.name, field.value);
    }
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn put<const N: usize>(out: &mut Vec<u8>, parts: [&[u8]; N]) {
    out.reserve(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        out.extend_from_slice(part);
    }
}
