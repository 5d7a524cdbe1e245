//! One HTTP/1.1 request head: read strictly (RFC 9112 §2–§6), handed on in origin-form with one canonical Host.
//! Pure. Called by `connection`, before pingora's more lenient parser sees a byte.

use crate::policy::{Authority, Refusal, Scheme};
use bytes::{BufMut, Bytes, BytesMut};
use pingora::http::RequestHeader;
use pingora::{ErrorType, OrErr};

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

/// The fields that decide framing, routing and connection handling.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    via: Vec<String>,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    websocket: bool,
    /// Field names listed in Connection: meant for this hop alone.
    named: Vec<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn read(headers: &[httparse::Header<'a>], minor: u8) -> Result<Self, Refusal> {
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

    fn is_bodiless(&self) -> bool {
        self.length.is_none() && !self.chunked
    }

    fn body(&self) -> Body {
        if self.chunked { Body::Chunked } else { Body::Length(self.length.unwrap_or(0)) }
    }

    /// Meant for this hop alone (RFC 9110 §7.6.1), or written anew by `rewrite`.
    fn stays_here(&self, name: &str) -> bool {
        const HOP_BY_HOP: [&str; 8] =
            ["host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade", "trailer"];
        // A client cannot have framing, or a field that tells of a loop, taken away by listing it.
        const KEPT: [&str; 4] = ["content-length", "transfer-encoding", "cache-control", "via"];
        HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop))
            || (self.named.iter().any(|named| named.eq_ignore_ascii_case(name.as_bytes()))
                && !KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept)))
    }
}

fn rewrite(
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
fn encode_target(raw: &[u8]) -> Option<Vec<u8>> {
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

fn bad(detail: impl Into<Box<str>>) -> Refusal {
    Refusal::BadRequest { detail: detail.into() }
}

fn mismatch(tunnel: &Authority, named: &Authority) -> Refusal {
    Refusal::AuthorityMismatch { connection: tunnel.to_string().into(), request: named.to_string().into() }
}

/// pingora's own parser takes 256; two are kept for those that `rewrite` adds.
const MAX_FIELDS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(raw: &str, tunnel: Option<&Authority>) -> Result<RequestHead, Refusal> {
        match read(raw.as_bytes(), tunnel)? {
            Head::Request(head) | Head::Upgrade(head) => Ok(head),
            Head::Connect { .. } => panic!("a CONNECT: {raw}"),
        }
    }

    fn forwarded(raw: &str) -> String {
        String::from_utf8(request(raw, None).expect(raw).bytes.to_vec()).unwrap()
    }

    #[test]
    fn absolute_form_becomes_origin_form_with_the_targets_host() {
        assert_eq!(
            forwarded("GET http://Example.COM:80/a%2f/../b?c HTTP/1.1\r\nHost: example.com\r\nX-A: b\r\n\r\n"),
            "GET /a%2f/../b?c HTTP/1.1\r\nHost: example.com\r\nX-A: b\r\n\r\n"
        );
        assert!(forwarded("GET http://a.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("GET /?q HTTP"));
        assert!(
            forwarded("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("OPTIONS * HTTP")
        );
        assert!(forwarded("GET http://a.example/x#y HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("GET /x HTTP"));
    }

    #[test]
    fn odd_but_legal_octets_go_on_byte_for_byte() {
        for path in ["/%7e", "/a/../b", "/|{}^[]", "/\u{e9}", "/a;b=c"] {
            let head = forwarded(&format!("GET http://a.example{path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{head}");
        }
        let head = forwarded("GET http://a.example/<`x>?\"` HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(head.starts_with("GET /%3C%60x%3E?%22` HTTP/1.1"), "{head}");
    }

    #[test]
    fn pingora_takes_every_target_that_is_let_through() {
        for byte in (0..=255).filter(|&byte| byte > b' ' && byte != 0x7f && byte != b'#') {
            for (before, after) in [("/a", "b"), ("/?", "b"), ("/", "")] {
                let target = [before.as_bytes(), &[byte], after.as_bytes()].concat();
                let raw = [b"GET http://a.example", &target[..], b" HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat();
                let Ok(Head::Request(head)) = read(&raw, None) else { panic!("{}", raw.escape_ascii()) };
                let line = head.bytes.split(|&byte| byte == b' ').nth(1).unwrap();
                assert!(pingora::http::RequestHeader::build("GET", line, None).is_ok(), "{}", raw.escape_ascii());
            }
        }
    }

    #[test]
    fn hop_by_hop_fields_stay_here() {
        let head = forwarded(concat!(
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n",
            "Connection: close, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\n",
            "Upgrade: h2c\r\nAccept: */*\r\n\r\n"
        ));
        assert_eq!(head, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nAccept: */*\r\n\r\n");
    }

    #[test]
    fn a_websocket_handshake_keeps_its_upgrade() {
        let asking = "HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
        let head = match read(format!("GET http://a.example/ {asking}\r\n").as_bytes(), None) {
            Ok(Head::Upgrade(head)) => head,
            other => panic!("{other:?}"),
        };
        assert!(head.bytes.ends_with(b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"));
        assert_eq!(header(&head.bytes).unwrap().headers.len(), 3);
        for other in [
            format!("POST http://a.example/ {asking}\r\n"),
            format!("GET http://a.example/ {asking}Content-Length: 0\r\n\r\n"),
        ] {
            assert!(matches!(read(other.as_bytes(), None), Ok(Head::Request(_))), "{other}");
        }
    }

    #[test]
    fn inside_a_tunnel_the_authority_is_the_tunnels() {
        let tunnel = Authority::new(Scheme::Https, "a.example", None).unwrap();
        let ok = request("GET /x HTTP/1.1\r\nHost: A.example:443\r\n\r\n", Some(&tunnel)).unwrap();
        assert_eq!(ok.authority, tunnel);
        assert!(ok.bytes.starts_with(b"GET /x HTTP/1.1\r\nHost: a.example\r\n"));
        for other in [
            "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example:8443\r\n\r\n",
            "GET https://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ] {
            let refusal = request(other, Some(&tunnel)).unwrap_err();
            assert!(matches!(refusal, Refusal::AuthorityMismatch { .. }), "{other:?}: {refusal}");
        }
    }

    #[test]
    fn the_asterisk_is_for_options_alone() {
        let tunnel = Authority::new(Scheme::Https, "a.example", None).unwrap();
        assert!(request("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(&tunnel)).is_ok());
        let refusal = request("GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(&tunnel)).unwrap_err();
        assert!(matches!(refusal, Refusal::BadRequest { .. }), "{refusal}");
    }

    #[test]
    fn connect_wants_a_host_and_a_port() {
        let read = |raw: &str| read(raw.as_bytes(), None);
        for good in ["a.example:443", "[::1]:9", "A.Example:8443"] {
            assert!(matches!(
                read(&format!("CONNECT {good} HTTP/1.1\r\nHost: {good}\r\n\r\n")),
                Ok(Head::Connect { .. })
            ));
        }
        assert!(read("CONNECT a.example:8445 HTTP/1.1\r\nHost: a.example\r\n\r\n").is_ok());
        for bad in [
            "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:1\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nContent-Length: 3\r\n\r\n",
            "CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n",
            "CONNECT u@a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
            "CONNECT a.example:99999 HTTP/1.1\r\nHost: a.example:99999\r\n\r\n",
            "CONNECT http://a.example:443/ HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
            "CONNECT [::1] HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        ] {
            assert!(matches!(read(bad), Err(Refusal::BadRequest { .. })), "{bad:?}");
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3, 3",
            "Content-Length: +3",
            "Content-Length: -1",
            "Content-Length: 0x3",
            "Content-Length: ",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \u{b}chunked",
            "Host: b.example",
            "Host: a.example",
            "X-Folded: a\r\n b",
            "X Space: a",
            "X-Space : a",
            ": empty",
            "X-Nul: a\0b",
        ] {
            let raw = format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n");
            assert!(matches!(request(&raw, None), Err(Refusal::BadRequest { .. })), "{fields:?}");
        }
    }

    #[test]
    fn malformed_heads_are_refused() {
        for raw in [
            "GET http://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/2.0\r\nHost: a.example\r\n\r\n",
            "GET  http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ b HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "G(T http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nA: b\rc\r\n\r\n",
        ] {
            assert!(matches!(request(raw, None), Err(Refusal::BadRequest { .. })), "{raw:?}");
        }
        let many = "A: b\r\n".repeat(MAX_FIELDS + 1);
        assert!(request(&format!("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{many}\r\n"), None).is_err());
    }

    #[test]
    fn origin_form_outside_a_tunnel_is_no_proxy_request() {
        let refusal = request("GET / HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n", None).unwrap_err();
        assert!(matches!(refusal, Refusal::NotAProxyRequest));
    }

    #[test]
    fn the_end_of_a_head_is_found_in_pieces_and_bare_lf_at_once() {
        assert_eq!(end_of_head(b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest", 0).unwrap(), Some(24));
        assert_eq!(end_of_head(b"GET / HTTP/1.1\r\nA: b\r\n", 0).unwrap(), None);
        assert!(end_of_head(b"GET / HTTP/1.1\nA: b", 0).is_err());
        assert!(end_of_head(b"GET / HTTP/1.1\r\nA: b\n\n", 0).is_err());
    }
}
