//! What is written together: the newest of each, and how much memory it takes meanwhile.

use crate::policy::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

/// What is to be written together.
#[derive(Default)]
pub(super) struct WriteBatch {
    pub entries: HashMap<Box<str>, Arc<Entry>>,
    /// Of others than those, what the disk has is old, and there was no room for what is newer.
    pub lost: Option<LostFilter>,
    /// Authorities in use.
    pub used: HashSet<Box<str>>,
    bytes: usize,
}

impl WriteBatch {
    /// What is known of the authority. `None`: nothing; `Some(None)`: that whatever else is kept of it is old.
    pub fn get(&self, authority: &str) -> Option<Option<&Arc<Entry>>> {
        let entry = self.entries.get(authority);
        let is_lost = || self.lost.as_ref().is_some_and(|lost| lost.holds(authority));
        (entry.is_some() || is_lost()).then_some(entry)
    }

    pub fn save(&mut self, authority: Box<str>, entry: Arc<Entry>) {
        self.bytes += cost(&entry);
        if let Some(old) = self.entries.insert(authority, entry) {
            self.bytes -= cost(&old);
        }
    }

    /// Nobody is to read what was known of it.
    pub fn lose(&mut self, authority: &str) {
        if let Some(old) = self.entries.remove(authority) {
            self.bytes -= cost(&old);
        }
        self.lost.get_or_insert_default().put(authority);
    }

    /// What an earlier batch had, where this has nothing newer.
    pub fn add_older(&mut self, older: &WriteBatch) {
        for (authority, entry) in &older.entries {
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

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.len() * ROW + self.lost.as_ref().map_or(0, |_| LOST_BYTES)
    }
}

/// Which authorities' rows on disk are older than what is known, when there was no room to list them by name: a Bloom filter of one
/// hash, which takes the same memory however many they are. It may contain one that was never put in, which is then fetched
/// again.
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

fn cost(entry: &Entry) -> usize {
    entry.source().map_or(0, <[u8]>::len)
}

/// A name, a record and their places in a table.
const ROW: usize = 300;
/// Nobody else is to choose what falls together.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
/// Of 100,000 that are held, one in eighty others seems to be.
const WORDS: usize = LOST_BYTES / 8;
const LOST_BYTES: usize = 1 << 20;
