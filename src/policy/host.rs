//! A host name or address (RFC 3986 §3.2.2) in canonical form, parsed by the WHATWG URL standard, as clients do. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::authority::AuthorityError;

/// A host in canonical form. Every spelling that a WHATWG URL parser reads as an address (`127.1`, `0x7f.1`, `2130706433`, full-width
/// digits, …) becomes a [`Host::Ip`], so that no name can hide an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// Lower-case A-labels without a trailing dot.
    Name(Arc<str>),
    /// An address literal. An IPv4-mapped IPv6 address remains IPv6.
    Ip(IpAddr),
}

impl Host {
    /// Parses a host as written in a URL, a Host field, an SNI or a configuration. An IPv6 address may be in brackets or not.
    pub fn parse(raw: &str) -> Result<Self, AuthorityError> {
        if let Some(rest) = raw.strip_prefix('[') {
            return ipv6(rest.strip_suffix(']').ok_or(AuthorityError::Ipv6)?);
        }
        if raw.contains(':') {
            return ipv6(raw);
        }
        if let Some(name) = Self::plain(raw.as_bytes()) {
            return Ok(name);
        }
        if let Ok(address) = raw.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(address.into()));
        }
        from_whatwg(raw)
    }

    /// Fast path in one pass: a name of letters, digits, `-` and `_` needs only lower-casing. `None`: the host needs the slow path, as it
    /// is invalid, has other characters, may be an address (its last label begins with a digit), or has A-labels, whose Punycode must be
    /// checked.
    pub(super) fn plain(raw: &[u8]) -> Option<Self> {
        let bare = raw.strip_suffix(b".").unwrap_or(raw);
        let (mut upper, mut label) = (false, 0);
        for (i, byte) in bare.iter().enumerate() {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => {}
                b'A'..=b'Z' => upper = true,
                b'.' if is_plain_label(&bare[label..i]) => label = i + 1,
                _ => return None,
            }
        }
        let last = &bare[label..];
        if bare.len() > NAME_MAX || !is_plain_label(last) || last[0].is_ascii_digit() {
            return None;
        }
        let mut name = Arc::<str>::from(str::from_utf8(bare).ok()?);
        if upper {
            Arc::get_mut(&mut name).expect("the new name has no other reference").make_ascii_lowercase();
        }
        Some(Self::Name(name))
    }

    /// The name, if it is not an address.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Ip(_) => None,
        }
    }

    /// The address, if it is a literal.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Ip(address) => Some(*address),
        }
    }

    /// The registrable domain by the public suffix list. `None` for an address or a public suffix.
    pub fn domain(&self) -> Option<&str> {
        self.name().and_then(psl::domain_str)
    }
}

impl fmt::Display for Host {
    /// Formats the host as in a URL, with an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(address)) => address.fmt(f),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
/// Room for the longest name in percent-encoded UTF-8; IDNA is expensive for longer texts.
const RAW_MAX: usize = 3072;

fn is_plain_label(label: &[u8]) -> bool {
    match label {
        [] => false,
        [b'x' | b'X', b'n' | b'N', b'-', b'-', ..] => false,
        label => label.len() <= LABEL_MAX,
    }
}

fn ipv6(inside: &str) -> Result<Host, AuthorityError> {
    if inside.contains('%') {
        return Err(AuthorityError::Zone);
    }
    inside.parse::<Ipv6Addr>().map(|address| Host::Ip(address.into())).map_err(|_| AuthorityError::Ipv6)
}

/// The slow path: percent-decoding, IDNA mapping and the numeric forms of IPv4.
fn from_whatwg(raw: &str) -> Result<Host, AuthorityError> {
    if raw.is_empty() || raw == "." {
        return Err(AuthorityError::HostMissing);
    }
    if raw.len() > RAW_MAX {
        return Err(AuthorityError::HostLength);
    }
    match url::Host::parse(raw) {
        Ok(url::Host::Ipv4(address)) => Ok(Host::Ip(address.into())),
        Ok(url::Host::Ipv6(address)) => Ok(Host::Ip(address.into())),
        Ok(url::Host::Domain(name)) => whole_name(name.strip_suffix('.').unwrap_or(&name)),
        Err(url::ParseError::EmptyHost) => Err(AuthorityError::HostMissing),
        Err(url::ParseError::InvalidIpv4Address) => Err(AuthorityError::Ipv4),
        Err(_) => Err(AuthorityError::HostCharacters),
    }
}

/// Rejects names that the standard accepts but that DNS, a Host field or a log line should not contain: `a'b`, `a"b`, `a..b`.
fn whole_name(name: &str) -> Result<Host, AuthorityError> {
    if name.is_empty() {
        return Err(AuthorityError::HostMissing);
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err(AuthorityError::HostCharacters);
    }
    if name.len() > NAME_MAX || name.split('.').any(|label| label.is_empty() || label.len() > LABEL_MAX) {
        return Err(AuthorityError::HostLength);
    }
    Ok(Host::Name(name.into()))
}
