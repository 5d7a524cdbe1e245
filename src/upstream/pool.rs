//! The limits for the idle connections of all endpoints: their number and age.

use super::endpoint::{Endpoint, Idle};
use crate::config::LimitSettings;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Keeps the idle connections of all endpoints within the limits on their number and age.
#[derive(Default)]
pub(super) struct Pool {
    idle: Arc<AtomicUsize>,
    /// Endpoints that may have an idle connection.
    endpoints: Mutex<Vec<Weak<Endpoint>>>,
    is_swept: AtomicBool,
    /// Longest idle time in milliseconds.
    kept_for: AtomicU64,
}

impl Pool {
    pub fn endpoint(&self) -> Arc<Endpoint> {
        Arc::new(Endpoint::new(self.idle.clone()))
    }

    /// Sets the longest idle time.
    pub fn keep_for(&self, time: Duration) {
        self.kept_for.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn kept_for(&self) -> Duration {
        Duration::from_millis(self.kept_for.load(Relaxed))
    }

    /// Number of idle connections.
    pub fn idle(&self) -> usize {
        self.idle.load(Relaxed)
    }

    /// Keeps the connection for the next request, unless the endpoint has enough idle connections of its kind: unreserved, or reserved for
    /// the same client connection. If all endpoints together have too many, closes the connections that have been idle longest.
    pub fn put(self: &Arc<Self>, endpoint: &Arc<Endpoint>, idle: Idle, limits: &LimitSettings) {
        let there = idle.private.map_or_else(|| endpoint.len(), |private| endpoint.private(private));
        if there >= limits.max_idle_connections_per_host || limits.max_idle_connections == 0 {
            return;
        }
        self.make_room(limits.max_idle_connections);
        endpoint.put(idle);
        self.know(endpoint);
        if !self.is_swept.load(Relaxed) && !self.is_swept.swap(true, Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Registers an endpoint that has just got a connection.
    fn know(&self, endpoint: &Arc<Endpoint>) {
        if endpoint.is_new() {
            let mut endpoints = self.endpoints.lock();
            if endpoints.len() == endpoints.capacity() {
                endpoints.retain(|endpoint| endpoint.upgrade().is_some_and(|endpoint| endpoint.stays_known()));
            }
            endpoints.push(Arc::downgrade(endpoint));
        }
    }

    /// Registers an opened HTTP/2 connection, which will become idle at some time.
    pub fn opened_http2(&self, endpoint: &Arc<Endpoint>, limits: &LimitSettings) {
        self.make_room(limits.max_idle_connections);
        self.know(endpoint);
    }

    fn make_room(&self, most: usize) {
        let over = (self.idle() + 1).saturating_sub(most);
        if over > 0 {
            // Closes more connections than necessary, so that not every new connection causes a search.
            self.close_oldest(over + most / 8);
        }
    }

    /// Closes the oldest `count` idle connections. Returns how many were closed.
    pub fn close_oldest(&self, count: usize) -> usize {
        let endpoints = self.known();
        let before = self.idle();
        let mut since = Vec::with_capacity(before);
        endpoints.iter().for_each(|endpoint| endpoint.since(&mut since));
        since.sort_unstable();
        if let Some(&then) = since.get(count.saturating_sub(1)).or(since.last()) {
            endpoints.iter().for_each(|endpoint| endpoint.close_idle(then));
        }
        before.saturating_sub(self.idle())
    }

    pub fn close_all(&self) {
        self.close_oldest(usize::MAX);
    }

    fn known(&self) -> Vec<Arc<Endpoint>> {
        let mut known = Vec::new();
        self.endpoints.lock().retain(|endpoint| {
            let stays = endpoint.upgrade().filter(|endpoint| endpoint.stays_known());
            stays.map(|endpoint| known.push(endpoint)).is_some()
        });
        known
    }
}

/// Closes connections that were idle for too long, until the pool is dropped.
async fn sweep(pool: Weak<Pool>) {
    loop {
        let Some(every) = pool.upgrade().map(|pool| pool.kept_for() / 4) else { return };
        sleep(every.max(LEAST_SWEEP)).await;
        let Some(pool) = pool.upgrade() else { return };
        if let Some(then) = Instant::now().checked_sub(pool.kept_for()) {
            pool.known().iter().for_each(|endpoint| endpoint.close_idle(then));
        }
    }
}

const LEAST_SWEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::upstream::stream::Stream;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn pool_lists_only_endpoints_with_an_idle_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = LimitSettings { max_idle_connections: 8, ..Settings::default().limits };
        let pool = Arc::new(Pool::default());
        let put = async |endpoint: &Arc<Endpoint>| {
            let stream = Stream::Tcp(TcpStream::connect(address).await.unwrap());
            drop(listener.accept().await);
            pool.put(endpoint, Idle { stream, address, since: Instant::now(), private: None }, &limits);
        };
        let endpoints: Vec<_> = (0..500).map(|_| pool.endpoint()).collect();
        for endpoint in &endpoints {
            put(endpoint).await;
        }
        assert!(pool.idle() <= 8 && pool.endpoints.lock().len() <= 64, "{}", pool.endpoints.lock().len());
        // An endpoint that was forgotten is listed again, once, with its next connection.
        pool.close_all();
        assert_eq!((pool.idle(), pool.known().len()), (0, 0));
        put(&endpoints[0]).await;
        put(&endpoints[0]).await;
        assert_eq!((pool.idle(), pool.known().len(), pool.known().len()), (2, 1, 1));
        pool.close_all();
        assert_eq!(pool.idle(), 0);
    }
}
