//! Batches of writes: the newest entry of each authority.

use super::record_name::RecordName;
use crate::policy::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Changes to write together.
#[derive(Default)]
pub(super) struct WriteBatch {
    /// With the bytes of its file. `None`: what is on disk is outdated, as there was no memory for the newer entry.
    pub entries: HashMap<RecordName, (Option<Arc<Entry>>, usize)>,
    /// Authorities whose entries are used, and among the oldest on disk.
    pub used: HashSet<RecordName>,
    /// All that is on disk is outdated, as there was no memory for more names.
    pub is_void: bool,
    /// Bytes of the entries' files.
    files: usize,
}

impl WriteBatch {
    /// An authority's entry. `None`: not in the batch; `Some(None)`: what is on disk is outdated.
    pub fn get(&self, key: RecordName) -> Option<Option<&Arc<Entry>>> {
        let known = self.entries.get(&key).map(|(entry, _)| entry.as_ref());
        known.or_else(|| self.is_void.then_some(None))
    }

    pub fn save(&mut self, key: RecordName, entry: Arc<Entry>) {
        let bytes = cost(&entry);
        self.put(key, Some(entry), bytes);
    }

    /// Drops the entry, and marks what is on disk as outdated.
    pub fn lose(&mut self, key: RecordName) {
        if self.len() < MOST_LOST || self.entries.contains_key(&key) {
            self.put(key, None, 0);
        } else {
            self.is_void = true;
        }
    }

    /// Adds an earlier batch, where this one has nothing newer.
    pub fn add_older(&mut self, older: &WriteBatch) {
        for (key, (entry, bytes)) in &older.entries {
            if !self.entries.contains_key(key) {
                self.put(*key, entry.clone(), *bytes);
            }
        }
        self.used.extend(&older.used);
        self.is_void |= older.is_void;
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_void
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.used.len()
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        self.files + self.own_bytes()
    }

    /// Without the files, which count as files in use for as long as they are held here.
    pub fn own_bytes(&self) -> usize {
        self.len() * ROW
    }

    fn put(&mut self, key: RecordName, entry: Option<Arc<Entry>>, bytes: usize) {
        self.files += bytes;
        if let Some((_, old)) = self.entries.insert(key, (entry, bytes)) {
            self.files -= old;
        }
    }
}

/// The whole file in memory, which is held until it is written. Its rules may be compiled later, and take more.
fn cost(entry: &Entry) -> usize {
    entry.answer.as_ref().map_or(0, |answer| answer.access.heap_size() + ENTRY)
}

/// Memory for a name in the table.
const ROW: usize = 64;
/// Memory for an entry without its file.
const ENTRY: usize = 240;
/// Most outdated names.
const MOST_LOST: usize = 300_000;
