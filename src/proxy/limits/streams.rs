//! Limit on requests in flight beside the first of each client connection. An HTTP/2 connection has many, and each
//! may hold a descriptor for as long as its answer lasts.

use crate::policy::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Places for all but the first request of each connection.
pub struct Streams(Semaphore);

/// Whether a connection's first request is in flight.
pub type FirstStream = Arc<AtomicBool>;

/// A request's place, released on drop.
pub enum StreamPlace<'a> {
    First(&'a AtomicBool),
    Other(#[expect(dead_code, reason = "it is held")] SemaphorePermit<'a>),
}

impl Streams {
    /// `most`: places for which there are descriptors.
    pub fn new(most: usize) -> Self {
        Self(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
    }

    /// Waits for a place. The first request of a connection never waits, so endless requests lock nobody out.
    pub async fn place<'a>(&'a self, first: &'a FirstStream) -> Result<StreamPlace<'a>, Refusal> {
        if !first.swap(true, Relaxed) {
            return Ok(StreamPlace::First(first));
        }
        // Boxed, because most requests do not wait.
        Box::pin(self.other()).await
    }

    async fn other(&self) -> Result<StreamPlace<'_>, Refusal> {
        match timeout(PLACE_TIMEOUT, self.0.acquire()).await {
            Ok(place) => Ok(StreamPlace::Other(place.expect("the semaphore is never closed"))),
            Err(_) => {
                let why = "too many HTTP/2 streams are in flight for the limit on open files".into();
                Err(Refusal::OwnLimit { retry_after: PLACE_TIMEOUT, why })
            }
        }
    }
}

impl Drop for StreamPlace<'_> {
    fn drop(&mut self) {
        if let Self::First(first) = self {
            first.store(false, Relaxed);
        }
    }
}

const PLACE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_connection_has_one_place_and_all_share_the_rest() {
        let (streams, one, other) = (Streams::new(2), FirstStream::default(), FirstStream::default());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(streams.place(&one).await.expect("one and two more"));
        }
        assert!(matches!(streams.place(&one).await, Err(Refusal::OwnLimit { .. })));
        let first = streams.place(&other).await.expect("its first");
        assert!(matches!(streams.place(&other).await, Err(Refusal::OwnLimit { .. })));
        drop(first);
        let again = streams.place(&other).await.expect("its first once more");
        held.truncate(2);
        let second = streams.place(&other).await.expect("one was given back");
        drop((again, second, held));
        assert_eq!(streams.0.available_permits(), 2);
        assert!(!one.load(Relaxed) && !other.load(Relaxed));
    }
}
