//! Concurrency limits by client: connections by address and by user, waiting requests by user.

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The current count of each client.
pub struct Clients<K: Hash + Eq>(Arc<Mutex<HashMap<K, usize>>>);

/// One counted use, released on drop.
pub struct Place<K: Hash + Eq> {
    client: K,
    clients: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq> Default for Clients<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Hash + Eq + Clone> Clients<K> {
    /// `None`: the client has reached `limit`.
    pub fn enter(&self, client: K, limit: usize) -> Option<Place<K>> {
        let mut clients = self.0.lock();
        match clients.get_mut(&client) {
            Some(open) if *open >= limit => return None,
            Some(open) => *open += 1,
            None if limit == 0 => return None,
            None => drop(clients.insert(client.clone(), 1)),
        }
        Some(Place { client, clients: self.0.clone() })
    }

    /// The same. At the limit, another connection `makes_room` if it can, soon: until then there may be twice as many.
    pub fn enter_or(&self, client: K, limit: usize, makes_room: impl FnOnce() -> bool) -> Option<Place<K>> {
        let place = self.enter(client.clone(), limit);
        place.or_else(|| makes_room().then(|| self.enter(client, limit.saturating_mul(2))).flatten())
    }
}

impl<K: Hash + Eq> Place<K> {
    /// The client it counts for.
    pub fn client(&self) -> &K {
        &self.client
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if let Some(open) = clients.get_mut(&self.client) {
            *open -= 1;
            if *open == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// The client behind an address: in IPv6 its /64 network.
pub fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back() {
        let clients = Clients::default();
        let first = clients.enter("alice", 2).unwrap();
        let _second = clients.enter("alice", 2).unwrap();
        assert!(clients.enter("alice", 2).is_none());
        assert!(clients.enter("bob", 2).is_some());
        drop(first);
        assert!(clients.enter("alice", 2).is_some());
        assert!(clients.enter("carol", 0).is_none());
    }

    #[test]
    fn addresses_of_one_network_of_64_bits_are_one_client() {
        let client = |address: &str| client(address.parse().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
    }

    #[test]
    fn a_client_that_has_left_takes_no_memory() {
        let clients = Clients::default();
        drop(clients.enter("alice", 1));
        assert!(clients.enter("bob", 0).is_none());
        assert!(clients.0.lock().is_empty());
    }
}
