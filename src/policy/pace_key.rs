//! The key of a pace. Requests with the same key share one pace (`pace.key`). Pure.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Authority, Host};

/// The unit that has a pace of its own: the setting `pace.key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum KeyBy {
    /// Each host.
    #[default]
    Host,
    /// Each registrable domain by the public suffix list: `a.example.co.uk` and `b.example.co.uk` share a pace.
    Site,
    /// Each dialled address: all domains on one server share a pace.
    Address,
}

/// The key of a pace. `http` and `https` on their default ports share a key; any other port has its own key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PaceKey {
    place: KeyScope,
    /// `None`: the scheme's default port.
    port: Option<u16>,
    /// The delay of a robots.txt group in microseconds, if the key is for requests of such a group.
    group: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum KeyScope {
    Host(Host),
    Site(Arc<str>),
    Address(IpAddr),
}

impl PaceKey {
    /// Creates the key for an authority. `dialled`: the address of the connection. While it is unknown (a tunnel through an upstream
    /// proxy), [`KeyBy::Address`] falls back to the host.
    pub fn new(by: KeyBy, authority: &Authority, dialled: Option<IpAddr>) -> Self {
        let host = authority.host();
        let place = match by {
            KeyBy::Host => None,
            KeyBy::Site => host.domain().map(|site| KeyScope::Site(site.into())),
            // IPv4 and IPv4-mapped IPv6 reach the same machine.
            KeyBy::Address => dialled.or(host.ip()).map(|address| KeyScope::Address(address.to_canonical())),
        };
        let place = place.unwrap_or_else(|| KeyScope::Host(host.clone()));
        Self { place, port: port(authority), group: None }
    }

    /// The key of the robots.txt groups that ask for this delay.
    #[must_use]
    pub fn of_group(&self, delay: Duration) -> Self {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        Self { group: Some(micros), ..self.clone() }
    }

    /// The key without the group.
    #[must_use]
    pub fn of_all(&self) -> Self {
        Self { group: None, ..self.clone() }
    }

    /// The delay, if this is the key of robots.txt groups.
    pub fn group(&self) -> Option<Duration> {
        self.group.map(Duration::from_micros)
    }

    /// Whether [`new`](Self::new) would return this key.
    pub fn is_of(&self, by: KeyBy, authority: &Authority, dialled: Option<IpAddr>) -> bool {
        match (by, &self.place) {
            // Avoids creating a key for the comparison.
            (KeyBy::Host, KeyScope::Host(host)) => {
                host == authority.host() && self.port == port(authority) && self.group.is_none()
            }
            _ => *self == Self::new(by, authority, dialled),
        }
    }

    /// Whether [`new`](Self::new) may return a key of this kind for the setting `by`.
    pub fn is_by(&self, by: KeyBy) -> bool {
        match (&self.place, by) {
            (KeyScope::Host(host), KeyBy::Site) => host.domain().is_none(),
            (KeyScope::Host(_), KeyBy::Host | KeyBy::Address)
            | (KeyScope::Site(_), KeyBy::Site)
            | (KeyScope::Address(_), KeyBy::Address) => true,
            (KeyScope::Site(_) | KeyScope::Address(_), _) => false,
        }
    }

    /// The host. `None`: several hosts may share the key.
    pub fn host(&self) -> Option<&Host> {
        match &self.place {
            KeyScope::Host(host) => Some(host),
            KeyScope::Site(_) | KeyScope::Address(_) => None,
        }
    }

    /// Parses the output of `Display`.
    pub fn from_text(text: &str) -> Option<Self> {
        let (text, group) = match text.rsplit_once('#') {
            Some((text, group)) => (text, Some(group.strip_suffix("us")?.parse().ok()?)),
            None => (text, None),
        };
        let (place, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
            Some((place, port)) => (place, Some(port.parse().ok()?)),
            None => (text, None),
        };
        let place = if let Some(site) = place.strip_prefix("site=") {
            KeyScope::Site(site.into())
        } else if let Some(address) = place.strip_prefix("address=") {
            KeyScope::Address(Host::parse(address).ok()?.ip()?)
        } else {
            KeyScope::Host(Host::parse(place).ok()?)
        };
        Some(Self { place, port, group })
    }
}

fn port(authority: &Authority) -> Option<u16> {
    (!authority.is_default_port()).then_some(authority.port())
}

impl fmt::Display for PaceKey {
    /// `example.com`, `example.com:8080`, `site=example.com`, `address=192.0.2.1`; `example.com#500000us` for a group. Each key has a
    /// different text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            KeyScope::Host(host) => write!(f, "{host}")?,
            KeyScope::Site(site) => write!(f, "site={site}")?,
            KeyScope::Address(address) => write!(f, "address={}", Host::Ip(*address))?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))?;
        self.group.map_or(Ok(()), |micros| write!(f, "#{micros}us"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(by: KeyBy, url: &str, dialled: Option<&str>) -> String {
        let dialled = dialled.map(|address| address.parse().unwrap());
        let key = PaceKey::new(by, &Authority::from_url(url).unwrap(), dialled);
        assert_eq!(PaceKey::from_text(&key.to_string()).as_ref(), Some(&key), "the text is parsed to the same key");
        let group = key.of_group(Duration::from_millis(500));
        assert_eq!((PaceKey::from_text(&group.to_string()), group.of_all()), (Some(group.clone()), key.clone()));
        for other in [url, "http://example.com", "https://www.example.co.uk:81", "http://[::1]:8080"] {
            let other = Authority::from_url(other).unwrap();
            for by in [KeyBy::Host, KeyBy::Site, KeyBy::Address] {
                assert_eq!(key.is_of(by, &other, dialled), key == PaceKey::new(by, &other, dialled), "{key} {other}");
            }
        }
        key.to_string()
    }

    #[test]
    fn invalid_keys_are_refused() {
        for text in ["", "a:b", "a#b", "a#1", "address=a.example", "[::1", "a b"] {
            assert_eq!(PaceKey::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn default_ports_of_http_and_https_share_a_key() {
        for url in ["http://example.com", "https://example.com", "http://EXAMPLE.com.:80", "https://example.com:443"] {
            assert_eq!(key(KeyBy::Host, url, None), "example.com");
        }
    }

    #[test]
    fn other_ports_and_hosts_have_their_own_keys() {
        assert_eq!(key(KeyBy::Host, "http://example.com:8080", None), "example.com:8080");
        assert_eq!(key(KeyBy::Host, "https://example.com:80", None), "example.com:80");
        assert_eq!(key(KeyBy::Host, "http://www.example.com", None), "www.example.com");
        assert_eq!(key(KeyBy::Host, "http://[::1]:8080", None), "[::1]:8080");
    }

    #[test]
    fn hosts_of_one_site_share_a_key() {
        assert_eq!(key(KeyBy::Site, "https://a.b.example.co.uk", None), "site=example.co.uk");
        assert_eq!(key(KeyBy::Site, "http://example.co.uk", None), "site=example.co.uk");
        assert_eq!(key(KeyBy::Site, "http://example.co.uk:81", None), "site=example.co.uk:81");
        assert_eq!(key(KeyBy::Site, "http://someone.github.io", None), "site=someone.github.io");
    }

    #[test]
    fn host_without_a_site_has_a_host_key() {
        assert_eq!(key(KeyBy::Site, "http://co.uk", None), "co.uk");
        assert_eq!(key(KeyBy::Site, "http://localhost", None), "localhost");
        assert_eq!(key(KeyBy::Site, "http://192.0.2.1", None), "192.0.2.1");
    }

    #[test]
    fn hosts_on_one_address_share_a_key() {
        for (url, dialled) in [
            ("http://a.example", "192.0.2.1"),
            ("https://b.example", "192.0.2.1"),
            ("https://c.example", "::ffff:192.0.2.1"),
        ] {
            assert_eq!(key(KeyBy::Address, url, Some(dialled)), "address=192.0.2.1");
        }
        assert_eq!(key(KeyBy::Address, "http://192.0.2.1", None), "address=192.0.2.1");
        assert_eq!(key(KeyBy::Address, "http://a.example:81", Some("2001:db8::1")), "address=[2001:db8::1]:81");
        assert_eq!(key(KeyBy::Address, "http://a.example", None), "a.example", "the dialled address is unknown");
    }
}
