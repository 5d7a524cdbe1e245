//! What has been answered since the start.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of answers, by where they came from.
#[derive(Default)]
pub struct Counters {
    forwarded: AtomicU64,
    failed: AtomicU64,
    client_gone: AtomicU64,
    tunnels: AtomicU64,
    unverified: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    reported: Mutex<BTreeMap<&'static str, u64>>,
    distrusted: Mutex<BTreeMap<&'static str, u64>>,
    failures: Mutex<BTreeMap<Box<str>, HostFailures>>,
}

/// What went wrong with one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFailures {
    pub count: u64,
    /// What the last client was told.
    pub last: String,
}

/// A reading of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Answered by the origin.
    pub forwarded: u64,
    /// The origin could not be reached, or broke off.
    pub failed: u64,
    /// The client left before it had its answer, or the rest of it.
    pub client_gone: u64,
    /// Of those that were forwarded: connections whose inside is not served here.
    pub tunnels: u64,
    /// Answered by whoever took the place of an origin whose certificate is not verified.
    pub unverified: u64,
    /// Refused, by the refusal's slug.
    pub refused: BTreeMap<&'static str, u64>,
    /// Let through in report mode: what would have been.
    pub reported: BTreeMap<&'static str, u64>,
    /// TLS connections that clients ended over our certificate, by how.
    pub distrusted: BTreeMap<&'static str, u64>,
}

impl Counters {
    pub(in crate::proxy) fn forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::proxy) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::proxy) fn client_gone(&self) {
        self.client_gone.fetch_add(1, Ordering::Relaxed);
    }

    /// The same, through the fault of this host or of the way to it.
    pub(in crate::proxy) fn failed_at(&self, host: impl ToString, why: &str) {
        self.failed();
        let (host, mut failures) = (host.to_string(), self.failures.lock());
        if failures.len() == MOST_HOSTS && !failures.contains_key(host.as_str()) {
            return;
        }
        let of_host = failures.entry(host.into()).or_insert(HostFailures { count: 0, last: String::new() });
        (of_host.count, of_host.last) = (of_host.count + 1, why.to_owned());
    }

    pub(in crate::proxy) fn tunnelled(&self) {
        self.tunnels.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::proxy) fn unverified(&self) {
        self.unverified.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::proxy) fn refused(&self, slug: &'static str) {
        *self.refused.lock().entry(slug).or_default() += 1;
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
        Counts {
            forwarded: self.forwarded.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            client_gone: self.client_gone.load(Ordering::Relaxed),
            tunnels: self.tunnels.load(Ordering::Relaxed),
            unverified: self.unverified.load(Ordering::Relaxed),
            refused: self.refused.lock().clone(),
            reported: self.reported.lock().clone(),
            distrusted: self.distrusted.lock().clone(),
        }
    }
}

/// Whose failures are told one by one.
const MOST_HOSTS: usize = 1000;
