//! The table of host entries in memory, one for each authority's file: fast look-up, exact counts, eviction when memory runs short.
//!
//! It is sharded, so that requests rarely contend for a lock, and usually only read. A host entry takes two allocations, for itself and for
//! the `Entry` in it, as a million of them must fit.
//!
//! It is custom, as no library does all of this: replacing an `Entry` changes the weight; eviction removes only the file from a host entry
//! in use; and host entries can be listed by last use. `papaya` and `dashmap` neither count nor evict; `quick_cache` weighs only on
//! insertion and does not expose the order of use.

use super::redirect::Trail;
use crate::policy::{Authority, Entry, Host, SiteFile, site_file::SiteFileName};
use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The table of host entries.
pub(super) struct HostTable {
    shards: Box<[RwLock<HashTable<Arc<HostEntry>>>]>,
    hasher: DefaultHashBuilder,
    bytes: AtomicUsize,
    /// Number of host entries, by kind of file.
    counts: [AtomicUsize; SiteFile::COUNT],
    /// Number of host entries created so far. Serves as a logical clock for last uses. Wraps around.
    clock: AtomicU32,
}

/// One authority's file, with its current entry.
pub(in crate::gate) struct HostEntry {
    pub authority: Authority,
    pub file: SiteFile,
    entry: ArcSwap<Entry>,
    /// The value of `HostTable::clock` at the last use.
    used: AtomicU32,
    /// Whether a page was requested from the site since one of the site's files, such as robots.txt, was last fetched.
    page_requested: AtomicBool,
    /// The redirects that an interrupted fetch had followed, and when it began.
    interrupted: ArcSwapOption<(Trail, Instant)>,
    /// Held while the entry is compared with another one and replaced.
    pub(super) keeping: Mutex<()>,
}

impl HostEntry {
    /// The name under which the file is stored and shared.
    pub fn name(&self) -> SiteFileName<'_> {
        self.file.of(&self.authority)
    }

    /// Whether the next slot is for a page, not for a renewal. Without this rule, a copy with a lifetime shorter than the gap would be
    /// renewed in every slot.
    pub fn owes_page(&self) -> bool {
        !self.page_requested.load(Ordering::Relaxed)
    }

    pub fn set_page_requested(&self, requested: bool) {
        if self.owes_page() == requested {
            self.page_requested.store(requested, Ordering::Relaxed);
        }
    }

    /// The redirects that the last fetch had followed, and when it began, if it was interrupted recently.
    pub(super) fn interrupted(&self) -> Option<(Trail, Instant)> {
        let interrupted = self.interrupted.load();
        interrupted.as_deref().filter(|(_, since)| since.elapsed() < INTERRUPTED).cloned()
    }

    /// The current entry.
    pub fn load(&self) -> Guard<Arc<Entry>> {
        self.entry.load()
    }

    /// The current entry, for callers that keep it.
    pub fn load_full(&self) -> Arc<Entry> {
        self.entry.load_full()
    }

    /// Number of host entries created since this entry was last used. Wraps, as the clock may overflow.
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

    /// The host entry of an authority's file, created if missing.
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
                page_requested: AtomicBool::new(true),
                interrupted: ArcSwapOption::empty(),
                keeping: Mutex::new(()),
            };
            self.bytes.fetch_add(cost(&host), Ordering::Relaxed);
            self.counts[file.kind()].fetch_add(1, Ordering::Relaxed);
            Arc::new(host)
        };
        table.entry(hash, is_it, rehash).or_insert_with(new).get().clone()
    }

    /// Number of host entries created so far; wraps around.
    pub fn made(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Marks the host entry as used now.
    pub fn touch(&self, host: &HostEntry) {
        let now = self.clock.load(Ordering::Relaxed);
        if host.used.load(Ordering::Relaxed) != now {
            host.used.store(now, Ordering::Relaxed);
        }
    }

    /// The host entry of an authority's file, if it is in memory.
    pub fn find(&self, authority: &Authority, file: SiteFile) -> Option<Arc<HostEntry>> {
        let hash = self.hash(authority, file);
        self.shard(hash).read().find(hash, |host| host.file == file && host.authority == *authority).cloned()
    }

    /// Replaces the entry.
    pub fn put(&self, host: &HostEntry, entry: Arc<Entry>) {
        let new = entry_cost(&entry);
        let old = entry_cost(&host.entry.swap(entry));
        self.bytes.fetch_add(new, Ordering::Relaxed);
        self.bytes.fetch_sub(old, Ordering::Relaxed);
    }

    /// Replaces the entry if it is still `old`. Returns the current entry.
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

    /// Stores the redirects that an interrupted fetch has followed, for the next fetch. Without them, each fetch that gets no slot at a
    /// redirect's target would ask the first host again.
    pub fn set_interrupted(&self, host: &HostEntry, trail: Option<(Trail, Instant)>) {
        self.bytes.fetch_add(trail.as_ref().map_or(0, trail_cost), Ordering::Relaxed);
        let old = host.interrupted.swap(trail.map(Arc::new));
        self.bytes.fetch_sub(old.as_deref().map_or(0, trail_cost), Ordering::Relaxed);
    }

    /// Bytes in use, without the parsed files.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of host entries.
    pub fn len(&self) -> usize {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Number of host entries for this kind of file.
    pub fn count(&self, file: SiteFile) -> usize {
        self.counts[file.kind()].load(Ordering::Relaxed)
    }

    fn hash(&self, authority: &Authority, file: SiteFile) -> u64 {
        self.hasher.hash_one((authority, file))
    }

    /// Selects a shard by the middle bits of the hash, as the hash table uses both ends.
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<HostEntry>>> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The idle times of the host entries that `is_one` accepts.
    fn idle(&self, now: u32, is_one: impl Fn(&Arc<HostEntry>) -> bool) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            all.extend(shard.read().iter().filter(|host| is_one(host)).map(|host| host.idle(now)));
        }
        all
    }

    /// Evicts the least recently used sixteenth of the host entries. A host entry in use stays, but its `Entry` is dropped, and read or
    /// fetched again for the next decision. False: nothing could be evicted.
    pub fn shrink(&self) -> bool {
        let now = self.clock.load(Ordering::Relaxed);
        let may_shrink = |host: &Arc<HostEntry>| is_free(host) || host.load().source().is_some();
        let mut all = self.idle(now, may_shrink);
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
                if quota == 0 || host.idle(now) < least || !may_shrink(host) {
                    return true;
                }
                quota -= 1;
                given_up = true;
                let is_used = !is_free(host);
                if is_used {
                    self.put_over(host, &host.load_full(), Arc::default());
                } else {
                    self.counts[host.file.kind()].fetch_sub(1, Ordering::Relaxed);
                    self.bytes.fetch_sub(cost(host), Ordering::Relaxed);
                }
                is_used
            });
            if table.capacity() > 4 * table.len() {
                table.shrink_to_fit(|host| self.hash(&host.authority, host.file));
            }
        }
        given_up
    }

    /// The most recently used authorities (their host entries for robots.txt), newest first.
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

/// Whether no request uses the host entry. If it were removed while in use, two entries for the same authority could decide independently.
fn is_free(host: &Arc<HostEntry>) -> bool {
    Arc::strong_count(host) == 1
}

/// Bytes of a host entry with its row in the table, which is two thirds full on average.
fn cost(host: &HostEntry) -> usize {
    let name = match host.authority.host() {
        Host::Name(name) => COUNTS + name.len(),
        Host::Ip(_) => 0,
    };
    let row = (size_of::<Arc<HostEntry>>() + 1) * 3 / 2;
    let trail = host.interrupted.load().as_deref().map_or(0, trail_cost);
    row + allocated(COUNTS + size_of::<HostEntry>()) + allocated(name) + entry_cost(&host.entry.load()) + trail
}

fn trail_cost((trail, _): &(Trail, Instant)) -> usize {
    allocated(COUNTS + size_of::<(Trail, Instant)>()) + trail.heap_size()
}

fn entry_cost(entry: &Entry) -> usize {
    let texts = entry.answer.as_ref().map_or(0, |answer| allocated(answer.validators.heap_size()));
    let trouble =
        entry.trouble.as_ref().map_or(0, |trouble| allocated(size_of_val(&**trouble)) + allocated(trouble.why.len()));
    let linked = entry.linked.as_ref().map_or(0, |url| allocated(url.len()));
    allocated(COUNTS + size_of::<Entry>()) + texts + trouble + linked
}

/// Memory that an allocator uses for an allocation: eight bytes more, in steps of sixteen.
fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16) }
}

/// Bytes of the two reference counts of an `Arc`.
const COUNTS: usize = 2 * size_of::<usize>();
/// How long the progress of an interrupted fetch is kept.
const INTERRUPTED: Duration = Duration::from_secs(3600);
const SHARDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn authority(number: usize) -> Authority {
        Authority::from_url(&format!("https://host{number}.example")).unwrap()
    }

    #[test]
    fn authority_has_one_host_entry() {
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
    fn each_file_of_an_authority_has_an_entry_but_only_robots_txt_is_listed() {
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
    fn least_recently_used_entries_are_evicted_first() {
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
    fn latest_lists_the_most_recently_used_hosts() {
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
    fn entry_in_use_is_not_evicted() {
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
    fn byte_count_returns_to_zero_after_eviction() {
        let hosts = HostTable::new();
        for number in 0..100 {
            let host = hosts.host(&authority(number), SiteFile::Robots);
            hosts.put(&host, Arc::new(Entry::default().failed(std::time::SystemTime::now(), "why", None, 0.0)));
        }
        let before = hosts.bytes();
        assert!(before > 100 * 200);
        let url = Url::parse(&format!("https://other.example/{}", "x".repeat(60_000))).unwrap();
        let host = hosts.host(&authority(0), SiteFile::Robots);
        for _ in 0..2 {
            hosts.set_interrupted(&host, Some((Trail::new(url.clone()), Instant::now())));
            assert!((60_000..61_000).contains(&(hosts.bytes() - before)), "the redirect's URL is counted");
        }
        drop(host);
        while hosts.shrink() {}
        assert_eq!((hosts.len(), hosts.bytes()), (0, 0));
    }
}
