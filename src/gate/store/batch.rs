//! Batches of writes: the newest entry of each authority.

use super::record_name::RecordName;
use crate::policy::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Changes to write together.
#[derive(Default)]
pub(super) struct WriteBatch {
    pub entries: HashMap<RecordName, QueuedEntry>,
    /// Authorities whose entries are in use but among the oldest on disk, so that they are appended again.
    pub used: HashSet<RecordName>,
    /// Whether to empty the store, because there was no memory for more names of outdated entries.
    pub is_void: bool,
    /// Bytes of the entries and their files.
    files: usize,
}

/// A change to the entry of one authority.
#[derive(Clone, Default)]
pub(super) struct QueuedEntry {
    /// `None`: the queue had no room for the entry.
    pub entry: Option<Arc<Entry>>,
    /// Whether the entry on disk is outdated, even if it was validated later.
    pub forgets: bool,
}

impl WriteBatch {
    /// An authority's entry. `None`: not in the batch. `Some(None)`: the entry on disk is outdated.
    pub fn get(&self, name: RecordName) -> Option<Option<&Arc<Entry>>> {
        let queued = self.entries.get(&name).map(|queued| queued.entry.as_ref());
        queued.or_else(|| self.is_void.then_some(None))
    }

    pub fn save(&mut self, name: RecordName, entry: Arc<Entry>) {
        let forgets = self.entries.get(&name).is_some_and(|before| before.forgets);
        self.put(name, QueuedEntry { entry: Some(entry), forgets });
    }

    /// Drops the entry, and marks the one on disk as outdated.
    pub fn forget(&mut self, name: RecordName) {
        if self.len() < MOST_FORGOTTEN || self.entries.contains_key(&name) {
            self.put(name, QueuedEntry { entry: None, forgets: true });
        } else {
            self.is_void = true;
        }
    }

    /// Adds the changes of an earlier batch for which this batch has no newer change.
    pub fn add_older(&mut self, older: &WriteBatch) {
        for (name, before) in &older.entries {
            match self.entries.get_mut(name) {
                Some(queued) => queued.forgets |= before.forgets,
                None => self.put(*name, before.clone()),
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

    /// Approximate memory in bytes without the files, which are counted elsewhere, as files in use.
    pub fn own_bytes(&self) -> usize {
        self.len() * ROW
    }

    fn put(&mut self, name: RecordName, queued: QueuedEntry) {
        self.files += queued.bytes();
        if let Some(old) = self.entries.insert(name, queued) {
            self.files -= old.bytes();
        }
    }
}

impl QueuedEntry {
    /// Memory in bytes, with the whole file, which is held until it is written.
    fn bytes(&self) -> usize {
        self.entry.as_ref().map_or(0, |entry| ENTRY + entry.source().map_or(0, <[u8]>::len))
    }
}

/// Bytes of memory for a name in the table.
const ROW: usize = 64;
/// Bytes of memory for an entry without its file.
const ENTRY: usize = 240;
/// Number of changes in a batch from which it takes no more names of outdated entries: then the whole store is emptied instead.
const MOST_FORGOTTEN: usize = 300_000;
