//! How an authority's robots.txt or tdmrep.json is obtained: from the fleet, from the store, or from the origin.

mod ask;
mod turn;

use super::compare::{is_due, is_newer, is_older, is_unknown};
use super::fetch::FetchError;
use super::fetch_table::Fetch;
use super::intern::LONG;
use super::response::{Fetched, interpret_response};
use super::{FetchReason, HostEntry, Order, RobotsCache};
use crate::config::Settings;
use crate::gate::decode::rethrown;
use crate::gate::fleet::{Claim, Fleet, Parcel, ServerLost};
use crate::gate::store::snapshot;
use crate::policy::{Authority, Entry, Refusal, SiteFile};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

impl RobotsCache {
    /// From the fleet, if it can be asked; otherwise by this instance alone. An error means that nobody was asked.
    pub(super) async fn refresh_now(
        self: &Arc<Self>,
        host: &HostEntry,
        order: &Order,
        fetch: &Fetch,
    ) -> Result<(), Refusal> {
        let (was_unknown, name) = (is_unknown(&host.load()), host.name());
        let was_readable = self.store.is_readable();
        let mut will_do = self.take_kept(host).await && order.reason.takes_any_copy();
        if will_do
            && !is_due(&host.load(), SystemTime::now())
            && !self.fleet.as_ref().is_some_and(|fleet| fleet.has_server())
        {
            // No other process of this machine has a newer copy.
            return Ok(());
        }
        let mut anew = order.reason == FetchReason::Anew;
        let claimed = loop {
            let claim = match &self.fleet {
                Some(fleet) => fleet.claim(name, anew).await,
                None => Err(ServerLost),
            };
            // The process that had the store open may have ended meanwhile.
            will_do |= !was_readable && self.take_kept(host).await && order.reason.takes_any_copy();
            match claim {
                Ok(Claim::Fetch(right, old)) => break Some((right, old)),
                Ok(Claim::Copy(copy)) => match self.unpack(host.file, Some(copy)).await {
                    Some(entry) if !is_older(&entry, &host.load()) && (anew || !is_due(&entry, SystemTime::now())) => {
                        self.keep(host, Arc::new(entry));
                        return Ok(());
                    }
                    // From a lagging server, or usable for other instances for longer than for this one.
                    Some(_) if !anew => anew = true,
                    // From another version of politely.
                    Some(_) | None => break None,
                },
                Err(ServerLost) => break None,
            }
        };
        // Boxed: moving the future into another would double its memory, for as long as the site takes.
        let alone = Box::pin(async {
            match will_do {
                true => Ok(()),
                false => self.refresh_alone(host, order, fetch).await,
            }
        });
        let Some((right, old)) = claimed else { return alone.await };
        if let Some(old) = self.unpack(host.file, old).await.filter(|old| is_newer(old, &host.load())) {
            let is_enough = order.reason.takes_any_copy() && was_unknown && old.usable(SystemTime::now()).is_some();
            self.keep(host, Arc::new(old));
            if is_enough {
                // The request that uses the copy renews it in the background.
                return Ok(());
            }
        }
        let refreshed = right.meanwhile(alone).await;
        if refreshed.is_ok() {
            right.publish(host.load_full());
        }
        refreshed
    }

    /// Takes what another instance has published, even during a fetch of our own, which may be about to fail.
    pub(super) async fn take_published(self: &Arc<Self>, fleet: &Fleet, host: &HostEntry) {
        let published = self.unpack(host.file, fleet.take(host.name()).await).await;
        if let Some(entry) = published.filter(|entry| !is_older(entry, &host.load())) {
            self.keep(host, Arc::new(entry));
        }
    }

    /// Unpacks on another thread, as the sender determines how long it takes. The copy is fresh for at most this instance's `max_ttl`.
    async fn unpack(self: &Arc<Self>, file: SiteFile, copy: Option<Parcel>) -> Option<Entry> {
        let (inner, copy, settings) = (self.clone(), copy?, self.settings.load_full());
        let unpack = move || {
            let robots = &settings.robots;
            let options = robots.parse_options();
            let entry = snapshot::unpack(&copy.bytes, copy.sent, SystemTime::now(), |name, body| {
                inner.files.named(file, name, &options, body)
            });
            entry.map(|entry| entry.fresh_within(robots.max_ttl))
        };
        tokio::task::spawn_blocking(unpack).await.map_err(rethrown).ok().flatten()
    }

    /// Loads the stored copy if nothing is known. True: it is good enough for waiting requests.
    async fn take_kept(self: &Arc<Self>, host: &HostEntry) -> bool {
        let old = host.load_full();
        if !is_unknown(&old) {
            return false;
        }
        let Some(kept) = self.kept(&host.authority, host.file).await else { return false };
        let (kept, now) = (self.hosts.put_over(host, &old, kept), SystemTime::now());
        kept.usable(now).is_some() || !kept.may_fetch(now)
    }

    /// From the origin.
    async fn refresh_alone(self: &Arc<Self>, host: &HostEntry, order: &Order, fetch: &Fetch) -> Result<(), Refusal> {
        let settings = self.settings.load_full();
        let fetched = loop {
            // Without the file, which may be evicted meanwhile.
            let before = host.load().outline();
            let fetched = match self.ask(&settings, host, &before, order, fetch).await {
                Ok(fetched) => fetched,
                Err(FetchError::Unreachable(why)) => Fetched::Unreachable(why),
                Err(FetchError::NotAsked(refusal)) => return Err(refusal),
            };
            if fetched.needs_copy() && is_unknown(&host.load()) {
                // It may have been evicted since the fetch was ordered.
                self.take_kept(host).await;
                let is_confirmed = matches!(fetched, Fetched::Answer { status: 304, .. }) && before.answer.is_some();
                if is_confirmed && is_unknown(&host.load()) {
                    continue;
                }
            }
            break fetched;
        };
        // Loaded again, as a reload may have happened meanwhile.
        let (settings, old) = (self.settings.load_full(), host.load_full());
        let Some(entry) = self.read(host.file, old.clone(), fetched, settings).await else { return Ok(()) };
        if is_older(&entry, &host.load()) {
            // Another instance has asked later, and its copy has arrived meanwhile.
            return Ok(());
        }
        let entry = Arc::new(entry);
        let is_failed = entry.trouble.is_some();
        let count = if is_failed { &self.failed } else { &self.fetched };
        count[host.file as usize].fetch_add(1, Ordering::Relaxed);
        if let (Some(before), SiteFile::Robots) = (&old.answer, host.file) {
            self.ages[usize::from(is_failed)].observe(Duration::from_secs(before.freshness.age(SystemTime::now())));
        }
        if !is_failed {
            let malformed = self.malformed.iter().zip(entry.malformed());
            malformed.filter(|(_, is)| *is).for_each(|(count, _)| _ = count.fetch_add(1, Ordering::Relaxed));
        }
        log(host, &old, &entry);
        self.keep(host, entry);
        Ok(())
    }

    /// Interprets an answer; a long file is parsed on another thread. `None`: the proxy is stopping.
    async fn read(
        self: &Arc<Self>,
        file: SiteFile,
        old: Arc<Entry>,
        fetched: Fetched,
        settings: Arc<Settings>,
    ) -> Option<Entry> {
        let is_long = matches!(&fetched, Fetched::Answer { body, .. } if body.len() > LONG);
        let inner = self.clone();
        let read = move || interpret_response(file, &old, &fetched, &inner.files, &settings, SystemTime::now());
        if !is_long {
            return Some(read());
        }
        let _place = self.reading.acquire().await.ok()?;
        tokio::task::spawn_blocking(read).await.map_err(rethrown).ok()
    }

    /// A fetch that a fault of ours has ended is a failure like another, so that it is not begun again at once.
    pub(super) async fn or_failed<T>(self: &Arc<Self>, host: &HostEntry, work: impl Future<Output = T>) -> Option<T> {
        let panic = AssertUnwindSafe(work).catch_unwind().await;
        panic
            .inspect_err(|panic| {
                let why = words(&**panic);
                let file = host.file.name();
                tracing::error!(authority = %host.authority, "{file}: an internal error ended its fetch: {why}");
                let (old, settings) = (host.load_full(), self.settings.load());
                let failed = Fetched::Unreachable("an internal error of the proxy".to_owned());
                let (files, now) = (&self.files, SystemTime::now());
                self.keep(host, Arc::new(interpret_response(host.file, &old, &failed, files, &settings, now)));
                self.failed[host.file as usize].fetch_add(1, Ordering::Relaxed);
            })
            .ok()
    }

    /// The stored copy, from an earlier process, or from before memory ran short.
    pub(super) async fn kept(self: &Arc<Self>, authority: &Authority, file: SiteFile) -> Option<Arc<Entry>> {
        if !self.store.is_on_disk() {
            return None;
        }
        // Settings are loaded here: a swap, of which each host has some, looks at every thread that has ever loaded anything.
        let (inner, authority, settings) = (self.clone(), authority.clone(), self.settings.load_full());
        let _place = self.loading.acquire().await.ok()?;
        let load = move || {
            let options = settings.robots.parse_options();
            let kept =
                inner.store.load(file.of(&authority), |name, body| inner.files.named(file, name, &options, body))?;
            Some(if settings.store.is_impatient { Arc::new(kept.due(SystemTime::now())) } else { kept })
        };
        tokio::task::spawn_blocking(load).await.map_err(rethrown).ok().flatten()
    }
}

/// The message of a panic, which the panic's log line also shows.
fn words(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words for it")
}

fn log(host: &HostEntry, old: &Entry, new: &Entry) {
    let (authority, file) = (&host.authority, host.file.name());
    // Nobody has asked for what a browser does by itself.
    let is_background = authority.is_background();
    match (&old.trouble, &new.trouble) {
        (_, Some(trouble)) if is_background => tracing::debug!(%authority, "{file}: {}", trouble.why),
        (_, Some(trouble)) => tracing::warn!(%authority, failures = trouble.failures, "{file}: {}", trouble.why),
        (Some(_), None) if !is_background => tracing::info!(%authority, "{file} can be read again"),
        (_, None) => {
            tracing::debug!(%authority, status = new.answer.as_ref().map(|a| a.status), "{file} fetched")
        }
    }
    if new.is_html() && !old.is_html() && !is_background {
        let hint = "its rules are read all the same; `politely lint` shows them";
        tracing::warn!(%authority, hint, "{file} is an HTML page, in which there are hardly any rules");
    }
}

#[cfg(test)]
pub(super) mod tests;
