//! How many requests are on their way to origins beside the first of each client connection. Over HTTP/2 a connection has many, of
//! which each may take a descriptor of its own, and hold it for as long as an answer has no end.

use crate::policy::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Places for all but the first of each client connection.
pub struct Streams(Semaphore);

/// Whether a client connection has its first.
pub type FirstStream = Arc<AtomicBool>;

/// One request's place. Given back when it is dropped.
pub enum StreamPlace<'a> {
    First(&'a AtomicBool),
    Other(#[expect(dead_code, reason = "it is held")] SemaphorePermit<'a>),
}

impl Streams {
    /// `most`: for so many there are descriptors.
    pub fn new(most: usize) -> Self {
        Self(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
    }

    /// Waits for a while where there is none, unless it is the first: so nobody is shut out by requests that do not end.
    pub async fn place<'a>(&'a self, first: &'a FirstStream) -> Result<StreamPlace<'a>, Refusal> {
        if !first.swap(true, Relaxed) {
            return Ok(StreamPlace::First(first));
        }
        // What most requests do not wait for takes no room in them.
        Box::pin(self.other()).await
    }

    async fn other(&self) -> Result<StreamPlace<'_>, Refusal> {
        match timeout(FOR_A_PLACE, self.0.acquire()).await {
            Ok(place) => Ok(StreamPlace::Other(place.expect("it is never closed"))),
            Err(_) => {
                let why = "too many HTTP/2 streams are under way for the limit on open files".into();
                Err(Refusal::OwnLimit { retry_after: FOR_A_PLACE, why })
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

const FOR_A_PLACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_connection_has_one_and_all_together_so_many_more() {
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
