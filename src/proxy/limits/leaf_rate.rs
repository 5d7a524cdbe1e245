//! Rate limit on certificates by client: each new name costs a signature, and a client can name any number of hosts.

use super::per_client;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// When each client's bucket is full again.
pub struct LeafRate(Cache<IpAddr, Instant>);

impl LeafRate {
    pub fn new() -> Self {
        LeafRate(Cache::new(CLIENTS))
    }

    /// Waits until this client may have another certificate.
    pub async fn turn(&self, client: IpAddr) {
        let at = self.next(per_client::client(client), Instant::now());
        sleep_until(at).await;
    }

    /// A token bucket: [`BURST`] tokens, one refilled each [`REFILL`].
    fn next(&self, client: IpAddr, now: Instant) -> Instant {
        let until = self.0.get(&client).unwrap_or(now).max(now) + REFILL;
        self.0.insert(client, until);
        (until - REFILL * BURST).max(now)
    }
}

const CLIENTS: usize = 10_000;
const REFILL: Duration = Duration::from_millis(5);
const BURST: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let (leaf_rate, now) = (LeafRate::new(), Instant::now());
        let client = "192.0.2.1".parse().unwrap();
        let mut waits = (0..BURST + 3).map(|_| leaf_rate.next(client, now) - now);
        assert!(waits.by_ref().take(BURST as usize).all(|wait| wait.is_zero()));
        assert_eq!(waits.collect::<Vec<_>>(), [REFILL, REFILL * 2, REFILL * 3]);
        assert_eq!(leaf_rate.next("192.0.2.2".parse().unwrap(), now), now, "another client's");
        let later = now + REFILL * (BURST + 3);
        assert_eq!(leaf_rate.next(client, later), later);
    }
}
