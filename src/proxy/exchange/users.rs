//! Request counts since the start by user, and by address without a user, in bounded memory.

use super::outcome_counts::{OutcomeCounts, Outcomes};
use crate::config::User;
use crate::proxy::client::Peer;
use crate::proxy::limits::per_client;
use arc_swap::ArcSwap;
use quick_cache::sync::Cache;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The counts of one user or address.
#[derive(Default)]
pub(super) struct UserCounts {
    pub(super) outcomes: Outcomes,
    requests: AtomicU64,
    /// Bytes of bodies from origins.
    bytes: AtomicU64,
    /// Milliseconds that requests were held.
    waited: AtomicU64,
    /// Whether the metrics have a label for this user.
    is_labelled: bool,
}

/// Counts of all users and addresses. Finding a user takes no lock, finding an address a shard's lock.
pub(super) struct Users {
    /// Exactly the configured users; other names get no entry.
    configured: ArcSwap<HashMap<Box<str>, Arc<UserCounts>>>,
    /// Bounded: the addresses with the fewest requests are dropped.
    addresses: Cache<IpAddr, Arc<UserCounts>>,
}

/// The cost of a request: bytes of the origin's answer, and time held.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proxy) struct Cost {
    pub(in crate::proxy) bytes: u64,
    pub(in crate::proxy) held: Duration,
}

/// Figures of one user since the start.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UserFigures {
    pub who: Who,
    pub requests: u64,
    /// Outcomes by slug, as in `outcome` of the metrics.
    pub outcomes: OutcomeCounts,
    pub bytes: u64,
    pub waited: Duration,
}

/// A user of `access.users`, or an address (in IPv6 a /64 network).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Who {
    User(Box<str>),
    Address(IpAddr),
}

impl Default for Users {
    fn default() -> Self {
        Users { configured: ArcSwap::default(), addresses: Cache::new(MOST_ADDRESSES) }
    }
}

impl Users {
    /// Keeps the counts of users that stay. Returns the labelled counts of users that were removed.
    pub(super) fn configure(&self, users: &[Arc<User>]) -> Vec<Arc<UserCounts>> {
        let before = self.configured.load_full();
        let known = |user: &Arc<User>| before.get(user.name.as_ref());
        let mut labelled = users.iter().filter_map(known).filter(|counts| counts.is_labelled).count();
        let entry = |user: &Arc<User>| {
            let new = || {
                let is_labelled = labelled < MOST_LABELLED;
                labelled += usize::from(is_labelled);
                Arc::new(UserCounts { is_labelled, ..UserCounts::default() })
            };
            (Box::from(user.name.as_ref()), known(user).cloned().unwrap_or_else(new))
        };
        let now: HashMap<_, _> = users.iter().map(entry).collect();
        let gone = before.iter().filter(|(name, counts)| counts.is_labelled && !now.contains_key(*name));
        let gone = gone.map(|(_, counts)| counts.clone()).collect();
        self.configured.store(Arc::new(now));
        gone
    }

    /// Counts an ended request, or only the cost of a request that was counted before. Returns whether the user has a
    /// label in the metrics.
    pub(super) fn count(&self, peer: &Peer, slug: Option<&'static str>, cost: Cost) -> bool {
        match &peer.user {
            Some(user) => {
                let users = self.configured.load();
                users.get(user.name.as_ref()).is_some_and(|counts| counts.count(slug, cost))
            }
            None => {
                let address = per_client::client(peer.address.ip());
                let made = self.addresses.get_or_insert_with(&address, || Ok::<_, ()>(Arc::default()));
                made.is_ok_and(|counts| counts.count(slug, cost))
            }
        }
    }

    /// The labelled users that have sent requests.
    pub(super) fn labelled(&self) -> Vec<(Box<str>, OutcomeCounts)> {
        let users = self.configured.load();
        let asked = users.iter().filter(|(_, counts)| counts.is_labelled && counts.requests.load(Relaxed) > 0);
        asked.map(|(name, counts)| (name.clone(), counts.outcomes.read())).collect()
    }

    /// Users and addresses with the most requests, busiest first.
    pub(super) fn busiest(&self, most: usize) -> Vec<UserFigures> {
        let configured = self.configured.load();
        let asked =
            |counts: &UserCounts| Some(Reverse(counts.requests.load(Relaxed))).filter(|requests| requests.0 > 0);
        let mut users: Vec<_> =
            configured.iter().filter_map(|(name, counts)| Some((asked(counts)?, name, counts))).collect();
        if most < users.len() {
            users.select_nth_unstable_by_key(most, |(requests, ..)| *requests);
            users.truncate(most);
        }
        let users =
            users.into_iter().map(|(requests, name, counts)| (requests, Who::User(name.clone()), counts.clone()));
        let address = |(address, counts): (_, Arc<UserCounts>)| Some((asked(&counts)?, Who::Address(address), counts));
        let mut all: Vec<_> = users.chain(self.addresses.iter().filter_map(address)).collect();
        all.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        let figures = |(Reverse(requests), who, counts): (_, _, Arc<UserCounts>)| UserFigures {
            who,
            requests,
            outcomes: counts.outcomes.read(),
            bytes: counts.bytes.load(Relaxed),
            waited: Duration::from_millis(counts.waited.load(Relaxed)),
        };
        all.into_iter().take(most).map(figures).collect()
    }
}

impl UserCounts {
    fn count(&self, slug: Option<&'static str>, cost: Cost) -> bool {
        if let Some(slug) = slug {
            self.requests.fetch_add(1, Relaxed);
            self.outcomes.count(slug);
        }
        self.bytes.fetch_add(cost.bytes, Relaxed);
        self.waited.fetch_add(u64::try_from(cost.held.as_millis()).unwrap_or(u64::MAX), Relaxed);
        self.is_labelled
    }
}

/// Maximum number of users with a label in the metrics: the first configured ones. A user keeps the label across reloads.
const MOST_LABELLED: usize = 200;
const MOST_ADDRESSES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::super::counters::{Counters, Details};
    use super::*;
    use crate::config::Settings;
    use std::net::SocketAddr;
    use std::sync::Barrier;
    use std::thread;

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA";

    fn users(count: usize) -> Vec<Arc<User>> {
        let one = Settings::parse("test.yaml", &format!("access: {{ users: [{{ name: u, password: '{HASH}' }}] }}"));
        let one = &one.unwrap().access.users[0];
        let named = |number: usize| {
            let mut user = User::clone(one);
            user.name = serde_json::from_value(format!("u{number}").into()).unwrap();
            Arc::new(user)
        };
        (0..count).map(named).collect()
    }

    fn peer(address: impl Into<IpAddr>, user: Option<&Arc<User>>) -> Peer {
        let mut peer = Peer::new(SocketAddr::new(address.into(), 1), false);
        peer.user = user.cloned();
        peer
    }

    fn counters(users: &[Arc<User>]) -> Counters {
        let counters = Counters::default();
        counters.configure(users);
        counters
    }

    fn series(details: &Details, user: &str, slug: &str) -> Option<u64> {
        let of_user = details.users.iter().find(|(name, _)| **name == *user);
        of_user.and_then(|(_, counts)| counts.get(slug)).copied()
    }

    const HERE: [u8; 4] = [127, 0, 0, 1];

    #[test]
    fn each_request_is_counted_once_and_no_count_falls() {
        let users = users(MOST_LABELLED + 2);
        let counters = counters(&users);
        let ended = |slug, user| counters.ended(Some(slug), &peer(HERE, user), Cost::default());
        ended("forwarded", None);
        let before = counters.details();
        assert_eq!((series(&before, "", "forwarded"), before.users.len()), (Some(1), 1));
        users.iter().for_each(|user| ended("crawl-delay", Some(user)));
        ended("forwarded", Some(&users[0]));
        let after = counters.details();
        assert_eq!(series(&after, "", "forwarded"), Some(1), "requests of a user are not counted among the others");
        assert_eq!((series(&after, "u0", "forwarded"), series(&after, "u0", "crawl-delay")), (Some(1), Some(1)));
        assert_eq!(series(&after, "", "crawl-delay"), Some(2), "users beyond the maximum are counted among the others");
        let all = |details: &Details| (details.outcomes()["forwarded"], details.outcomes()["crawl-delay"]);
        assert_eq!(all(&after), (2, users.len() as u64));
        assert_eq!((counters.read().forwarded, counters.read().refused["crawl-delay"]), all(&after));
        // A reload removes a labelled user and keeps one beyond the bound.
        counters.configure(&users[1..]);
        assert_eq!(all(&counters.details()), all(&after));
        assert_eq!(series(&counters.details(), "u0", "forwarded"), None);
        ended("forwarded", Some(&users[0]));
        assert_eq!(series(&counters.details(), "", "forwarded"), Some(3), "a tunnel of the removed user is still open");
        let busiest = counters.busiest(usize::MAX);
        assert_eq!(busiest.len(), MOST_LABELLED + 2, "the address and all configured users: {busiest:?}");
    }

    #[test]
    fn the_busiest_users_and_addresses_come_first() {
        for count in [100, 100_000] {
            let users = users(count);
            let counters = counters(&users);
            for (number, user) in users.iter().enumerate() {
                let cost = Cost { bytes: 10, held: Duration::from_millis(1500) };
                let requests = if number % 20 == 7 { 50 } else { 1 };
                (0..requests).for_each(|_| counters.ended(Some("forwarded"), &peer(HERE, Some(user)), cost));
            }
            for number in 0..10_000_u32 {
                counters.ended(Some("client-denied"), &peer(number.to_be_bytes(), None), Cost::default());
            }
            let shown = counters.busiest(3);
            assert!(shown.iter().all(|user| (user.requests, user.bytes) == (50, 500)), "{count}: {shown:?}");
            assert_eq!(shown[0].waited, Duration::from_secs(75));
            let (all, addresses) = (counters.busiest(usize::MAX), counters.users.addresses.len());
            assert_eq!(all.len(), count + addresses);
            assert!(addresses <= MOST_ADDRESSES + MOST_ADDRESSES / 10, "{addresses}");
            assert_eq!(counters.details().users.len(), MOST_LABELLED.min(count) + 1);
            assert_eq!(counters.read().refused["client-denied"], 10_000, "the sum includes dropped addresses");
        }
    }

    #[test]
    fn unconfigured_users_get_no_entry_and_busy_addresses_are_kept() {
        let (configured, unknown) = (users(1), users(2).remove(1));
        let counters = counters(&configured);
        let network = |host: u16| [0x2001, 0xdb8, 0, 0, 0, 0, 0, host];
        for host in 0..100 {
            counters.ended(Some("forwarded"), &peer(network(host), None), Cost::default());
        }
        for number in 0..20_000_u32 {
            let peer = peer(number.to_be_bytes(), None);
            counters.ended(Some("client-denied"), &peer, Cost::default());
        }
        counters.ended(Some("forwarded"), &peer(HERE, Some(&unknown)), Cost::default());
        let all = counters.busiest(usize::MAX);
        assert_eq!((&all[0].who, all[0].requests), (&Who::Address(network(0).into()), 100));
        assert!(all.iter().all(|user| matches!(user.who, Who::Address(_))), "{all:?}");
    }

    #[test]
    fn no_count_is_lost_between_threads_and_reloads() {
        const EACH: u64 = 20_000;
        let users = users(2);
        let (counters, start) = (counters(&users), Barrier::new(4));
        let cost = Cost { bytes: 1, held: Duration::from_millis(1) };
        thread::scope(|scope| {
            for slug in ["forwarded", "failed", "crawl-delay"] {
                scope.spawn(|| {
                    start.wait();
                    (0..EACH).for_each(|_| counters.ended(Some(slug), &peer(HERE, Some(&users[0])), cost));
                });
            }
            start.wait();
            (0..100).for_each(|count| counters.configure(&users[..1 + count % 2]));
        });
        let of_user = &counters.busiest(1)[0];
        assert_eq!((of_user.requests, of_user.bytes, of_user.waited.as_millis()), (3 * EACH, 3 * EACH, 60_000));
        assert!(of_user.outcomes.values().all(|count| [0, EACH].contains(count)), "{of_user:?}");
    }
}
