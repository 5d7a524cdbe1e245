//! How many fetches of robots.txt may be under way at a time: in all, and for each client, so that one that asks for
//! thousands of hosts, dead or slow, does not delay another's first request.

use super::under_way::Fetch;
use crate::gate::pacer::{HostQueue, Permit, Stand};
use crate::policy::Refusal;
use crate::policy::pace::{ClientId, Terms};
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// All places.
pub(super) struct FetchPlaces {
    all: Semaphore,
    /// Of clients that have some, or wait for one.
    shares: Mutex<HashMap<ClientId, Arc<Semaphore>>>,
}

/// One place, until it is dropped.
pub(super) struct FetchPlace<'a> {
    _one_of_all: SemaphorePermit<'a>,
    _share: ClientPlace<'a>,
}

impl FetchPlaces {
    pub fn new() -> Self {
        Self { all: Semaphore::new(MOST), shares: Mutex::default() }
    }

    /// First come first served among a client's own, and among the clients that are within their share.
    pub async fn take(&self, client: ClientId) -> FetchPlace<'_> {
        let share = ClientPlace::of(self, client).await;
        let one_of_all = self.all.acquire().await.expect(OPEN);
        FetchPlace { _one_of_all: one_of_all, _share: share }
    }

    /// A place and the host's turn, for which it `stands` in the line as one of these. The turn is not held while a place is waited for, nor a place while the turn is, but for
    /// `a_while`.
    pub async fn take_in_turn(
        &self,
        client: ClientId,
        queue: &Arc<HostQueue>,
        stands: ClientId,
        terms: &Terms,
        a_while: Duration,
        fetch: &Fetch,
    ) -> Result<(FetchPlace<'_>, Permit), Refusal> {
        loop {
            let permit = match queue.stand(stands, terms)? {
                Stand::Go(permit) => permit,
                Stand::Wait(mut waiting) => {
                    fetch.set_due(Some(waiting.due().unwrap_or_else(Instant::now)));
                    let turn = waiting.turn().await;
                    fetch.set_due(None);
                    turn?
                }
            };
            if let Some(place) = self.take(client).now_or_never() {
                return Ok((place, permit));
            }
            drop(permit);
            let place = self.take(client).await;
            match queue.stand(stands, terms)? {
                Stand::Go(permit) => return Ok((place, permit)),
                Stand::Wait(mut waiting) => {
                    if let Ok(permit) = timeout(a_while, waiting.turn()).await {
                        return Ok((place, permit?));
                    }
                }
            }
        }
    }
}

/// One place of a client's.
struct ClientPlace<'a> {
    places: &'a FetchPlaces,
    client: ClientId,
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<'a> ClientPlace<'a> {
    async fn of(places: &'a FetchPlaces, client: ClientId) -> Self {
        let new = || Arc::new(Semaphore::new(MOST_OF_ONE));
        let semaphore = places.shares.lock().entry(client).or_insert_with(new).clone();
        // Made first, so that a request that is dropped while it waits leaves nothing behind.
        let mut share = ClientPlace { places, client, semaphore, permit: None };
        share.permit = Some(share.semaphore.clone().acquire_owned().await.expect(OPEN));
        share
    }
}

impl Drop for ClientPlace<'_> {
    fn drop(&mut self) {
        let mut shares = self.places.shares.lock();
        self.permit = None;
        // The table's and ours.
        if Arc::strong_count(&self.semaphore) == 2 {
            shares.remove(&self.client);
        }
    }
}

/// Fetches stand in the line of their own host as one client of their own.
pub(super) const FETCHES: ClientId = ClientId(0);
/// Each takes a connection, and at worst `robots.timeout`.
const MOST: usize = 256;
const MOST_OF_ONE: usize = MOST / 2;
const OPEN: &str = "the semaphore is never closed";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::pacer::Pacer;
    use crate::gate::robots::FetchReason;
    use crate::gate::store::Store;
    use crate::policy::PaceKey;
    use std::pin::pin;

    const SOON: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_not_held_while_a_place_is_waited_for() {
        let places = FetchPlaces::new();
        let mut taken = Vec::new();
        for _ in 0..MOST_OF_ONE {
            taken.push(places.take(ClientId(1)).await);
        }
        let queue = Pacer::new(Arc::new(Store::memory()), None).queue(&PaceKey::from_text("a.example").unwrap());
        let terms = Terms { max_concurrent: 1, ..Terms::default() };
        let under_way = Fetch::new(FetchReason::FirstUse);
        let mut fetch = pin!(places.take_in_turn(ClientId(1), &queue, FETCHES, &terms, SOON, &under_way));
        assert!((&mut fetch).now_or_never().is_none());
        let page = queue.turn(ClientId(2), &terms).now_or_never();
        assert!(page.is_some_and(|turn| turn.is_ok()), "whoever can use it has it");
        let page = queue.turn(ClientId(2), &terms).await.unwrap();
        taken.pop();
        assert!(timeout(SOON * 10, &mut fetch).await.is_err(), "it has to wait for its turn now");
        assert!(places.take(ClientId(1)).now_or_never().is_some(), "and keeps no place meanwhile");
        drop(page);
        assert!(timeout(SOON * 10, &mut fetch).await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_its_share_keeps_nobody_else_waiting() {
        let places = FetchPlaces::new();
        let mut greedy = Vec::new();
        for _ in 0..MOST_OF_ONE {
            greedy.push(places.take(ClientId(1)).await);
        }
        assert!(timeout(SOON, places.take(ClientId(1))).await.is_err(), "it waits for one of its own");
        let other = timeout(SOON, places.take(ClientId(2))).await.expect("another goes on");
        greedy.pop();
        assert!(timeout(SOON, places.take(ClientId(1))).await.is_ok());
        drop((other, greedy));
        assert!(places.shares.lock().is_empty(), "who has none is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_so_many_in_all() {
        let places = FetchPlaces::new();
        let mut taken = Vec::new();
        for number in 0..MOST {
            taken.push(places.take(ClientId(number as u64)).await);
        }
        assert!(timeout(SOON, places.take(ClientId(u64::MAX))).await.is_err());
        taken.pop();
        assert!(timeout(SOON, places.take(ClientId(u64::MAX))).await.is_ok());
    }
}
