//! What all routes share: idle connections, addresses that failed, and counts.

use super::dial_error::DialError;
use super::pool::Pool;
use super::race::FailedAddresses;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// State of the connections of all routes.
#[derive(Default)]
pub(super) struct Dialler {
    pub pool: Arc<Pool>,
    pub failed: FailedAddresses,
    /// Totals since the start, of connections (opened, failed) and of TLS handshakes (succeeded, failed).
    counts: [[AtomicU64; 2]; 2],
}

impl Dialler {
    /// Makes room if this machine is at its limits: closes the oldest quarter of the idle connections, and at least [`MAKE_ROOM`]. Returns
    /// how many were closed.
    pub fn close_idle(&self) -> usize {
        self.pool.close_oldest((self.pool.idle() / 4).max(MAKE_ROOM))
    }

    /// Totals of connections (opened, failed) and of TLS handshakes (succeeded, failed).
    pub fn counts(&self) -> [[u64; 2]; 2] {
        self.counts.each_ref().map(|counts| counts.each_ref().map(|count| count.load(Relaxed)))
    }

    /// Counts a connection that was opened, or failed.
    pub fn count(&self, is_tls: bool, error: Option<&DialError>) {
        let [connections, handshakes] = self.counts.each_ref().map(|counts| &counts[usize::from(error.is_some())]);
        connections.fetch_add(1, Relaxed);
        if is_tls && error.is_none_or(|error| error.kind.is_of_tls()) {
            handshakes.fetch_add(1, Relaxed);
        }
    }
}

/// Minimum number of idle connections to close when descriptors run out.
const MAKE_ROOM: usize = 16;
