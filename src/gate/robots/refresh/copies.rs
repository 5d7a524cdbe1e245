//! Reads copies from the store and from the fleet.

use super::super::compare::is_unknown;
use super::super::intern::LONG;
use super::super::long_bodies::Crowded;
use super::super::{HostEntry, RobotsCache};
use crate::config::Settings;
use crate::fair_places::{FairPlace, Taker};
use crate::gate::compute::rethrown;
use crate::gate::fleet::Parcel;
use crate::gate::store::{FileDigest, ReadFile, ReadFrom, snapshot};
use crate::policy::{Access, Authority, Entry, SiteFile};
use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::task::spawn_blocking;

impl RobotsCache {
    /// Unpacks a copy from the fleet without waiting for a place: if none is free, a long copy is ignored.
    pub(super) async fn unpack_now(
        self: &Arc<Self>,
        file: SiteFile,
        copy: Option<Parcel>,
        taker: Taker,
    ) -> Option<Arc<Entry>> {
        let whole = self.whole(file, copy?).await?;
        self.unpack(file, whole, None, taker).await.ok().flatten()
    }

    /// Adds the file to a copy from the fleet, if the file is stored separately and not in memory. `None`: the fleet has lost the file.
    pub(super) async fn whole(&self, file: SiteFile, Parcel { mut bytes, sent }: Parcel) -> Option<WholeCopy> {
        let options = self.settings.load().robots.parse_options();
        let name = snapshot::lacks_file(&bytes);
        let held = name.and_then(|name| self.files.named(file, name, &options, || None));
        if let Some(name) = name.filter(|_| held.is_none()) {
            // Boxed: otherwise, every fetch in flight would reserve the memory for it.
            bytes.extend(Box::pin(self.fleet.file(name)).await?);
        }
        Some((Parcel { bytes, sent }, held))
    }

    /// Unpacks a copy from the fleet, which is then fresh for at most this instance's `max_ttl`. `place`: for a long copy, if the caller
    /// has waited for a place.
    pub(super) async fn unpack(
        self: &Arc<Self>,
        file: SiteFile,
        (Parcel { bytes, sent }, _held): WholeCopy,
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

    /// Reads a copy from the store or the fleet on another thread. If its file turns out to be long, waits for a turn to parse it. A file
    /// above the size limit for fetched files is refused.
    pub(super) async fn read_copy(
        self: &Arc<Self>,
        file: SiteFile,
        taker: Taker,
        read: impl Fn(&Settings, &ParseCopy<'_>) -> Option<Arc<Entry>> + Send + Sync + 'static,
    ) -> Option<Arc<Entry>> {
        // Loaded here, not on the other thread: each swap of an entry visits every thread that has ever loaded an `ArcSwap`.
        let (inner, settings) = (self.clone(), self.settings.load_full());
        // `None`: the file is longer than `longest`, and not in memory.
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
        // A long file waits for its turn without this place, so that short files go on.
        drop(place);
        match read {
            Some(entry) => entry,
            None => self.workers.compute(taker, move || work(usize::MAX)).await.ok()?.flatten(),
        }
    }

    /// Loads the stored copy if the entry in memory is unknown. True: waiting requests can be decided by the stored copy.
    pub(super) async fn take_kept(self: &Arc<Self>, host: &HostEntry, taker: Taker) -> bool {
        let old = host.load_full();
        if !is_unknown(&old) {
            return false;
        }
        let Some(kept) = self.kept(&host.authority, host.file, taker).await else { return false };
        let (kept, now) = (self.hosts.put_over(host, &old, kept), SystemTime::now());
        kept.usable(now).is_some() || !kept.may_fetch(now)
    }

    /// The stored copy, from an earlier process or from before its entry was evicted. `None`: there is none, or only
    /// fresh fetches are allowed.
    pub(in crate::gate::robots) async fn kept(
        self: &Arc<Self>,
        authority: &Authority,
        file: SiteFile,
        taker: Taker,
    ) -> Option<Arc<Entry>> {
        if self.settings.load().store.is_fresh {
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
        // Another process may allow a longer `max_ttl`.
        let entry = Entry::clone(&kept).fresh_within(settings.robots.max_ttl);
        Some(Arc::new(if settings.store.is_impatient { entry.due(SystemTime::now()) } else { entry }))
    }

    /// The stored copy, if the system has it in memory and its file is short, as for most hosts. `None`: another thread has to read the
    /// disk, or to parse a long file.
    fn kept_at_once(&self, authority: &Authority, file: SiteFile) -> Option<Option<Arc<Entry>>> {
        let (options, is_long) = (self.settings.load().robots.parse_options(), Cell::new(false));
        let accepts = |length| {
            is_long.set(length > LONG);
            length <= LONG
        };
        let parse = |name, body: &ReadFile<'_>| self.files.named(file, name, &options, || body(&accepts));
        let kept = self.store.read(file.of(authority), ReadFrom::Memory, parse).ok()?;
        (!is_long.get()).then_some(kept)
    }
}

/// A copy from the fleet that can be unpacked. If its file is already in memory, the parcel lacks it, and the second member keeps it there
/// until the copy is unpacked.
pub(super) type WholeCopy = (Parcel, Option<Access>);

/// Parses a copy's file, or finds it in memory by its digest.
type ParseCopy<'a> = dyn Fn(FileDigest, &ReadFile<'_>) -> Option<Access> + 'a;
