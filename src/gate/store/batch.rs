//! Batches of writes: the newest entry of each authority.

use crate::policy::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

/// Changes to commit together.
#[derive(Default)]
pub(super) struct WriteBatch {
    /// With the bytes that each counts.
    pub entries: HashMap<Box<str>, (Arc<Entry>, usize)>,
    /// Authorities outside `entries` whose row on disk is outdated, as there was no memory for the newer entry.
    pub lost: Option<LostFilter>,
    /// Authorities that were used.
    pub used: HashSet<Box<str>>,
    bytes: usize,
}

impl WriteBatch {
    /// The entry of an authority. `None`: not in the batch; `Some(None)`: the row on disk is outdated.
    pub fn get(&self, authority: &str) -> Option<Option<&Arc<Entry>>> {
        let entry = self.entries.get(authority).map(|(entry, _)| entry);
        let is_lost = || self.lost.as_ref().is_some_and(|lost| lost.holds(authority));
        (entry.is_some() || is_lost()).then_some(entry)
    }

    pub fn save(&mut self, authority: Box<str>, entry: Arc<Entry>) {
        let bytes = cost(&entry);
        self.bytes += bytes;
        if let Some((_, old)) = self.entries.insert(authority, (entry, bytes)) {
            self.bytes -= old;
        }
    }

    /// Drops the entry, and marks the row on disk as outdated.
    pub fn lose(&mut self, authority: &str) {
        if let Some((_, old)) = self.entries.remove(authority) {
            self.bytes -= old;
        }
        self.lost.get_or_insert_default().put(authority);
    }

    /// Adds an earlier batch, where this one has nothing newer.
    pub fn add_older(&mut self, older: &WriteBatch) {
        for (authority, (entry, _)) in &older.entries {
            if self.get(authority).is_none() {
                self.save(authority.clone(), entry.clone());
            }
        }
        if let Some(older) = &older.lost {
            self.lost.get_or_insert_default().put_all(older);
        }
        self.used.extend(older.used.iter().cloned());
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.lost.is_none()
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.used.len()
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.own_bytes()
    }

    /// Without the files, which count as files in use for as long as they are held here.
    pub fn own_bytes(&self) -> usize {
        self.len() * ROW + self.lost.as_ref().map_or(0, |_| LOST_BYTES)
    }
}

/// The authorities whose rows on disk are outdated, if there was no room to list them by name. A Bloom filter of one hash: its size is
/// fixed, and it may contain authorities that were never added, which are then fetched again.
pub(super) struct LostFilter(Box<[u64]>);

impl LostFilter {
    pub fn put(&mut self, authority: &str) {
        let (word, bit) = place(authority);
        self.0[word] |= bit;
    }

    pub fn holds(&self, authority: &str) -> bool {
        let (word, bit) = place(authority);
        self.0[word] & bit != 0
    }

    pub fn put_all(&mut self, other: &LostFilter) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }
}

impl Default for LostFilter {
    fn default() -> Self {
        LostFilter(vec![0; WORDS].into())
    }
}

fn place(authority: &str) -> (usize, u64) {
    let hash = HASHER.hash_one(authority);
    ((hash >> 6) as usize % WORDS, 1 << (hash % 64))
}

/// The whole file in memory, which is held until it is written. Its rules may be compiled later, and take more.
fn cost(entry: &Entry) -> usize {
    entry.answer.as_ref().map_or(0, |answer| answer.access.heap_size())
}

/// Memory for a name, a record and their table entries.
const ROW: usize = 300;
/// Random, so that no site can choose which names collide.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
/// With 100,000 authorities, about one in eighty others is a false positive.
const WORDS: usize = LOST_BYTES / 8;
const LOST_BYTES: usize = 1 << 20;
