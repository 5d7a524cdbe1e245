//! On what terms a request takes its turn, as configured, and among whom.

use crate::config::Settings;
use crate::policy::pace::{Client, Terms};
use crate::policy::{Authority, PaceKey};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

pub(super) fn terms(settings: &Settings, crawl_delay: Option<Duration>, first_fetch: bool) -> Terms {
    let pace = &settings.pace;
    Terms {
        crawl_delay: crawl_delay.unwrap_or_default(),
        min_delay: pace.min_delay,
        max_crawl_delay: pace.max_crawl_delay,
        max_concurrent: pace.max_concurrent.get(),
        max_wait: pace.max_wait,
        queue: pace.queue,
        max_waiting: pace.max_waiting,
        first_fetch,
        is_renewal: false,
    }
}

/// `dialled`: needed for `pace.key: address` only.
pub(super) fn key(settings: &Settings, authority: &Authority, dialled: Option<IpAddr>) -> PaceKey {
    PaceKey::new(settings.pace.key, authority, dialled)
}

/// Clients are told apart by user, where there is one; else by address, in IPv6 by network: every host has a /64.
pub(super) fn client(user: Option<&str>, address: IpAddr) -> Client {
    let mut hasher = DefaultHasher::new();
    match (user, address.to_canonical()) {
        (Some(user), _) => user.hash(&mut hasher),
        (None, IpAddr::V4(address)) => return Client(1 << 32 | u64::from(address.to_bits())),
        (None, IpAddr::V6(address)) => ((address.to_bits() >> 64) as u64).hash(&mut hasher),
    }
    Client(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_a_user_or_an_address_or_a_network_of_64_bits() {
        let of = |user, address: &str| client(user, address.parse().unwrap());
        assert_eq!(of(None, "2001:db8::1"), of(None, "2001:db8::2"));
        assert_ne!(of(None, "2001:db8::1"), of(None, "2001:db8:0:1::1"));
        assert_eq!(of(None, "::ffff:192.0.2.1"), of(None, "192.0.2.1"));
        assert_ne!(of(None, "192.0.2.2"), of(None, "192.0.2.1"));
        assert_eq!(of(Some("alice"), "192.0.2.2"), of(Some("alice"), "2001:db8::1"));
        assert_ne!(of(Some("alice"), "192.0.2.1"), of(Some("bob"), "192.0.2.1"));
    }
}
