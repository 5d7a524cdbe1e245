//! How fast one client may have certificates made: each new name costs a signature, and a client can name as many hosts
//! as it likes.

use super::per_client;
use quick_cache::sync::Cache;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Until when each client has used up what it may have made.
pub struct Mints(Cache<IpAddr, Instant>);

impl Mints {
    pub fn new() -> Self {
        Mints(Cache::new(CLIENTS))
    }

    /// Resolves when it is this client's turn. Other clients do not wait for it.
    pub async fn turn(&self, client: IpAddr) {
        let at = self.next(per_client::client(client), Instant::now());
        sleep_until(at).await;
    }

    /// A bucket of [`AT_ONCE`] that fills up with one each [`EACH`].
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
