//! Memory of answers: usage reservations, and when pages were delivered.

use super::per_user::asked;
use super::request::Request;
use crate::policy::{self, HostRules, Reservation, Visit};
use crate::proxy::client::Peer;
use crate::robots::ProductToken;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Reservations by URL, product tokens and purposes.
pub struct Reservations {
    hasher: RandomState,
    reservations: Cache<u64, RememberedReservation>,
}

#[derive(Clone)]
pub(super) struct RememberedReservation {
    pub(super) reservation: Box<Reservation>,
    /// Monotonic: clock changes do not matter.
    pub(super) until: Instant,
}

impl Default for Reservations {
    fn default() -> Self {
        Reservations { hasher: RandomState::new(), reservations: Cache::new(MAX_RESERVATIONS) }
    }
}

impl Reservations {
    pub(super) fn get(&self, request: &Request<'_>, peer: &Peer, rules: &HostRules) -> Option<RememberedReservation> {
        // Most sites reserve nothing.
        if self.reservations.is_empty() { None } else { self.reservations.get(&self.key(request, peer, rules)) }
    }

    pub(super) fn put(
        &self,
        request: &Request<'_>,
        peer: &Peer,
        rules: &HostRules,
        reservation: RememberedReservation,
    ) {
        self.reservations.insert(self.key(request, peer, rules), reservation);
    }

    fn key(&self, request: &Request<'_>, peer: &Peer, rules: &HostRules) -> u64 {
        let asked = asked(request, peer);
        let tokens = rules.product_tokens(&asked);
        let tokens: Vec<_> = tokens.iter().map(ProductToken::as_str).collect();
        self.hasher.hash_one((&request.authority, &request.target, tokens, rules.purposes()))
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
    /// Normalizes the path: all spellings are one page (RFC 9110 §4.2.3).
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

/// Remembered URLs.
const MAX_RESERVATIONS: usize = 100_000;
/// Memory of visits in bytes, and their expected number.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const EXPECTED: usize = 200_000;
/// Overhead of an entry in bytes.
const OVERHEAD: usize = 64;
