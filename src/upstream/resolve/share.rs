//! Limits on concurrent look-ups: of all clients, of each client, and of each site for a client.

use crate::policy::pace::ClientId;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// A client, and the registrable domain of a name.
pub(super) type ClientSite = (Option<ClientId>, Box<str>);

pub(super) struct LookupShares {
    /// A permit for each concurrent look-up, which occupies a thread, for many seconds if the name is dead.
    pub threads: Arc<Semaphore>,
    blocked: Arc<Mutex<Blocked>>,
    clients: Mutex<HashMap<Option<ClientId>, Arc<ClientLookups>>>,
    sites: Mutex<HashMap<ClientSite, Arc<Semaphore>>>,
}

/// Clients whose next look-up waits only for threads, sorted by how many threads must be free for it.
type Blocked = BTreeSet<(usize, Option<ClientId>)>;

/// The two limits on a look-up: its client's limit, and its client's limit for one site.
pub(super) struct LookupShare {
    pub client: Arc<ClientLookups>,
    /// A permit for each concurrent look-up of the client for names of this site.
    pub site: Arc<Semaphore>,
}

/// Limits the look-ups of one client, which has `OF_CLIENT` places for them.
///
/// - A look-up takes `AT_FIRST` places to begin, and keeps one place if it is slow. So the more slow look-ups a client has, the fewer begin
///   at a time.
/// - A look-up begins only if at least as many threads are free as the places that its client then has taken. So threads are left for
///   other clients, however many clients ask for silent names.
/// - The newest look-up begins first: otherwise, names with silent servers would delay all later look-ups. Names that were silent before
///   begin last.
pub(super) struct ClientLookups {
    client: Option<ClientId>,
    state: Mutex<LookupsState>,
    threads: Arc<Semaphore>,
    blocked: Arc<Mutex<Blocked>>,
}

struct LookupsState {
    free: usize,
    /// The waiting look-ups. The newest begins next.
    waiting: VecDeque<oneshot::Sender<LookupPlaces>>,
    /// Length of `waiting` when cancelled look-ups were last removed.
    left: usize,
    /// The number of threads under which the client is registered in [`Blocked`].
    blocked: Option<usize>,
}

/// The places that one look-up has taken. Released on drop.
pub(super) struct LookupPlaces {
    all: Arc<ClientLookups>,
    count: usize,
}

impl LookupShares {
    pub fn join(&self, of: &ClientSite) -> LookupShare {
        let new = || Arc::new(ClientLookups::new(of.0, self));
        let client = self.clients.lock().entry(of.0).or_insert_with(new).clone();
        let site = self.sites.lock().entry(of.clone()).or_insert_with(|| Arc::new(Semaphore::new(OF_SITE))).clone();
        LookupShare { client, site }
    }

    /// Call at the end of a look-up, after its share was dropped. Removes unused limits, and begins look-ups of clients that
    /// waited for threads.
    pub fn leave(&self, of: &ClientSite) {
        remove_last(&mut self.sites.lock(), of, |site| Arc::strong_count(site) == 1);
        remove_last(&mut self.clients.lock(), &of.0, |client| Arc::strong_count(client) == 1);
        while let Some(client) = self.next_unblocked() {
            client.hand_out();
            let of = client.client;
            drop(client);
            // The client's last look-up may have ended meanwhile.
            remove_last(&mut self.clients.lock(), &of, |client| Arc::strong_count(client) == 1);
        }
    }

    /// The next client whose look-up can begin, because as many threads are free as it needs.
    fn next_unblocked(&self) -> Option<Arc<ClientLookups>> {
        loop {
            let first = self.blocked.lock().first().copied();
            let (_, client) = first.filter(|(needed, _)| *needed <= self.threads.available_permits())?;
            // A client that is missing has just left, and removes its entry.
            if let Some(client) = self.clients.lock().get(&client) {
                return Some(client.clone());
            }
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.clients.lock().is_empty() && self.sites.lock().is_empty()
    }
}

impl Default for LookupShares {
    fn default() -> Self {
        let threads = Arc::new(Semaphore::new(LOOKUPS));
        Self { threads, blocked: Arc::default(), clients: Mutex::default(), sites: Mutex::default() }
    }
}

impl ClientLookups {
    fn new(client: Option<ClientId>, LookupShares { threads, blocked, .. }: &LookupShares) -> Self {
        let state = LookupsState { free: OF_CLIENT, waiting: VecDeque::new(), left: AT_FIRST, blocked: None };
        Self { client, state: Mutex::new(state), threads: threads.clone(), blocked: blocked.clone() }
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
        #[cfg(test)]
        HANDED_OUT.with(|times| times.set(times.get() + 1));
        while let Some(next) = self.next() {
            // If the receiver is gone, dropping the places gives them back.
            let _ = next.send(LookupPlaces { all: self.clone(), count: AT_FIRST });
        }
    }

    /// Takes places for the newest waiting look-up, or registers how many threads it waits for.
    fn next(&self) -> Option<oneshot::Sender<LookupPlaces>> {
        let mut state = self.state.lock();
        let needed = state.needed();
        if needed != state.blocked {
            let mut blocked = self.blocked.lock();
            state.blocked.map(|before| blocked.remove(&(before, self.client)));
            needed.map(|needed| blocked.insert((needed, self.client)));
            state.blocked = needed;
        }
        // Checked after registering, because a thread may have become free before.
        if needed? > self.threads.available_permits() {
            return None;
        }
        state.free -= AT_FIRST;
        state.waiting.pop_back()
    }

    fn give_back(self: &Arc<Self>, count: usize) {
        self.state.lock().free += count;
        self.hand_out();
    }
}

impl LookupsState {
    /// Number of threads that must be free for the newest waiting look-up. `None`: none waits, or too few places are free.
    fn needed(&mut self) -> Option<usize> {
        while self.waiting.pop_back_if(|newest| newest.is_closed()).is_some() {}
        let waits = self.free >= AT_FIRST && !self.waiting.is_empty();
        waits.then_some(OF_CLIENT + AT_FIRST - self.free)
    }
}

impl LookupPlaces {
    /// Gives places back, because the look-up is slow. If at least half of the client's places are free, it keeps three places, for two
    /// more threads, and returns true. Otherwise it keeps one place.
    pub fn is_slow(&mut self) -> bool {
        let is_alone = self.all.state.lock().free >= OF_CLIENT / 2;
        let kept = if is_alone { 3 } else { 1 };
        self.all.give_back(std::mem::replace(&mut self.count, kept) - kept);
        is_alone
    }
}

impl Drop for ClientLookups {
    fn drop(&mut self) {
        if let Some(needed) = self.state.get_mut().blocked {
            self.blocked.lock().remove(&(needed, self.client));
        }
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

/// Maximum number of concurrent look-ups. The runtime has 512 threads for blocking work.
pub(super) const LOOKUPS: usize = 384;
/// Number of places of a client.
const OF_CLIENT: usize = LOOKUPS / 2;
/// Number of places that a look-up takes to begin.
const AT_FIRST: usize = 6;
/// Look-ups of a client that begin at once, if none is slow.
#[cfg(test)]
pub(super) const QUICK: usize = OF_CLIENT / AT_FIRST;
/// Maximum number of look-ups of one client for one site, whose servers may be silent for all its names.
const OF_SITE: usize = 16;

#[cfg(test)]
thread_local!(static HANDED_OUT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Counts the clients visited while `count` clients wait for threads, and five look-ups of another client end.
    fn visited(count: u64) -> usize {
        let (shares, other) = (LookupShares::default(), (Some(ClientId(0)), Box::from("other")));
        let all = (1..=count).map(|number| shares.join(&(Some(ClientId(number)), "site".into())).client);
        let all: Vec<_> = all.collect();
        let mut threads: Vec<_> = (0..LOOKUPS).map(|_| shares.threads.try_acquire().unwrap()).collect();
        let mut waiting: Vec<_> = all.iter().map(|client| Box::pin(client.take(false))).collect();
        assert!(waiting.iter_mut().all(|take| take.now_or_never().is_none()));
        HANDED_OUT.set(0);
        for _ in 1..AT_FIRST {
            drop((threads.pop(), shares.join(&other)));
            shares.leave(&other);
        }
        let visited = HANDED_OUT.get();
        drop((threads.pop(), shares.join(&other)));
        shares.leave(&other);
        assert!(waiting.iter_mut().all(|take| take.now_or_never().is_some()), "enough threads are free now");
        drop(waiting);
        drop(all);
        (1..=count).for_each(|number| shares.leave(&(Some(ClientId(number)), "site".into())));
        assert!(shares.is_empty() && shares.blocked.lock().is_empty());
        visited
    }

    #[test]
    fn end_of_a_look_up_visits_only_clients_that_can_continue() {
        assert_eq!([100, 100_000].map(visited), [0, 0]);
    }

    #[test]
    fn cancelled_look_ups_leave_no_entries() {
        let shares = LookupShares::default();
        let _threads = shares.threads.try_acquire_many(LOOKUPS as u32).unwrap();
        let of = |number| (Some(ClientId(number)), Box::from("site"));
        for number in 0..10 {
            let share = shares.join(&of(number));
            assert!(share.client.take(false).now_or_never().is_none());
            drop(share);
            shares.leave(&of(number));
        }
        assert!(shares.is_empty() && shares.blocked.lock().is_empty());
    }
}
