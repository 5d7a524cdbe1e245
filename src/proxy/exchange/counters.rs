//! Counters since the start.

use super::outcome_counts::{OutcomeCounts, Outcomes, add};
use super::users::{Cost, UserFigures, Users};
use crate::config::User;
use crate::histogram::{Distribution, Histogram};
use crate::policy::{Currency, Money, Signal, UsageReport};
use crate::proxy::client::Peer;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of requests, and latencies.
#[derive(Default)]
pub struct Counters {
    /// Outcomes of requests whose client has no label in the metrics.
    others: Outcomes,
    pub(super) users: Users,
    pub(super) tunnels: AtomicU64,
    pub(super) unverified: AtomicU64,
    pub(super) refused_after_answer: AtomicU64,
    reported: Mutex<BTreeMap<&'static str, u64>>,
    distrusted: Mutex<BTreeMap<&'static str, u64>>,
    failures: Mutex<BTreeMap<Box<str>, HostFailures>>,
    /// Requests sent on new and on reused connections.
    sent: [AtomicU64; 2],
    /// TLS handshakes with clients: succeeded, failed.
    handshakes: [AtomicU64; 2],
    /// Answers with a valid signal, and with a malformed one, each in the order of `Signal::ALL`.
    noted: [[AtomicU64; Signal::ALL.len()]; 2],
    /// Sum of charges in each currency, in millionths.
    charged: Mutex<BTreeMap<Currency, u64>>,
    /// Latencies of origins.
    pub(super) origin: Histogram,
    /// Latencies of decisions.
    pub(super) decision: Histogram,
}

/// Failures of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFailures {
    pub count: u64,
    /// Detail of the last failure.
    pub last: String,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests answered by the origin, from the cache, or by the proxy itself without a refusal.
    pub forwarded: u64,
    /// Requests that failed: the origin was unreachable or broke off, or the body of the request was malformed or too slow.
    pub failed: u64,
    /// Requests whose client left before it had the whole answer.
    pub client_gone: u64,
    /// Ended tunnels, which `forwarded` includes.
    pub tunnels: u64,
    /// Requests answered by an origin whose certificate was not verified.
    pub unverified: u64,
    /// Refused requests, by slug.
    pub refused: BTreeMap<&'static str, u64>,
    /// The requests in `refused` that the origin had answered before the refusal. That answer was not delivered.
    pub refused_after_answer: u64,
    /// Decisions that were not enforced, because of report mode or a setting `report`, by slug: of the refusal, or `held`.
    pub reported: BTreeMap<&'static str, u64>,
    /// TLS connections that clients ended because of our certificate, by reason.
    pub distrusted: BTreeMap<&'static str, u64>,
}

impl Details {
    /// Outcomes of all requests, without user names.
    pub fn outcomes(&self) -> OutcomeCounts {
        self.users.iter().fold(OutcomeCounts::new(), |mut all, (_, counts)| {
            add(&mut all, counts);
            all
        })
    }
}

/// Figures that the metrics show in addition to [`Counts`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Details {
    /// Outcomes of each user with a label in the metrics, and of all other clients together under `""`.
    pub users: Vec<(Box<str>, OutcomeCounts)>,
    /// Requests sent on new and on reused connections.
    pub sent: [u64; 2],
    /// TLS handshakes with clients: succeeded, failed.
    pub handshakes: [u64; 2],
    /// Answers with a valid signal, and with a malformed one, each by signal.
    pub noted: [Vec<(&'static str, u64)>; 2],
    /// Sum of charges in each currency.
    pub charged: Vec<Money>,
    /// Time from sending a request to the head of its answer.
    pub origin: Distribution,
    /// Time from a request's head to its decision.
    pub decision: Distribution,
}

impl Counters {
    /// Applies the users of a new configuration.
    pub(in crate::proxy) fn configure(&self, users: &[Arc<User>]) {
        let gone = self.users.configure(users);
        gone.iter().for_each(|counts| self.others.take_over(&counts.outcomes.read()));
    }

    /// Counts an ended request and its cost. `slug`: `forwarded`, `failed`, `client-gone` or a refusal's; `None`: only the cost.
    #[inline]
    pub(in crate::proxy) fn ended(&self, slug: Option<&'static str>, peer: &Peer, cost: Cost) {
        let is_labelled = self.users.count(peer, slug, cost);
        slug.filter(|_| !is_labelled).into_iter().for_each(|slug| self.others.count(slug));
    }

    /// Figures of users, and of addresses without a user, busiest first.
    pub fn busiest(&self, most: usize) -> Vec<UserFigures> {
        self.users.busiest(most)
    }

    /// Counts a request sent to its origin.
    #[inline]
    pub(in crate::proxy) fn sent(&self, reused: bool) {
        self.sent[usize::from(reused)].fetch_add(1, Relaxed);
    }

    /// Counts an answer with usage preferences. `promised`: the price that the request offered, which bounds the charge.
    pub(in crate::proxy) fn noted(&self, noted: &UsageReport, promised: Option<Money>) {
        let [said, malformed] = &self.noted;
        let count = |counts: &[AtomicU64], signal| {
            let place = Signal::ALL.iter().position(|it| *it == signal);
            place.map(|place| counts[place].fetch_add(1, Relaxed));
        };
        noted.signals().for_each(|signal| count(said, signal));
        noted.malformed.iter().for_each(|signal| count(malformed, *signal));
        if let Some((Money { currency, micros }, promised)) = noted.charged.zip(promised)
            && currency == promised.currency
        {
            let mut charged = self.charged.lock();
            if charged.len() < MOST_CURRENCIES || charged.contains_key(&currency) {
                let sum = charged.entry(currency).or_default();
                *sum = sum.saturating_add(micros.min(promised.micros));
            }
        }
    }

    /// Counts a TLS handshake with a client.
    pub(in crate::proxy) fn handshake(&self, is_good: bool) {
        self.handshakes[usize::from(!is_good)].fetch_add(1, Relaxed);
    }

    /// Counts a failure of this host or of the connection to it.
    pub(in crate::proxy) fn failed_at(&self, host: impl ToString, why: &str) {
        let (host, mut failures) = (host.to_string(), self.failures.lock());
        if failures.len() == MOST_HOSTS && !failures.contains_key(host.as_str()) {
            // Drops a random one of the hosts with the fewest failures, so that a host that fails again and again stays.
            let all = failures.iter().cycle().skip(fastrand::usize(..MOST_HOSTS)).take(MOST_HOSTS);
            let least = all.min_by_key(|(_, known)| known.count).map(|(host, _)| host.clone());
            least.and_then(|host| failures.remove(&host));
        }
        let of_host = failures.entry(host.into()).or_insert(HostFailures { count: 0, last: String::new() });
        (of_host.count, of_host.last) = (of_host.count + 1, why.to_owned());
    }

    pub(in crate::proxy) fn reported(&self, slug: &'static str) {
        *self.reported.lock().entry(slug).or_default() += 1;
    }

    pub(in crate::proxy) fn distrusted(&self, slug: &'static str) {
        *self.distrusted.lock().entry(slug).or_default() += 1;
    }

    /// Failures by host. If there are many hosts, those that failed most often.
    pub fn failures(&self) -> BTreeMap<Box<str>, HostFailures> {
        self.failures.lock().clone()
    }

    pub fn read(&self) -> Counts {
        let mut all = self.others.read();
        self.users.labelled().iter().for_each(|(_, outcomes)| add(&mut all, outcomes));
        let [forwarded, failed, client_gone] =
            ["forwarded", "failed", "client-gone"].map(|slug| all.remove(slug).unwrap_or_default());
        Counts {
            forwarded,
            failed,
            client_gone,
            tunnels: self.tunnels.load(Relaxed),
            unverified: self.unverified.load(Relaxed),
            refused: all,
            refused_after_answer: self.refused_after_answer.load(Relaxed),
            reported: self.reported.lock().clone(),
            distrusted: self.distrusted.lock().clone(),
        }
    }

    pub fn details(&self) -> Details {
        let users = self.users.labelled().into_iter().chain([(Box::from(""), self.others.read())]).collect();
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

/// Maximum number of hosts whose failures are counted.
const MOST_HOSTS: usize = 1000;
const MOST_CURRENCIES: usize = 16;

/// Whether to sample this decision's latency.
pub fn samples_latency() -> bool {
    thread_local!(static COUNT: Cell<u8> = const { Cell::new(0) });
    COUNT.with(|count| count.replace((count.get() + 1) % LATENCY_SAMPLE)) == 0
}

/// Sampling interval: one in this many decisions is sampled.
const LATENCY_SAMPLE: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequently_failing_host_is_listed_after_many_others() {
        let counters = Counters::default();
        (0..3 * MOST_HOSTS).for_each(|number| counters.failed_at(format!("once{number}"), "refused"));
        for number in 0..50 {
            counters.failed_at("often", "timed out");
            counters.failed_at(format!("later{number}"), "refused");
        }
        let failures = counters.failures();
        assert_eq!(failures.len(), MOST_HOSTS);
        assert!(failures["often"].count > 25, "{:?}", failures["often"]);
    }
}
