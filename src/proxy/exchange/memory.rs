//! What is remembered of answers: what they have said about their use, and when pages were delivered.

use super::per_user::asked;
use super::request::Request;
use crate::policy::{self, HostRules, Reservation, Visit};
use crate::proxy::client::Peer;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use ring::digest;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What has been said, by URL and for whom.
pub struct Reserved(Cache<Key, RememberedReservation>);

type Key = [u8; 32];

#[derive(Clone)]
pub(super) struct RememberedReservation {
    pub(super) reservation: Box<Reservation>,
    /// Whatever the clock is set to meanwhile.
    pub(super) until: Instant,
}

impl Default for Reserved {
    fn default() -> Self {
        Reserved(Cache::new(MOST))
    }
}

impl Reserved {
    pub(super) fn get(&self, request: &Request<'_>, peer: &Peer, rules: &HostRules) -> Option<RememberedReservation> {
        self.0.get(&key(request, peer, rules))
    }

    pub(super) fn put(&self, request: &Request<'_>, peer: &Peer, rules: &HostRules, said: RememberedReservation) {
        self.0.insert(key(request, peer, rules), said);
    }
}

/// The pages that were delivered last: hashes of their URLs, and when.
#[derive(Default)]
pub struct Visits {
    hasher: RandomState,
    /// Once any host has a `min_revisit`.
    visits: OnceLock<Cache<u64, Arc<Visit>, VisitBytes>>,
}

#[derive(Clone)]
struct VisitBytes;

impl Weighter<u64, Arc<Visit>> for VisitBytes {
    fn weight(&self, _: &u64, visit: &Arc<Visit>) -> u64 {
        (visit.bytes() + ROW) as u64
    }
}

impl Visits {
    /// However its path is spelt: that makes no other page of it (RFC 9110 §4.2.3).
    pub(super) fn key(&self, request: &Request<'_>) -> u64 {
        self.hasher.hash_one((&request.authority, policy::normalised(&request.target)))
    }

    pub(super) fn get(&self, key: u64) -> Option<Arc<Visit>> {
        self.visits.get()?.get(&key)
    }

    pub(super) fn put(&self, key: u64, visit: Visit) {
        let visits = self.visits.get_or_init(|| Cache::with_weighter(ABOUT, MOST_BYTES, VisitBytes));
        visits.insert(key, Arc::new(visit));
    }
}

fn key(request: &Request<'_>, peer: &Peer, rules: &HostRules) -> Key {
    let mut digest = digest::Context::new(&digest::SHA256);
    digest.update(request.url().as_bytes());
    for token in &*rules.product_tokens(&asked(request, peer)) {
        digest.update(b"\n");
        digest.update(token.as_str().as_bytes());
    }
    for purpose in rules.purposes() {
        digest.update(b"\n ");
        digest.update(purpose.as_str().as_bytes());
    }
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// URLs that are remembered.
const MOST: usize = 100_000;
/// What URLs that are remembered take together, and how many that is about.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
const ABOUT: usize = 200_000;
/// What one takes beside its fields.
const ROW: usize = 64;
