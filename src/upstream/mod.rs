//! The way to an origin: its addresses, vetted; how it is connected to. Called by `gate` for robots.txt and by `proxy`
//! for everything else, so that one guard covers both.

pub mod egress;
mod peer;
mod resolve;
mod words;

pub use peer::connector_conf;
pub use resolve::ResolveError;
pub use words::words;

use crate::config::{Closed, PortRange, Settings};
use crate::policy::{Authority, HostPattern};
use arc_swap::ArcSwap;
use egress::{Denied, Guard};
use ipnet::IpNet;
use pingora::prelude::HttpPeer;
use resolve::Resolver;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// Resolves, screens and describes origins.
pub struct Upstream {
    resolver: Resolver,
    reach: ArcSwap<Reach>,
    /// Where this proxy itself listens.
    listeners: Vec<SocketAddr>,
}

/// What the settings say of it, swapped whole on reload.
struct Reach {
    guard: Guard,
    dial: peer::Dial,
}

/// Why an authority cannot be dialled.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

impl Upstream {
    /// `listeners`: where this proxy itself listens.
    pub fn new(settings: &Settings, listeners: Vec<SocketAddr>) -> Self {
        let reach = ArcSwap::from_pointee(Reach::new(settings, &listeners));
        Upstream { resolver: Resolver::new(), reach, listeners }
    }

    /// Takes up changed settings.
    pub fn reload(&self, settings: &Settings) {
        self.reach.store(Arc::new(Reach::new(settings, &self.listeners)));
    }

    /// The addresses that may be dialled for the authority, best first. A denied address is left out; if none is
    /// left, the authority is denied.
    pub async fn reach(&self, authority: &Authority) -> Result<Arc<[SocketAddr]>, ReachError> {
        let reach = self.reach.load_full();
        reach.guard.screen_host(authority.host(), authority.port())?;
        let found = self.resolver.lookup(authority.host()).await?;
        let sockets = found.iter().map(|&address| SocketAddr::new(address, authority.port()));
        let mut denied = None;
        let mut vetted = Vec::with_capacity(found.len());
        for socket in sockets {
            match self.screen(&reach.guard, socket) {
                Ok(()) => vetted.push(socket),
                // Another address of the name may be open, but never one where we listen.
                Err(own @ Denied::OwnListener(_)) => return Err(own.into()),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        match denied {
            Some(why) if vetted.is_empty() => Err(why.into()),
            Some(_) | None => Ok(vetted.into()),
        }
    }

    /// How to connect there. `h1`: only HTTP/1.1 will do, as for an upgrade.
    pub fn peer(&self, authority: &Authority, address: SocketAddr, h1: bool) -> HttpPeer {
        self.reach.load().dial.peer(authority, address, h1)
    }

    fn screen(&self, guard: &Guard, socket: SocketAddr) -> Result<(), Denied> {
        // Listening on the unspecified address is listening on every address of this machine.
        let everywhere = |own: &&SocketAddr| own.ip().is_unspecified() && own.port() == socket.port();
        if self.listeners.iter().any(|own| everywhere(&own)) && is_local(socket.ip()) {
            return Err(Denied::OwnListener(socket));
        }
        guard.screen_socket(socket)
    }
}

impl Reach {
    fn new(settings: &Settings, listeners: &[SocketAddr]) -> Self {
        let egress = &settings.egress;
        let guard = Guard {
            allow: egress.allow.iter().map(|network| network.0).collect(),
            deny: egress.deny.iter().filter_map(network).collect(),
            deny_hosts: egress.deny.iter().filter_map(host).collect(),
            ports: egress.ports.iter().map(|&PortRange { first, last }| first..=last).collect(),
            listeners: listeners.to_vec(),
        };
        Reach { guard, dial: peer::Dial::new(&settings.limits) }
    }
}

fn network(closed: &Closed) -> Option<IpNet> {
    match closed {
        Closed::Network(network) => Some(network.0),
        Closed::Host(_) => None,
    }
}

fn host(closed: &Closed) -> Option<HostPattern> {
    match closed {
        Closed::Host(pattern) => Some(pattern.clone()),
        Closed::Network(_) => None,
    }
}

/// An address of this machine: only there can a socket be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Scheme;

    const PUBLIC: &str = "198.41.0.4";

    fn upstream(yaml: &str) -> Upstream {
        Upstream::new(&Settings::parse("test.yaml", yaml).unwrap(), vec!["127.0.0.1:80".parse().unwrap()])
    }

    async fn reached(upstream: &Upstream, addresses: &[&str]) -> Result<Vec<String>, String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        upstream.resolver.remember("rebind.example", &addresses);
        let authority = Authority::new(Scheme::Https, "rebind.example", None).unwrap();
        let reached = upstream.reach(&authority).await.map_err(|error| error.to_string())?;
        Ok(reached.iter().map(ToString::to_string).collect())
    }

    /// Public at first, loopback the next time: each answer is screened, and what is dialled is what was screened.
    #[tokio::test]
    async fn a_name_that_changes_its_address_is_screened_anew() {
        let upstream = upstream("");
        assert_eq!(reached(&upstream, &[PUBLIC]).await.unwrap(), ["198.41.0.4:443"]);
        for private in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            assert!(reached(&upstream, &[private]).await.is_err(), "{private}");
        }
        assert!(reached(&upstream, &[PUBLIC]).await.is_ok());
    }

    #[tokio::test]
    async fn of_several_addresses_only_the_open_ones_are_dialled() {
        let upstream = upstream("");
        let mixed = ["10.0.0.1", PUBLIC, "::1", "169.254.169.254"];
        assert_eq!(reached(&upstream, &mixed).await.unwrap(), ["198.41.0.4:443"]);
    }

    #[tokio::test]
    async fn an_address_of_our_own_closes_the_name() {
        let upstream = upstream("egress: { allow: [127.0.0.0/8], ports: [80] }");
        upstream.resolver.remember("rebind.example", &[PUBLIC.parse().unwrap(), "127.0.0.1".parse().unwrap()]);
        let authority = Authority::new(Scheme::Http, "rebind.example", None).unwrap();
        let denied = upstream.reach(&authority).await.unwrap_err();
        assert!(matches!(denied, ReachError::Denied(Denied::OwnListener(_))), "{denied}");
    }
}
