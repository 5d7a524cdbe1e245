//! Writes messages. All functions append to `out`. Names and values are not checked, because they come from a reader.

use super::Field;

/// Writes a status line, such as `HTTP/1.1 200 OK`.
#[inline]
pub fn put_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    let digit = |divisor: u16| b'0' + (status / divisor % 10) as u8;
    out.reserve(reason.len() + 15);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Writes a field line.
#[inline]
pub fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number in decimal.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes the line before a chunk of this size, which must not be 0: that would be the last chunk. The caller adds CRLF after the
/// chunk.
pub fn put_chunk_head(out: &mut Vec<u8>, size: usize) {
    debug_assert!(size > 0, "an empty chunk ends the body");
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| b"0123456789abcdef"[size >> (4 * place) & 0xf]));
    out.extend_from_slice(b"\r\n");
}

/// Writes the end of a chunked body, with its trailers.
pub fn put_last_chunk<'a>(out: &mut Vec<u8>, trailers: impl IntoIterator<Item = Field<'a>>) {
    out.extend_from_slice(b"0\r\n");
    for field in trailers {
        put_field(out, field.name, field.value);
    }
    out.extend_from_slice(b"\r\n");
}
