//! Opens connections: TCP to the best address, by way of the upstream proxy if there is one, and TLS over it. TLS on the
//! terms of all origins is pingora's; where a host has terms of its own, and with the proxy itself, it is `hop`'s.

use super::dial_error::{DialError, DialFault};
use super::hop::Hop;
use super::pool::Pool;
use super::race::FailedAddresses;
use super::stream::Stream;
use async_trait::async_trait;
use pingora_core::connectors::{ConnectorOptions, L4Connect, TransportConnector};
use pingora_core::protocols::ALPN;
use pingora_core::protocols::l4::socket::SocketAddr as PingoraAddress;
use pingora_core::protocols::l4::stream::Stream as PingoraStream;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::{Peer, PeerOptions};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// What all routes open their connections with.
pub(super) struct Dialler {
    connector: TransportConnector,
    pub pool: Arc<Pool>,
    failed: Arc<FailedAddresses>,
    counts: Arc<DialCounts>,
}

/// Of all that there were since the start.
#[derive(Default)]
struct DialCounts {
    /// Connections that were opened, and those that could not be.
    opened: [AtomicU64; 2],
    /// TLS handshakes: good ones, and others.
    handshakes: [AtomicU64; 2],
}

impl Dialler {
    /// `before`: the one whose place this takes, and whose counts go on.
    pub fn new(conf: &ServerConf, before: Option<&Self>) -> Self {
        let connector = TransportConnector::new(Some(ConnectorOptions::from_server_conf(conf)));
        let failed = Arc::new(FailedAddresses::new());
        let counts = before.map(|before| before.counts.clone()).unwrap_or_default();
        Dialler { connector, pool: Arc::default(), failed, counts }
    }

    /// A new connection. Where this machine is at its limits, idle ones are closed to make room, once. `offers`: for TLS with the
    /// origin on the terms of all, over what the hop makes. `first`: the address to try before the others.
    pub async fn open(
        &self,
        hop: &Hop,
        offers: Option<ALPN>,
        addresses: &[SocketAddr],
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let opened = match self.by_any_address(hop, offers.as_ref(), addresses, first).await {
            Err(error) if error.kind == DialFault::OwnLimit => {
                self.close_idle();
                yield_now().await;
                self.by_any_address(hop, offers.as_ref(), addresses, first).await
            }
            opened => opened,
        };
        self.count(offers.is_some() || hop.tls.is_some(), opened.as_ref().err());
        opened
    }

    /// The one of these that is tried first.
    pub fn first(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        self.failed.first(addresses)
    }

    /// Makes room where this machine is at its limits: a quarter of the idle connections go, the oldest. How many.
    pub fn close_idle(&self) -> usize {
        self.pool.close_oldest((self.pool.idle() / 4).max(MAKE_ROOM))
    }

    /// Connections that were opened and those that could not be; TLS handshakes, good ones and others.
    pub fn counts(&self) -> [[u64; 2]; 2] {
        [&self.counts.opened, &self.counts.handshakes].map(|counts| counts.each_ref().map(|count| count.load(Relaxed)))
    }

    fn count(&self, is_tls: bool, error: Option<&DialError>) {
        self.counts.opened[usize::from(error.is_some())].fetch_add(1, Relaxed);
        let of_tls = [DialFault::Certificate, DialFault::Alert, DialFault::Alpn, DialFault::Tls];
        if is_tls && error.is_none_or(|error| of_tls.contains(&error.kind)) {
            self.counts.handshakes[usize::from(error.is_some())].fetch_add(1, Relaxed);
        }
    }

    async fn by_any_address(
        &self,
        hop: &Hop,
        offers: Option<&ALPN>,
        addresses: &[SocketAddr],
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let mut addresses = self.failed.order(addresses, first);
        let mut failure = None;
        let deadline = Instant::now() + hop.limit;
        loop {
            let reached = Arc::new(OnceLock::new());
            let opened = timeout_at(deadline, self.by_one_of(hop, offers, &addresses, &reached)).await;
            let error = match opened.unwrap_or_else(|_| Err(hop.too_slow())) {
                Ok(stream) => return Ok((stream, reached.get().copied().unwrap_or(addresses[0]))),
                Err(error) => error,
            };
            // What came after TCP may be otherwise at another address.
            let Some(&address) = reached.get().filter(|_| may_differ(error.kind)) else {
                return Err(failure.unwrap_or(error));
            };
            self.failed.note(address);
            addresses.retain(|&it| it != address);
            // The first failure is the preferred address's: it says most.
            let error = failure.unwrap_or(error);
            if addresses.is_empty() || deadline <= Instant::now() {
                return Err(error);
            }
            failure = Some(error);
        }
    }

    async fn by_one_of(
        &self,
        hop: &Hop,
        offers: Option<&ALPN>,
        addresses: &[SocketAddr],
        reached: &Arc<OnceLock<SocketAddr>>,
    ) -> Result<Stream, DialError> {
        let Some(offers) = offers else { return hop.dial(addresses, &self.failed, reached).await };
        let approach = Approach {
            hop: hop.clone(),
            addresses: addresses.to_vec(),
            failed: self.failed.clone(),
            reached: reached.clone(),
        };
        let mut options = PeerOptions::new();
        options.alpn = offers.clone();
        options.custom_l4 = Some(Arc::new(approach));
        // It must not be empty: pingora would then verify nothing.
        let name = hop.authority.host().ip().map_or_else(|| hop.authority.host().to_string(), |ip| ip.to_string());
        let peer = DialPeer { address: PingoraAddress::Inet(addresses[0]), name, options };
        let stream = self.connector.new_stream(&peer).await.map_err(|error| DialError::from(&*error))?;
        Ok(Stream::Pingora(stream))
    }
}

/// Whether another address may be better.
fn may_differ(kind: DialFault) -> bool {
    match kind {
        DialFault::Refused
        | DialFault::Unroutable
        | DialFault::TimedOut
        | DialFault::Ended
        | DialFault::Tls
        | DialFault::Malformed
        | DialFault::Declined
        | DialFault::DeclinedInTime => true,
        DialFault::Certificate
        | DialFault::Alert
        | DialFault::Alpn
        | DialFault::Credentials
        | DialFault::Loop
        | DialFault::OwnLimit => false,
    }
}

/// What TLS is spoken over.
struct Approach {
    hop: Hop,
    addresses: Vec<SocketAddr>,
    failed: Arc<FailedAddresses>,
    reached: Arc<OnceLock<SocketAddr>>,
}

#[async_trait]
impl L4Connect for Approach {
    /// To the best of our addresses: the one that pingora knows is the first of them.
    async fn connect(&self, _: &PingoraAddress) -> pingora_core::Result<PingoraStream> {
        Ok(self.hop.dial(&self.addresses, &self.failed, &self.reached).await?.into())
    }
}

impl fmt::Debug for Approach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approach").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// An origin as pingora sees it.
#[derive(Clone)]
struct DialPeer {
    address: PingoraAddress,
    name: String,
    options: PeerOptions,
}

impl Peer for DialPeer {
    fn address(&self) -> &PingoraAddress {
        &self.address
    }

    fn tls(&self) -> bool {
        true
    }

    fn sni(&self) -> &str {
        &self.name
    }

    /// Its pool is not used.
    fn reuse_hash(&self) -> u64 {
        0
    }

    /// Never `None`: that would switch verification off.
    fn get_peer_options(&self) -> Option<&PeerOptions> {
        Some(&self.options)
    }
}

impl fmt::Display for DialPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// pingora's own configuration: the roots to verify origins against.
pub fn connector_conf(roots: &Path, threads: usize) -> ServerConf {
    ServerConf { threads, ca_file: Some(roots.display().to_string()), ..ServerConf::default() }
}

/// Idle connections that are closed at least where there is no descriptor left.
const MAKE_ROOM: usize = 16;
