//! The fields of a request head that decide how it is framed, where it goes, and what ends here (RFC 9110 §7.6.1, RFC 9112
//! §6). Pure. Called by `head`.

use super::{Body, bad};
use crate::policy::Refusal;

/// The fields that decide framing, routing and connection handling.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub host: Option<&'a [u8]>,
    pub via: Vec<String>,
    pub length: Option<u64>,
    pub chunked: bool,
    pub close: bool,
    pub keep_alive: bool,
    pub websocket: bool,
    /// Field names listed in Connection: meant for this hop alone.
    named: Vec<&'a [u8]>,
}

impl<'a> Fields<'a> {
    pub fn read(headers: &[httparse::Header<'a>], minor: u8) -> Result<Self, Refusal> {
        let mut fields = Fields::default();
        let mut upgrade = None;
        for header in headers {
            let (name, value) = (header.name, header.value);
            if name.eq_ignore_ascii_case("host") {
                if fields.host.replace(value).is_some() {
                    return Err(bad("more than one Host field"));
                }
            } else if name.eq_ignore_ascii_case("content-length") {
                let length = std::str::from_utf8(value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
                let length = length.and_then(|v| v.parse().ok()).filter(|&n: &u64| n <= i64::MAX as u64);
                let length = length.ok_or_else(|| bad("Content-Length is not a number"))?;
                if fields.length.replace(length).is_some() {
                    return Err(bad("more than one Content-Length field"));
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                if fields.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("a Transfer-Encoding other than chunked"));
                }
                if minor == 0 {
                    return Err(bad("Transfer-Encoding in an HTTP/1.0 request"));
                }
                fields.chunked = true;
            } else if name.eq_ignore_ascii_case("upgrade") {
                upgrade = Some(value);
            } else if name.eq_ignore_ascii_case("via") {
                fields.via.push(String::from_utf8_lossy(value).into_owned());
            } else if name.eq_ignore_ascii_case("connection") {
                fields.connection(value);
            }
        }
        if fields.chunked && fields.length.is_some() {
            return Err(bad("both Content-Length and Transfer-Encoding"));
        }
        let listed = fields.named.iter().any(|name| name.eq_ignore_ascii_case(b"upgrade"));
        fields.websocket = listed && upgrade.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
        Ok(fields)
    }

    fn connection(&mut self, value: &'a [u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty()) {
            match () {
                () if option.eq_ignore_ascii_case(b"close") => self.close = true,
                () if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                () => self.named.push(option),
            }
        }
    }

    pub fn is_bodiless(&self) -> bool {
        self.length.is_none() && !self.chunked
    }

    pub fn body(&self) -> Body {
        if self.chunked { Body::Chunked } else { Body::Length(self.length.unwrap_or(0)) }
    }

    /// Meant for this hop alone (RFC 9110 §7.6.1), or written anew by `rewrite`.
    pub fn stays_here(&self, name: &str) -> bool {
        const HOP_BY_HOP: [&str; 8] =
            ["host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade", "trailer"];
        // A client cannot have framing, or a field that tells of a loop, taken away by listing it.
        const KEPT: [&str; 4] = ["content-length", "transfer-encoding", "cache-control", "via"];
        HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop))
            || (self.named.iter().any(|named| named.eq_ignore_ascii_case(name.as_bytes()))
                && !KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept)))
    }
}
