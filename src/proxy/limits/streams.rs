//! Limit on requests in flight in addition to the first of each client connection. An HTTP/2 connection may have many, and
//! each may hold a descriptor for as long as its answer lasts.

use crate::fair_places::{FairPlace, FairPlaces, Taker};
use crate::policy::Refusal;
use crate::policy::pace::ClientId;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::timeout;

/// Places for all but the first request of each connection. A client may hold at most as many places as remain free.
pub struct Streams(FairPlaces);

/// A request's place, released on drop.
pub enum StreamPlace<'a> {
    First(&'a AtomicBool),
    Other(#[expect(dead_code, reason = "held until it is dropped")] FairPlace),
}

impl Streams {
    /// Creates `most` places, for which there must be descriptors.
    pub fn new(most: usize) -> Self {
        Self(FairPlaces::new(most))
    }

    /// Waits for a place. `first`: whether the place that the connection has of its own is taken. A request that gets that place never
    /// waits, so that other clients' endless requests lock nobody out.
    pub async fn place<'a>(&'a self, first: &'a AtomicBool, client: ClientId) -> Result<StreamPlace<'a>, Refusal> {
        if !first.swap(true, Relaxed) {
            return Ok(StreamPlace::First(first));
        }
        let (place, told) = self.0.enter(Taker::of(client));
        if let Some(told) = told
            // Boxed, because most requests do not wait.
            && Box::pin(timeout(PLACE_TIMEOUT, told)).await.is_err()
        {
            let why = "too many HTTP/2 streams are in flight for the limit on open files".into();
            return Err(Refusal::OwnLimit { retry_after: PLACE_TIMEOUT, why });
        }
        Ok(StreamPlace::Other(place))
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

    const ONE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    #[tokio::test(start_paused = true)]
    async fn each_connection_gets_one_stream_and_each_client_as_many_as_remain_free() {
        let (streams, one, more, other) =
            (Streams::new(4), AtomicBool::default(), AtomicBool::default(), AtomicBool::default());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(streams.place(&one, ONE).await.expect("the first request and two with a place"));
        }
        held.push(streams.place(&more, ONE).await.expect("another connection's first request needs no place"));
        for connection in [&one, &more] {
            assert!(
                matches!(streams.place(connection, ONE).await, Err(Refusal::OwnLimit { .. })),
                "refused: the client holds two of four places, and may hold no more than remain free"
            );
        }
        let first = streams.place(&other, OTHER).await.expect("the connection's first request needs no place");
        let second = streams.place(&other, OTHER).await.expect("another client gets a free place");
        drop((first, second));
        let again = streams.place(&other, OTHER).await.expect("a first request after an idle time");
        held.truncate(2);
        let third = streams.place(&one, ONE).await.expect("a place was released");
        drop((again, third, held));
        assert!(!one.load(Relaxed) && !more.load(Relaxed) && !other.load(Relaxed));
    }
}
