//! Reads copies from the store and from the fleet.

use super::super::compare::is_unknown;
use super::super::intern::LONG;
use super::super::long_bodies::Crowded;
use super::super::{HostEntry, RobotsCache};
use crate::config::Settings;
use crate::gate::compute::rethrown;
use crate::gate::fair_places::{FairPlace, Taker};
use crate::gate::fleet::Parcel;
use crate::gate::store::{FileDigest, ReadFile, snapshot};
use crate::policy::{Access, Authority, Entry, SiteFile};
use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::task::spawn_blocking;

impl RobotsCache {
    /// Unpacks a copy that can be done without if it is long and finds no place.
    pub(super) async fn unpack_now(
        self: &Arc<Self>,
        file: SiteFile,
        copy: Option<Parcel>,
        taker: Taker,
    ) -> Option<Arc<Entry>> {
        self.unpack(file, copy?, None, taker).await.ok().flatten()
    }

    /// Unpacks a copy from the fleet. It is fresh for at most this instance's `max_ttl`. `place`: for a long one, if it has been waited for.
    pub(super) async fn unpack(
        self: &Arc<Self>,
        file: SiteFile,
        Parcel { bytes, sent }: Parcel,
        place: Option<FairPlace>,
        taker: Taker,
    ) -> Result<Option<Arc<Entry>>, Crowded> {
        let copy = self.long_bodies.hold(bytes, place, taker)?;
        let unpack = move |settings: &Settings, parse: &ParseCopy<'_>| {
            let entry = snapshot::unpack(&copy, sent, SystemTime::now(), parse)?;
            Some(Arc::new(entry.fresh_within(settings.robots.max_ttl)))
        };
        Ok(self.read_copy(file, taker, unpack).await)
    }

    /// Reads a copy from the store or the fleet on another thread. Only there does it show whether it has a long file, which is then read
    /// in turn. A file longer than any that is fetched is refused.
    pub(super) async fn read_copy(
        self: &Arc<Self>,
        file: SiteFile,
        taker: Taker,
        read: impl Fn(&Settings, &ParseCopy<'_>) -> Option<Arc<Entry>> + Send + Sync + 'static,
    ) -> Option<Arc<Entry>> {
        // Loaded here: a swap, of which each host has some, looks at every thread that has ever loaded anything.
        let (inner, settings) = (self.clone(), self.settings.load_full());
        // `None`: the file is longer than that, and not in memory.
        let work = Arc::new(move |longest: usize| {
            let (options, is_long) = (settings.robots.parse_options(), Cell::new(false));
            let accepts = |length| {
                let most = options.max_text();
                is_long.set(longest < length && length <= most);
                length <= longest.min(most)
            };
            let entry = read(&settings, &|name, body| inner.files.named(file, name, &options, || body(&accepts)));
            (!is_long.get()).then_some(entry)
        });
        let at_once = work.clone();
        let place = self.loading.acquire().await.ok()?;
        let read = spawn_blocking(move || at_once(LONG)).await.map_err(rethrown).ok()?;
        // A long file waits for its turn without it: short ones go on.
        drop(place);
        match read {
            Some(entry) => entry,
            None => self.workers.compute(taker, move || work(usize::MAX)).await.ok()?.flatten(),
        }
    }

    /// Loads the stored copy if nothing is known. True: it is good enough for waiting requests.
    pub(super) async fn take_kept(self: &Arc<Self>, host: &HostEntry, taker: Taker) -> bool {
        let old = host.load_full();
        if !is_unknown(&old) {
            return false;
        }
        let Some(kept) = self.kept(&host.authority, host.file, taker).await else { return false };
        let (kept, now) = (self.hosts.put_over(host, &old, kept), SystemTime::now());
        kept.usable(now).is_some() || !kept.may_fetch(now)
    }

    /// The stored copy, from an earlier process, or from before memory ran short. None if no copy of others is to be used.
    pub(in crate::gate::robots) async fn kept(
        self: &Arc<Self>,
        authority: &Authority,
        file: SiteFile,
        taker: Taker,
    ) -> Option<Arc<Entry>> {
        if !self.store.is_on_disk() || self.settings.load().store.is_fresh {
            return None;
        }
        let kept = match self.kept_at_once(authority, file) {
            Some(kept) => kept,
            None => {
                let (store, authority) = (self.store.clone(), authority.clone());
                let load = move |_: &Settings, parse: &ParseCopy<'_>| store.load(file.of(&authority), parse);
                self.read_copy(file, taker, load).await
            }
        }?;
        let settings = self.settings.load();
        // Another process may allow more.
        let entry = Entry::clone(&kept).fresh_within(settings.robots.max_ttl);
        Some(Arc::new(if settings.store.is_impatient { entry.due(SystemTime::now()) } else { entry }))
    }

    /// The same, of what the system has in memory: most hosts are new, and most copies short. `None`: the disk is to be read, or the file
    /// is long.
    fn kept_at_once(&self, authority: &Authority, file: SiteFile) -> Option<Option<Arc<Entry>>> {
        let (options, is_long) = (self.settings.load().robots.parse_options(), Cell::new(false));
        let accepts = |length| {
            is_long.set(length > LONG);
            length <= LONG
        };
        let parse = |name, body: &ReadFile<'_>| self.files.named(file, name, &options, || body(&accepts));
        let kept = self.store.load_at_once(file.of(authority), parse).ok()?;
        (!is_long.get()).then_some(kept)
    }
}

/// Parses a copy's file, or finds it in memory by its digest.
type ParseCopy<'a> = dyn Fn(FileDigest, &ReadFile<'_>) -> Option<Access> + 'a;
