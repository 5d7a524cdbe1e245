//! Which authorities' rows on disk are older than what is known, when there was no room to list them by name: a set that takes
//! the same memory however many they are. It may contain one that was never put in, which is then fetched again.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// A Bloom filter of one hash.
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

/// Nobody else is to choose what falls together.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
/// Of 100,000 that are held, one in eighty others seems to be.
const WORDS: usize = LOST_BYTES / 8;
pub(super) const LOST_BYTES: usize = 1 << 20;
