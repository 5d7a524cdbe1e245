//! Requests that an origin refuses with 400, as nginx and other strict servers do, although lenient servers would accept them. Every
//! test origin is strict, so that no test passes with a request that real sites refuse.
//!
//! On h2 the library itself refuses further errors with a reset: upper-case names, connection-specific fields, and pseudo-fields that
//! are missing, repeated, unknown or misplaced.

use super::message::lossy;
use super::origin_log::{Protocol, Seen};

/// What is wrong with the request's head, if anything.
pub(super) fn fault(seen: &Seen) -> Option<&'static str> {
    let first_line = seen.head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    if seen.protocol == Protocol::Http1 && !lossy(first_line).contains(" HTTP/") {
        // Not HTTP: bytes sent by a test of tunnels.
        return None;
    }
    target_fault(seen).or_else(|| match seen.protocol {
        Protocol::Http1 => h1_fault(seen),
        Protocol::Http2 => h2_fault(seen),
    })
}

fn target_fault(seen: &Seen) -> Option<&'static str> {
    let of_a_server = seen.method == "OPTIONS" && seen.target == b"*";
    let odd = |byte: &u8| *byte <= b' ' || *byte == 127;
    match seen.target.as_slice() {
        b"" => Some("no path"),
        target if target.iter().any(odd) => Some("a space or control byte in the path"),
        [b'/', ..] => None,
        _ if of_a_server => None,
        target if seen.protocol == Protocol::Http1 && target.starts_with(b"http") => None,
        _ => Some("a path without a slash"),
    }
}

/// RFC 9112 §3.2, §5, §6.
fn h1_fault(seen: &Seen) -> Option<&'static str> {
    let head = seen.head.strip_suffix(b"\r\n\r\n").unwrap_or(&seen.head);
    let version = head.split(|&byte| byte == b'\r').next().and_then(|line| line.rsplit(|&byte| byte == b' ').next());
    let old = version == Some(b"HTTP/1.0");
    let (lengths, codings) = (seen.all("content-length"), seen.all("transfer-encoding"));
    match () {
        () if !old && version != Some(b"HTTP/1.1") => Some("not HTTP/1.0 or HTTP/1.1"),
        () if seen.fields.iter().any(|(name, _)| !is_token(name)) => Some("a field name that is not a token"),
        () if head.contains(&0) => Some("NUL"),
        () if lossy(head).replace("\r\n", "").contains(['\r', '\n']) => Some("a bare CR or LF"),
        () if seen.all("host").len() > 1 => Some("Host twice"),
        () if seen.all("host").is_empty() && !old => Some("no Host"),
        () if !is_host(&seen.host) && !old => Some("an invalid Host"),
        () if !lengths.is_empty() && !codings.is_empty() => Some("Content-Length and Transfer-Encoding"),
        () if lengths.len() > 1 => Some("Content-Length twice"),
        () if lengths.iter().any(|value| value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit())) => {
            Some("an invalid Content-Length")
        }
        () if codings.len() > 1 => Some("Transfer-Encoding twice"),
        () if codings.iter().any(|coding| !coding.eq_ignore_ascii_case("chunked")) => Some("an unknown coding"),
        () => None,
    }
}

/// RFC 9113 §8.2, §8.3.
fn h2_fault(seen: &Seen) -> Option<&'static str> {
    match () {
        // Allowed if both are equal (§8.3.1), but refused by nginx before 1.25: "client sent duplicate host header". A server that
        // accepts both passes the host on twice.
        () if !seen.all("host").is_empty() => Some("Host beside :authority"),
        () if !is_host(&seen.host) => Some("no :authority, or an invalid one"),
        () if seen.all("content-length").len() > 1 => Some("Content-Length twice"),
        () if seen.all("te").iter().any(|te| *te != "trailers") => Some("TE other than trailers"),
        () => None,
    }
}

fn is_token(name: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(token)
}

fn is_host(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !host.is_empty() && host.bytes().all(plain)
}
