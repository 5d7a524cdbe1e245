//! Fetches and caches the robots.txt of each authority and, if decisions depend on them, its tdmrep.json and licence file. A file is
//! fetched when it is first needed, once for all requests that wait for it, and is renewed in the background.

mod compare;
mod fetch;
mod fetch_error;
mod fetch_table;
mod figures;
mod host_table;
mod intern;
mod long_bodies;
mod places;
mod redirect;
mod refresh;
mod response;
mod shared_reply;
mod site_time;
mod trim;

pub(super) use fetch_table::{FetchReason, Fetching, Order};
pub use figures::CacheFigures;
pub(super) use host_table::HostEntry;

use super::compute::Workers;
use super::fleet::Fleet;
use super::pacer::Pacer;
use super::store::Store;
use crate::config::Settings;
use crate::fair_places::{FairPlaces, Taker};
use crate::histogram::{Distribution, Histogram};
use crate::policy::{Authority, Entry, HttpVersion, Refusal, SiteFile};
use crate::upstream::{ReachError, Upstream};
use arc_swap::ArcSwap;
use bytes::Bytes;
use compare::{is_due, is_unknown};
use fetch::Reply;
use fetch_table::{BACKGROUND, FetchTable, unless_unwanted};
use host_table::HostTable;
use http::HeaderMap;
use intern::Intern;
use long_bodies::LongBodies;
use parking_lot::Mutex;
pub use places::most_fetches;
use response::{Fetched, interpret_response};
use shared_reply::SharedReplies;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The files of all authorities known so far.
pub(super) struct RobotsCache {
    hosts: HostTable,
    files: Intern,
    store: Arc<Store>,
    upstream: Arc<Upstream>,
    places: FairPlaces,
    long_bodies: LongBodies,
    /// Places for fetches that begin while the store is behind.
    unstored: FairPlaces,
    /// Limits concurrent reads of copies from the store, as copies may be long.
    loading: Semaphore,
    pacer: Arc<Pacer>,
    settings: Arc<ArcSwap<Settings>>,
    fleet: Arc<Fleet>,
    workers: Workers,
    fetches: FetchTable,
    /// Requests in flight for URLs to which several hosts redirect.
    shared_replies: SharedReplies,
    trimming: AtomicBool,
    /// The figures that are counters; the others are filled in on request.
    figures: Mutex<CacheFigures>,
    /// Ages of the robots.txt copies that fetches were to replace, for answered fetches and for failed ones.
    ages: [Histogram; 2],
}

impl RobotsCache {
    pub fn new(
        upstream: Arc<Upstream>,
        pacer: Arc<Pacer>,
        (store, fleet, workers): (Arc<Store>, Arc<Fleet>, Workers),
        settings: Arc<ArcSwap<Settings>>,
    ) -> Arc<Self> {
        Arc::new(RobotsCache {
            hosts: HostTable::new(),
            files: Intern::default(),
            store,
            upstream,
            places: FairPlaces::new(most_fetches(&settings.load())),
            long_bodies: LongBodies::new(&settings.load()),
            unstored: FairPlaces::new(MOST_UNSTORED),
            loading: Semaphore::new(MOST_LOADED),
            pacer,
            settings,
            fleet,
            workers,
            fetches: FetchTable::default(),
            shared_replies: SharedReplies::default(),
            trimming: AtomicBool::new(false),
            figures: Mutex::default(),
            ages: [AGES, AGES].map(Histogram::new),
        })
    }

    /// The host entry of an authority's file, created if missing.
    pub fn host(self: &Arc<Self>, file: SiteFile, authority: &Authority) -> Arc<HostEntry> {
        let before = self.hosts.made();
        let host = self.hosts.host(authority, file);
        if self.hosts.made() / TRIM_EACH != before / TRIM_EACH {
            // Trims here, as the file may never be fetched.
            self.trim();
        }
        host
    }

    /// Marks the host entry as used now.
    pub fn touch(&self, host: &HostEntry) {
        self.hosts.touch(host);
    }

    /// The most recently used authorities.
    pub fn latest(&self, most: usize) -> Vec<Arc<HostEntry>> {
        self.hosts.latest(most)
    }

    /// Ages of the robots.txt copies that fetches were to replace, for answered fetches and for failed ones.
    pub fn ages(&self) -> [Distribution; 2] {
        [self.ages[0].read(), self.ages[1].read()]
    }

    /// Processes an answer for a site's robots.txt as if it had just been fetched.
    pub fn insert(self: &Arc<Self>, authority: &Authority, status: u16, headers: &HeaderMap, body: &[u8]) {
        let host = self.host(SiteFile::Robots, authority);
        let (old, settings, asked) = (host.load_full(), self.settings.load(), SystemTime::now());
        let (headers, body, version) = (headers.clone(), Bytes::copy_from_slice(body), HttpVersion::Http1);
        let reply = Reply { asked, status, headers, body, version, wanted: None, through: None };
        let fetched =
            Fetched::Answer { reply, is_conditional: true, is_redirected: false, is_foreign: false, asked_again: None };
        let entry = interpret_response(host.file, &old, &fetched, &self.files, &settings, asked);
        self.keep(&host, Arc::new(entry));
        self.trim();
    }

    /// Starts a fetch as ordered, or joins the one in flight.
    pub fn refresh(self: &Arc<Self>, host: &Arc<HostEntry>, order: Order) -> Fetching {
        let key = (host.file, host.authority.clone());
        let mut is_first = false;
        // Called if no such fetch is in flight. If a fetch has ended since the caller looked for a copy, its copy is there now.
        let has_come = || {
            is_first = true;
            order.reason.takes_any_copy() && !is_due(&host.load(), SystemTime::now())
        };
        let Some(fetch) = self.fetches.row_unless(&key, has_come) else { return Fetching::ended() };
        if order.reason != FetchReason::FirstUse {
            fetch.begin();
        }
        let joined = fetch.join();
        if !is_first {
            return joined;
        }
        let (inner, host) = (self.clone(), host.clone());
        tokio::spawn(async move {
            let work = Box::pin(inner.or_failed(&host, inner.refresh_now(&host, &order, &fetch)));
            let end = unless_unwanted(&fetch, work).await;
            fetch.leave();
            // The requests that waited for the file use it now.
            inner.hosts.touch(&host);
            if let Some(end) = end {
                fetch.set_end(end.unwrap_or(Ok(())));
            }
            inner.trim();
        });
        joined
    }

    /// Handles the news that another instance has fetched a file: waiting requests continue, and a copy in use is replaced. An empty name:
    /// publications may have been missed, so all waiting requests check again.
    pub fn published(self: &Arc<Self>, name: &str) {
        self.fleet.arrived(name);
        let known = SiteFile::from_name(name).and_then(|(file, authority)| self.hosts.find(&authority, file));
        // During a fetch, the news may be of a later one, as the right to this one may have run out.
        let is_fetched =
            |host: &HostEntry| self.fetches.row_unless(&(host.file, host.authority.clone()), || true).is_some();
        if let Some(host) = known.filter(|host| !is_unknown(&host.load()) || is_fetched(host))
            && let Ok(place) = TAKING.try_acquire()
        {
            let inner = self.clone();
            tokio::spawn(async move {
                inner.take_published(&host).await;
                drop(place);
            });
        }
    }

    /// The entry of an authority's file, from memory or the store.
    pub async fn look_up(self: &Arc<Self>, file: SiteFile, authority: &Authority) -> Option<Arc<Entry>> {
        let known = self.hosts.find(authority, file).map(|host| host.load_full());
        match known.filter(|entry| !is_unknown(entry)) {
            Some(entry) => Some(entry),
            None => self.kept(authority, file, Taker::new(BACKGROUND, authority)).await,
        }
    }

    pub fn take_copy(self: &Arc<Self>, file: SiteFile, authority: &Authority, copy: Arc<Entry>) {
        self.hosts.put(&self.host(file, authority), copy);
    }

    /// Checks that `egress` allows the authority and, unless a copy exists, the addresses of its name. A name that does not resolve is not
    /// refused.
    pub async fn may_reach(self: &Arc<Self>, authority: &Authority) -> Result<(), Refusal> {
        self.upstream.screen(authority)?;
        if self.host(SiteFile::Robots, authority).load().usable(SystemTime::now()).is_some() {
            return Ok(());
        }
        match self.upstream.reach_for(authority, Some(BACKGROUND), None, None).await {
            Err(ReachError::Denied(denied)) => Err(denied.into()),
            Ok(_) | Err(ReachError::Resolve(_) | ReachError::Reloaded) => Ok(()),
        }
    }

    /// Applies changed settings to the limits.
    pub fn resize(&self) {
        let settings = self.settings.load();
        self.places.resize(most_fetches(&settings));
        self.long_bodies.resize(&settings);
    }

    /// Drops the parsed robots.txt files, after the parse options have changed. They are read from the store when they are needed again, or
    /// fetched if there is no store.
    pub fn reread(self: &Arc<Self>) {
        let inner = self.clone();
        drop(spawn_blocking(move || {
            for host in inner.hosts.latest(usize::MAX).iter().filter(|host| host.load().robots_txt().is_some()) {
                inner.hosts.put_over(host, &host.load_full(), Arc::default());
            }
            inner.files.sweep();
        }));
    }

    fn keep(self: &Arc<Self>, host: &HostEntry, entry: Arc<Entry>) {
        self.keep_if(host, entry, |_, _| true);
    }

    /// Keeps the entry if `is_better` than the current one. No other entry is kept between the comparison and its end.
    fn keep_if(self: &Arc<Self>, host: &HostEntry, entry: Arc<Entry>, is_better: impl Fn(&Entry, &Entry) -> bool) {
        let _keeping = host.keeping.lock();
        if !is_better(&entry, &host.load()) {
            return;
        }
        // An impatient process is a command that retries unreachable hosts at once. If it stored a failure, other processes would not ask
        // that host.
        if entry.trouble.is_none() || !self.settings.load().store.is_impatient {
            // Saved first, so that a request that finds the entry evicted does not load an older copy.
            self.store.save(host.name(), &entry);
        }
        self.adopt(host, entry);
    }

    /// Puts an entry into memory only, not into the store.
    fn adopt(self: &Arc<Self>, host: &HostEntry, mut entry: Arc<Entry>) {
        let linked = host.load().linked.as_ref().and_then(|url| entry.linking(url));
        if let Some(linking) = linked {
            entry = Arc::new(linking);
        }
        self.hosts.put(host, entry);
        // Whichever of the site's files has arrived, the next slot is for a page.
        if let Some(robots) = self.hosts.find(&host.authority, SiteFile::Robots) {
            robots.set_page_requested(false);
        }
    }

    /// Notes that one of the site's answers links to this licence file, unless another one was noted before. Returns the entry of the
    /// site's robots.txt if it notes this file, and robots.txt itself names none.
    pub fn link_license(self: &Arc<Self>, authority: &Authority, url: &str) -> Option<Arc<Entry>> {
        let host = self.hosts.find(authority, SiteFile::Robots)?;
        let old = host.load_full();
        if let Some(linking) = old.linking(url) {
            self.hosts.put_over(&host, &old, Arc::new(linking));
        }
        Some(host.load_full()).filter(|robots| robots.named_license().is_none() && robots.license_url() == Some(url))
    }
}

/// Maximum number of published copies that are taken at a time. A host whose publication is missed renews its copy when that is due.
static TAKING: Semaphore = Semaphore::const_new(1024);
/// Maximum number of fetches that begin at a time while the store is behind. Copies of more fetches would be lost, and fetched again.
const MOST_UNSTORED: usize = 16;
/// Maximum number of copies that are read from the store at a time.
const MOST_LOADED: usize = 16;
/// Number of new host entries, about 100 KB, after which memory is checked.
const TRIM_EACH: u32 = 256;
/// Bounds of the histograms, in milliseconds: from a minute to the 30 days for which the last good copy may be used.
const AGES: &[u64] = &[60_000, 300_000, 3_600_000, 21_600_000, 43_200_000, 86_400_000, 604_800_000, 2_592_000_000];
#[cfg(test)]
mod memory_tests;
