//! Opens connections to the best address, and counts them.

use super::dial_error::{DialError, DialFault};
use super::hop::{DialProgress, Hop};
use super::pool::Pool;
use super::race::FailedAddresses;
use super::stream::Stream;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// Opens connections for all routes.
#[derive(Default)]
pub(super) struct Dialler {
    pub pool: Arc<Pool>,
    failed: FailedAddresses,
    counts: DialCounts,
}

/// Totals since the start.
#[derive(Default)]
struct DialCounts {
    /// Connections: opened, failed.
    opened: [AtomicU64; 2],
    /// TLS handshakes: succeeded, failed.
    handshakes: [AtomicU64; 2],
}

impl Dialler {
    /// Opens a connection. If this machine is at its limits, closes idle connections and retries once. `first`: the address to try
    /// before the others.
    pub async fn open(
        &self,
        hop: &Hop,
        addresses: &[SocketAddr],
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let deadline = Instant::now() + hop.limit;
        let opened = match self.by_any_address(hop, addresses, first, deadline).await {
            Err(error) if error.kind == DialFault::OwnLimit => {
                self.close_idle();
                yield_now().await;
                self.by_any_address(hop, addresses, first, deadline).await
            }
            opened => opened,
        };
        self.count(hop.tls.is_some(), opened.as_ref().err());
        opened
    }

    /// The address that would be tried first.
    pub fn first(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        self.failed.first(addresses)
    }

    /// Makes room if this machine is at its limits: closes the oldest quarter of the idle connections. Returns how many.
    pub fn close_idle(&self) -> usize {
        self.pool.close_oldest((self.pool.idle() / 4).max(MAKE_ROOM))
    }

    /// Totals of connections (opened, failed) and of TLS handshakes (succeeded, failed).
    pub fn counts(&self) -> [[u64; 2]; 2] {
        [&self.counts.opened, &self.counts.handshakes].map(|counts| counts.each_ref().map(|count| count.load(Relaxed)))
    }

    fn count(&self, is_tls: bool, error: Option<&DialError>) {
        self.counts.opened[usize::from(error.is_some())].fetch_add(1, Relaxed);
        if is_tls && error.is_none_or(|error| error.kind.is_of_tls()) {
            self.counts.handshakes[usize::from(error.is_some())].fetch_add(1, Relaxed);
        }
    }

    async fn by_any_address(
        &self,
        hop: &Hop,
        addresses: &[SocketAddr],
        first: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let mut addresses = self.failed.order(addresses, first);
        let mut failure = None;
        loop {
            let progress = DialProgress::default();
            let opened = timeout_at(deadline, hop.dial(&addresses, &self.failed, &progress)).await;
            let error = match opened.unwrap_or_else(|_| Err(hop.too_slow(&progress))) {
                Ok(stream) => return Ok((stream, progress.reached.get().copied().unwrap_or(addresses[0]))),
                Err(error) => error,
            };
            // A failure after TCP connected is specific to this address: another one may work.
            let Some(&address) = progress.reached.get().filter(|_| may_differ(error.kind)) else {
                return Err(failure.unwrap_or(error));
            };
            self.failed.note(address);
            addresses.retain(|&it| it != address);
            // The first failure is the preferred address's, which is the most informative.
            let error = failure.unwrap_or(error);
            if addresses.is_empty() || deadline <= Instant::now() {
                return Err(error);
            }
            failure = Some(error);
        }
    }
}

/// Whether another address may succeed.
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
        | DialFault::Busy
        | DialFault::OwnLimit => false,
    }
}

/// Minimum number of idle connections to close when descriptors run out.
const MAKE_ROOM: usize = 16;
