//! Each authority's robots.txt, and tdmrep.json where that matters: fetched when first asked for, by one however many ask, renewed behind those who ask later.

mod fetch;
mod host_table;
mod intern;
mod places;
mod redirect;
mod refresh;
mod response;

pub(super) use fetch::Fetcher;
pub(super) use host_table::HostEntry;
pub(super) use response::Fetched;

use super::fleet::Fleet;
use super::pacer::Pacer;
use super::store::Store;
use crate::config::Settings;
use crate::histogram::{Distribution, Histogram};
use crate::policy::freshness::CopyState;
use crate::policy::pace::ClientId;
use crate::policy::{Access, Authority, Entry, Refusal, SiteAnswer, SiteFile};
use crate::upstream::Versions;
use arc_swap::ArcSwap;
use host_table::HostTable;
use intern::Intern;
use parking_lot::Mutex;
use places::FetchPlaces;
use response::interpret_response;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// All authorities that are known of.
#[derive(Clone)]
pub(super) struct RobotsCache(Arc<CacheInner>);

struct CacheInner {
    hosts: HostTable,
    files: Intern,
    store: Arc<Store>,
    fetcher: Fetcher,
    places: FetchPlaces,
    pacer: Arc<Pacer>,
    settings: Arc<ArcSwap<Settings>>,
    fleet: Option<Arc<Fleet>>,
    fetches: Mutex<HashMap<(SiteFile, Authority), Arc<Fetch>>>,
    trimming: AtomicBool,
    /// Of each file.
    fetched: [AtomicU64; 2],
    failed: [AtomicU64; 2],
    /// Of files fetched: those with preferences, and with licences, that nobody understands; those of which that is true as a whole.
    malformed: [AtomicU64; 3],
    /// Of the copies that fetches were to replace: of those that were answered, and of those that were not.
    ages: [Histogram; 2],
}

/// A fetch to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub reason: FetchReason,
    /// At whose cost.
    pub client: ClientId,
    /// The gap that holds for whoever causes it.
    pub crawl_delay: Option<Duration>,
    /// As whoever causes it will go to the site, over the same connection.
    pub versions: Versions,
}

/// Why robots.txt is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchReason {
    /// Somebody waits for it, and has nothing to go by until then. Dropped when nobody does any more.
    FirstUse,
    /// The copy in use grows old. Waits its turn however long.
    Renewal,
    /// It is wanted from the origin, whatever is kept.
    Anew,
}

impl FetchReason {
    /// Whether a copy that can be used will do, from wherever it can be had.
    fn takes_any_copy(self) -> bool {
        matches!(self, Self::FirstUse | Self::Renewal)
    }
}

/// One fetch under way.
struct Fetch {
    /// `None` until it has ended; an error says that nobody was asked, and why not.
    end: watch::Sender<Option<Result<(), Refusal>>>,
    /// Whether or not anybody waits for it.
    goes_on: AtomicBool,
}

/// Somebody's part in a fetch. It goes on without, but a first one only while others wait for it.
pub(super) struct Fetching(watch::Receiver<Option<Result<(), Refusal>>>);

/// Figures for people and machines that watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Authorities in memory.
    pub authorities: usize,
    /// Different files in memory.
    pub files: usize,
    pub tdmrep_files: usize,
    /// Bytes that they take.
    pub authority_bytes: usize,
    pub file_bytes: usize,
    /// Those of hosts' paces, and of what waits to be written.
    pub pace_bytes: usize,
    pub unwritten_bytes: usize,
    /// Fetches of robots.txt that were answered, and those that were not.
    pub fetched: u64,
    pub failed: u64,
    /// The same of tdmrep.json.
    pub tdmrep_fetched: u64,
    pub tdmrep_failed: u64,
    /// Files fetched in which nobody understands: preferences in robots.txt, licences in robots.txt, tdmrep.json.
    pub malformed: [u64; 3],
}

impl CacheFigures {
    /// All that `store.memory` bounds.
    pub fn bytes(&self) -> usize {
        self.authority_bytes + self.file_bytes + self.pace_bytes + self.unwritten_bytes
    }
}

impl RobotsCache {
    pub fn new(
        fetcher: Fetcher,
        pacer: Arc<Pacer>,
        store: Arc<Store>,
        settings: Arc<ArcSwap<Settings>>,
        fleet: Option<Arc<Fleet>>,
    ) -> Self {
        RobotsCache(Arc::new(CacheInner {
            hosts: HostTable::new(),
            files: Intern::default(),
            store,
            fetcher,
            places: FetchPlaces::new(),
            pacer,
            settings,
            fleet,
            fetches: Mutex::default(),
            trimming: AtomicBool::new(false),
            fetched: Default::default(),
            failed: Default::default(),
            malformed: Default::default(),
            ages: [AGES, AGES].map(Histogram::new),
        }))
    }

    /// The entry of an authority's file, made if there is none.
    pub fn host(&self, file: SiteFile, authority: &Authority) -> Arc<HostEntry> {
        self.0.hosts.host(authority, file)
    }

    /// The entry is in use.
    pub fn touch(&self, host: &HostEntry) {
        self.0.hosts.touch(host);
    }

    /// Those asked for last.
    pub fn latest(&self, most: usize) -> Vec<Arc<HostEntry>> {
        self.0.hosts.latest(most)
    }

    pub fn figures(&self) -> CacheFigures {
        self.0.figures()
    }

    /// How old the copies were that fetches were to replace: of those that were answered, and of those that were not.
    pub fn ages(&self) -> [Distribution; 2] {
        [self.0.ages[0].read(), self.0.ages[1].read()]
    }

    /// Takes an answer as though it had been fetched just now.
    pub fn insert(&self, authority: &Authority, fetched: &Fetched) {
        let host = self.host(SiteFile::Robots, authority);
        let (old, settings) = (host.load_full(), self.0.settings.load());
        let entry = interpret_response(host.file, &old, fetched, &self.0.files, &settings, SystemTime::now());
        self.0.keep(&host, Arc::new(entry));
        self.0.trim();
    }

    /// Learns about an authority as ordered; joins whoever is at it already.
    pub fn refresh(&self, host: &Arc<HostEntry>, order: Order) -> Fetching {
        let (mut fetches, key) = (self.0.fetches.lock(), (host.file, host.authority.clone()));
        if let Some(fetch) = fetches.get(&key) {
            if order.reason != FetchReason::FirstUse {
                fetch.goes_on();
            }
            return fetch.join();
        }
        let fetch = Arc::new(Fetch {
            end: watch::Sender::new(None),
            goes_on: AtomicBool::new(order.reason != FetchReason::FirstUse),
        });
        let fetching = fetch.join();
        if order.reason.takes_any_copy() && !is_due(&host.load(), SystemTime::now()) {
            // It was under way when the caller looked, and has just ended.
            fetch.end.send_replace(Some(Ok(())));
            return fetching;
        }
        fetches.insert(key.clone(), fetch.clone());
        let (inner, host) = (self.0.clone(), host.clone());
        tokio::spawn(async move {
            let underway = Underway { inner: &inner, key, fetch: &fetch };
            let work = inner.or_failed(&host, inner.refresh(&host, &order, &fetch));
            let end = underway.until_nobody_waits(work).await;
            drop(underway);
            fetch.end.send_replace(end.map(|end| end.unwrap_or(Ok(()))));
            inner.trim();
        });
        fetching
    }

    /// Another instance has fetched this: whoever waits for it here goes on, and a copy that is in use is replaced. Nothing:
    /// what has been published may have been missed, and whoever waits looks again.
    pub fn published(&self, name: &str) {
        let Some(fleet) = self.0.fleet.clone() else { return };
        fleet.arrived(name);
        let known = SiteFile::from_name(name).and_then(|(file, authority)| self.0.hosts.find(&authority, file));
        if let Some(host) = known.filter(|host| !is_unknown(&host.load())) {
            let inner = self.0.clone();
            tokio::spawn(async move { inner.take_published(&fleet, &host).await });
        }
    }

    /// What is known of an authority's file, here or in the store.
    pub async fn look_up(&self, file: SiteFile, authority: &Authority) -> Option<Arc<Entry>> {
        if let Some(host) = self.0.hosts.find(authority, file) {
            return Some(host.load_full()).filter(|entry| !is_unknown(entry));
        }
        self.0.kept(authority, file).await
    }

    /// Whether `egress` lets the authority be asked. Where a copy is at hand, no name is looked up.
    pub async fn may_reach(&self, authority: &Authority) -> Result<(), Refusal> {
        let is_known = self.host(SiteFile::Robots, authority).load().usable(SystemTime::now()).is_some();
        self.0.fetcher.may_reach(authority, BACKGROUND, !is_known).await
    }

    /// After a change of what may be in memory.
    pub fn trim(&self) {
        self.0.trim();
    }

    /// After a change of how files are read: reads those in memory anew, behind everybody's back.
    pub fn reread(&self) {
        let inner = self.0.clone();
        tokio::task::spawn_blocking(move || {
            let options = inner.settings.load().robots.parse_options();
            for host in inner.hosts.latest(usize::MAX) {
                let old = host.load_full();
                let Some(SiteAnswer { access: Access::Rules(robots), .. }) = &old.answer else { continue };
                let access = inner.files.intern(SiteFile::Robots, robots.source(), &options);
                let answer = old.answer.clone().map(|answer| SiteAnswer { access, ..answer });
                // Whoever fetches it meanwhile reads it as is right now.
                inner.hosts.put_over(&host, &old, Arc::new(Entry { answer, trouble: old.trouble.clone() }));
            }
            inner.files.sweep();
        });
    }
}

impl Order {
    /// At nobody's cost.
    pub fn background(reason: FetchReason) -> Self {
        Order { reason, client: BACKGROUND, crawl_delay: None, versions: Versions::default() }
    }
}

impl Fetch {
    fn join(&self) -> Fetching {
        Fetching(self.end.subscribe())
    }

    fn goes_on(&self) {
        self.goes_on.store(true, Ordering::Relaxed);
    }

    fn is_going_on(&self) -> bool {
        self.goes_on.load(Ordering::Relaxed)
    }
}

impl Fetching {
    /// Returns when it is over. An error: nobody was asked, for a reason that is not the site's.
    pub async fn end(mut self) -> Result<(), Refusal> {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Ok(())),
            // The runtime is going away.
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }
}

/// Its place among the fetches under way.
struct Underway<'a> {
    inner: &'a CacheInner,
    key: (SiteFile, Authority),
    fetch: &'a Arc<Fetch>,
}

impl Underway<'_> {
    async fn until_nobody_waits<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = self.fetch.end.closed() => {}
            }
            let mut fetches = self.inner.fetches.lock();
            if self.fetch.is_going_on() {
                drop(fetches);
                return Some(work.await);
            }
            // Whoever comes joins under this lock.
            if self.fetch.end.receiver_count() == 0 {
                fetches.remove(&self.key);
                return None;
            }
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let mut fetches = self.inner.fetches.lock();
        if fetches.get(&self.key).is_some_and(|fetch| Arc::ptr_eq(fetch, self.fetch)) {
            fetches.remove(&self.key);
        }
    }
}

impl CacheInner {
    fn keep(&self, host: &HostEntry, entry: Arc<Entry>) {
        // First, so that whoever finds the entry given up meanwhile does not go by an older copy.
        self.store.save(host.name(), &entry);
        self.hosts.put(host, entry);
        match host.file {
            SiteFile::Robots => host.page_went(false),
            // Whichever file came last, the next turn is a page's.
            SiteFile::TdmRep => {
                self.hosts.find(&host.authority, SiteFile::Robots).iter().for_each(|robots| robots.page_went(false));
            }
        }
    }

    fn figures(&self) -> CacheFigures {
        let CacheInner { hosts, files, pacer, store, fetched, failed, malformed, .. } = self;
        let count = |of: &[AtomicU64; 2], file| of[file as usize].load(Ordering::Relaxed);
        CacheFigures {
            authorities: hosts.count(SiteFile::Robots),
            files: files.count(SiteFile::Robots),
            tdmrep_files: files.count(SiteFile::TdmRep),
            authority_bytes: hosts.bytes(),
            file_bytes: files.bytes(),
            pace_bytes: pacer.bytes(),
            unwritten_bytes: store.queued_bytes(),
            fetched: count(fetched, SiteFile::Robots),
            failed: count(failed, SiteFile::Robots),
            tdmrep_fetched: count(fetched, SiteFile::TdmRep),
            tdmrep_failed: count(failed, SiteFile::TdmRep),
            malformed: malformed.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }

    /// Gives up what was used least recently, behind everybody's back, when there is too much in memory.
    fn trim(self: &Arc<Self>) {
        let most = usize::try_from(self.settings.load().store.memory).unwrap_or(usize::MAX);
        if self.figures().bytes() <= most && !self.files.is_stale() || self.trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = self.clone();
        tokio::task::spawn_blocking(move || {
            inner.files.sweep();
            if inner.figures().bytes() > most {
                inner.pacer.sweep();
                // A little more than has to be, so that this is rare.
                while inner.figures().bytes() > most / 16 * 15 && inner.hosts.shrink() {
                    inner.files.sweep();
                }
            }
            inner.trimming.store(false, Ordering::Relaxed);
        });
    }
}

fn is_due(entry: &Entry, now: SystemTime) -> bool {
    let is_fresh = matches!(entry.usable(now), Some((_, CopyState::Fresh)));
    !is_fresh && entry.may_fetch(now)
}

fn is_unknown(entry: &Entry) -> bool {
    entry.answer.is_none() && entry.trouble.is_none()
}

/// In milliseconds: from a minute to the 30 days that the last good copy may be used.
const AGES: &[u64] = &[60_000, 300_000, 3_600_000, 21_600_000, 43_200_000, 86_400_000, 604_800_000, 2_592_000_000];
const DRAINING: Duration = Duration::from_secs(1);
/// Renewals and the operator's own share their bound as one client does.
const BACKGROUND: ClientId = ClientId(u64::MAX - 1);

#[cfg(test)]
mod memory_tests;
