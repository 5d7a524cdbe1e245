//! Concurrency limits by client: connections by address and by user, waiting requests by user.

use super::members::LOOK_AGAIN;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tokio::time::Instant;

/// Counts of uses (connections or waiting requests) by client.
pub struct Clients<K: Hash + Eq>(Arc<Mutex<HashMap<K, Uses>>>);

struct Uses {
    count: usize,
    /// Time of the last failed search for a connection that makes room.
    was_full: Option<Instant>,
}

/// One counted use, released on drop.
pub struct Place<K: Hash + Eq> {
    client: K,
    clients: Arc<Mutex<HashMap<K, Uses>>>,
}

impl<K: Hash + Eq> Default for Clients<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Hash + Eq + Clone> Clients<K> {
    /// Takes a place. `None`: the client has reached `limit`.
    pub fn enter(&self, client: K, limit: usize) -> Option<Place<K>> {
        let mut clients = self.0.lock();
        match clients.get_mut(&client) {
            Some(uses) if uses.count >= limit => return None,
            Some(uses) => uses.count += 1,
            None if limit == 0 => return None,
            None => drop(clients.insert(client.clone(), Uses { count: 1, was_full: None })),
        }
        Some(Place { client, clients: self.0.clone() })
    }

    /// Like [`enter`](Self::enter). At the limit, `makes_room` asks another connection to end soon; until it does, the client may have up
    /// to twice `limit` places. `makes_room` scans all connections, so after a failure it is not called again within [`LOOK_AGAIN`].
    pub fn enter_or(&self, client: K, limit: usize, makes_room: impl FnOnce() -> bool) -> Option<Place<K>> {
        let place = self.enter(client.clone(), limit);
        if place.is_some() || self.0.lock().get(&client).is_some_and(Uses::are_full) {
            return place;
        }
        let place = self.enter(client, limit.saturating_mul(2))?;
        if makes_room() {
            return Some(place);
        }
        if let Some(uses) = self.0.lock().get_mut(&place.client) {
            uses.was_full = Some(Instant::now());
        }
        None
    }
}

impl Uses {
    fn are_full(&self) -> bool {
        self.was_full.is_some_and(|at| at.elapsed() < LOOK_AGAIN)
    }
}

impl<K: Hash + Eq> Place<K> {
    /// The client that the place counts for.
    pub fn client(&self) -> &K {
        &self.client
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if let Some(uses) = clients.get_mut(&self.client) {
            uses.count -= 1;
            if uses.count == 0 {
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
    use std::cell::Cell;

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

    /// The search for room scans all connections, so it must be rare.
    #[tokio::test(start_paused = true)]
    async fn repeated_refusals_search_for_room_once() {
        let (clients, looks) = (Clients::default(), Cell::new(0));
        let enter = |is_found| {
            let look = || {
                looks.set(looks.get() + 1);
                is_found
            };
            clients.enter_or("alice", 2, look)
        };
        let held = [enter(false), enter(false)];
        assert!((0..100_000).all(|_| enter(false).is_none()));
        assert_eq!(looks.get(), 1);
        tokio::time::advance(LOOK_AGAIN).await;
        let more = [enter(true), enter(true)];
        assert!(more.iter().chain(&held).all(Option::is_some) && enter(true).is_none());
        assert_eq!(looks.get(), 3, "no search right after a failed search");
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
