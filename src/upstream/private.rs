//! Origin connections reserved for one client connection. An origin may have authenticated the connection rather than a request (NTLM,
//! Negotiate), or may confuse a request's body with the next request: its answers must not reach anybody else.

use super::endpoint::{Endpoint, PrivateId};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The reserved origin connections of one client connection and its user. Dropping this closes the idle ones.
pub struct PrivateConnections {
    id: PrivateId,
    /// Whether connection authentication (NTLM, Negotiate) is in use: the client has sent such credentials, or an origin asked for them.
    is_let_in: AtomicBool,
    /// Endpoints that have kept one of these connections idle.
    endpoints: Mutex<Vec<Weak<Endpoint>>>,
}

impl PrivateConnections {
    pub(super) fn id(&self) -> PrivateId {
        self.id
    }

    /// Notes that this client or an origin uses connection authentication.
    pub fn let_in(&self) {
        self.is_let_in.store(true, Relaxed);
    }

    pub(super) fn is_let_in(&self) -> bool {
        self.is_let_in.load(Relaxed)
    }

    /// Notes that this endpoint keeps an idle origin connection reserved for this client connection.
    pub(super) fn note(&self, endpoint: &Arc<Endpoint>) {
        let mut endpoints = self.endpoints.lock();
        if !endpoints.iter().any(|known| known.as_ptr() == Arc::as_ptr(endpoint)) {
            if endpoints.len() == endpoints.capacity() {
                endpoints.retain(|known| known.upgrade().is_some_and(|known| known.private(self.id) > 0));
            }
            endpoints.push(Arc::downgrade(endpoint));
        }
    }

    pub(super) fn may_be_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoints.lock().iter().any(|known| known.as_ptr() == Arc::as_ptr(endpoint))
    }
}

impl Default for PrivateConnections {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        PrivateConnections {
            id: PrivateId(NEXT.fetch_add(1, Relaxed)),
            is_let_in: AtomicBool::new(false),
            endpoints: Mutex::default(),
        }
    }
}

impl Drop for PrivateConnections {
    fn drop(&mut self) {
        for endpoint in self.endpoints.get_mut().iter().filter_map(Weak::upgrade) {
            endpoint.close_private(self.id);
        }
    }
}

impl fmt::Debug for PrivateConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateConnections({})", self.id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::endpoint::Idle;
    use crate::upstream::stream::Stream;
    use std::time::Duration;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    #[tokio::test]
    async fn client_connection_remembers_only_endpoints_with_a_reserved_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let private = PrivateConnections::default();
        let endpoints: Vec<_> = (0..10_000).map(|_| Arc::new(Endpoint::new(Arc::default()))).collect();
        let idle = || async {
            let stream = Stream::Tcp(TcpStream::connect(address).await.unwrap());
            Idle { stream, address, since: Instant::now(), private: Some(private.id()) }
        };
        for (number, endpoint) in endpoints.iter().enumerate() {
            private.note(endpoint);
            // Only one endpoint in a thousand still has its connection.
            if number % 1000 == 0 {
                endpoint.put(idle().await);
                drop(listener.accept().await);
            }
        }
        assert!(private.endpoints.lock().len() < 64, "{}", private.endpoints.lock().len());
        let has = |endpoint: &&Arc<Endpoint>| endpoint.private(private.id()) > 0;
        assert_eq!(endpoints.iter().filter(has).count(), 10);
        let limit = Duration::from_secs(60);
        assert!(
            endpoints[0].take(limit, false, None, None).await.is_none(),
            "the connection is reserved for the client"
        );
        let id = private.id();
        drop(private);
        assert!(!endpoints.iter().any(|endpoint| endpoint.private(id) > 0));
    }
}
