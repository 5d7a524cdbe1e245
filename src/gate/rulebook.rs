//! Each authority's rules: fetched when first asked for, by one however many ask, renewed behind those who ask later.
//! Called by `Gate`.

mod files;
mod hot;
mod learn;
mod reading;
mod shelf;

pub(super) use hot::HotHost;
pub(super) use shelf::Slot;

use super::fetch::{Fetched, Fetcher};
use super::fleet::Fleet;
use super::pacer::Pacer;
use super::store::Store;
use crate::config::Settings;
use crate::policy::freshness::State;
use crate::policy::{Access, Answer, Authority, Entry, KeyBy, PaceKey};
use arc_swap::ArcSwap;
use files::Files;
use hot::{Hot, Seated};
use parking_lot::Mutex;
use reading::next;
use shelf::Shelf;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// All authorities that are known of.
#[derive(Clone)]
pub(super) struct RuleBook(Arc<Inner>);

struct Inner {
    shelf: Shelf,
    hot: Hot,
    files: Files,
    store: Arc<Store>,
    fetcher: Fetcher,
    pacer: Arc<Pacer>,
    settings: Arc<ArcSwap<Settings>>,
    fleet: Option<Arc<Fleet>>,
    /// The fetches under way; a receiver's channel closes when its fetch is over.
    fetches: Mutex<HashMap<Authority, watch::Receiver<()>>>,
    trimming: AtomicBool,
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    /// A copy that can be used, from wherever it can be had.
    Learn,
    /// From the origin, whatever is kept.
    Anew,
    /// What another instance has published.
    Take,
}

/// Figures for people and machines that watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BookFigures {
    /// Authorities in memory.
    pub authorities: usize,
    /// Different files in memory.
    pub files: usize,
    /// Octets that they take.
    pub authority_bytes: usize,
    pub file_bytes: usize,
    /// Fetches that were answered, and those that were not.
    pub fetched: u64,
    pub failed: u64,
}

impl RuleBook {
    pub fn new(
        fetcher: Fetcher,
        pacer: Arc<Pacer>,
        store: Arc<Store>,
        settings: Arc<ArcSwap<Settings>>,
        fleet: Option<Arc<Fleet>>,
    ) -> Self {
        RuleBook(Arc::new(Inner {
            shelf: Shelf::new(),
            hot: Hot::new(),
            files: Files::default(),
            store,
            fetcher,
            pacer,
            settings,
            fleet,
            fetches: Mutex::default(),
            trimming: AtomicBool::new(false),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    pub fn slot(&self, authority: &Authority) -> Arc<Slot> {
        self.0.shelf.slot(authority)
    }

    /// Where a request goes to: its place and its lane. Without a lock that another host could hold, if it has been
    /// asked for lately.
    pub fn host(&self, authority: &Authority, by: KeyBy, dialled: Option<IpAddr>) -> Seated {
        let Inner { shelf, hot, pacer, .. } = &*self.0;
        let address = dialled.filter(|_| by == KeyBy::Address);
        if let Some(host) = hot.get(authority, by, address) {
            shelf.touch(&host.slot);
            return host;
        }
        let (slot, pace) = (shelf.slot(authority), pacer.pace(&PaceKey::new(by, authority, address)));
        let host = Arc::new(HotHost { slot, pace, by, address });
        hot.seat(&host);
        Seated::new(host)
    }

    /// Those asked for last.
    pub fn latest(&self, most: usize) -> Vec<Arc<Slot>> {
        self.0.shelf.latest(most)
    }

    pub fn figures(&self) -> BookFigures {
        let Inner { shelf, files, fetched, failed, .. } = &*self.0;
        BookFigures {
            authorities: shelf.len(),
            files: files.len(),
            authority_bytes: shelf.bytes(),
            file_bytes: files.bytes(),
            fetched: fetched.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
        }
    }

    /// Takes an answer as though it had been fetched just now.
    pub fn teach(&self, authority: &Authority, fetched: &Fetched) {
        let slot = self.slot(authority);
        let old = slot.load_full();
        let entry = Arc::new(next(&old, fetched, &self.0.files, &self.0.settings.load(), SystemTime::now()));
        self.0.keep(&slot, entry);
        self.0.trim();
    }

    /// Learns about an authority from the store, else from the network; joins whoever is at it already. The receiver's
    /// channel closes when that is over. It goes on even if those who wait for it leave. `crawl_delay`: the host's, as
    /// far as it is known.
    pub fn fetch(&self, slot: &Arc<Slot>, crawl_delay: Option<Duration>) -> watch::Receiver<()> {
        self.start(slot, crawl_delay, Errand::Learn)
    }

    /// The same, from the network whatever the store has.
    pub fn fetch_anew(&self, slot: &Arc<Slot>, crawl_delay: Option<Duration>) -> watch::Receiver<()> {
        self.start(slot, crawl_delay, Errand::Anew)
    }

    /// Another instance has fetched this: whoever waits for it here goes on, and a copy that is in use is replaced.
    pub fn published(&self, authority: &str) {
        if self.0.fleet.as_ref().is_some_and(|fleet| fleet.arrived(authority)) {
            return;
        }
        let known = Authority::from_url(authority).ok().and_then(|authority| self.0.shelf.find(&authority));
        if let Some(slot) = known.filter(|slot| !is_unknown(&slot.load())) {
            drop(self.start(&slot, None, Errand::Take));
        }
    }

    /// What is known of the authority, here or in the store.
    pub async fn look_up(&self, authority: &Authority) -> Option<Arc<Entry>> {
        if let Some(slot) = self.0.shelf.find(authority) {
            return Some(slot.load_full()).filter(|entry| !is_unknown(entry));
        }
        self.0.kept(authority).await
    }

    /// After a change of how files are read: reads those in memory anew, behind everybody's back.
    pub fn reread(&self) {
        let inner = self.0.clone();
        tokio::task::spawn_blocking(move || {
            let options = inner.settings.load().robots.parse_options();
            for slot in inner.shelf.latest(usize::MAX) {
                let old = slot.load_full();
                let Some(Answer { access: Access::Rules(robots), .. }) = &old.answer else { continue };
                let access = Access::Rules(inner.files.intern(robots.source(), &options));
                let answer = old.answer.clone().map(|answer| Answer { access, ..answer });
                // Whoever fetches it meanwhile reads it as is right now.
                inner.shelf.put_over(&slot, &old, Arc::new(Entry { answer, trouble: old.trouble.clone() }));
            }
            inner.files.sweep();
        });
    }

    fn start(&self, slot: &Arc<Slot>, crawl_delay: Option<Duration>, errand: Errand) -> watch::Receiver<()> {
        let mut fetches = self.0.fetches.lock();
        // A closed channel is a fetch whose task has failed.
        if let Some(under_way) = fetches.get(&slot.authority).filter(|under_way| under_way.has_changed().is_ok()) {
            return under_way.clone();
        }
        let (over, receiver) = watch::channel(());
        if errand == Errand::Learn && !is_due(&slot.load(), SystemTime::now()) {
            // It was under way when the caller looked, and has just ended.
            return receiver;
        }
        fetches.insert(slot.authority.clone(), receiver.clone());
        let (inner, slot) = (self.0.clone(), slot.clone());
        tokio::spawn(async move {
            inner.learn(&slot, crawl_delay, errand).await;
            inner.fetches.lock().remove(&slot.authority);
            drop(over);
            inner.trim();
        });
        receiver
    }
}

impl Inner {
    fn keep(&self, slot: &Slot, entry: Arc<Entry>) {
        // First, so that whoever finds the place given up meanwhile does not go by an older copy.
        self.store.save(&slot.authority, &entry);
        self.shelf.put(slot, entry);
    }

    /// Gives up what was used least recently, behind everybody's back, when there is too much in memory.
    fn trim(self: &Arc<Self>) {
        let most = usize::try_from(self.settings.load().store.memory).unwrap_or(usize::MAX);
        let bytes = |inner: &Self| inner.shelf.bytes() + inner.files.bytes() + inner.store.queued_bytes();
        if bytes(self) <= most || self.trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = self.clone();
        tokio::task::spawn_blocking(move || {
            // A little more than has to be, so that this is rare.
            let target = most / 16 * 15;
            inner.files.sweep();
            // Those that are in use come back.
            inner.hot.clear();
            while bytes(&inner) > target && inner.shelf.shrink() {
                inner.files.sweep();
            }
            inner.trimming.store(false, Ordering::Relaxed);
        });
    }
}

fn is_due(entry: &Entry, now: SystemTime) -> bool {
    let is_fresh = matches!(entry.usable(now), Some((_, State::Fresh)));
    !is_fresh && entry.may_fetch(now)
}

fn is_unknown(entry: &Entry) -> bool {
    entry.answer.is_none() && entry.trouble.is_none()
}
