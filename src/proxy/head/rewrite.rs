//! A request head as pingora is to read it. Pure. Called by `head`.

use super::fields::Fields;
use crate::policy::Authority;
use bytes::{BufMut, Bytes, BytesMut};

/// Origin-form, one canonical Host, nothing of this hop but what keeps the connection.
pub(super) fn rewrite(
    method: &str,
    path: &str,
    minor: u8,
    authority: &Authority,
    headers: &[httparse::Header<'_>],
    fields: &Fields<'_>,
    upgrade: bool,
) -> Bytes {
    let size: usize = headers.iter().map(|h| h.name.len() + h.value.len() + 4).sum();
    let mut out = BytesMut::with_capacity(size + method.len() + path.len() + 128);
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| out.put_slice(part));
        out.put_slice(b"\r\n");
    };
    // RFC 9112 §3.2.1 and §3.2.4: an empty path is `/`, except that OPTIONS means the server itself.
    let path = path.split('#').next().unwrap_or_default();
    let slash: &str = match path {
        "" if method == "OPTIONS" => "*",
        path if path.starts_with(['/', '*']) => "",
        _ => "/",
    };
    let version: &[u8] = if minor == 0 { b" HTTP/1.0" } else { b" HTTP/1.1" };
    line(&[method.as_bytes(), b" ", slash.as_bytes(), path.as_bytes(), version]);
    line(&[b"Host: ", authority.host_header().as_bytes()]);
    match () {
        () if upgrade => {
            line(&[b"Connection: upgrade"]);
            line(&[b"Upgrade: websocket"]);
        }
        () if fields.close => line(&[b"Connection: close"]),
        () if fields.keep_alive => line(&[b"Connection: keep-alive"]),
        () => {}
    }
    for header in headers.iter().filter(|header| !fields.stays_here(header.name)) {
        line(&[header.name.as_bytes(), b": ", header.value]);
    }
    line(&[]);
    out.freeze()
}

/// Percent-encodes the octets of the request target that no URI may hold and pingora would refuse: `<` and `>`, a
/// backquote in the path, `"` in the query, and what is not UTF-8. Everything else goes on byte for byte. `None`: nothing
/// to encode.
pub(super) fn encode_target(raw: &[u8]) -> Option<Vec<u8>> {
    let line = &raw[..memchr::memchr(b'\r', raw)?];
    let start = memchr::memchr(b' ', line)? + 1;
    let end = start + memchr::memchr(b' ', &line[start..])?;
    let target = &raw[start..end];
    let query = memchr::memchr(b'?', target).unwrap_or(target.len());
    let utf8 = std::str::from_utf8(target).is_ok();
    let illegal = |at: usize, byte: u8| match byte {
        b'<' | b'>' => true,
        b'`' => at < query,
        b'"' => at > query,
        byte => !utf8 && byte >= 0x80,
    };
    if !target.iter().enumerate().any(|(at, &byte)| illegal(at, byte)) {
        return None;
    }
    let mut out = raw[..start].to_vec();
    for (at, &byte) in target.iter().enumerate() {
        if illegal(at, byte) {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
    out.extend_from_slice(&raw[end..]);
    Some(out)
}
