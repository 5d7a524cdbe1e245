//! How many look-ups a client may have at a time, and within that each site.

use crate::policy::pace::ClientId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A client, and the registrable domain of a name.
pub(super) type ClientSite = (Option<ClientId>, Box<str>);

#[derive(Default)]
pub(super) struct LookupShares {
    clients: Mutex<HashMap<Option<ClientId>, ClientShare>>,
    sites: Mutex<HashMap<ClientSite, Arc<Semaphore>>>,
}

#[derive(Clone)]
struct ClientShare {
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

/// Where a look-up takes its places.
pub(super) struct LookupShare {
    /// Look-ups of the client that have just begun,
    pub quick: Arc<Semaphore>,
    /// and slow ones, so that quick look-ups do not queue behind them.
    pub slow: Arc<Semaphore>,
    /// Look-ups of the client at this site.
    pub site: Arc<Semaphore>,
}

impl LookupShares {
    pub fn join(&self, of: &ClientSite) -> LookupShare {
        let places = |count| Arc::new(Semaphore::new(count));
        let new = || ClientShare { quick: places(QUICK), slow: places(LOOKUPS / 2) };
        let ClientShare { quick, slow } = self.clients.lock().entry(of.0).or_insert_with(new).clone();
        LookupShare {
            quick,
            slow,
            site: self.sites.lock().entry(of.clone()).or_insert_with(|| places(OF_SITE)).clone(),
        }
    }

    /// For the end of a look-up, after its share is dropped. The last one removes what was shared.
    pub fn leave(&self, of: &ClientSite) {
        remove_last(&mut self.sites.lock(), of, |site| Arc::strong_count(site) == 1);
        let is_last = |client: &ClientShare| Arc::strong_count(&client.quick) + Arc::strong_count(&client.slow) == 2;
        remove_last(&mut self.clients.lock(), &of.0, is_last);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.clients.lock().is_empty() && self.sites.lock().is_empty()
    }
}

fn remove_last<K: Eq + Hash, T>(shares: &mut HashMap<K, T>, key: &K, is_last: impl Fn(&T) -> bool) {
    if shares.get(key).is_some_and(is_last) {
        shares.remove(key);
    }
}

/// The runtime's threads for blocking work are 512.
pub(super) const LOOKUPS: usize = 256;
pub(super) const QUICK: usize = 32;
/// Of one client at the names of one site, whose servers may be silent for all of them.
const OF_SITE: usize = 16;
