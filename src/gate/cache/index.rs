//! In-memory index of the answers on disk: their sizes and order of use. Rebuilt at each start from file names and sizes alone.

use std::collections::{BTreeMap, HashSet};

/// Identifies a file of the cache: a URL's hash, and the number of one of its answers (RFC 9111 §4.1). No number is used twice: each answer
/// has a new file, even if it replaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    pub key: u128,
    pub number: u64,
}

impl EntryId {
    /// The file's name.
    pub fn name(self) -> String {
        format!("{:032x}-{:x}", self.key, self.number)
    }

    pub fn parse(name: &str) -> Option<Self> {
        let (key, number) = name.split_once('-')?;
        let id = EntryId { key: u128::from_str_radix(key, 16).ok()?, number: u64::from_str_radix(number, 16).ok()? };
        (id.number < MOST_NUMBER && id.name() == name).then_some(id)
    }
}

/// The index of all entries.
pub struct EntryIndex {
    /// The entries, by URL and in the order in which they were written.
    rows: BTreeMap<EntryId, EntryRow>,
    /// Entries by last use.
    order: BTreeMap<u64, EntryId>,
    /// Incremented with each new entry and each use.
    tick: u64,
    /// Bytes of all entries.
    bytes: u64,
    /// Bytes reserved for answers being written.
    pending: u64,
    /// Maximum of `bytes` and `pending` together.
    pub limit: u64,
    /// URLs that were invalidated while the files of earlier processes were still being read.
    invalidated: HashSet<u128>,
}

#[derive(Debug, Clone, Copy)]
struct EntryRow {
    size: u64,
    used: u64,
}

impl EntryIndex {
    /// An empty index. `limit`: in bytes.
    pub fn new(limit: u64) -> Self {
        let (rows, order, invalidated) = Default::default();
        EntryIndex { rows, order, tick: 0, bytes: 0, pending: 0, limit, invalidated }
    }

    /// Number of entries; and their bytes, including those reserved.
    pub fn figures(&self) -> (usize, u64) {
        (self.rows.len(), self.bytes + self.pending)
    }

    /// The answers of a URL, in the order in which they were written.
    pub fn of(&self, key: u128) -> impl DoubleEndedIterator<Item = EntryId> {
        let all = EntryId { key, number: 0 }..=EntryId { key, number: u64::MAX };
        self.rows.range(all).map(|(id, _)| *id)
    }

    pub fn has(&self, id: EntryId) -> bool {
        self.rows.contains_key(&id)
    }

    pub fn touch(&mut self, id: EntryId) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        self.tick += 1;
        self.order.remove(&std::mem::replace(&mut row.used, self.tick));
        self.order.insert(self.tick, id);
    }

    /// Returns the file for a new answer of the URL.
    pub fn next(&mut self, key: u128) -> EntryId {
        self.tick += 1;
        EntryId { key, number: self.tick }
    }

    /// The answer to evict before a new answer of the URL is stored: if the URL has the maximum number of answers, the least recently used
    /// of them.
    pub fn surplus(&self, key: u128) -> Option<EntryId> {
        let is_full = self.of(key).nth(MOST_ANSWERS - 1).is_some();
        self.of(key).min_by_key(|id| self.rows[id].used).filter(|_| is_full)
    }

    /// Adds a file that was found at the start. Returns false if the file is outdated.
    pub fn put_found(&mut self, id: EntryId, size: u64) -> bool {
        let is_valid = self.invalidated.len() < MOST_INVALIDATED && !self.invalidated.contains(&id.key);
        if is_valid {
            self.put(id, size);
        }
        is_valid
    }

    /// Ends the search for files of earlier processes: forgets the URLs that were invalidated during it.
    pub fn end_finding(&mut self) {
        self.invalidated = HashSet::new();
    }

    /// Marks files of this URL that are found later as outdated.
    pub fn invalidate_found(&mut self, key: u128) {
        if self.invalidated.len() < MOST_INVALIDATED {
            self.invalidated.insert(key);
        }
    }

    /// Adds an entry for a file, as the most recently used one.
    pub fn put(&mut self, id: EntryId, size: u64) {
        self.remove(id);
        self.tick = self.tick.max(id.number) + 1;
        self.rows.insert(id, EntryRow { size, used: self.tick });
        self.order.insert(self.tick, id);
        self.bytes += size;
    }

    /// Removes all entries. Reserved room stays reserved.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.order.clear();
        self.bytes = 0;
    }

    pub fn remove(&mut self, id: EntryId) -> bool {
        let Some(row) = self.rows.remove(&id) else { return false };
        self.order.remove(&row.used);
        self.bytes -= row.size;
        true
    }

    /// Reserves room for an answer being written. Returns the entries evicted for it, whose files the caller deletes. `None`: no room.
    pub fn reserve(&mut self, bytes: u64) -> Option<Vec<EntryId>> {
        if self.pending + bytes > self.limit {
            return None;
        }
        self.pending += bytes;
        Some(self.evict())
    }

    pub fn release(&mut self, bytes: u64) {
        self.pending = self.pending.saturating_sub(bytes);
    }

    /// Removes the least recently used entries over the limit; the caller deletes their files.
    pub fn evict(&mut self) -> Vec<EntryId> {
        self.evict_over(self.limit)
    }

    /// Removes the least recently used entries, of at least this many bytes in total; the caller deletes their files.
    pub fn evict_some(&mut self, bytes: u64) -> Vec<EntryId> {
        self.evict_over((self.bytes + self.pending).saturating_sub(bytes))
    }

    fn evict_over(&mut self, most: u64) -> Vec<EntryId> {
        let mut evicted = Vec::new();
        while self.bytes + self.pending > most || self.rows.len() > MOST_ENTRIES {
            let Some((_, id)) = self.order.pop_first() else { break };
            self.remove(id);
            evicted.push(id);
        }
        evicted
    }

    /// Removes all answers of the URL; the caller deletes their files.
    pub fn remove_all(&mut self, key: u128) -> Vec<EntryId> {
        let all: Vec<_> = self.of(key).collect();
        all.iter().for_each(|id| _ = self.remove(*id));
        all
    }
}

/// A file's size on disk in bytes: its length rounded up to whole blocks of 4096 bytes.
pub fn on_disk(length: u64) -> u64 {
    length.next_multiple_of(4096)
}

/// Maximum number of answers of one URL, which differ by Vary.
const MOST_ANSWERS: usize = 8;
/// Upper limit of the files' numbers, never reached in practice.
const MOST_NUMBER: u64 = 1 << 48;
/// Limit on remembered invalidations; beyond it, every file found later counts as outdated.
const MOST_INVALIDATED: usize = 100_000;
/// Limits memory to about 300 MB, at some 150 bytes for each entry.
const MOST_ENTRIES: usize = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: u128) -> EntryId {
        EntryId { key, number: 1 }
    }

    #[test]
    fn entry_names_round_trip() {
        let one = EntryId { key: 0xabc, number: 0x17 };
        assert_eq!(EntryId::parse(&one.name()), Some(one));
        let (upper, far) = ("00000000000000000000000000000ABC-7", "00000000000000000000000000000abc-ffffffffffffffff");
        for other in ["", "x", "abc-7", upper, far] {
            assert_eq!(EntryId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn least_recently_used_entry_is_evicted_first() {
        let mut index = EntryIndex::new(30);
        (1..=3).for_each(|key| index.put(id(key), 10));
        index.touch(id(1));
        assert_eq!(index.reserve(15), Some(vec![id(2), id(3)]));
        assert_eq!(index.figures(), (1, 25));
        assert_eq!(index.reserve(16), None, "answers being written are not evicted");
        index.release(15);
        index.put(id(4), 20);
        assert_eq!((index.evict(), index.figures()), (vec![], (2, 30)));
        index.limit = 20;
        assert_eq!(index.evict(), [id(1)]);
    }

    /// This happens to an answer that is written while the files of earlier processes are read: it is found among those files.
    #[test]
    fn entry_put_twice_counts_once() {
        let mut index = EntryIndex::new(30);
        [id(1), id(2), id(1)].iter().for_each(|id| index.put(*id, 10));
        assert_eq!(index.figures(), (2, 20));
        index.limit = 10;
        assert_eq!((index.evict(), index.figures()), (vec![id(2)], (1, 10)));
    }

    #[test]
    fn entry_numbers_are_unique() {
        let mut index = EntryIndex::new(100);
        let found = EntryId { key: 1, number: 700 };
        index.put(found, 10);
        let next = [index.next(1), index.next(1), index.next(2)];
        assert!(next[0] > found && next[1] > next[0] && next[2].number > next[1].number);
        next.iter().for_each(|id| index.put(*id, 10));
        assert!(index.of(1).eq([found, next[0], next[1]]) && index.of(3).next().is_none());
        assert!(index.has(next[0]) && index.remove(next[0]) && !index.has(next[0]) && !index.remove(next[0]));
        assert_eq!(index.figures(), (3, 30));
    }

    #[test]
    fn number_of_entries_per_url_is_bounded() {
        let mut index = EntryIndex::new(1000);
        let all: Vec<_> = (0..MOST_ANSWERS).map(|_| index.next(5)).collect();
        for id in &all {
            assert_eq!(index.surplus(5), None);
            index.put(*id, 1);
        }
        index.touch(all[0]);
        assert_eq!((index.surplus(5), index.surplus(6)), (Some(all[1]), None));
    }
}
