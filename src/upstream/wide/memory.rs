//! Remembers for a while which kind of TLS an endpoint speaks. Not for long, because a handshake may have failed once because
//! of the network.

use crate::upstream::dial_error::DialError;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The kind of TLS that one endpoint is known to need. `None` at first, and while rustls works.
#[derive(Debug, Default)]
pub(in crate::upstream) struct TlsMemory(Mutex<Option<Box<TlsSpoken>>>);

#[derive(Debug)]
enum TlsSpoken {
    /// Only OpenSSL works.
    Wide { since: Instant },
    /// Neither rustls nor OpenSSL works at these addresses.
    Neither(Vec<WideRefusal>),
}

/// Why OpenSSL failed recently at one address.
#[derive(Debug)]
struct WideRefusal {
    address: SocketAddr,
    since: Instant,
    error: DialError,
}

impl TlsMemory {
    /// Whether to start with OpenSSL.
    pub fn needs_wide(&self) -> bool {
        matches!(self.0.lock().as_deref(), Some(TlsSpoken::Wide { since }) if since.elapsed() < KEEP_WIDE)
    }

    /// The error with which OpenSSL recently failed at this address, if it did.
    pub fn refusal(&self, address: SocketAddr) -> Option<DialError> {
        let spoken = self.0.lock();
        let Some(TlsSpoken::Neither(refusals)) = spoken.as_deref() else { return None };
        let fresh = refusals.iter().find(|it| it.address == address && it.since.elapsed() < KEEP_REFUSAL)?;
        Some(fresh.error.clone())
    }

    pub fn note_wide(&self) {
        *self.0.lock() = Some(Box::new(TlsSpoken::Wide { since: Instant::now() }));
    }

    pub fn note_refusal(&self, address: SocketAddr, error: DialError) {
        let mut spoken = self.0.lock();
        let mut refusals = match spoken.take().map(|spoken| *spoken) {
            Some(TlsSpoken::Neither(refusals)) => refusals,
            Some(TlsSpoken::Wide { .. }) | None => Vec::new(),
        };
        refusals.retain(|it| it.address != address && it.since.elapsed() < KEEP_REFUSAL);
        refusals.truncate(MOST_REFUSALS - 1);
        refusals.push(WideRefusal { address, since: Instant::now(), error });
        *spoken = Some(Box::new(TlsSpoken::Neither(refusals)));
    }

    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}

const KEEP_WIDE: Duration = Duration::from_secs(3600);
/// How long to remember that neither rustls nor OpenSSL works. Short, because a server that is restarting also rejects both.
const KEEP_REFUSAL: Duration = Duration::from_secs(60);
/// Maximum number of a host's addresses that are remembered.
const MOST_REFUSALS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::DialFault;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn remembered_kind_of_tls_expires() {
        let memory = TlsMemory::default();
        let error = DialError::new(DialFault::Alert, "refused");
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        memory.note_refusal(at(1), error.clone());
        assert_eq!((memory.needs_wide(), memory.refusal(at(1))), (false, Some(error.clone())));
        assert_eq!(memory.refusal(at(2)), None, "another address may support it");
        sleep(KEEP_REFUSAL).await;
        assert_eq!(memory.refusal(at(1)), None);
        (1..=100).for_each(|port| memory.note_refusal(at(port), error.clone()));
        assert_eq!((1..=100).filter(|port| memory.refusal(at(*port)).is_some()).count(), MOST_REFUSALS);
        assert_eq!(memory.refusal(at(100)), Some(error));
        memory.note_wide();
        assert_eq!((memory.needs_wide(), memory.refusal(at(100))), (true, None));
        sleep(KEEP_WIDE).await;
        assert!(!memory.needs_wide());
    }
}
