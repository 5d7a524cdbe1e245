//! In-memory index of the answers on disk: their sizes and order of use. Rebuilt at each start from file names and sizes alone.

use std::collections::{BTreeMap, HashMap};

/// A file of the cache: a URL's hash, and which of its answers (RFC 9111 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryId {
    pub key: u128,
    pub slot: u8,
}

impl EntryId {
    /// The file's name.
    pub fn name(self) -> String {
        format!("{:032x}-{:x}", self.key, self.slot)
    }

    pub fn parse(name: &str) -> Option<Self> {
        let (key, slot) = name.split_once('-')?;
        let id = EntryId { key: u128::from_str_radix(key, 16).ok()?, slot: u8::from_str_radix(slot, 16).ok()? };
        (id.slot < MOST_SLOTS && id.name() == name).then_some(id)
    }
}

/// The index of all entries.
pub struct EntryIndex {
    rows: HashMap<EntryId, EntryRow>,
    /// Entries by last use.
    order: BTreeMap<u64, EntryId>,
    /// Incremented with each use.
    tick: u64,
    /// Bytes of all entries.
    bytes: u64,
    /// Bytes reserved for answers being written.
    pending: u64,
    limit: u64,
}

#[derive(Debug, Clone, Copy)]
struct EntryRow {
    size: u64,
    used: u64,
    /// When the entry was written, in ticks.
    made: u64,
}

impl EntryIndex {
    /// `limit`: bytes.
    pub fn new(limit: u64) -> Self {
        EntryIndex { rows: HashMap::new(), order: BTreeMap::new(), tick: 0, bytes: 0, pending: 0, limit }
    }

    /// Entries and bytes.
    pub fn figures(&self) -> (usize, u64) {
        (self.rows.len(), self.bytes + self.pending)
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The answers of a URL.
    pub fn of(&self, key: u128) -> Vec<EntryId> {
        (0..MOST_SLOTS).map(|slot| EntryId { key, slot }).filter(|id| self.rows.contains_key(id)).collect()
    }

    /// Increases when an answer of the URL is written. 0: none.
    pub fn made(&self, key: u128) -> u64 {
        self.of(key).iter().map(|id| self.made_of(*id)).max().unwrap_or_default()
    }

    /// The same for one entry.
    pub fn made_of(&self, id: EntryId) -> u64 {
        self.rows.get(&id).map_or(0, |row| row.made)
    }

    pub fn touch(&mut self, id: EntryId) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        self.tick += 1;
        self.order.remove(&std::mem::replace(&mut row.used, self.tick));
        self.order.insert(self.tick, id);
    }

    /// The slot for another answer of the URL: free, or the least recently used.
    pub fn free_slot(&self, key: u128) -> EntryId {
        let all = (0..MOST_SLOTS).map(|slot| EntryId { key, slot });
        all.min_by_key(|id| self.rows.get(id).map_or(0, |row| row.used)).expect("there are slots")
    }

    /// Adds a written file, replacing the one before. `reserved`: bytes.
    pub fn put(&mut self, id: EntryId, size: u64, reserved: u64) {
        self.remove(id);
        self.release(reserved);
        self.tick += 1;
        self.rows.insert(id, EntryRow { size, used: self.tick, made: self.tick });
        self.order.insert(self.tick, id);
        self.bytes += size;
    }

    /// Adds a file found at the start, unless a newer one was written.
    pub fn put_found(&mut self, id: EntryId, size: u64) {
        if !self.rows.contains_key(&id) {
            self.put(id, size, 0);
        }
    }

    pub fn remove(&mut self, id: EntryId) -> bool {
        let Some(row) = self.rows.remove(&id) else { return false };
        self.order.remove(&row.used);
        self.bytes -= row.size;
        true
    }

    /// Reserves room for an answer being written. `None`: no room.
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
        let mut evicted = Vec::new();
        while self.bytes + self.pending > self.limit || self.rows.len() > MOST_ENTRIES {
            let Some((_, id)) = self.order.pop_first() else { break };
            self.remove(id);
            evicted.push(id);
        }
        evicted
    }

    /// Removes all answers of the URL; the caller deletes their files.
    pub fn remove_all(&mut self, key: u128) -> Vec<EntryId> {
        let all = self.of(key);
        all.iter().for_each(|id| _ = self.remove(*id));
        all
    }
}

/// A file's size on disk, in blocks of the usual size.
pub fn on_disk(length: u64) -> u64 {
    length.next_multiple_of(4096)
}

/// Most answers of one URL, by Vary.
pub const MOST_SLOTS: u8 = 8;
/// Limits memory, at some 150 bytes each.
const MOST_ENTRIES: usize = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: u128) -> EntryId {
        EntryId { key, slot: 0 }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let one = EntryId { key: 0xabc, slot: 7 };
        assert_eq!(EntryId::parse(&one.name()), Some(one));
        for other in ["", "x", "abc-7", "00000000000000000000000000000ABC-7", "00000000000000000000000000000abc-8"] {
            assert_eq!(EntryId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let mut index = EntryIndex::new(30);
        (1..=3).for_each(|key| index.put(id(key), 10, 0));
        index.touch(id(1));
        assert_eq!(index.reserve(15), Some(vec![id(2), id(3)]));
        assert_eq!(index.figures(), (1, 25));
        assert_eq!(index.reserve(16), None, "what is being written is not evicted");
        index.put(id(4), 20, 15);
        assert_eq!((index.evict(), index.figures()), (vec![], (2, 30)));
        index.set_limit(20);
        assert_eq!(index.evict(), [id(1)]);
    }

    #[test]
    fn what_is_replaced_is_counted_once() {
        let mut index = EntryIndex::new(100);
        index.put(id(1), 10, 0);
        let before = index.made(1);
        index.put(id(1), 30, 0);
        assert_eq!(index.figures(), (1, 30));
        assert!(index.made(1) > before && index.made(2) == 0);
        index.put_found(id(1), 50);
        assert_eq!(index.figures(), (1, 30), "it has been written since");
        assert!(index.remove(id(1)) && !index.remove(id(1)));
        assert_eq!(index.figures(), (0, 0));
    }

    #[test]
    fn a_url_has_so_many_answers() {
        let mut index = EntryIndex::new(1000);
        for expected in (0..MOST_SLOTS).chain([0, 1]) {
            let free = index.free_slot(5);
            assert_eq!(free.slot, expected);
            index.put(free, 1, 0);
        }
        assert_eq!(index.of(5).len(), 8);
    }
}
