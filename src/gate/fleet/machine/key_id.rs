//! Ids of the keys in the shared file: a hash of the key's host, and in the lowest bits the kind of the key and a hash of the whole name.
//!
//! The bucket depends only on the host. So all keys of a host are in one page, and the starts of its groups are found without knowing their
//! delays.

use crate::gate::store::digest;
use std::hash::{BuildHasher, RandomState};

/// The id of a host's pace (`a.example`), of the pace of a group of its robots.txt (`a.example#500000us`), or of the right to fetch a file
/// (`https://a.example`, `https://a.example/.well-known/tdmrep.json`). `key`: the file's secret.
pub(super) fn id(key: u64, name: &str) -> u64 {
    let (kind, place) = name.split_once("://").map_or((GROUP, name), |(_, place)| (RIGHT, place));
    let host = place.split(['#', '/']).next().unwrap_or(place);
    let rest = if host == name { 0 } else { hash(key, name) & REST & !KIND | kind };
    hash(key, host) & !REST | rest
}

/// A random secret for a new file. Never 0, which means no secret.
pub(super) fn secret() -> u64 {
    RandomState::new().hash_one(ODD).max(1)
}

pub(super) fn of_budget(key: u64, name: &str) -> u64 {
    hash(key, name) & !KIND | BUDGET
}

/// A hash that differs from the tags of slots without a key.
fn hash(key: u64, name: &str) -> u64 {
    number(&[&key.to_le_bytes(), name.as_bytes()].concat()).max(REST + 1)
}

/// The number of the key's bucket. `count`: number of buckets in the segment, a power of two. Keys that share a bucket in one
/// segment have different buckets in the next.
#[inline]
pub(super) fn bucket(id: u64, segment: usize, count: usize) -> usize {
    (id / (REST + 1)).wrapping_mul(ODD).rotate_left(11 * segment as u32) as usize & (count - 1)
}

/// Whether the key `id` is a pace of the same host as `other`.
pub(super) fn is_pace_beside(id: u64, other: u64) -> bool {
    id | REST == other | REST && id & KIND <= GROUP
}

pub(super) fn is_budget(id: u64) -> bool {
    id & KIND == BUDGET
}

/// A number derived from the digest of `bytes`. Never 0, which means no key.
pub(super) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*digest(bytes).first_chunk().expect("16 bytes")).max(1)
}

/// Mask of the bits that do not depend on the host.
const REST: u64 = 0xffff;
/// Mask of the bits for the kind of a key: 0 for a host's pace, or else one of the next three constants.
const KIND: u64 = 3;
/// The pace of a group, or of subresources.
const GROUP: u64 = 1;
const BUDGET: u64 = 2;
const RIGHT: u64 = 3;
/// Factor that mixes the bits of a host's hash. Each segment uses other bits of the product.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
