//! Connections that pass unread, for hosts whose policy is `tunnel`: screened and paced as a whole. Called by `connect`.

use super::Proxy;
use super::downstream::Downstream;
use super::failure::Failure;
use crate::gate::Permit;
use crate::policy::{Authority, Refusal};
use crate::upstream::ReachError;
use std::net::IpAddr;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why there is no way through.
pub(super) enum Closed {
    Refused(Refusal),
    Failed(Failure),
}

/// A connection to the origin, and the turn it takes up while it lasts.
pub(super) struct Way {
    origin: TcpStream,
    _permit: Permit,
}

/// Connects first, so that a failure is an answer and not an end.
pub(super) async fn open(proxy: &Proxy, authority: &Authority, client: IpAddr) -> Result<Way, Closed> {
    let addresses = match proxy.upstream.reach(authority).await {
        Ok(addresses) => addresses,
        Err(ReachError::Denied(denied)) => return Err(Closed::Refused(denied.into())),
        Err(ReachError::Resolve(error)) => return Err(Closed::Failed(Failure::from_resolve(&error))),
    };
    let to = addresses.first().map(|address| address.ip());
    let mut permit = proxy.gate.admit_connection(authority, to, client).await.map_err(Closed::Refused)?;
    let limit = proxy.settings.load().limits.connect_timeout;
    let mut failure = std::io::Error::from(std::io::ErrorKind::TimedOut);
    for address in addresses.iter() {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(origin)) => {
                let _ = origin.set_nodelay(true);
                permit.leaves();
                return Ok(Way { origin, _permit: permit });
            }
            Ok(Err(error)) => failure = error,
            Err(_) => {}
        }
    }
    Err(Closed::Failed(Failure::from_io(&failure)))
}

/// Copies both ways until both are done. A stop of the proxy ends it with the connection's task.
pub(super) async fn run(mut client: Box<Downstream>, way: Way) {
    let Way { mut origin, _permit } = way;
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut origin).await {
        tracing::debug!(%error, "tunnel ended");
    }
}
