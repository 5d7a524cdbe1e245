//! The authority and target of a request (RFC 9112 §3.2, RFC 9113 §8.3.1). Inside a CONNECT, every field
//! that names an authority must agree with the CONNECT. With a CONNECT or an absolute URL, Host only has to be valid.

use crate::http1::{Framing, RequestHead};
use crate::policy::{Authority, Refusal, Scheme};

/// Returns the authority, and path and query as sent, fragment included; CONNECT has none. `inside`: the authority of
/// the CONNECT around the connection, which requests in origin-form must name. `last`: the previous authority, as
/// written and as parsed.
pub fn locate<'a>(
    head: &RequestHead<'a>,
    inside: Option<&Authority>,
    last: &mut Option<(Vec<u8>, Authority)>,
) -> Result<(Authority, &'a [u8]), Refusal> {
    let RequestHead { method, target, host, .. } = *head;
    if method == "CONNECT" {
        let authority = connect(target, inside)?;
        if !matches!(head.framing, Framing::None | Framing::Length(0)) {
            return Err(Refusal::bad_request("CONNECT with a body"));
        }
        // RFC 9110 §7.2: Host repeats the target. Some clients name the proxy in it or omit the port.
        host.map(|host| parse(Scheme::Https, host)).transpose()?;
        return Ok((authority, b""));
    }
    if host.is_none() && head.minor == 1 {
        return Err(Refusal::bad_request("no Host field in an HTTP/1.1 request"));
    }
    if target.starts_with(b"/") || target == b"*" {
        asterisk(method, target)?;
        let Some(inside) = inside else { return Err(Refusal::NotAProxyRequest) };
        if let Some((spelt, authority)) = &*last
            && host == Some(spelt)
        {
            return Ok((authority.clone(), target));
        }
        let authority = match host.map(|host| parse(inside.scheme(), host)).transpose()? {
            Some(host) if host == *inside => host,
            // As in the TLS handshake, a name may replace the IP address of the CONNECT, to which the client resolved the name.
            Some(host) if may_name_address(&host, inside) => host,
            Some(host) => return Err(mismatch(inside, &host)),
            None => inside.clone(),
        };
        *last = host.map(|host| (host.to_vec(), authority.clone()));
        return Ok((authority, target));
    }
    if let Some((spelt, authority)) = &*last
        && inside.is_none()
        && let Some(path) = target.strip_prefix(&**spelt)
        && matches!(path, [] | [b'/' | b'?' | b'#', ..])
        && host == spelt.get(authority.scheme().as_str().len() + 3..)
    {
        return Ok((authority.clone(), path));
    }
    let colon =
        memchr::memmem::find(target, b"://").ok_or_else(|| Refusal::bad_request("the request target is not a URL"))?;
    let rest = &target[colon + 3..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\')).unwrap_or(rest.len());
    let (url, path) = target.split_at(colon + 3 + end);
    let scheme = scheme(&String::from_utf8_lossy(&target[..colon]))?;
    let authority = parse(scheme, &rest[..end])?;
    if path.starts_with(b"\\") {
        return Err(Refusal::bad_request("a backslash after the authority"));
    }
    // RFC 9112 §3.2.2: for a proxy only the target counts, and Host is rewritten.
    let named = host.filter(|host| **host != rest[..end]).map(|host| parse(scheme, host)).transpose()?;
    match inside {
        Some(inside) if *inside != authority => return Err(mismatch(inside, &authority)),
        Some(inside) => {
            if let Some(other) = named.filter(|host| host != inside) {
                return Err(mismatch(inside, &other));
            }
        }
        None => *last = Some((url.to_vec(), authority.clone())),
    }
    Ok((authority, path))
}

/// Like [`locate`], for HTTP/2. `:authority` names the target; inside a CONNECT it must match the CONNECT.
pub fn locate_http2<'a>(
    parts: &'a http::request::Parts,
    method: &str,
    inside: Option<&Authority>,
    last: &mut Option<(Vec<u8>, Authority)>,
) -> Result<(Authority, &'a [u8]), Refusal> {
    let named = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    if method == "CONNECT" {
        return connect(named.unwrap_or_default(), inside).map(|authority| (authority, &b""[..]));
    }
    let path = parts.uri.path_and_query().map_or(&b""[..], |path| path.as_str().as_bytes());
    asterisk(method, path)?;
    if !path.starts_with(b"/") && path != b"*" {
        return Err(Refusal::bad_request(":path does not begin with a slash"));
    }
    let mut hosts = parts.headers.get_all(http::header::HOST).iter().map(|host| host.as_bytes());
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::bad_request("more than one Host field"));
    }
    let written = named.or(host).ok_or_else(|| Refusal::bad_request("no :authority"))?;
    let scheme = match (parts.uri.scheme_str(), inside) {
        (Some(text), _) => self::scheme(text)?,
        (None, Some(inside)) => inside.scheme(),
        (None, None) => return Err(Refusal::bad_request("no :scheme")),
    };
    let authority = match last {
        Some((spelt, authority)) if *spelt == *written && authority.scheme() == scheme => authority.clone(),
        _ => last.insert((written.to_vec(), parse(scheme, written)?)).1.clone(),
    };
    if let Some(inside) = inside
        && authority != *inside
        && !(scheme == Scheme::Http && may_name_address(&authority, inside))
    {
        return Err(mismatch(inside, &authority));
    }
    if let Some(host) = host
        && host != written
        && parse(scheme, host)? != authority
    {
        return Err(Refusal::bad_request("the Host field names another host than :authority"));
    }
    Ok((authority, path))
}

fn connect(target: &[u8], inside: Option<&Authority>) -> Result<Authority, Refusal> {
    if inside.is_some() {
        return Err(Refusal::bad_request("CONNECT inside a CONNECT tunnel"));
    }
    Authority::parse_connect(Scheme::Https, target)
        .map_err(|error| Refusal::bad_request(format!("CONNECT requires host:port: {error}")))
}

fn scheme(text: &str) -> Result<Scheme, Refusal> {
    Scheme::parse(text).ok_or_else(|| Refusal::bad_request(format!("scheme {text:?} is not http or https")))
}

fn parse(scheme: Scheme, written: &[u8]) -> Result<Authority, Refusal> {
    Authority::parse(scheme, written).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// RFC 9112 §3.2.4: `*` is the whole server, for OPTIONS only. No robots.txt rule matches it.
fn asterisk(method: &str, target: &[u8]) -> Result<(), Refusal> {
    if target.starts_with(b"*") && method != "OPTIONS" {
        return Err(Refusal::bad_request("only OPTIONS can have `*` as its target"));
    }
    Ok(())
}

fn may_name_address(named: &Authority, inside: &Authority) -> bool {
    let is_plain = !inside.is_https();
    is_plain && inside.host().ip().is_some() && named.host().name().is_some() && named.port() == inside.port()
}

fn mismatch(inside: &Authority, named: &Authority) -> Refusal {
    Refusal::AuthorityMismatch { connection: inside.to_string().into(), request: named.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::super::previous_request::PreviousRequest;
    use super::super::request::Request;
    use super::*;
    use crate::http1::{FieldRoom, read_request};
    use crate::upstream::Via;

    /// Parses the head into authority and target.
    fn parse_target(raw: &str, inside: Option<&Authority>) -> Result<(String, String), Refusal> {
        let via = Via::new("politely-0");
        let mut room = FieldRoom::new();
        let head = read_request(raw.as_bytes(), &mut 0, 64 * 1024, &mut room)?.expect("it is whole");
        let mut last = PreviousRequest::default();
        let request = Request::of_http1(&head, inside, &via, &mut last)?;
        Ok((request.authority.to_string(), String::from_utf8_lossy(&request.target).into_owned()))
    }

    #[test]
    fn absolute_form_becomes_origin_form() {
        for (target, path) in [
            ("GET http://A.Example:80/a%2f/../b?c", "/a%2f/../b?c"),
            ("GET http://a.example?q", "/?q"),
            ("OPTIONS http://a.example", "*"),
            ("GET http://a.example/x#y", "/x"),
            ("GET http://a.example/<`x>?\"", "/<`x>?\""),
        ] {
            for host in ["a.example", "b.example:81"] {
                let raw = format!("{target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
                assert_eq!(
                    parse_target(&raw, None).unwrap(),
                    ("http://a.example".to_owned(), path.to_owned()),
                    "{target}"
                );
            }
        }
    }

    #[test]
    fn inside_a_tunnel_the_authority_must_be_that_of_the_tunnel() {
        let tunnel = Authority::new(Scheme::Https, "a.example", None).unwrap();
        let ok = parse_target("GET /x HTTP/1.1\r\nHost: A.example:443\r\n\r\n", Some(&tunnel)).unwrap();
        assert_eq!(ok, ("https://a.example".to_owned(), "/x".to_owned()));
        for other in [
            "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example:8443\r\n\r\n",
            "GET https://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ] {
            let refusal = parse_target(other, Some(&tunnel)).unwrap_err();
            assert!(matches!(refusal, Refusal::AuthorityMismatch { .. }), "{other:?}: {refusal}");
        }
        assert!(parse_target("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(&tunnel)).is_ok());
        let refusal = parse_target("GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(&tunnel)).unwrap_err();
        assert!(matches!(refusal, Refusal::BadRequest { .. }), "{refusal}");
    }

    #[test]
    fn inside_a_plain_tunnel_a_name_replaces_an_address() {
        let tunnel = |url| Authority::from_url(url).unwrap();
        let raw = "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let ok = parse_target(raw, Some(&tunnel("http://192.0.2.1"))).unwrap();
        assert_eq!(ok, ("http://a.example".to_owned(), "/x".to_owned()));
        for other in ["http://192.0.2.1:81", "https://192.0.2.1", "http://b.example"] {
            assert!(
                matches!(parse_target(raw, Some(&tunnel(other))), Err(Refusal::AuthorityMismatch { .. })),
                "{other}"
            );
        }
        let raw = "GET /x HTTP/1.1\r\nHost: 192.0.2.2\r\n\r\n";
        assert!(parse_target(raw, Some(&tunnel("http://192.0.2.1"))).is_err());
    }

    #[test]
    fn connect_requires_a_host_and_a_port() {
        for good in ["a.example:443", "[::1]:9", "A.Example:8443"] {
            assert!(parse_target(&format!("CONNECT {good} HTTP/1.1\r\nHost: {good}\r\n\r\n"), None).is_ok(), "{good}");
        }
        for host in ["a.example", "a.example:1", "b.example:443", "127.0.0.1:3128"] {
            let (authority, _) =
                parse_target(&format!("CONNECT a.example:8445 HTTP/1.1\r\nHost: {host}\r\n\r\n"), None).unwrap();
            assert_eq!(authority, "https://a.example:8445", "{host}");
        }
        for bad in [
            "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a b\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nContent-Length: 3\r\n\r\n",
            "CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n",
            "CONNECT u@a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
            "CONNECT a.example:99999 HTTP/1.1\r\nHost: a.example:99999\r\n\r\n",
        ] {
            assert!(matches!(parse_target(bad, None), Err(Refusal::BadRequest { .. })), "{bad:?}");
        }
    }

    #[test]
    fn an_ambiguous_authority_is_refused() {
        for raw in [
            "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: u@a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: b example\r\n\r\n",
            "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\n\r\n",
        ] {
            assert!(matches!(parse_target(raw, None), Err(Refusal::BadRequest { .. })), "{raw:?}");
        }
        let refusal = parse_target("GET / HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n", None).unwrap_err();
        assert!(matches!(refusal, Refusal::NotAProxyRequest));
    }
}
