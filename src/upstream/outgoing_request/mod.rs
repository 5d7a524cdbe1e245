//! A request as the next hop receives it. All outgoing requests, clients' and our own, are written here, in both versions of
//! HTTP. Removes hop-by-hop fields, adds our own fields, and addresses the message (RFC 9110 §7.6).

use super::route::Route;
use crate::http1::{Field, FieldKind, FieldLines, Framing, RequestHead, list, put_field, put_number};
use crate::policy::override_fields::is_disguised;
use crate::signing::{PriceField, RequestSigner, SignatureRequest, Signed};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use std::sync::Arc;
use std::time::SystemTime;

/// One outgoing request.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    pub method: &'a str,
    /// Path and query as received: `/x?y`. Empty for an absolute URL without a path: sent as `/`, or for OPTIONS as `*`, the server itself
    /// (RFC 9112 §3.2.1, §3.2.4).
    pub target: &'a [u8],
    pub fields: OutgoingFields<'a>,
    /// Framing of the body as sent. Over HTTP/2 only a length is written.
    pub framing: Framing,
    /// The client waits for 100 before it sends the body.
    pub expects_continue: bool,
    /// The version of HTTP in which the request was received, for Via. Our own requests have one, too, as Via detects loops.
    pub received: Version,
    /// Replaces the received User-Agent.
    pub user_agent: Option<&'a str>,
    /// The protocol to upgrade to: HTTP/1.1 only.
    pub upgrade: Option<&'a [u8]>,
    /// The signature that the origin requested in its answer to the first attempt.
    pub asked: Option<&'a SignatureRequest>,
    /// Conditions that the cache adds to those of the client.
    pub conditions: &'a [(&'static str, Vec<u8>)],
}

/// The received fields of a request, or the fields of our own request.
#[derive(Clone, Copy)]
pub enum OutgoingFields<'a> {
    Http1(&'a RequestHead<'a>),
    Http2(&'a HeaderMap),
    /// Fields of our own requests.
    Own(&'a [(&'a str, &'a [u8])]),
}

/// The target or a field contains bytes that HTTP/2 cannot carry, but HTTP/1.1 can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be sent over HTTP/2")]
pub struct NotForHttp2;

impl Outgoing<'_> {
    /// Appends the head for HTTP/1.1. Allocates only room in `out`.
    pub fn write_http1(&self, route: &Route, out: &mut Vec<u8>) {
        let (before, target) = self.target();
        // An upgrade needs a tunnel through the upstream proxy.
        let asked = route.asks().filter(|_| self.upgrade.is_none());
        put(out, &[self.method.as_bytes(), b" "]);
        match asked {
            // RFC 9112 §3.2.2; §3.2.4: to a proxy, the server itself is written as a URL without a path.
            Some(_) => {
                let target = if target == b"*" { &b""[..] } else { target };
                put(out, &[b"http://", route.0.host.as_bytes(), before, target]);
            }
            None => put(out, &[before, target]),
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        put_field(out, b"Host", route.0.host.as_bytes());
        let mut cookies = 0;
        self.fields.each(|field, ends_here| cookies += usize::from(field.kind == FieldKind::Cookie && !ends_here));
        let crumbs = cookies > 1;
        let mut lines = FieldLines::of(match self.fields {
            OutgoingFields::Http1(head) => head.raw,
            OutgoingFields::Http2(_) | OutgoingFields::Own(_) => &[],
        });
        self.pass(route, crumbs, false, |name, value| lines.put(out, name, value));
        lines.flush(out);
        if crumbs {
            // RFC 9113 §8.2.3: cookies that were split are joined.
            out.extend_from_slice(b"Cookie");
            let mut separator: &[u8] = b": ";
            self.fields.each(|field, ends_here| {
                if field.kind == FieldKind::Cookie && !ends_here {
                    put(out, &[separator, field.value]);
                    separator = b"; ";
                }
            });
            out.extend_from_slice(b"\r\n");
        }
        match self.framing {
            Framing::None | Framing::UntilClose => {}
            Framing::Length(length) => {
                out.extend_from_slice(b"Content-Length: ");
                put_number(out, length);
                out.extend_from_slice(b"\r\n");
            }
            Framing::Chunked => put_field(out, b"Transfer-Encoding", b"chunked"),
        }
        if let Some(protocol) = self.upgrade {
            put_field(out, b"Connection", b"upgrade");
            put_field(out, b"Upgrade", protocol);
        }
        if let Some(credentials) = asked.and_then(|upstream_proxy| upstream_proxy.credentials.as_ref()) {
            put_field(out, b"Proxy-Authorization", credentials.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The head for HTTP/2.
    ///
    /// # Errors
    /// See [`NotForHttp2`].
    pub fn to_http2(&self, route: &Route) -> Result<Request<()>, NotForHttp2> {
        let mut uri = http::uri::Parts::default();
        let way = &*route.0;
        uri.scheme = Some(if way.authority.is_https() { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(Authority::try_from(way.host.as_bytes()).map_err(|_| NotForHttp2)?);
        uri.path_and_query = Some(self.path()?);
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).map_err(|_| NotForHttp2)?;
        *request.uri_mut() = Uri::from_parts(uri).map_err(|_| NotForHttp2)?;
        *request.version_mut() = Version::HTTP_2;
        let fields = request.headers_mut();
        let mut is_whole = true;
        self.pass(route, false, true, |name, value| {
            // RFC 9113 §8.2.1: some origins end the whole connection if white space surrounds a value.
            match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii())) {
                (Ok(name), Ok(value)) => is_whole &= fields.try_append(name, value).is_ok(),
                (Err(_), _) | (_, Err(_)) => is_whole = false,
            }
        });
        if let Framing::Length(length) = self.framing {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        if is_whole { Ok(request) } else { Err(NotForHttp2) }
    }

    /// Whether HTTP/2 can carry the target unchanged, and the request is not an upgrade.
    pub fn fits_http2(&self) -> bool {
        self.upgrade.is_none() && self.path().is_ok()
    }

    /// The path and query for HTTP/2, with the `/` or `*` that the target lacks.
    fn path(&self) -> Result<PathAndQuery, NotForHttp2> {
        let (before, target) = self.target();
        let path = match before {
            [] => PathAndQuery::try_from(target),
            before => PathAndQuery::try_from([before, target].concat()),
        };
        path.map_err(|_| NotForHttp2)
    }

    /// Calls `put` with each field to forward, ours included, except framing and Host, which depend on the version. `crumbs`: skip
    /// Cookie, as the caller writes the joined cookies.
    fn pass(&self, route: &Route, crumbs: bool, is_http2: bool, mut put: impl FnMut(&[u8], &[u8])) {
        let counts = matches!(self.method, "OPTIONS" | "TRACE");
        let mut agent = self.user_agent.map(str::as_bytes);
        let mut is_renamed = false;
        self.fields.each(|field, ends_here| match field.kind {
            // RFC 9113 §8.2.2: `trailers` is the only permitted value.
            FieldKind::Te if is_http2 && list(field.value).any(|it| it.eq_ignore_ascii_case(b"trailers")) => {
                put(b"te", b"trailers");
            }
            _ if !is_passed(field, ends_here) => {}
            FieldKind::UserAgent if self.user_agent.is_some() => {
                if let Some(agent) = agent.take() {
                    put(field.name, agent);
                }
                is_renamed = true;
            }
            FieldKind::Cookie if crumbs => {}
            FieldKind::MaxForwards if counts => {
                let left = str::from_utf8(field.value).ok().and_then(|value| value.trim().parse::<u32>().ok());
                match left {
                    Some(left) => put(field.name, itoa::Buffer::new().format(left.saturating_sub(1)).as_bytes()),
                    None => put(field.name, field.value),
                }
            }
            _ => put(field.name, field.value),
        });
        if let Some(agent) = agent.filter(|_| !is_renamed) {
            put(b"User-Agent", agent);
        }
        if self.expects_continue {
            put(b"Expect", b"100-continue");
        }
        self.conditions.iter().for_each(|(name, value)| put(name.as_bytes(), value));
        put(b"Via", route.0.via.line(self.received).as_bytes());
        // Signed last, after all other changes.
        if let Some(signer) = route.signature()
            && !self.is_signed()
            && let Some(Signed { agent, input, signature }) = self.sign(signer).as_deref()
        {
            put(b"Signature-Agent", agent.as_bytes());
            put(b"Signature-Input", input.as_bytes());
            put(b"Signature", signature.as_bytes());
        }
    }

    fn sign(&self, signer: &RequestSigner) -> Option<Arc<Signed>> {
        let mut price = None;
        self.fields.each(|field, ends_here| {
            if let (FieldKind::CrawlerPrice, false, Ok(value)) = (field.kind, ends_here, str::from_utf8(field.value)) {
                let name = PRICES.into_iter().find(|name| field.name.eq_ignore_ascii_case(name.as_bytes()));
                price = name.map(|name| (name, value.trim().to_owned()));
            }
        });
        let price = price.as_ref().map(|(name, value)| PriceField { name, value });
        signer.sign(SystemTime::now(), self.asked, price)
    }

    /// Whether `signer` signs the request now. A client's own signature is kept, and stays the only one.
    pub fn is_signed_by(&self, signer: &RequestSigner) -> bool {
        !self.is_signed() && signer.is_wanted()
    }

    /// Whether the request was received with a signature that is forwarded.
    pub fn is_signed(&self) -> bool {
        let mut is_signed = false;
        self.fields
            .each_passed(&mut |field, _| is_signed |= SIGNATURE.iter().any(|name| field.eq_ignore_ascii_case(name)));
        is_signed
    }

    /// The target without its fragment, and the `/` to write before it, if any.
    fn target(&self) -> (&'static [u8], &[u8]) {
        let end = memchr::memchr(b'#', self.target).unwrap_or(self.target.len());
        match &self.target[..end] {
            [] if self.method == "OPTIONS" => (b"", b"*"),
            target @ [b'/' | b'*', ..] => (b"", target),
            target => (b"/", target),
        }
    }
}

impl OutgoingFields<'_> {
    /// Calls `see` with each received field that is forwarded, as received.
    pub fn each_passed(&self, see: &mut dyn FnMut(&[u8], &[u8])) {
        self.each(|field, ends_here| _ = is_passed(field, ends_here).then(|| see(field.name, field.value)));
    }

    /// Calls `see` with each field, and whether the field is hop-by-hop.
    #[inline]
    pub fn each(&self, mut see: impl FnMut(&Field<'_>, bool)) {
        match *self {
            Self::Http1(head) => head.fields.iter().for_each(|field| see(field, head.ends_here(field))),
            Self::Http2(map) => {
                for (name, value) in map {
                    let name = name.as_str().as_bytes();
                    let kind = FieldKind::of(name);
                    see(&Field { name, value: value.as_bytes(), kind }, kind.is_hop_by_hop());
                }
            }
            Self::Own(fields) => {
                for (name, value) in fields {
                    let name = name.as_bytes();
                    see(&Field { name, value, kind: FieldKind::of(name) }, false);
                }
            }
        }
    }
}

/// Whether a received field is forwarded. Hop-by-hop fields are not, nor are fields that each hop rewrites, or that servers
/// read as another field.
#[inline]
fn is_passed(field: &Field<'_>, ends_here: bool) -> bool {
    match field.kind {
        FieldKind::Host | FieldKind::ContentLength | FieldKind::TransferEncoding | FieldKind::Expect => false,
        FieldKind::Other => !ends_here && !is_disguised(field.name),
        _ => !ends_here,
    }
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

const PRICES: [&str; 2] = ["crawler-max-price", "crawler-exact-price"];
/// The fields of a signature (RFC 9421 §4, and the drafts of Web Bot Auth).
const SIGNATURE: [&[u8]; 3] = [b"signature", b"signature-input", b"signature-agent"];

#[cfg(test)]
mod tests;
