//! How many connections each client has open. Called by `listener`.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The clients that are connected now.
#[derive(Default)]
pub(super) struct Clients(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection's place among its client's. Given back when it is dropped.
pub(super) struct Place {
    client: IpAddr,
    clients: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Clients {
    /// `None`: this client has `limit` connections already.
    pub fn enter(&self, address: IpAddr, limit: usize) -> Option<Place> {
        let client = client(address);
        let mut clients = self.0.lock();
        let open = clients.entry(client).or_default();
        if *open >= limit {
            return None;
        }
        *open += 1;
        Some(Place { client, clients: self.0.clone() })
    }
}

impl Drop for Place {
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

/// Whom an address stands for: in IPv6 every host has a network of /64 to itself.
pub(super) fn client(address: IpAddr) -> IpAddr {
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
        let (clients, address) = (Clients::default(), "192.0.2.1".parse().unwrap());
        let first = clients.enter(address, 2).unwrap();
        let _second = clients.enter(address, 2).unwrap();
        assert!(clients.enter(address, 2).is_none());
        assert!(clients.enter("192.0.2.2".parse().unwrap(), 2).is_some());
        drop(first);
        assert!(clients.enter(address, 2).is_some());
    }

    #[test]
    fn addresses_of_one_network_of_64_bits_are_one_client() {
        let clients = Clients::default();
        let _place = clients.enter("2001:db8::1".parse().unwrap(), 1).unwrap();
        assert!(clients.enter("2001:db8::2".parse().unwrap(), 1).is_none());
        assert!(clients.enter("2001:db8:0:1::1".parse().unwrap(), 1).is_some());
    }

    #[test]
    fn a_client_that_has_left_takes_up_no_memory() {
        let clients = Clients::default();
        drop(clients.enter("192.0.2.1".parse().unwrap(), 1));
        assert!(clients.0.lock().is_empty());
    }
}
