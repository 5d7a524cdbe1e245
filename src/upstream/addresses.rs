//! Resolution of an authority into the addresses that may be dialled.

use super::Upstream;
use super::egress::{self, Denied, Guard};
use super::reach_error::ReachError;
use super::resolve::ResolveError;
use super::upstream_proxy::UpstreamProxy;
use crate::policy::Authority;
use crate::policy::pace::ClientId;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

impl Upstream {
    /// Resolves the origin. Returns all its addresses, and those to dial, best first.
    pub(super) async fn origin(
        &self,
        guard: &Guard,
        authority: &Authority,
        client: Option<ClientId>,
    ) -> Result<(Arc<[IpAddr]>, Arc<[SocketAddr]>), ReachError> {
        let found = self.resolver.lookup(authority.host(), client).await?;
        let sockets = found.iter().map(|&address| SocketAddr::new(address, authority.port()));
        let mut denied = None;
        let mut vetted = Vec::with_capacity(found.len());
        for socket in sockets {
            match screen(guard, socket) {
                Ok(()) => vetted.push(socket),
                // A name that leads to one of our own listeners is denied, even if its other addresses are allowed.
                Err(own @ Denied::OwnListener(_)) => return Err(own.into()),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        match denied {
            Some(why) if vetted.is_empty() => Err(why.into()),
            Some(_) | None => Ok((found, to_dial(&vetted))),
        }
    }

    /// Screens the addresses of an origin behind an upstream proxy, if its name resolves here: the upstream proxy resolves names itself,
    /// and may know names that this machine does not. All addresses must be allowed, because the upstream proxy may use any of them.
    pub(super) async fn screen_what_is_known(
        &self,
        guard: &Guard,
        authority: &Authority,
        client: Option<ClientId>,
    ) -> Result<(), ReachError> {
        let found = match self.resolver.lookup_within(authority.host(), client, LOOK).await {
            Ok(found) => found,
            // The name was not looked up, so its addresses cannot be screened. A client can cause this by asking for many other names, so
            // the request must fail.
            Err(error @ ResolveError::OwnLimit { .. }) => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        let mut sockets = found.iter().map(|&address| SocketAddr::new(address, authority.port()));
        sockets.try_for_each(|socket| screen(guard, socket)).map_err(ReachError::from)
    }

    /// Like [`origin`](Self::origin), for the upstream proxy. The operator configured it, so any address except our own is allowed.
    pub(super) async fn proxy(
        &self,
        guard: &Guard,
        upstream_proxy: &UpstreamProxy,
    ) -> Result<(Arc<[IpAddr]>, Arc<[SocketAddr]>), ReachError> {
        let found = self.resolver.lookup(upstream_proxy.at.host(), None).await?;
        let sockets: Vec<_> = found.iter().map(|&it| SocketAddr::new(it, upstream_proxy.at.port())).collect();
        match sockets.iter().find(|&&socket| is_own(guard, socket)) {
            Some(&own) => Err(Denied::OwnListener(own).into()),
            None => Ok((found, to_dial(&sockets))),
        }
    }
}

/// The first [`MOST_DIALLED`] addresses, with alternating families (RFC 8305 §4). Without the limit, the owner of a name could
/// make one request connect to thousands of addresses.
fn to_dial(sockets: &[SocketAddr]) -> Arc<[SocketAddr]> {
    let preferred = sockets.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = sockets.iter().partition(|it| it.is_ipv6() == preferred);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let pairs = std::iter::from_fn(|| Some([one.next(), other.next()])).take(sockets.len());
    pairs.flatten().flatten().take(MOST_DIALLED).copied().collect()
}

fn screen(guard: &Guard, socket: SocketAddr) -> Result<(), Denied> {
    if is_own(guard, socket) { Err(Denied::OwnListener(socket)) } else { guard.screen_socket(socket) }
}

fn is_own(guard: &Guard, socket: SocketAddr) -> bool {
    let reached = |own: &SocketAddr| {
        // A listener on the unspecified address listens on every address of this machine.
        let everywhere = own.ip().is_unspecified() && own.port() == socket.port();
        egress::is_reached_by(own, socket) || everywhere && is_local(socket.ip())
    };
    guard.listeners.iter().any(reached)
}

/// Whether the address belongs to this machine: only then can a socket be bound to it.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Maximum number of addresses of a name that are dialled.
const MOST_DIALLED: usize = 16;
/// Time limit for resolving a name that the upstream proxy will resolve itself.
const LOOK: Duration = Duration::from_secs(2);

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const V6: [&str; 3] = ["[2001:db8::1]:80", "[2001:db8::2]:80", "[2001:db8::3]:80"];
    pub const V4: [&str; 2] = ["192.0.2.1:80", "192.0.2.2:80"];

    pub fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn dialled_addresses_alternate_between_families() {
        let found = sockets(&[V6[0], V6[1], V6[2], V4[0], V4[1]]);
        assert_eq!(*to_dial(&found), sockets(&[V6[0], V4[0], V6[1], V4[1], V6[2]]));
        let found = sockets(&[V4[0], V6[0], V6[1]]);
        assert_eq!(*to_dial(&found), sockets(&[V4[0], V6[0], V6[1]]));
        assert!(to_dial(&[]).is_empty());
    }

    #[test]
    fn sixteen_of_thousands_of_addresses_are_dialled_from_both_families() {
        let of_v4 = (0..4000_u32).map(|number| IpAddr::from((0xC612_0000 + number).to_be_bytes()));
        let found: Vec<_> = of_v4.map(|address| SocketAddr::new(address, 80)).chain(sockets(&V6)).collect();
        let dialled = to_dial(&found);
        assert_eq!(dialled.len(), 16);
        assert_eq!(dialled.iter().filter(|it| it.is_ipv6()).count(), 3);
        assert_eq!(dialled[0], found[0]);
    }
}
