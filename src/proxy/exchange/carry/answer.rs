//! The head of an origin's answer in either version, as forwarded to the client (RFC 9110 §7.6).

use super::super::head::joined;
use super::proxy_status::others;
use crate::http1::{
    FieldKind, FieldLines, Framing, ResponseHead, put_field, put_number, put_status_line, read_response,
};
use crate::proxy::respond::PROXY_STATUS;
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use std::mem::replace;

/// The head of an origin's answer, as received.
pub struct AnswerHead<'a> {
    pub status: u16,
    pub version: Version,
    pub framing: Framing,
    /// The protocol that the origin switches to.
    pub upgrade: Option<&'a [u8]>,
    /// The head deviates from the standard.
    pub is_irregular: bool,
    fields: Fields<'a>,
}

/// A head stored to be forwarded later.
pub enum KeptHead {
    Http1(Vec<u8>),
    Http2(StatusCode, HeaderMap, Framing),
}

impl KeptHead {
    /// Parses the stored head. `method`: the request's method.
    pub fn with<R>(&mut self, method: &str, read: impl FnOnce(&AnswerHead<'_>) -> R) -> R {
        match self {
            Self::Http1(raw) => {
                let read = |head: &ResponseHead<'_>| read(&AnswerHead::of_http1(head));
                let again = read_response(raw, &mut 0, usize::MAX, method, read).ok().flatten();
                again.expect("the head was parsed before")
            }
            Self::Http2(status, fields, framing) => read(&AnswerHead::of_http2(*status, fields, *framing)),
        }
    }
}

enum Fields<'a> {
    Http1(&'a ResponseHead<'a>),
    Http2(&'a HeaderMap),
}

/// Fields that the proxy adds.
#[derive(Default)]
pub struct Added<'a> {
    pub via: &'a str,
    pub proxy_status: Option<&'a str>,
    pub cache_status: Option<&'a str>,
    /// The Date to add, if the answer has none (RFC 9110 §6.6.1).
    pub date: Option<&'a str>,
}

impl<'a> AnswerHead<'a> {
    pub fn of_http1(head: &'a ResponseHead<'a>) -> Self {
        AnswerHead {
            status: head.status,
            version: if head.minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 },
            framing: head.framing,
            upgrade: head.upgrade,
            is_irregular: head.is_irregular,
            fields: Fields::Http1(head),
        }
    }

    /// Creates the head of an HTTP/2 answer. `framing`: derived from the fields and the end of the stream.
    pub fn of_http2(status: StatusCode, fields: &'a HeaderMap, framing: Framing) -> Self {
        AnswerHead {
            status: status.as_u16(),
            version: Version::HTTP_2,
            framing,
            upgrade: None,
            is_irregular: false,
            fields: Fields::Http2(fields),
        }
    }

    pub fn keep(&self) -> KeptHead {
        match self.fields {
            Fields::Http1(head) => KeptHead::Http1(head.raw.to_vec()),
            Fields::Http2(fields) => {
                let status = StatusCode::from_u16(self.status).expect("the status was valid");
                KeptHead::Http2(status, fields.clone(), self.framing)
            }
        }
    }

    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Passes each end-to-end field and the framing fields. Members of Proxy-Status and Cache-Status that claim to be
    /// from this proxy are removed.
    #[inline]
    pub fn each(&self, mut pass: impl FnMut(FieldKind, &[u8], &[u8])) {
        let mut pass = |kind: FieldKind, name: &[u8], value: &[u8]| match kind {
            FieldKind::ContentLength => pass(kind, name, length(value)),
            FieldKind::ProxyStatus => {
                let others = others(value);
                if !others.is_empty() {
                    pass(kind, name, others.as_bytes());
                }
            }
            _ => pass(kind, name, value),
        };
        match self.fields {
            Fields::Http1(head) => {
                head.fields
                    .iter()
                    .filter(|field| !head.ends_here(field))
                    .for_each(|it| pass(it.kind, it.name, it.value));
            }
            Fields::Http2(fields) => {
                // RFC 9110 §8.6: a 1xx or 204 has no Content-Length. If there are several, which are equal, only the
                // first is passed.
                let mut has_length = self.status < 200 || self.status == 204;
                for (name, value) in fields {
                    let name = name.as_str().as_bytes();
                    let kind = FieldKind::of(name);
                    let is_surplus = kind == FieldKind::ContentLength && replace(&mut has_length, true);
                    if !kind.is_hop_by_hop() && !is_surplus {
                        pass(kind, name, value.as_bytes());
                    }
                }
            }
        }
    }

    /// The value of the first field, hop-by-hop or not, for which `is_it` returns true.
    #[inline]
    fn find(&self, is_it: impl Fn(FieldKind, &[u8], &[u8]) -> bool) -> Option<&'a [u8]> {
        match self.fields {
            Fields::Http1(head) => {
                let field = head.fields.iter().find(|it| is_it(it.kind, it.name, it.value))?;
                Some(field.value)
            }
            Fields::Http2(fields) => {
                let mut fields = fields.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
                fields.find(|(name, value)| is_it(FieldKind::of(name), name, value)).map(|(_, value)| value)
            }
        }
    }

    /// Whether a field may express a usage preference.
    #[inline]
    pub fn has_signals(&self) -> bool {
        self.find(|kind, _, _| kind == FieldKind::Signal).is_some()
    }

    #[inline]
    pub fn has_date(&self) -> bool {
        self.find(|_, name, _| name.eq_ignore_ascii_case(b"date")).is_some()
    }

    #[inline]
    pub fn content_type(&self) -> Option<&'a [u8]> {
        self.find(|kind, _, _| kind == FieldKind::ContentType)
    }

    /// The value of the first field of this name.
    pub fn named(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        self.each(|_, it, value| {
            if it.eq_ignore_ascii_case(name) && found.is_none() {
                found = Some(value.to_vec());
            }
        });
        found
    }

    /// The values of all fields of this name, joined into one (RFC 9110 §5.3).
    pub fn joined(&self, name: &[u8]) -> Option<Vec<u8>> {
        joined(name, |take| self.each(|_, it, value| take(it, value)))
    }

    /// Whether a field of one of these names, hop-by-hop or not, has a value for which `is` returns true.
    pub fn any(&self, names: [&str; 2], is: impl Fn(&[u8]) -> bool) -> bool {
        let is_named = |name: &[u8]| names.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(name));
        self.find(|_, name, value| is_named(name) && is(value)).is_some()
    }

    /// Writes the head in HTTP/1.1. `framing`: the framing of the outgoing body. `connection`: the Connection field.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, framing: Framing, connection: Option<&str>, added: &Added<'_>) {
        match self.fields {
            Fields::Http1(head) => put_status_line(out, self.status, head.reason),
            Fields::Http2(_) => {
                let reason = StatusCode::from_u16(self.status).ok().and_then(|status| status.canonical_reason());
                put_status_line(out, self.status, reason.unwrap_or_default().as_bytes());
            }
        }
        let is_http1 = matches!(self.fields, Fields::Http1(_));
        let has_length = framing == Framing::None || (is_http1 && matches!(framing, Framing::Length(_)));
        let mut lines = FieldLines::of(match self.fields {
            Fields::Http1(head) => head.raw,
            Fields::Http2(_) => &[],
        });
        self.each(|kind, name, value| match kind {
            FieldKind::TransferEncoding => {}
            FieldKind::ContentLength if !has_length => {}
            FieldKind::Trailer if framing != Framing::Chunked => {}
            _ => lines.put(out, name, value),
        });
        lines.flush(out);
        if framing == Framing::Chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        if let (Framing::Length(length), false) = (framing, is_http1) {
            out.extend_from_slice(b"Content-Length: ");
            put_number(out, length);
            out.extend_from_slice(b"\r\n");
        }
        if !added.via.is_empty() {
            put_field(out, b"Via", added.via.as_bytes());
        }
        if let Some(status) = added.proxy_status {
            put_field(out, b"Proxy-Status", status.as_bytes());
        }
        if let Some(status) = added.cache_status {
            put_field(out, b"Cache-Status", status.as_bytes());
        }
        if let Some(date) = added.date {
            put_field(out, b"Date", date.as_bytes());
        }
        if let Some(connection) = connection {
            put_field(out, b"Connection", connection.as_bytes());
        }
        if connection == Some("upgrade") {
            out.extend_from_slice(b"Upgrade: websocket\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The head in HTTP/2.
    pub fn to_http2(&self, added: &Added<'_>) -> http::Response<()> {
        let mut head = http::Response::new(());
        *head.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let fields = head.headers_mut();
        let (passed, bytes) = match self.fields {
            Fields::Http1(head) => (head.fields.len(), head.raw.len()),
            Fields::Http2(fields) => (fields.len(), LIKELY),
        };
        fields.reserve(passed + MOST_ADDED);
        // All values are slices of one allocation.
        let mut values = BytesMut::with_capacity(bytes);
        let mut append = |name: &[u8], value: &[u8]| {
            // RFC 9113 §8.2.1: clients end the stream or the connection if white space surrounds a value.
            values.extend_from_slice(value.trim_ascii());
            let value = HeaderValue::from_maybe_shared(values.split().freeze());
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
                fields.append(name, value);
            }
        };
        self.each(|kind, name, value| {
            if kind != FieldKind::TransferEncoding {
                append(name, value);
            }
        });
        if !added.via.is_empty() {
            append(b"via", added.via.as_bytes());
        }
        if let Some(status) = added.proxy_status {
            append(PROXY_STATUS.as_str().as_bytes(), status.as_bytes());
        }
        if let Some(status) = added.cache_status {
            append(b"cache-status", status.as_bytes());
        }
        if let Some(date) = added.date {
            append(b"date", date.as_bytes());
        }
        head
    }
}

/// Strips leading zeros.
fn length(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros.min(digits.len().saturating_sub(1))..]
}

/// Maximum number of fields from [`Added`].
const MOST_ADDED: usize = 4;
/// Expected size of an answer's field values, in bytes.
const LIKELY: usize = 512;
