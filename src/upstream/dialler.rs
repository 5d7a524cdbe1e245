//! What all routes share: idle connections, addresses that failed, and counts.

use super::dial_error::DialError;
use super::pool::Pool;
use super::race::FailedAddresses;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// State of the connections of all routes.
#[derive(Default)]
pub(super) struct Dialler {
    pub pool: Arc<Pool>,
    pub failed: FailedAddresses,
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

    /// Counts a connection that was opened, or failed.
    pub fn count(&self, is_tls: bool, error: Option<&DialError>) {
        self.counts.opened[usize::from(error.is_some())].fetch_add(1, Relaxed);
        if is_tls && error.is_none_or(|error| error.kind.is_of_tls()) {
            self.counts.handshakes[usize::from(error.is_some())].fetch_add(1, Relaxed);
        }
    }
}

/// Minimum number of idle connections to close when descriptors run out.
const MAKE_ROOM: usize = 16;
