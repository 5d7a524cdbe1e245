//! The way to an origin: its addresses, vetted; how it is connected to. Called by `gate` for robots.txt and by `proxy`
//! for everything else, so that one guard covers both.

pub mod egress;
mod peer;
mod resolve;
mod words;

pub use peer::connector_conf;
pub use resolve::ResolveError;
pub use words::words;

use crate::config::Settings;
use crate::policy::{Authority, EgressReason};
use arc_swap::ArcSwap;
use egress::Guard;
use pingora::prelude::HttpPeer;
use resolve::Resolver;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Resolves, screens and describes origins.
pub struct Upstream {
    resolver: Resolver,
    reach: ArcSwap<Reach>,
    /// Where this proxy itself listens.
    own: Vec<SocketAddr>,
}

/// What the settings say of it, swapped whole on reload.
struct Reach {
    guard: Guard,
    dial: peer::Dial,
}

/// Why an authority cannot be dialled.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error("{0}")]
    Denied(EgressReason),
    /// It is one of our own listeners.
    #[error("the address is this proxy's own")]
    Own,
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

impl Upstream {
    pub fn new(settings: &Settings, own: Vec<SocketAddr>) -> Self {
        Upstream { resolver: Resolver::new(), reach: ArcSwap::from_pointee(Reach::new(settings)), own }
    }

    /// Takes up changed settings.
    pub fn reload(&self, settings: &Settings) {
        self.reach.store(Arc::new(Reach::new(settings)));
    }

    /// The addresses that may be dialled for the authority, best first. A denied address is left out; if none is
    /// left, the authority is denied.
    pub async fn reach(&self, authority: &Authority) -> Result<Arc<[SocketAddr]>, ReachError> {
        let found = self.resolver.lookup(authority.host()).await;
        let sockets = || found.iter().flat_map(|found| found.iter());
        if sockets().any(|&address| self.is_own(SocketAddr::new(address, authority.port()))) {
            return Err(ReachError::Own);
        }
        let reach = self.reach.load();
        reach.guard.screen_port(authority.port()).map_err(ReachError::Denied)?;
        let found = found?;
        let mut denied = None;
        let mut vetted = Vec::with_capacity(found.len());
        for &address in found.iter() {
            match reach.guard.screen(address) {
                Ok(()) => vetted.push(SocketAddr::new(address, authority.port())),
                Err(why) => denied = Some(why),
            }
        }
        match denied {
            Some(why) if vetted.is_empty() => Err(ReachError::Denied(why)),
            Some(_) | None => Ok(vetted.into()),
        }
    }

    /// How to connect there. `h1`: only HTTP/1.1 will do, as for an upgrade.
    pub fn peer(&self, authority: &Authority, address: SocketAddr, h1: bool) -> HttpPeer {
        self.reach.load().dial.peer(authority, address, h1)
    }

    /// Whether a request to this address would come back to this proxy.
    fn is_own(&self, address: SocketAddr) -> bool {
        self.own.iter().any(|own| {
            let same = own.ip() == address.ip() || (own.ip().is_unspecified() && is_local(address.ip()));
            own.port() == address.port() && same
        })
    }
}

impl Reach {
    fn new(settings: &Settings) -> Self {
        Reach { guard: Guard::new(&settings.egress), dial: peer::Dial::new(&settings.limits) }
    }
}

/// An address of this machine: only there can a socket be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || std::net::UdpSocket::bind((address, 0)).is_ok()
}
