//! How many fetches of robots.txt may be under way at a time: in all, and for each client, so that one who asks for
//! hosts by the thousand, dead or slow, keeps no other's first request waiting.

use crate::policy::pace::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// All places.
pub(super) struct FetchPlaces {
    all: Semaphore,
    /// Of clients that have some, or wait for one.
    shares: Mutex<HashMap<Client, Arc<Semaphore>>>,
}

/// One place, until it is dropped.
pub(super) struct FetchPlace<'a> {
    _one_of_all: SemaphorePermit<'a>,
    _share: Share<'a>,
}

impl FetchPlaces {
    pub fn new() -> Self {
        Self { all: Semaphore::new(MOST), shares: Mutex::default() }
    }

    /// First come first served among a client's own, and among those who are within their share.
    pub async fn take(&self, client: Client) -> FetchPlace<'_> {
        let share = Share::of(self, client).await;
        let one_of_all = self.all.acquire().await.expect(OPEN);
        FetchPlace { _one_of_all: one_of_all, _share: share }
    }
}

/// One place of a client's.
struct Share<'a> {
    places: &'a FetchPlaces,
    client: Client,
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<'a> Share<'a> {
    async fn of(places: &'a FetchPlaces, client: Client) -> Self {
        let new = || Arc::new(Semaphore::new(MOST_OF_ONE));
        let semaphore = places.shares.lock().entry(client).or_insert_with(new).clone();
        // Made first, so that whoever leaves while waiting leaves nothing behind.
        let mut share = Share { places, client, semaphore, permit: None };
        share.permit = Some(share.semaphore.clone().acquire_owned().await.expect(OPEN));
        share
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut shares = self.places.shares.lock();
        self.permit = None;
        // The table's and ours.
        if Arc::strong_count(&self.semaphore) == 2 {
            shares.remove(&self.client);
        }
    }
}

/// Each takes a connection, and at worst `robots.timeout`.
const MOST: usize = 256;
const MOST_OF_ONE: usize = MOST / 2;
const OPEN: &str = "the semaphore is never closed";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn who_has_its_share_keeps_nobody_else_waiting() {
        let places = FetchPlaces::new();
        let mut greedy = Vec::new();
        for _ in 0..MOST_OF_ONE {
            greedy.push(places.take(Client(1)).await);
        }
        assert!(timeout(SOON, places.take(Client(1))).await.is_err(), "it waits for one of its own");
        let other = timeout(SOON, places.take(Client(2))).await.expect("another goes on");
        greedy.pop();
        assert!(timeout(SOON, places.take(Client(1))).await.is_ok());
        drop((other, greedy));
        assert!(places.shares.lock().is_empty(), "who has none is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_so_many_in_all() {
        let places = FetchPlaces::new();
        let mut taken = Vec::new();
        for number in 0..MOST {
            taken.push(places.take(Client(number as u64)).await);
        }
        assert!(timeout(SOON, places.take(Client(u64::MAX))).await.is_err());
        taken.pop();
        assert!(timeout(SOON, places.take(Client(u64::MAX))).await.is_ok());
    }
}
