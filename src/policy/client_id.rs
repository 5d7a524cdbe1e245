//! Identifies clients, among which requests take turns. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

/// The client that a request counts for in the round robin: a hash of the user name or address. Clients with the same hash count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The common client of all fetches of files on this host to which other hosts redirect or link. The host's own requests go first.
    pub const GUESTS: Self = Self(u64::MAX - 2);

    /// The client of a request: the user if there is one, otherwise the address; in IPv6 the /64 network, as each machine usually has a
    /// whole /64.
    pub fn of(user: Option<&str>, address: IpAddr) -> Self {
        let mut hasher = DefaultHasher::new();
        match (user, address.to_canonical()) {
            (Some(user), _) => user.hash(&mut hasher),
            (None, IpAddr::V4(address)) => return Self(1 << 32 | u64::from(address.to_bits())),
            (None, IpAddr::V6(address)) => ((address.to_bits() >> 64) as u64).hash(&mut hasher),
        }
        Self(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_id_is_the_user_or_the_address_or_its_ipv6_64_network() {
        let of = |user, address: &str| ClientId::of(user, address.parse().unwrap());
        assert_eq!(of(None, "2001:db8::1"), of(None, "2001:db8::2"));
        assert_ne!(of(None, "2001:db8::1"), of(None, "2001:db8:0:1::1"));
        assert_eq!(of(None, "::ffff:192.0.2.1"), of(None, "192.0.2.1"));
        assert_ne!(of(None, "192.0.2.2"), of(None, "192.0.2.1"));
        assert_eq!(of(Some("alice"), "192.0.2.2"), of(Some("alice"), "2001:db8::1"));
        assert_ne!(of(Some("alice"), "192.0.2.1"), of(Some("bob"), "192.0.2.1"));
    }
}
