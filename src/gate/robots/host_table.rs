//! The authorities in memory: found fast, counted exactly, evicted when there are too many.
//!
//! Sharded, so that hosts rarely contend for a lock, and then only to read. One allocation for a place and one for its
//! entry: a million of them must fit.
//!
//! Our own, as no table or cache does all of it: replacing an entry changes its slot's weight, a slot that a
//! request uses is never evicted, and those used last can be listed in order. `papaya` and `dashmap` count and evict nothing;
//! `quick_cache` weighs a slot when it is inserted, and keeps no order of use that could be read.

use super::redirect::Trail;
use crate::policy::{Authority, Entry, Host, SiteFile, site_file::SiteFileName};
use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::RwLock;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// All places.
pub(super) struct HostTable {
    shards: Box<[RwLock<HashTable<Arc<HostEntry>>>]>,
    hasher: DefaultHashBuilder,
    bytes: AtomicUsize,
    /// Of each file.
    counts: [AtomicUsize; SiteFile::COUNT],
    /// Counts new places: the time by which uses are ordered.
    clock: AtomicU32,
}

/// One authority's place, with the entry in force.
pub(in crate::gate) struct HostEntry {
    pub authority: Authority,
    pub file: SiteFile,
    entry: ArcSwap<Entry>,
    /// The clock at the last use.
    used: AtomicU32,
    /// A page has gone since robots.txt came last.
    page_went: AtomicBool,
    /// Where a fetch had come to that could not be ended, and when that was first so.
    interrupted: ArcSwapOption<(Trail, Instant)>,
}

impl HostEntry {
    /// Under which it is kept and shared.
    pub fn name(&self) -> SiteFileName<'_> {
        self.file.of(&self.authority)
    }

    /// Whether the next turn is a page's, if one wants it: a copy that lives no longer than a gap would be renewed in each.
    pub fn owes_page(&self) -> bool {
        !self.page_went.load(Ordering::Relaxed)
    }

    pub fn set_page_went(&self, went: bool) {
        if self.owes_page() == went {
            self.page_went.store(went, Ordering::Relaxed);
        }
    }

    /// Keeps how far a fetch has come for the next one: without it, each that finds no turn at another host would ask the first again.
    pub(super) fn set_interrupted(&self, trail: Option<Trail>) {
        let since = self.interrupted.load().as_ref().map_or_else(Instant::now, |before| before.1);
        self.interrupted.store(trail.map(|trail| Arc::new((trail, since))));
    }

    /// How far the last fetch has come, if it was interrupted not long ago.
    pub(super) fn interrupted(&self) -> Option<Trail> {
        let (trail, since) = &*self.interrupted.load_full()?;
        if since.elapsed() < INTERRUPTED {
            return Some(trail.clone());
        }
        self.interrupted.store(None);
        None
    }

    /// The entry in force.
    pub fn load(&self) -> Guard<Arc<Entry>> {
        self.entry.load()
    }

    /// The same, to keep for longer.
    pub fn load_full(&self) -> Arc<Entry> {
        self.entry.load_full()
    }

    /// The clock may have gone round; what counts is how long ago.
    fn idle(&self, now: u32) -> u32 {
        now.wrapping_sub(self.used.load(Ordering::Relaxed))
    }
}

impl HostTable {
    pub fn new() -> Self {
        HostTable {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            bytes: AtomicUsize::new(0),
            counts: Default::default(),
            clock: AtomicU32::new(0),
        }
    }

    /// The place of an authority's file, made if there is none.
    pub fn host(&self, authority: &Authority, file: SiteFile) -> Arc<HostEntry> {
        if let Some(host) = self.find(authority, file) {
            self.touch(&host);
            return host;
        }
        let hash = self.hash(authority, file);
        let mut table = self.shard(hash).write();
        let is_it = |host: &Arc<HostEntry>| host.file == file && host.authority == *authority;
        let rehash = |host: &Arc<HostEntry>| self.hash(&host.authority, host.file);
        let new = || {
            let now = self.clock.fetch_add(1, Ordering::Relaxed);
            let entry = ArcSwap::from_pointee(Entry::default());
            let host = HostEntry {
                authority: authority.clone(),
                file,
                entry,
                used: AtomicU32::new(now),
                page_went: AtomicBool::new(false),
                interrupted: ArcSwapOption::empty(),
            };
            self.bytes.fetch_add(cost(&host), Ordering::Relaxed);
            self.counts[file as usize].fetch_add(1, Ordering::Relaxed);
            Arc::new(host)
        };
        table.entry(hash, is_it, rehash).or_insert_with(new).get().clone()
    }

    /// How many places have been made so far, as a number that goes round.
    pub fn made(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// The place is in use.
    pub fn touch(&self, host: &HostEntry) {
        let now = self.clock.load(Ordering::Relaxed);
        if host.used.load(Ordering::Relaxed) != now {
            host.used.store(now, Ordering::Relaxed);
        }
    }

    /// The place of an authority's file, if it is in memory.
    pub fn find(&self, authority: &Authority, file: SiteFile) -> Option<Arc<HostEntry>> {
        let hash = self.hash(authority, file);
        self.shard(hash).read().find(hash, |host| host.file == file && host.authority == *authority).cloned()
    }

    /// Puts another entry in force.
    pub fn put(&self, host: &HostEntry, entry: Arc<Entry>) {
        let new = entry_cost(&entry);
        let old = entry_cost(&host.entry.swap(entry));
        self.bytes.fetch_add(new, Ordering::Relaxed);
        self.bytes.fetch_sub(old, Ordering::Relaxed);
    }

    /// The same, unless the entry is no longer `old`. Returns the entry in force then.
    pub fn put_over(&self, host: &HostEntry, old: &Arc<Entry>, entry: Arc<Entry>) -> Arc<Entry> {
        let new = entry_cost(&entry);
        let found = host.entry.compare_and_swap(old, entry.clone());
        if !Arc::ptr_eq(&found, old) {
            return Guard::into_inner(found);
        }
        self.bytes.fetch_add(new, Ordering::Relaxed);
        self.bytes.fetch_sub(entry_cost(old), Ordering::Relaxed);
        entry
    }

    /// Bytes in use, without the files.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// How many of them are for this file.
    pub fn count(&self, file: SiteFile) -> usize {
        self.counts[file as usize].load(Ordering::Relaxed)
    }

    fn hash(&self, authority: &Authority, file: SiteFile) -> u64 {
        match file {
            SiteFile::Robots => self.hasher.hash_one(authority),
            SiteFile::TdmRep | SiteFile::License => self.hasher.hash_one((authority, file)),
        }
    }

    /// The table takes its bits from both ends of the hash.
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<HostEntry>>> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// For how long such places have not been used.
    fn idle(&self, now: u32, is_one: impl Fn(&Arc<HostEntry>) -> bool) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            all.extend(shard.read().iter().filter(|host| is_one(host)).map(|host| host.idle(now)));
        }
        all
    }

    /// Gives up a sixteenth of the places, those used least recently. False: there was none to give up.
    pub fn shrink(&self) -> bool {
        let now = self.clock.load(Ordering::Relaxed);
        let mut all = self.idle(now, is_free);
        if all.is_empty() {
            return false;
        }
        let mut quota = all.len() / 16 + 1;
        let at = all.len() - quota;
        let (_, least, _) = all.select_nth_unstable(at);
        let (least, mut given_up) = (*least, false);
        for shard in &self.shards {
            let mut table = shard.write();
            table.retain(|host| {
                let stays = quota == 0 || host.idle(now) < least || !is_free(host);
                if !stays {
                    quota -= 1;
                    given_up = true;
                    self.counts[host.file as usize].fetch_sub(1, Ordering::Relaxed);
                    self.bytes.fetch_sub(cost(host), Ordering::Relaxed);
                }
                stays
            });
            if table.capacity() > 4 * table.len() {
                table.shrink_to_fit(|host| self.hash(&host.authority, host.file));
            }
        }
        given_up
    }

    /// Those of authorities, that is of their robots.txt, used last, the newest first.
    pub fn latest(&self, most: usize) -> Vec<Arc<HostEntry>> {
        let now = self.clock.load(Ordering::Relaxed);
        let mut all = self.idle(now, |host| host.file == SiteFile::Robots);
        let Some(last) = all.len().min(most).checked_sub(1) else {
            return Vec::new();
        };
        let (_, longest, _) = all.select_nth_unstable(last);
        let mut latest = Vec::new();
        for shard in &self.shards {
            let is_late = |host: &&Arc<HostEntry>| host.file == SiteFile::Robots && host.idle(now) <= *longest;
            latest.extend(shard.read().iter().filter(is_late).cloned());
        }
        latest.sort_by_cached_key(|host| (host.idle(now), host.authority.clone()));
        latest.truncate(most);
        latest
    }
}

/// Not in use: a request that uses an entry would otherwise decide beside a second one for the same authority.
fn is_free(host: &Arc<HostEntry>) -> bool {
    Arc::strong_count(host) == 1
}

/// What a place costs, with its row in the table, which is two thirds full on average.
fn cost(host: &HostEntry) -> usize {
    let name = match host.authority.host() {
        Host::Name(name) => COUNTS + name.len(),
        Host::Ip(_) => 0,
    };
    let row = (size_of::<Arc<HostEntry>>() + 1) * 3 / 2;
    row + allocated(COUNTS + size_of::<HostEntry>()) + allocated(name) + entry_cost(&host.entry.load())
}

fn entry_cost(entry: &Entry) -> usize {
    let texts = entry.answer.as_ref().map_or(0, |answer| allocated(answer.validators.heap_size()));
    let trouble =
        entry.trouble.as_ref().map_or(0, |trouble| allocated(size_of_val(&**trouble)) + allocated(trouble.why.len()));
    allocated(COUNTS + size_of::<Entry>()) + texts + trouble
}

/// What an allocator takes for so many bytes: eight more, in steps of sixteen.
fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16) }
}

/// The counts of an `Arc`.
const COUNTS: usize = 2 * size_of::<usize>();
/// A redirect is believed for so long.
const INTERRUPTED: Duration = Duration::from_secs(3600);
const SHARDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(number: usize) -> Authority {
        Authority::from_url(&format!("https://host{number}.example")).unwrap()
    }

    #[test]
    fn an_authority_has_one_place() {
        let hosts = HostTable::new();
        assert!(Arc::ptr_eq(
            &hosts.host(&authority(1), SiteFile::Robots),
            &hosts.host(&authority(1), SiteFile::Robots)
        ));
        assert!(!Arc::ptr_eq(
            &hosts.host(&authority(1), SiteFile::Robots),
            &hosts.host(&authority(2), SiteFile::Robots)
        ));
        assert_eq!(hosts.len(), 2);
        assert!(hosts.find(&authority(3), SiteFile::Robots).is_none());
    }

    #[test]
    fn each_file_of_an_authority_has_a_place_and_one_is_shown() {
        let hosts = HostTable::new();
        let (robots, tdmrep) =
            (hosts.host(&authority(1), SiteFile::Robots), hosts.host(&authority(1), SiteFile::TdmRep));
        assert!(!Arc::ptr_eq(&robots, &tdmrep) && robots.name().to_string() != tdmrep.name().to_string());
        assert!(Arc::ptr_eq(&tdmrep, &hosts.find(&authority(1), SiteFile::TdmRep).unwrap()));
        assert_eq!((hosts.len(), hosts.count(SiteFile::Robots), hosts.latest(9).len()), (2, 1, 1));
        drop((robots, tdmrep));
        while hosts.shrink() {}
        assert_eq!((hosts.count(SiteFile::Robots), hosts.count(SiteFile::TdmRep), hosts.bytes()), (0, 0, 0));
    }

    #[test]
    fn those_used_least_recently_are_given_up_first() {
        let hosts = HostTable::new();
        for number in 0..1600 {
            hosts.host(&authority(number), SiteFile::Robots);
            hosts.host(&authority(0), SiteFile::Robots);
        }
        assert!(hosts.shrink());
        let gone: Vec<_> =
            (0..1600).filter(|number| hosts.find(&authority(*number), SiteFile::Robots).is_none()).collect();
        assert_eq!(gone, (1..=101).collect::<Vec<_>>());
        assert_eq!(hosts.len(), 1600 - gone.len());
    }

    #[test]
    fn the_latest_are_those_used_last() {
        let hosts = HostTable::new();
        for number in 0..100 {
            hosts.host(&authority(number), SiteFile::Robots);
        }
        hosts.host(&authority(7), SiteFile::Robots);
        let latest: Vec<_> = hosts.latest(3).iter().map(|host| host.authority.clone()).collect();
        assert_eq!(latest, [authority(7), authority(99), authority(98)]);
        assert_eq!((hosts.latest(0).len(), hosts.latest(1000).len()), (0, 100));
        assert!(HostTable::new().latest(5).is_empty());
    }

    #[test]
    fn who_is_in_use_is_not_given_up() {
        let hosts = HostTable::new();
        let held = hosts.host(&authority(0), SiteFile::Robots);
        for number in 1..20 {
            hosts.host(&authority(number), SiteFile::Robots);
        }
        while hosts.shrink() {}
        assert_eq!(hosts.len(), 1);
        assert!(Arc::ptr_eq(&held, &hosts.host(&authority(0), SiteFile::Robots)));
    }

    #[test]
    fn what_is_counted_is_given_back() {
        let hosts = HostTable::new();
        for number in 0..100 {
            let host = hosts.host(&authority(number), SiteFile::Robots);
            hosts.put(&host, Arc::new(Entry::default().failed(std::time::SystemTime::now(), "why", None, 0.0)));
        }
        assert!(hosts.bytes() > 100 * 200);
        while hosts.shrink() {}
        assert_eq!((hosts.len(), hosts.bytes()), (0, 0));
    }
}
