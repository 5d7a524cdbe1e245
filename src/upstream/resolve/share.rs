//! How many look-ups a client may have at a time, and within that each site.

use crate::policy::pace::ClientId;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// A client, and the registrable domain of a name.
pub(super) type ClientSite = (Option<ClientId>, Box<str>);

pub(super) struct LookupShares {
    /// Look-ups at a time. Each occupies a thread, for many seconds if the name is dead.
    pub threads: Arc<Semaphore>,
    clients: Mutex<HashMap<Option<ClientId>, Arc<ClientLookups>>>,
    sites: Mutex<HashMap<ClientSite, Arc<Semaphore>>>,
}

/// Where a look-up takes its places.
pub(super) struct LookupShare {
    pub client: Arc<ClientLookups>,
    /// Look-ups of the client at this site.
    pub site: Arc<Semaphore>,
}

/// The places of a client's look-ups. One begins with `AT_FIRST` of them, and keeps one if it is slow: the more slow ones there are, the
/// fewer begin at a time, and once fewer than `AT_FIRST` are free, none begins until one ends. Nor does one that would leave fewer threads
/// than the client has places: however many clients ask for silent names, threads are left to others. The newest begins first, or names
/// whose servers are silent would hold up every later one; but after all others, one that was silent before.
pub(super) struct ClientLookups {
    state: Mutex<LookupsState>,
    threads: Arc<Semaphore>,
}

struct LookupsState {
    free: usize,
    /// The next is last.
    waiting: VecDeque<oneshot::Sender<LookupPlaces>>,
    /// How many were left when those that had been given up were last removed.
    left: usize,
}

/// The places of one look-up. Released on drop.
pub(super) struct LookupPlaces {
    all: Arc<ClientLookups>,
    count: usize,
}

impl LookupShares {
    pub fn join(&self, of: &ClientSite) -> LookupShare {
        let new = || Arc::new(ClientLookups::new(self.threads.clone()));
        let client = self.clients.lock().entry(of.0).or_insert_with(new).clone();
        let site = self.sites.lock().entry(of.clone()).or_insert_with(|| Arc::new(Semaphore::new(OF_SITE))).clone();
        LookupShare { client, site }
    }

    /// For the end of a look-up, after its share is dropped. The last one removes what was shared.
    pub fn leave(&self, of: &ClientSite) {
        remove_last(&mut self.sites.lock(), of, |site| Arc::strong_count(site) == 1);
        let mut clients = self.clients.lock();
        remove_last(&mut clients, &of.0, |client| Arc::strong_count(client) == 1);
        // Each may have waited for the thread.
        clients.values().for_each(ClientLookups::hand_out);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.clients.lock().is_empty() && self.sites.lock().is_empty()
    }
}

impl Default for LookupShares {
    fn default() -> Self {
        Self { threads: Arc::new(Semaphore::new(LOOKUPS)), clients: Mutex::default(), sites: Mutex::default() }
    }
}

impl ClientLookups {
    fn new(threads: Arc<Semaphore>) -> Self {
        let state = LookupsState { free: OF_CLIENT, waiting: VecDeque::new(), left: AT_FIRST };
        Self { state: Mutex::new(state), threads }
    }

    /// Waits for the places of a new look-up. Cancel-safe. `was_silent`: there was no answer for the name last time.
    pub async fn take(self: &Arc<Self>, was_silent: bool) -> LookupPlaces {
        let (give, given) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.waiting.len() >= state.left.saturating_mul(2) {
                state.waiting.retain(|other| !other.is_closed());
                state.left = state.waiting.len().max(AT_FIRST);
            }
            match was_silent {
                true => state.waiting.push_front(give),
                false => state.waiting.push_back(give),
            }
        }
        self.hand_out();
        given.await.expect("a sender is dropped after its receiver, or used")
    }

    fn hand_out(self: &Arc<Self>) {
        loop {
            let next = self.state.lock().next(self.threads.available_permits());
            let Some(next) = next else { return };
            // If its receiver is gone by now, the places come back.
            let _ = next.send(LookupPlaces { all: self.clone(), count: AT_FIRST });
        }
    }

    fn give_back(self: &Arc<Self>, count: usize) {
        self.state.lock().free += count;
        self.hand_out();
    }
}

impl LookupsState {
    /// Takes the places for the newest that still waits. `threads`: that are free.
    fn next(&mut self, threads: usize) -> Option<oneshot::Sender<LookupPlaces>> {
        if self.free.min((threads + self.free).saturating_sub(OF_CLIENT)) < AT_FIRST {
            return None;
        }
        let next = std::iter::from_fn(|| self.waiting.pop_back()).find(|next| !next.is_closed())?;
        self.free -= AT_FIRST;
        Some(next)
    }
}

impl LookupPlaces {
    /// The look-up is slow. True: there are places enough that it keeps one for each of three threads, instead of one.
    pub fn is_slow(&mut self) -> bool {
        let is_alone = self.all.state.lock().free >= OF_CLIENT / 2;
        let kept = if is_alone { 3 } else { 1 };
        self.all.give_back(std::mem::replace(&mut self.count, kept) - kept);
        is_alone
    }
}

impl Drop for LookupPlaces {
    fn drop(&mut self) {
        self.all.give_back(self.count);
    }
}

fn remove_last<K: Eq + Hash, T>(shares: &mut HashMap<K, T>, key: &K, is_last: impl Fn(&T) -> bool) {
    if shares.get(key).is_some_and(is_last) {
        shares.remove(key);
    }
}

/// Look-ups at a time. The runtime's threads for blocking work are 512.
pub(super) const LOOKUPS: usize = 384;
const OF_CLIENT: usize = LOOKUPS / 2;
const AT_FIRST: usize = 6;
/// Look-ups of a client that begin at once, if none is slow.
#[cfg(test)]
pub(super) const QUICK: usize = OF_CLIENT / AT_FIRST;
/// Of one client at the names of one site, whose servers may be silent for all of them.
const OF_SITE: usize = 16;
