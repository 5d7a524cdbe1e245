//! Rate limit on certificates by client: each new name costs a signature, and a client can name any number of hosts.

use super::per_client;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// When each client's bucket is full again.
pub struct Mints(Cache<IpAddr, Instant>);

impl Mints {
    pub fn new() -> Self {
        Mints(Cache::new(CLIENTS))
    }

    /// Waits until this client may have another certificate.
    pub async fn turn(&self, client: IpAddr) {
        let at = self.next(per_client::client(client), Instant::now());
        sleep_until(at).await;
    }

    /// A token bucket: [`AT_ONCE`] tokens, one refilled each [`EACH`].
    fn next(&self, client: IpAddr, now: Instant) -> Instant {
        let until = self.0.get(&client).unwrap_or(now).max(now) + EACH;
        self.0.insert(client, until);
        (until - EACH * AT_ONCE).max(now)
    }
}

const CLIENTS: usize = 10_000;
const EACH: Duration = Duration::from_millis(5);
const AT_ONCE: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let (mints, now) = (Mints::new(), Instant::now());
        let client = "192.0.2.1".parse().unwrap();
        let mut waits = (0..AT_ONCE + 3).map(|_| mints.next(client, now) - now);
        assert!(waits.by_ref().take(AT_ONCE as usize).all(|wait| wait.is_zero()));
        assert_eq!(waits.collect::<Vec<_>>(), [EACH, EACH * 2, EACH * 3]);
        assert_eq!(mints.next("192.0.2.2".parse().unwrap(), now), now, "another client's");
        let later = now + EACH * (AT_ONCE + 3);
        assert_eq!(mints.next(client, later), later);
    }
}
