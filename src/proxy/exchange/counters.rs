//! What has been answered since the start.

use crate::config::User;
use crate::histogram::{Distribution, Histogram};
use crate::policy::{Currency, Money, Signal, UsageReport};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts of answers, by where they came from, and how long some things took.
#[derive(Default)]
pub struct Counters {
    /// Of clients that are none of `users`.
    others: Outcomes,
    users: RwLock<BTreeMap<Box<str>, Arc<Outcomes>>>,
    tunnels: AtomicU64,
    unverified: AtomicU64,
    reported: Mutex<BTreeMap<&'static str, u64>>,
    distrusted: Mutex<BTreeMap<&'static str, u64>>,
    failures: Mutex<BTreeMap<Box<str>, HostFailures>>,
    /// Requests sent on connections that were new, and on those that had been used before.
    sent: [AtomicU64; 2],
    /// TLS handshakes with clients: good ones, and others.
    handshakes: [AtomicU64; 2],
    /// By `Signal::ALL`: answers that say it, and that say it so that nobody understands.
    noted: [[AtomicU64; Signal::ALL.len()]; 2],
    /// What answers have charged, in millionths.
    charged: Mutex<BTreeMap<Currency, u64>>,
    origin: Histogram,
    decision: Histogram,
}

/// How requests ended.
#[derive(Default)]
struct Outcomes {
    /// Nearly all of them.
    forwarded: AtomicU64,
    others: Mutex<OutcomeCounts>,
}

/// What went wrong with one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFailures {
    pub count: u64,
    /// What the last client was answered.
    pub last: String,
}

/// A reading of them.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Answered by the origin.
    pub forwarded: u64,
    /// The origin could not be reached, or broke off.
    pub failed: u64,
    /// The client left before it had its answer, or the rest of it.
    pub client_gone: u64,
    /// Of those that were forwarded: connections whose inside is not served here.
    pub tunnels: u64,
    /// Answered by an origin whose certificate is not verified.
    pub unverified: u64,
    /// Refused, by the refusal's slug.
    pub refused: BTreeMap<&'static str, u64>,
    /// Let through in report mode: what would have been.
    pub reported: BTreeMap<&'static str, u64>,
    /// TLS connections that clients ended over our certificate, by how.
    pub distrusted: BTreeMap<&'static str, u64>,
}

/// How a user's requests ended, or everybody's: slugs as in `outcome` of the metrics.
pub type OutcomeCounts = BTreeMap<&'static str, u64>;

impl Details {
    /// How everybody's requests ended, with no names.
    pub fn outcomes(&self) -> OutcomeCounts {
        self.users.iter().fold(OutcomeCounts::new(), |mut all, (_, counts)| {
            add(&mut all, counts);
            all
        })
    }
}

/// What else there is to read.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Details {
    /// By user: the first users that asked. The others are `""`.
    pub users: Vec<(Box<str>, OutcomeCounts)>,
    /// Requests sent on connections that were new, and on those that had been used before.
    pub sent: [u64; 2],
    /// TLS handshakes with clients: good ones, and others.
    pub handshakes: [u64; 2],
    /// By signal: answers that say it, and that say it so that nobody understands.
    pub noted: [Vec<(&'static str, u64)>; 2],
    /// What answers have charged.
    pub charged: Vec<Money>,
    /// From when requests were sent to the heads of their answers.
    pub origin: Distribution,
    /// From the heads of requests to decisions.
    pub decision: Distribution,
}

impl Outcomes {
    fn read(&self) -> OutcomeCounts {
        let mut counts = OutcomeCounts::from([("failed", 0), ("client-gone", 0)]);
        add(&mut counts, &self.others.lock());
        counts.insert("forwarded", self.forwarded.load(Relaxed));
        counts
    }
}

impl Counters {
    pub(in crate::proxy) fn forwarded(&self, user: Option<&User>) {
        self.count(user, |outcomes| _ = outcomes.forwarded.fetch_add(1, Relaxed));
    }

    /// It ended so: `failed`, `client-gone`, the slug of a refusal.
    pub(in crate::proxy) fn ended(&self, slug: &'static str, user: Option<&User>) {
        self.count(user, |outcomes| *outcomes.others.lock().entry(slug).or_default() += 1);
    }

    #[inline]
    fn count(&self, user: Option<&User>, count: impl Fn(&Outcomes)) {
        match user.and_then(|user| self.of_user(user.name.as_ref())) {
            Some(outcomes) => count(&outcomes),
            None => count(&self.others),
        }
    }

    /// `None`: too many others have asked before.
    fn of_user(&self, name: &str) -> Option<Arc<Outcomes>> {
        if let Some(known) = self.users.read().get(name) {
            return Some(known.clone());
        }
        let mut users = self.users.write();
        if users.len() == MOST_USERS && !users.contains_key(name) {
            return None;
        }
        Some(users.entry(name.into()).or_default().clone())
    }

    /// A request is sent to its origin.
    #[inline]
    pub(in crate::proxy) fn sent(&self, reused: bool) {
        self.sent[usize::from(reused)].fetch_add(1, Relaxed);
    }

    /// Its answer begins.
    #[inline]
    pub(in crate::proxy) fn answered(&self, after: Duration) {
        self.origin.observe(after);
    }

    /// An answer says something about its use.
    pub(in crate::proxy) fn noted(&self, noted: &UsageReport) {
        let [said, malformed] = &self.noted;
        noted.signals().for_each(|signal| _ = said[signal as usize].fetch_add(1, Relaxed));
        noted.malformed.iter().for_each(|signal| _ = malformed[*signal as usize].fetch_add(1, Relaxed));
        if let Some(Money { currency, micros }) = noted.charged {
            let mut charged = self.charged.lock();
            if charged.len() < MOST_CURRENCIES || charged.contains_key(&currency) {
                let sum = charged.entry(currency).or_default();
                *sum = sum.saturating_add(micros);
            }
        }
    }

    /// It was decided about a request.
    pub(in crate::proxy) fn decided(&self, after: Duration) {
        self.decision.observe(after);
    }

    /// A TLS handshake with a client is over.
    pub(in crate::proxy) fn handshake(&self, is_good: bool) {
        self.handshakes[usize::from(!is_good)].fetch_add(1, Relaxed);
    }

    /// A request has failed, through the fault of this host or of the way to it.
    pub(in crate::proxy) fn failed_at(&self, host: impl ToString, why: &str, user: Option<&User>) {
        self.ended("failed", user);
        let (host, mut failures) = (host.to_string(), self.failures.lock());
        if failures.len() == MOST_HOSTS && !failures.contains_key(host.as_str()) {
            return;
        }
        let of_host = failures.entry(host.into()).or_insert(HostFailures { count: 0, last: String::new() });
        (of_host.count, of_host.last) = (of_host.count + 1, why.to_owned());
    }

    pub(in crate::proxy) fn tunnelled(&self) {
        self.tunnels.fetch_add(1, Relaxed);
    }

    pub(in crate::proxy) fn unverified(&self) {
        self.unverified.fetch_add(1, Relaxed);
    }

    pub(in crate::proxy) fn reported(&self, slug: &'static str) {
        *self.reported.lock().entry(slug).or_default() += 1;
    }

    pub(in crate::proxy) fn distrusted(&self, slug: &'static str) {
        *self.distrusted.lock().entry(slug).or_default() += 1;
    }

    /// By host: the first hosts that failed.
    pub fn failures(&self) -> BTreeMap<Box<str>, HostFailures> {
        self.failures.lock().clone()
    }

    pub fn read(&self) -> Counts {
        let mut all = self.others.read();
        self.users.read().values().for_each(|outcomes| add(&mut all, &outcomes.read()));
        let [forwarded, failed, client_gone] =
            ["forwarded", "failed", "client-gone"].map(|slug| all.remove(slug).unwrap_or_default());
        Counts {
            forwarded,
            failed,
            client_gone,
            tunnels: self.tunnels.load(Relaxed),
            unverified: self.unverified.load(Relaxed),
            refused: all,
            reported: self.reported.lock().clone(),
            distrusted: self.distrusted.lock().clone(),
        }
    }

    pub fn details(&self) -> Details {
        let by_user: Vec<_> = self.users.read().iter().map(|(name, it)| (name.clone(), it.read())).collect();
        let users = by_user.into_iter().chain([(Box::from(""), self.others.read())]).collect();
        let [sent, handshakes] =
            [&self.sent, &self.handshakes].map(|all| all.each_ref().map(|count| count.load(Relaxed)));
        let noted = self.noted.each_ref().map(|counts| {
            Signal::ALL.iter().zip(counts).map(|(signal, count)| (signal.slug(), count.load(Relaxed))).collect()
        });
        let charged = self.charged.lock().iter().map(|(&currency, &micros)| Money { currency, micros }).collect();
        let (origin, decision) = (self.origin.read(), self.decision.read());
        Details { users, sent, handshakes, noted, charged, origin, decision }
    }
}

fn add(all: &mut OutcomeCounts, more: &OutcomeCounts) {
    for (slug, count) in more {
        *all.entry(slug).or_default() += count;
    }
}

/// Whose failures are counted one by one.
const MOST_HOSTS: usize = 1000;
const MOST_CURRENCIES: usize = 16;
/// Whose requests are counted one by one.
const MOST_USERS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn users(count: usize) -> Vec<Arc<User>> {
        let user = |number| {
            format!("{{ name: u{number}, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA' }}")
        };
        let all: Vec<_> = (0..count).map(user).collect();
        let yaml = format!("access: {{ users: [{}] }}", all.join(", "));
        Settings::parse("test.yaml", &yaml).unwrap().access.users
    }

    #[test]
    fn each_request_counts_once_for_its_user_or_for_the_others_and_no_count_falls() {
        let counters = Counters::default();
        let users = users(MOST_USERS + 2);
        let count = |details: &Details, user: &str, slug: &str| {
            let of_user = details.users.iter().find(|(name, _)| **name == *user);
            of_user.and_then(|(_, counts)| counts.get(slug)).copied()
        };
        counters.forwarded(None);
        let before = counters.details();
        assert_eq!((count(&before, "", "forwarded"), before.users.len()), (Some(1), 1));
        users.iter().for_each(|user| counters.ended("crawl-delay", Some(user)));
        counters.forwarded(Some(&users[0]));
        let after = counters.details();
        assert_eq!(count(&after, "", "forwarded"), Some(1), "what a user asks takes nothing from the others");
        assert_eq!((count(&after, "u0", "forwarded"), count(&after, "u0", "crawl-delay")), (Some(1), Some(1)));
        assert_eq!(count(&after, "", "crawl-delay"), Some(2), "those beyond the bound are among the others");
        let all = (counters.read().forwarded, counters.read().refused["crawl-delay"]);
        assert_eq!(all, (2, MOST_USERS as u64 + 2));
        assert_eq!((after.outcomes()["forwarded"], after.outcomes()["crawl-delay"]), all);
    }
}
