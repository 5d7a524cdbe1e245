//! Memory of answers: usage reservations, and when pages were delivered.

use super::request::Request;
use crate::policy::{self, HostRules, Reservation, RobotsOverride, Visit};
use crate::robots::ProductToken;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

/// Reservations by URL, product tokens and purposes.
pub struct Reservations {
    hasher: RandomState,
    reservations: Cache<u64, RememberedReservation>,
}

#[derive(Clone)]
pub struct RememberedReservation {
    pub reservation: Box<Reservation>,
    /// When the answer with the reservation arrived.
    pub said: SystemTime,
    /// When the reservation expires. Monotonic, so that clock changes do not matter.
    pub(super) until: Instant,
}

impl Default for Reservations {
    fn default() -> Self {
        Reservations { hasher: RandomState::new(), reservations: Cache::new(MAX_RESERVATIONS) }
    }
}

impl Reservations {
    /// Returns the remembered reservation that refuses the request. `None`: there is none, or the answer that stated it is no longer fresh.
    pub fn get(&self, asked: &policy::Request<'_>, rules: &HostRules) -> Option<RememberedReservation> {
        // A shortcut, because most sites reserve nothing.
        let found = if self.reservations.is_empty() { None } else { self.reservations.get(&self.key(asked, rules)) }?;
        let holds = rules.usage.of(found.reservation.field) == RobotsOverride::Enforce
            && !rules.options.report_only
            && rules.purposes().iter().any(|purpose| purpose.as_str() == &*found.reservation.purpose);
        (holds && Instant::now() < found.until).then_some(found)
    }

    pub(super) fn put(&self, asked: &policy::Request<'_>, rules: &HostRules, reservation: RememberedReservation) {
        self.reservations.insert(self.key(asked, rules), reservation);
    }

    fn key(&self, asked: &policy::Request<'_>, rules: &HostRules) -> u64 {
        let tokens = rules.product_tokens(asked);
        let tokens: Vec<_> = tokens.iter().map(ProductToken::as_str).collect();
        self.hasher.hash_one((asked.authority, asked.target, tokens, rules.purposes()))
    }
}

/// Recently delivered pages, by hash of their URL.
#[derive(Default)]
pub struct Visits {
    hasher: RandomState,
    /// Created once a host has `min_revisit`.
    visits: OnceLock<Cache<u64, Arc<Visit>, VisitBytes>>,
}

#[derive(Clone)]
struct VisitBytes;

impl Weighter<u64, Arc<Visit>> for VisitBytes {
    fn weight(&self, _: &u64, visit: &Arc<Visit>) -> u64 {
        (visit.bytes() + OVERHEAD) as u64
    }
}

impl Visits {
    /// The key of the request's URL. The path is normalized: all spellings are one page (RFC 9110 §4.2.3).
    pub(super) fn key(&self, request: &Request<'_>) -> u64 {
        self.hasher.hash_one((&request.authority, policy::normalised(&request.target)))
    }

    pub(super) fn get(&self, key: u64) -> Option<Arc<Visit>> {
        self.visits.get()?.get(&key)
    }

    pub(super) fn put(&self, key: u64, visit: Visit) {
        let visits = self.visits.get_or_init(|| Cache::with_weighter(EXPECTED, MAX_BYTES, VisitBytes));
        visits.insert(key, Arc::new(visit));
    }
}

/// Maximum number of remembered reservations.
const MAX_RESERVATIONS: usize = 100_000;
/// Maximum memory for visits in bytes. `EXPECTED`: their expected number.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const EXPECTED: usize = 200_000;
/// Overhead of an entry in bytes.
const OVERHEAD: usize = 64;
