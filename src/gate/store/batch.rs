//! What is written together: the newest of each, and how much memory it takes meanwhile.

use crate::policy::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What is to be written together.
#[derive(Default)]
pub(super) struct Batch {
    /// `None`: what the disk has is old, and there was no room for what is newer.
    pub entries: HashMap<Box<str>, Option<Arc<Entry>>>,
    pub used: HashSet<Box<str>>,
    pub debts: HashMap<Box<str>, Owed>,
    bytes: usize,
}

/// What a pace key owes, by the calendar's clock, which is not the next process's to trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owed {
    pub noted: SystemTime,
    pub until: SystemTime,
    pub backoff: Duration,
}

impl Batch {
    pub fn get(&self, authority: &str) -> Option<&Option<Arc<Entry>>> {
        self.entries.get(authority)
    }

    pub fn save(&mut self, authority: Box<str>, entry: Arc<Entry>) {
        self.put(authority, Some(entry));
    }

    /// Nobody is to read what the disk has of it.
    pub fn forget(&mut self, authority: Box<str>) {
        self.put(authority, None);
    }

    fn put(&mut self, authority: Box<str>, entry: Option<Arc<Entry>>) {
        self.bytes += cost(entry.as_deref());
        if let Some(old) = self.entries.insert(authority, entry) {
            self.bytes -= cost(old.as_deref());
        }
    }

    /// The authority is in use.
    pub fn touch(&mut self, authority: Box<str>) {
        self.used.insert(authority);
    }

    pub fn owe(&mut self, key: Box<str>, owed: Owed) {
        self.debts.insert(key, owed);
    }

    /// What an earlier batch had, where this has nothing newer.
    pub fn add_older(&mut self, older: &Batch) {
        for (authority, entry) in &older.entries {
            if !self.entries.contains_key(authority) {
                self.put(authority.clone(), entry.clone());
            }
        }
        self.used.extend(older.used.iter().cloned());
        for (key, owed) in &older.debts {
            self.debts.entry(key.clone()).or_insert(*owed);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.used.len() + self.debts.len()
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.len() * ROW
    }
}

fn cost(entry: Option<&Entry>) -> usize {
    entry.and_then(Entry::robots_txt).map_or(0, |robots| robots.source().len())
}

/// A name, a record and their places in a table.
const ROW: usize = 300;
