//! The authority of a request (RFC 3986 §3.2, RFC 9110 §4.2.3): scheme, host and port, in the canonical form that serves as the key for
//! rules, paces and connections. Pure.

mod error;

pub use error::AuthorityError;

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::host::Host;

/// The two schemes a robots.txt can be fetched over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Plain HTTP, port 80.
    Http,
    /// HTTP over TLS, port 443.
    Https,
}

impl Scheme {
    /// Parses a scheme, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|scheme| name.eq_ignore_ascii_case(scheme.as_str()))
    }

    /// `http` or `https`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The default port of the scheme.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Scheme, host and port: the scope of one robots.txt (RFC 9309 §2.3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    host: Host,
    port: u16,
    scheme: Scheme,
}

impl Authority {
    /// Creates an authority from separate parts. `None` is the scheme's default port.
    pub fn new(scheme: Scheme, host: &str, port: Option<u16>) -> Result<Self, AuthorityError> {
        Self::from_host(scheme, Host::parse(host)?, port)
    }

    /// Creates an authority from a parsed host. `None` is the scheme's default port.
    pub fn from_host(scheme: Scheme, host: Host, port: Option<u16>) -> Result<Self, AuthorityError> {
        match port.unwrap_or(scheme.default_port()) {
            0 => Err(AuthorityError::Port),
            port => Ok(Self { host, port, scheme }),
        }
    }

    /// Parses the authority component as sent: `host`, `host:port` or `[v6]:port`. Userinfo is refused; an empty port
    /// is the default one (RFC 3986 §3.2.3).
    pub fn parse(scheme: Scheme, authority: &[u8]) -> Result<Self, AuthorityError> {
        if let Some(host) = Host::plain(authority) {
            return Ok(Self { host, port: scheme.default_port(), scheme });
        }
        let (host, port) = split(authority)?;
        let port = match port {
            None | Some("") => None,
            Some(digits) => Some(port_number(digits)?),
        };
        Self::new(scheme, host, port)
    }

    /// Parses the target of a CONNECT, which must have a port (RFC 9110 §9.3.6).
    pub fn parse_connect(scheme: Scheme, target: &[u8]) -> Result<Self, AuthorityError> {
        match split(target)? {
            (_, None | Some("")) => Err(AuthorityError::PortMissing),
            (host, Some(digits)) => Self::new(scheme, host, Some(port_number(digits)?)),
        }
    }

    /// Parses the authority of an absolute `http` or `https` URL.
    pub fn from_url(url: &str) -> Result<Self, AuthorityError> {
        Self::and_target(url).map(|(authority, _)| authority)
    }

    /// Parses an authority as people write it: `https://example.com:8443`. Without a scheme, the scheme is https.
    pub fn named(text: &str) -> Result<Self, AuthorityError> {
        if text.contains("://") { Self::from_url(text) } else { Self::parse(Scheme::Https, text.as_bytes()) }
    }

    /// The authority of an absolute URL, and its path and query as a client would send them: as written, without the fragment.
    pub fn and_target(url: &str) -> Result<(Self, Cow<'_, str>), AuthorityError> {
        let (scheme, rest) = url.split_once("://").ok_or(AuthorityError::Scheme)?;
        let scheme = Scheme::parse(scheme).ok_or(AuthorityError::Scheme)?;
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority = Self::parse(scheme, authority.as_bytes())?;
        if target.bytes().any(|byte| byte == b' ' || byte.is_ascii_control()) {
            return Err(AuthorityError::Target);
        }
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.into() } else { format!("/{target}").into() };
        Ok((authority, target))
    }

    /// This authority with another scheme, for the target of a CONNECT once its protocol is known.
    pub fn with_scheme(&self, scheme: Scheme) -> Self {
        Self { scheme, ..self.clone() }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// The host in canonical form.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, from 1 to 65535.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the port is the scheme's default.
    pub fn is_default_port(&self) -> bool {
        self.port == self.scheme.default_port()
    }

    /// The URL of the authority's robots.txt: `https://example.com/robots.txt`.
    pub fn robots_url(&self) -> String {
        self.url("/robots.txt")
    }

    /// The URL of a target (path and query) at this authority.
    pub fn url(&self, target: &str) -> String {
        let host = self.host.name().map_or(IP_MAX, str::len);
        let port = if self.is_default_port() { 0 } else { 2 + self.port.ilog10() as usize };
        // Allocates the exact capacity, as most URLs are stored for long.
        let mut url = String::with_capacity(self.scheme.as_str().len() + 3 + host + port + target.len());
        // Writing to memory cannot fail.
        let _ = self.write_url(target, &mut url);
        url
    }

    /// Writes the URL of a target at this authority. Avoids the slower formatter, as a client may be refused thousands of times.
    pub fn write_url(&self, target: &str, out: &mut impl Write) -> fmt::Result {
        out.write_str(self.scheme.as_str())?;
        out.write_str("://")?;
        match &self.host {
            Host::Name(name) => out.write_str(name)?,
            Host::Ip(_) => write!(out, "{}", self.host)?,
        }
        if !self.is_default_port() {
            out.write_str(":")?;
            out.write_str(itoa::Buffer::new().format(self.port))?;
        }
        out.write_str(target)
    }

    /// The Host field for requests to this authority: `example.com`, `example.com:8080`, `[::1]:8080`.
    pub fn host_header(&self) -> String {
        if self.is_default_port() { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for Authority {
    /// `https://example.com:8443`; a default port is omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_url("", f)
    }
}

/// Maximum length of an IP address, brackets included.
const IP_MAX: usize = 41;

/// Splits host and port at the first colon outside brackets. [`Host::parse`] checks the host.
fn split(authority: &[u8]) -> Result<(&str, Option<&str>), AuthorityError> {
    let text = str::from_utf8(authority).map_err(|_| AuthorityError::HostCharacters)?;
    if text.contains('@') {
        return Err(AuthorityError::Userinfo);
    }
    let host_end = match text.strip_prefix('[') {
        Some(_) => text.find(']').ok_or(AuthorityError::Ipv6)? + 1,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(host_end);
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok((host, None)),
        None => Err(AuthorityError::Ipv6),
        Some(port) => Ok((host, Some(port))),
    }
}

fn port_number(digits: &str) -> Result<u16, AuthorityError> {
    // `u16::from_str` would accept a leading plus sign.
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
        .filter(|port| *port != 0)
        .ok_or(AuthorityError::Port)
}

#[cfg(test)]
mod tests;
