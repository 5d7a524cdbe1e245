//! A client's request: parsed once from its head, in any HTTP version.

use super::connection_auth::authenticates_connection;
use super::offered_price::read_offered_price;
use super::previous_request::PreviousRequest;
use super::request_preferences::{is_subresource, prefer_wait};
use super::target;
use super::websocket;
use crate::http1::{FieldKind, Framing, HeadError, RequestHead, find_field, list, number};
use crate::policy::cache::is_of_one_client;
use crate::policy::{Authority, Money, Refusal};
use crate::robots::ProductToken;
use crate::upstream::{OutgoingFields, Via};
use http::{HeaderMap, Version, header};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// A parsed request, with all inputs of decisions. All text is the client's, byte for byte.
pub struct Request<'a> {
    pub version: Version,
    pub method: &'a str,
    pub authority: Authority,
    /// Path and query to send.
    pub target: Cow<'a, [u8]>,
    pub framing: Framing,
    /// The request has a body and waits for 100.
    pub expects_continue: bool,
    pub authenticates_connection: bool,
    /// The request asks for a WebSocket (RFC 6455 §4.1).
    pub is_upgrade: bool,
    /// The client wants to keep the connection.
    pub persists: bool,
    pub is_looped: bool,
    pub user_agent: Option<&'a [u8]>,
    /// The product tokens in `user_agent`.
    pub agent_tokens: Arc<[ProductToken]>,
    pub accept: Option<&'a [u8]>,
    pub credentials: Option<&'a [u8]>,
    /// The request presents a licence (RSL 1.0, `Authorization: License`).
    pub is_licensed: bool,
    /// The highest price that the client offers.
    pub promised: Option<Money>,
    /// Whether Sec-Fetch-Dest names a part of a page. `None`: no such field.
    pub is_subresource: Option<bool>,
    pub prefer_wait: Option<Duration>,
    /// Max-Forwards (RFC 9110 §7.6.2).
    pub max_forwards: Option<u32>,
    /// All Via fields of a CONNECT, joined into one line.
    pub via: Option<String>,
    pub head: OutgoingFields<'a>,
}

/// The readable parts of a request that could not be parsed.
#[derive(Default)]
pub struct Unread<'a> {
    pub is_head: bool,
    pub accept: Option<&'a [u8]>,
    /// `None`: unknown, as for each malformed head in HTTP/1.
    pub url: Option<String>,
}

impl<'a> Unread<'a> {
    pub fn of_http1(raw: &'a [u8]) -> Self {
        Unread { is_head: raw.starts_with(b"HEAD "), accept: find_field(raw, "accept"), url: None }
    }
}

impl From<HeadError> for Refusal {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::TooLarge { limit } => Refusal::HeadTooLarge { limit },
            HeadError::TooManyFields | HeadError::Malformed(_) => Refusal::bad_request(error.to_string()),
        }
    }
}

impl<'a> Request<'a> {
    /// A request without body and fields.
    #[inline]
    pub fn new(
        version: Version,
        method: &'a str,
        authority: Authority,
        target: Cow<'a, [u8]>,
        head: OutgoingFields<'a>,
    ) -> Self {
        Request {
            version,
            method,
            authority,
            target,
            framing: Framing::None,
            expects_continue: false,
            authenticates_connection: false,
            is_upgrade: false,
            persists: true,
            is_looped: false,
            user_agent: None,
            agent_tokens: Arc::default(),
            accept: None,
            credentials: None,
            is_licensed: false,
            promised: None,
            is_subresource: None,
            prefer_wait: None,
            max_forwards: None,
            via: None,
            head,
        }
    }

    /// Parses an HTTP/1 request. `inside`: the authority of the CONNECT around the connection. `last`: the previous request.
    pub fn of_http1(
        head: &'a RequestHead<'a>,
        inside: Option<&Authority>,
        via: &Via,
        last: &mut PreviousRequest,
    ) -> Result<Self, Refusal> {
        let method = head.method;
        let (authority, path) = target::locate(head, inside, &mut last.located)?;
        let target = outgoing_target(method, path);
        let version = if head.minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
        let is_upgrade = method == "GET"
            && matches!(head.framing, Framing::None | Framing::Length(0))
            && head.upgrade.is_some_and(|to| list(to).any(|to| to.eq_ignore_ascii_case(b"websocket")));
        let mut request = Request {
            framing: if is_upgrade { Framing::None } else { head.framing },
            is_upgrade,
            persists: head.persists(),
            ..Request::new(version, method, authority, target, OutgoingFields::Http1(head))
        };
        for field in head.fields {
            use FieldKind::{Expect, MaxForwards, Prefer, ProxyAuthorization};
            // The origin does not receive fields that Connection names: they count only if they are for the proxy.
            if !head.ends_here(field) || matches!(field.kind, ProxyAuthorization | Expect | Prefer | MaxForwards) {
                request.note(field.kind, field.value, via)?;
            }
        }
        request.expects_continue &= head.minor == 1 && request.has_body();
        request.agent_tokens = last.tokens(request.user_agent.unwrap_or_default());
        Ok(request)
    }

    /// Parses an HTTP/2 request. `inside`, `last`: as in [`of_http1`](Self::of_http1).
    pub fn read_http2(
        parts: &'a http::request::Parts,
        ends: bool,
        inside: Option<&Authority>,
        via: &Via,
        last: &mut PreviousRequest,
    ) -> Result<Self, Refusal> {
        let is_upgrade = websocket::is_asked_for(parts)?;
        // RFC 8441 §5: in HTTP/1.1 the method is GET.
        let method = if is_upgrade { "GET" } else { parts.method.as_str() };
        let fields = &parts.headers;
        let (authority, path) = target::locate_http2(parts, method, inside, &mut last.located)?;
        let target = outgoing_target(method, path);
        let length = length(fields)?;
        let mut request = Request {
            framing: match (ends, length) {
                (false, _) if is_upgrade => Framing::None,
                (false, None) if method == "CONNECT" => Framing::None,
                (true, None | Some(0)) => length.map_or(Framing::None, Framing::Length),
                (true, Some(_)) => return Err(Refusal::bad_request("a Content-Length on a request without a body")),
                (false, Some(length)) => Framing::Length(length),
                (false, None) => Framing::Chunked,
            },
            is_upgrade,
            ..Request::new(Version::HTTP_2, method, authority, target, OutgoingFields::Http2(fields))
        };
        for (name, value) in fields {
            request.note(FieldKind::of(name.as_str().as_bytes()), value.as_bytes(), via)?;
        }
        request.expects_continue &= request.has_body();
        request.agent_tokens = last.tokens(request.user_agent.unwrap_or_default());
        Ok(request)
    }

    #[inline]
    fn note(&mut self, kind: FieldKind, value: &'a [u8], via: &Via) -> Result<(), Refusal> {
        match kind {
            // Refused, because the proxy would use one of the two fields, and the origin perhaps the other.
            FieldKind::UserAgent if self.user_agent.replace(value).is_some() => {
                return Err(Refusal::bad_request("more than one User-Agent field"));
            }
            FieldKind::Authorization => {
                self.authenticates_connection |= authenticates_connection(value);
                self.is_licensed |= value.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"license "));
            }
            FieldKind::CrawlerPrice => read_offered_price(&mut self.promised, value)?,
            // RFC 9110 §10.1.1: only 100-continue is supported.
            FieldKind::Expect if self.expects_continue || !value.eq_ignore_ascii_case(b"100-continue") => {
                return Err(Refusal::ExpectationFailed);
            }
            FieldKind::Expect => self.expects_continue = true,
            FieldKind::Accept => self.accept = self.accept.or(Some(value)),
            FieldKind::ProxyAuthorization if self.credentials.replace(value).is_some() => {
                return Err(Refusal::bad_request("more than one Proxy-Authorization field"));
            }
            FieldKind::Via => {
                self.is_looped |= via.is_in(value);
                if self.method == "CONNECT" {
                    let line = String::from_utf8_lossy(value);
                    self.via =
                        Some(self.via.take().map_or_else(|| line.to_string(), |before| format!("{before}, {line}")));
                }
            }
            FieldKind::SecFetchDest => self.is_subresource = Some(is_subresource(value)),
            FieldKind::Prefer => self.prefer_wait = self.prefer_wait.or_else(|| prefer_wait(value)),
            FieldKind::MaxForwards if matches!(self.method, "OPTIONS" | "TRACE") => {
                self.max_forwards = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the origin connection must serve this client only: the origin may authenticate the connection, or take
    /// an unread body for another client's request.
    pub fn is_private(&self) -> bool {
        self.authenticates_connection || self.has_body()
    }

    /// Whether the answer may be for this client alone, so that neither it nor its effects reach other clients.
    pub fn is_for_one(&self) -> bool {
        let mut is_own = self.is_private();
        self.head.each_passed(&mut |name, _| is_own |= is_of_one_client(&name.to_ascii_lowercase()));
        is_own
    }

    /// Whether the request offers a price or presents a licence, so that its answer says nothing about other requests.
    pub fn is_on_terms(&self) -> bool {
        self.is_licensed || self.promised.is_some()
    }

    pub fn has_body(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    pub fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }

    /// Whether repeating the request is safe (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
    }

    /// Whether the request is for the robots.txt that the proxy keeps.
    pub fn reads_robots(&self) -> bool {
        *self.target == *b"/robots.txt" && matches!(self.method, "GET" | "HEAD") && !self.is_upgrade
    }

    pub fn url(&self) -> String {
        // RFC 9112 §3.3: the target `*` has no path, like the target of a CONNECT.
        match self.is_connect() || *self.target == *b"*" {
            true => self.authority.url(""),
            false => self.authority.url(&String::from_utf8_lossy(&self.target)),
        }
    }
}

/// RFC 9112 §3.2.1 and §3.2.4: an empty path becomes `/`, or `*` for OPTIONS. The fragment is dropped.
fn outgoing_target<'a>(method: &str, path: &'a [u8]) -> Cow<'a, [u8]> {
    let end = memchr::memchr(b'#', path).unwrap_or(path.len());
    match &path[..end] {
        b"" if method == "OPTIONS" => Cow::Borrowed(b"*"),
        path @ [b'/' | b'*', ..] => Cow::Borrowed(path),
        path => Cow::Owned([b"/", path].concat()),
    }
}

/// Content-Length of an HTTP/2 request (RFC 9113 §8.1.1).
fn length(fields: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Refusal::bad_request("more than one Content-Length field")),
        (Some(length), None) => {
            number(length.as_bytes()).map(Some).ok_or_else(|| Refusal::bad_request("Content-Length is not a number"))
        }
    }
}
