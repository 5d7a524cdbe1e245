//! Rate limit on certificates by client: each new name costs a signature, and a client can name any number of hosts.

use super::per_client;
use quick_cache::sync::Cache;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// For each client, the time at which its token bucket is full again. A task that waits for a token holds the client's lock, so
/// that the client's other tasks queue.
pub struct LeafRate(Cache<IpAddr, Arc<Mutex<Instant>>>);

impl LeafRate {
    pub fn new() -> Self {
        LeafRate(Cache::new(CLIENTS))
    }

    /// Waits until this client may have another certificate: a token bucket of [`BURST`], with a token refilled each [`REFILL`]. Takes no
    /// token if the future is dropped before it is ready.
    pub async fn turn(&self, client: IpAddr) {
        let full = || Ok::<_, Infallible>(Arc::new(Mutex::new(Instant::now())));
        let Ok(bucket) = self.0.get_or_insert_with(&per_client::client(client), full);
        let mut full_at = bucket.lock().await;
        sleep_until(*full_at + REFILL - REFILL * BURST).await;
        *full_at = (*full_at).max(Instant::now()) + REFILL;
    }
}

const CLIENTS: usize = 10_000;
const REFILL: Duration = Duration::from_millis(5);
const BURST: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[tokio::test(start_paused = true)]
    async fn burst_is_allowed_at_once_and_the_rest_at_the_rate() {
        let leaf_rate = LeafRate::new();
        for _ in 0..2 {
            let began = Instant::now();
            join_all((0..BURST).map(|_| leaf_rate.turn(ONE))).await;
            assert_eq!(began.elapsed(), Duration::ZERO);
            for number in 1..=3 {
                leaf_rate.turn(ONE).await;
                assert_eq!(began.elapsed(), REFILL * number);
            }
            leaf_rate.turn(OTHER).await;
            assert_eq!(began.elapsed(), REFILL * 3, "another client is not delayed");
            sleep_until(Instant::now() + REFILL * BURST).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_wait_uses_no_turn() {
        let leaf_rate = LeafRate::new();
        join_all((0..BURST).map(|_| leaf_rate.turn(ONE))).await;
        let mut abandoned: Vec<_> = (0..5000).map(|_| Box::pin(leaf_rate.turn(ONE))).collect();
        assert!(abandoned.iter_mut().all(|turn| turn.now_or_never().is_none()));
        drop(abandoned);
        let began = Instant::now();
        leaf_rate.turn(ONE).await;
        assert_eq!(began.elapsed(), REFILL);
    }
}
