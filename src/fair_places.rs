//! Limits how much work of many clients runs at once: each piece of work needs one of a limited number of places. A client gets another
//! place only while it has fewer places than are free. So one client with thousands of dead or slow hosts leaves half of the places to
//! others, and a second such client leaves half of these. Clients with equally many places take turns, and so do the sites for which one
//! client waits.

use crate::policy::Authority;
use crate::policy::pace::ClientId;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::oneshot;

#[derive(Clone)]
pub struct FairPlaces(Arc<Mutex<PlacesState>>);

/// A place, or a wait for a place. Dropping it releases the place or ends the wait.
pub struct FairPlace {
    all: FairPlaces,
    client: ClientId,
    /// Key in [`ClientPlaces::waiting`]. `None`: a place was free at once.
    waits: Option<(u64, u64)>,
}

/// The client that takes a place, and the site that it takes the place for.
#[derive(Debug, Clone, Copy)]
pub struct Taker {
    pub(crate) client: ClientId,
    /// A hash of the registrable domain: a domain can have any number of hosts.
    site: u64,
}

impl Taker {
    pub fn new(client: ClientId, site: &Authority) -> Self {
        let (host, mut hasher) = (site.host(), DefaultHasher::new());
        match host.domain() {
            Some(domain) => domain.hash(&mut hasher),
            None => host.hash(&mut hasher),
        }
        Self { client, site: hasher.finish() }
    }

    /// Makes a taker for a client's work that is not for a particular site.
    pub const fn of(client: ClientId) -> Self {
        Self { client, site: 0 }
    }
}

struct PlacesState {
    most: usize,
    taken: usize,
    /// Clients that have places or wait for one.
    clients: HashMap<ClientId, ClientPlaces>,
    /// Waiting clients by (number of places, [`ClientPlaces::since`]): the first is served next.
    waiting: BTreeMap<(usize, u64), ClientId>,
    next: u64,
}

#[derive(Default)]
struct ClientPlaces {
    taken: usize,
    /// Sequence number of the moment when the client began to wait, or was last assigned a place.
    since: u64,
    /// Waiting requests by (round, sequence number). In a round, each site has one turn.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    round: u64,
    /// The last round in which each site has a turn, unless that round is over.
    sites: HashMap<u64, u64>,
}

impl FairPlaces {
    pub fn new(most: usize) -> Self {
        let (clients, waiting) = Default::default();
        Self(Arc::new(Mutex::new(PlacesState { most, taken: 0, clients, waiting, next: 0 })))
    }

    /// Sets the number of places. Call when the limit may have changed.
    pub fn resize(&self, most: usize) {
        let mut state = self.0.lock();
        state.most = most;
        state.hand_out();
    }

    /// Waits for a place and takes it. Requests for one site are served in order of arrival. Cancel-safe.
    pub async fn take(&self, taker: Taker) -> FairPlace {
        let (place, told) = self.enter(taker);
        if let Some(told) = told {
            // This cannot fail, as the state keeps the sender until a place is assigned.
            let _ = told.await;
        }
        place
    }

    /// Takes a free place, or begins to wait for one. If it waits, also returns a receiver, which resolves when a place is assigned.
    pub fn enter(&self, Taker { client, site }: Taker) -> (FairPlace, Option<oneshot::Receiver<()>>) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let free = state.most.saturating_sub(state.taken);
        let places = state.clients.entry(client).or_default();
        // No waiting client is overtaken: each has at least as many places as are free, so it may not take a place yet.
        if places.taken < free {
            places.taken += 1;
            state.taken += 1;
            return (FairPlace { all: self.clone(), client, waits: None }, None);
        }
        let (tell, told) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        let waits = state.change(client, |places| {
            if places.waiting.is_empty() {
                places.since = number;
            }
            let round = places.sites.get(&site).map_or(places.round, |last| last + 1);
            places.sites.insert(site, round);
            places.waiting.insert((round, number), tell);
            (round, number)
        });
        (FairPlace { all: self.clone(), client, waits: Some(waits) }, Some(told))
    }

    /// Whether any client waits for a place.
    pub fn is_awaited(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }
}

impl PlacesState {
    /// Assigns free places to waiting clients.
    fn hand_out(&mut self) {
        while let Some((&(has, _), &client)) = self.waiting.first_key_value()
            && has < self.most.saturating_sub(self.taken)
        {
            self.taken += 1;
            let now = self.next;
            self.next += 1;
            self.change(client, |places| {
                places.taken += 1;
                places.since = now;
                let ((round, _), waits) = places.waiting.pop_first()?;
                if round > places.round {
                    places.round = round;
                    places.sites.retain(|_, last| *last >= round);
                }
                // If the receiver is gone, the `FairPlace` is being dropped, which returns the place.
                waits.send(()).ok()
            });
        }
    }

    fn change<T>(&mut self, client: ClientId, change: impl FnOnce(&mut ClientPlaces) -> T) -> T {
        let places = self.clients.entry(client).or_default();
        if let Some(before) = places.rank() {
            self.waiting.remove(&before);
        }
        let changed = change(places);
        if places.waiting.is_empty() {
            places.sites = HashMap::new();
        }
        match places.rank() {
            Some(now) => _ = self.waiting.insert(now, client),
            None if places.taken == 0 => _ = self.clients.remove(&client),
            None => {}
        }
        changed
    }
}

impl ClientPlaces {
    fn rank(&self) -> Option<(usize, u64)> {
        Some((self.taken, self.since)).filter(|_| !self.waiting.is_empty())
    }
}

impl Drop for FairPlace {
    fn drop(&mut self) {
        let mut state = self.all.0.lock();
        let freed = state.change(self.client, |places| {
            let waited = self.waits.is_some_and(|waits| places.waiting.remove(&waits).is_some());
            let freed = usize::from(!waited);
            places.taken -= freed;
            freed
        });
        state.taken -= freed;
        state.hand_out();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::pin;

    /// Takes places until the client would have to wait.
    pub fn all_that(places: &FairPlaces, client: u64) -> Vec<FairPlace> {
        std::iter::from_fn(|| places.take(of(client)).now_or_never()).collect()
    }

    fn of(client: u64) -> Taker {
        Taker::of(ClientId(client))
    }

    impl FairPlaces {
        /// Number of waits begun and places handed out so far.
        pub fn steps(&self) -> u64 {
            self.0.lock().next
        }
    }

    #[test]
    fn client_gets_at_most_half_of_the_free_places() {
        let places = FairPlaces::new(100);
        for (client, count) in [(1, 50), (2, 25), (3, 13), (4, 6), (5, 3), (6, 2), (7, 1), (8, 0)] {
            let taken = all_that(&places, client);
            assert_eq!(taken.len(), count, "client {client}");
            std::mem::forget(taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn released_place_goes_to_the_client_with_the_fewest() {
        let places = FairPlaces::new(8);
        let mut greedy = all_that(&places, 1);
        let mut second = all_that(&places, 2);
        assert_eq!((greedy.len(), second.len()), (4, 2));
        let mut of_greedy = pin!(places.take(of(1)));
        let mut of_second = pin!(places.take(of(2)));
        assert!((&mut of_greedy).now_or_never().is_none() && (&mut of_second).now_or_never().is_none());
        greedy.pop();
        assert!((&mut of_greedy).now_or_never().is_none(), "client 1 still has more places");
        let third = (&mut of_second).now_or_never().expect("client 2 has fewer places");
        drop((third, second.pop()));
        drop(greedy);
        assert!(of_greedy.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_clients_and_their_sites_alternate() {
        let places = FairPlaces::new(1);
        let taken = places.take(of(9)).await;
        let served = Mutex::new(Vec::new());
        // Client 1 asks many times for sites 1 and 2, and then once for site 3; client 2 asks once.
        let takers = [1, 1, 1, 1, 2, 2, 2, 3].map(|site| (1, site)).into_iter().chain([(2, 1)]);
        let waits = takers.map(|(client, site)| {
            let (places, served) = (&places, &served);
            async move {
                let place = places.take(Taker { client: ClientId(client), site }).await;
                served.lock().push((client, site));
                drop(place);
            }
        });
        let mut all = pin!(futures_util::future::join_all(waits));
        assert!((&mut all).now_or_never().is_none());
        drop(taken);
        all.await;
        let expected = [(1, 1), (2, 1), (1, 2), (1, 3), (1, 1), (1, 2), (1, 1), (1, 2), (1, 1)];
        assert_eq!(*served.lock(), expected);
        assert!(places.0.lock().clients.is_empty());
    }

    #[test]
    fn abandoned_wait_takes_no_place() {
        let places = FairPlaces::new(2);
        let first = places.take(of(1)).now_or_never().expect("a place is free");
        {
            let mut given_up = Box::pin(places.take(of(1)));
            assert!((&mut given_up).now_or_never().is_none());
            drop(first);
            // The wait is dropped here: its place was assigned, but not yet received.
        }
        assert!(places.take(of(1)).now_or_never().is_some());
        let state = places.0.lock();
        assert_eq!((state.taken, state.clients.len(), state.waiting.len()), (0, 0, 0), "no state is left");
    }

    #[test]
    fn added_places_serve_waiters_and_removed_ones_end_nothing() {
        let places = FairPlaces::new(2);
        let first = places.take(of(1)).now_or_never().expect("a place is free");
        let mut second = pin!(places.take(of(1)));
        assert!((&mut second).now_or_never().is_none());
        places.resize(4);
        let second = second.now_or_never().expect("a place was added");
        places.resize(1);
        assert!(places.take(of(2)).now_or_never().is_none());
        drop((first, second));
        assert!(places.take(of(2)).now_or_never().is_some());
    }

    /// This would be far too slow if the cost of assigning a place grew in proportion to the number of waiting requests.
    #[tokio::test]
    async fn hundred_thousand_waiters_are_served_in_order() {
        let places = FairPlaces::new(1000);
        let (served, clients) = (Mutex::new(HashMap::<u64, Vec<u64>>::new()), 100);
        let waits = (0..100_000).map(|number| {
            let (places, served) = (&places, &served);
            async move {
                let place = places.take(of(number % clients)).await;
                served.lock().entry(number % clients).or_default().push(number);
                tokio::task::yield_now().await;
                drop(place);
            }
        });
        // Tokio's cooperative budget would make some tasks wake late and change the order.
        tokio::task::unconstrained(futures_util::future::join_all(waits)).await;
        let served = served.lock();
        assert_eq!(served.len(), 100);
        assert!(served.values().all(|numbers| numbers.len() == 1000 && numbers.is_sorted()));
        assert!(places.0.lock().clients.is_empty());
    }
}
