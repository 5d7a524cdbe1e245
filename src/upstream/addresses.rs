//! The addresses that may be dialled for an authority.

use super::Upstream;
use super::egress::{self, Denied, Guard};
use super::reach_error::ReachError;
use super::upstream_proxy::UpstreamProxy;
use crate::policy::Authority;
use crate::policy::pace::ClientId;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

impl Upstream {
    /// The addresses of the origin that may be dialled, best first.
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
                // Another address of the name may be allowed, but never one where we listen.
                Err(own @ Denied::OwnListener(_)) => return Err(own.into()),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        match denied {
            Some(why) if vetted.is_empty() => Err(why.into()),
            Some(_) | None => Ok((found, vetted.into())),
        }
    }

    /// Screens the addresses known for an origin behind an upstream proxy. That proxy resolves names itself, and may know names that
    /// this machine does not. If a name resolves here, all its addresses must be allowed, as the upstream proxy may use any of them.
    pub(super) async fn screen_what_is_known(
        &self,
        guard: &Guard,
        authority: &Authority,
        client: Option<ClientId>,
    ) -> Result<(), ReachError> {
        let Ok(found) = self.resolver.lookup_within(authority.host(), client, LOOK).await else { return Ok(()) };
        let mut sockets = found.iter().map(|&address| SocketAddr::new(address, authority.port()));
        sockets.try_for_each(|socket| screen(guard, socket)).map_err(ReachError::from)
    }

    /// The addresses of the upstream proxy. The operator configured it, so that any address but our own is allowed.
    pub(super) async fn proxy(
        &self,
        guard: &Guard,
        upstream_proxy: &UpstreamProxy,
    ) -> Result<(Arc<[IpAddr]>, Arc<[SocketAddr]>), ReachError> {
        let found = self.resolver.lookup(upstream_proxy.at.host(), None).await?;
        let sockets: Arc<[SocketAddr]> =
            found.iter().map(|&it| SocketAddr::new(it, upstream_proxy.at.port())).collect();
        match sockets.iter().find(|&&socket| is_own(guard, socket)) {
            Some(&own) => Err(Denied::OwnListener(own).into()),
            None => Ok((found, sockets)),
        }
    }
}

fn screen(guard: &Guard, socket: SocketAddr) -> Result<(), Denied> {
    if is_own(guard, socket) { Err(Denied::OwnListener(socket)) } else { guard.screen_socket(socket) }
}

fn is_own(guard: &Guard, socket: SocketAddr) -> bool {
    let reached = |own: &SocketAddr| {
        // Listening on the unspecified address is listening on every address of this machine.
        let everywhere = own.ip().is_unspecified() && own.port() == socket.port();
        egress::is_reached_by(own, socket) || everywhere && is_local(socket.ip())
    };
    guard.listeners.iter().any(reached)
}

/// Whether the address belongs to this machine: only then can a socket be bound to it.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Time for resolving a name that the upstream proxy will resolve itself.
const LOOK: Duration = Duration::from_secs(2);
