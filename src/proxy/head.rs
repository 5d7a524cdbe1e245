//! One HTTP/1.1 request head: read strictly (RFC 9112 §2–§6), handed on in origin-form with one canonical Host.
//! Pure. Called by `connection`, before pingora's more lenient parser sees a byte.

mod fields;
mod rewrite;

use crate::policy::{Authority, Refusal, Scheme};
use bytes::Bytes;
use fields::Fields;
use pingora::http::RequestHeader;
use pingora::{ErrorType, OrErr};
use rewrite::{encode_target, rewrite};

/// What a client asks of the proxy.
#[derive(Debug)]
pub(super) enum Head {
    /// A way through to an authority (RFC 9110 §9.3.6).
    Connect {
        authority: Authority,
        /// All of its Via, in one line.
        via: Option<String>,
    },
    Request(RequestHead),
    /// A WebSocket handshake: whatever follows belongs to the upgraded protocol.
    Upgrade(RequestHead),
}

#[derive(Debug)]
pub(super) struct RequestHead {
    pub authority: Authority,
    /// The head as pingora is to read it: origin-form, Host first, hop-by-hop fields gone.
    pub bytes: Bytes,
    pub body: Body,
}

/// How the message body that follows is framed (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
}

/// Position just after the head's empty line, if it is there yet. `from` says how far an earlier call has looked.
/// A line that ends without CR is refused at once: waiting for the rest would only hide the fault.
pub(super) fn end_of_head(bytes: &[u8], from: usize) -> Result<Option<usize>, Refusal> {
    for at in memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| at + from) {
        if at == 0 || bytes[at - 1] != b'\r' {
            return Err(bad("a line ends with LF instead of CRLF"));
        }
        if at >= 3 && &bytes[at - 3..at - 1] == b"\r\n" {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
}

/// Reads one head. `tunnel` is the authority of the CONNECT around this connection, if there is one: then requests
/// come in origin-form and must name that authority.
pub(super) fn read(raw: &[u8], tunnel: Option<&Authority>) -> Result<Head, Refusal> {
    if let Some(at) = memchr::memchr_iter(b'\r', raw).find(|&at| raw.get(at + 1) != Some(&b'\n')) {
        return Err(bad(format!("a CR without LF at octet {at}")));
    }
    let mut slots = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let encoded = encode_target(raw);
    let raw = encoded.as_deref().unwrap_or(raw);
    let mut request = httparse::Request::new(&mut slots);
    match request.parse(raw) {
        Ok(httparse::Status::Complete(n)) if n == raw.len() => {}
        Ok(_) => return Err(bad("the request head ends early")),
        Err(httparse::Error::TooManyHeaders) => return Err(bad(format!("more than {MAX_FIELDS} header fields"))),
        Err(error) => return Err(bad(format!("malformed request head: {error}"))),
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let minor = request.version.unwrap_or(1);
    let fields = Fields::read(request.headers, minor)?;

    if method == "CONNECT" {
        return connect(target, &fields, tunnel);
    }
    let (authority, path) = locate(method, target, &fields, minor, tunnel)?;
    let body = fields.body();
    let upgrade = fields.websocket && fields.is_bodiless() && method == "GET" && minor == 1;
    let bytes = rewrite(method, path, minor, &authority, request.headers, &fields, upgrade);
    let head = RequestHead { authority, bytes, body };
    Ok(if upgrade { Head::Upgrade(head) } else { Head::Request(head) })
}

/// The head that `read` has made, as pingora's type.
pub(super) fn header(bytes: &[u8]) -> pingora::Result<RequestHeader> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_FIELDS + 2];
    let mut request = httparse::Request::new(&mut slots);
    request.parse(bytes).or_err(ErrorType::InvalidHTTPHeader, "a head of our own making")?;
    let target = request.path.unwrap_or_default().as_bytes();
    let mut head = RequestHeader::build(request.method.unwrap_or_default(), target, Some(request.headers.len()))?;
    for field in request.headers {
        head.append_header(field.name.to_owned(), field.value)?;
    }
    Ok(head)
}

/// The Accept field of a head that need not be well-formed, to answer it in kind.
pub(super) fn accept(raw: &[u8]) -> Option<&[u8]> {
    field(raw, b"accept:")
}

/// The Proxy-Authorization field of a head. It goes no further.
pub(super) fn credentials(raw: &[u8]) -> Option<&[u8]> {
    field(raw, b"proxy-authorization:")
}

fn field<'a>(raw: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let mut lines = raw.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let field = lines.find(|line| line.get(..start.len()).is_some_and(|name| name.eq_ignore_ascii_case(start)))?;
    Some(field[start.len()..].trim_ascii())
}

fn connect(target: &str, fields: &Fields<'_>, tunnel: Option<&Authority>) -> Result<Head, Refusal> {
    if tunnel.is_some() {
        return Err(bad("CONNECT inside a CONNECT tunnel"));
    }
    if !fields.is_bodiless() {
        return Err(bad("CONNECT with a body"));
    }
    let authority = Authority::parse_connect(Scheme::Https, target.as_bytes())
        .map_err(|error| bad(format!("CONNECT wants host:port: {error}")))?;
    // RFC 9112 §3.2.3: Host repeats the target; some clients leave the port out.
    if let Some(host) = fields.host {
        let named = Authority::parse(Scheme::Https, host).map_err(|error| bad(error.to_string()))?;
        if named.host() != authority.host() || (host.contains(&b':') && named.port() != authority.port()) {
            return Err(bad("the Host field names another host than CONNECT"));
        }
    }
    let via = (!fields.via.is_empty()).then(|| fields.via.join(", "));
    Ok(Head::Connect { authority, via })
}

/// The authority a request is for, and its path and query as sent.
fn locate<'a>(
    method: &str,
    target: &'a str,
    fields: &Fields<'_>,
    minor: u8,
    tunnel: Option<&Authority>,
) -> Result<(Authority, &'a str), Refusal> {
    if fields.host.is_none() && minor == 1 {
        return Err(bad("no Host field in an HTTP/1.1 request"));
    }
    let named = |scheme| {
        fields.host.map(|host| Authority::parse(scheme, host)).transpose().map_err(|error| bad(error.to_string()))
    };
    if target.starts_with('/') || target == "*" {
        asterisk(method, target)?;
        let Some(tunnel) = tunnel else { return Err(Refusal::NotAProxyRequest) };
        return match named(tunnel.scheme())? {
            Some(host) if host != *tunnel => Err(mismatch(tunnel, &host)),
            Some(_) | None => Ok((tunnel.clone(), target)),
        };
    }
    let (scheme, rest) = target.split_once("://").ok_or_else(|| bad("the request target is not a URL"))?;
    let scheme = Scheme::parse(scheme).ok_or_else(|| bad(format!("scheme {scheme:?} is not http or https")))?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let authority = Authority::parse(scheme, &rest.as_bytes()[..end]).map_err(|error| bad(error.to_string()))?;
    if rest[end..].starts_with('\\') {
        return Err(bad("a backslash after the authority"));
    }
    if let Some(host) = named(scheme)?.filter(|host| *host != authority) {
        return Err(bad(format!("the Host field names {host}, the request target {authority}")));
    }
    if let Some(tunnel) = tunnel.filter(|tunnel| **tunnel != authority) {
        return Err(mismatch(tunnel, &authority));
    }
    Ok((authority, &rest[end..]))
}

/// RFC 9112 §3.2.4: `*` is the whole server, and only OPTIONS can ask about that. No rule of robots.txt names it.
pub(super) fn asterisk(method: &str, target: &str) -> Result<(), Refusal> {
    if target.starts_with('*') && method != "OPTIONS" {
        return Err(bad("`*` as the target of another method than OPTIONS"));
    }
    Ok(())
}

fn bad(detail: impl Into<Box<str>>) -> Refusal {
    Refusal::BadRequest { detail: detail.into() }
}

fn mismatch(tunnel: &Authority, named: &Authority) -> Refusal {
    Refusal::AuthorityMismatch { connection: tunnel.to_string().into(), request: named.to_string().into() }
}

/// pingora's own parser takes 256; two are kept for those that `rewrite` adds.
const MAX_FIELDS: usize = 200;

#[cfg(test)]
mod tests;
