//! Obtains an authority's robots.txt, tdmrep.json or licence file: from the fleet, from the store, or from the origin.

mod ask;
mod copies;
mod turn;

use super::compare::{content, is_due, is_newer, is_older, is_unknown};
use super::fetch::{FetchError, Reply};
use super::fetch_table::Fetch;
use super::intern::LONG;
use super::long_bodies::Crowded;
use super::response::{Fetched, interpret_response};
use super::site_time::SiteTime;
use super::{BACKGROUND, HostEntry, Order, RobotsCache};
use crate::config::Settings;
use crate::fair_places::Taker;
use crate::gate::fleet::{Acceptable, Claim, LATE, ServerLost};
use crate::policy::{Entry, Refusal, SiteFile};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

impl RobotsCache {
    /// Obtains the file, together with the fleet if it can be asked, otherwise by this instance alone. An error says why the site was not
    /// asked.
    pub(super) async fn refresh_now(
        self: &Arc<Self>,
        host: &HostEntry,
        order: &Order,
        fetch: &Fetch,
    ) -> Result<(), Refusal> {
        let (was_unknown, name) = (is_unknown(&host.load()), host.name());
        let is_fresh = self.settings.load().store.is_fresh;
        let taker = Taker::new(order.client, &host.authority);
        let mut will_do = self.take_kept(host, taker).await && order.reason.takes_any_copy();
        // A command does not use an outdated copy, as it may end before the copy is renewed in the background.
        let is_impatient = self.settings.load().store.is_impatient;
        will_do &= !(is_impatient && is_due(&host.load(), SystemTime::now()));
        if will_do && !is_due(&host.load(), SystemTime::now()) && !self.fleet.has_server() {
            // No other process of this machine has a newer copy.
            return Ok(());
        }
        // Waits before it claims the fetch, as another process may have a faster disk.
        let was_behind = !will_do && self.wait_for_store(taker).await;
        let is_anew = is_fresh || !order.reason.takes_any_copy();
        let takes_outdated = was_unknown && !is_impatient && !is_anew;
        let any = if takes_outdated { Acceptable::Outdated } else { Acceptable::Fresh };
        let mut accepted = if is_anew { Acceptable::Anew } else { any };
        // Commands do not share failures, so each would wait while the commands before it fetch in vain.
        let patience = is_impatient.then_some(LATE);
        let mut place = None;
        let claimed = loop {
            let claim = Box::pin(self.fleet.claim(name, accepted, patience)).await;
            let is_stored = matches!(claim, Ok(Claim::Stored));
            let copy = match claim {
                Ok(Claim::Fetch(right, old)) => break Some((right, old)),
                Err(ServerLost) => break None,
                Ok(Claim::Outdated(copy)) => {
                    accepted = Acceptable::Fresh;
                    if let Some(copy) = self.unpack_now(host.file, Some(copy), taker).await {
                        self.keep_if(host, copy, is_newer);
                    }
                    if host.load().usable(SystemTime::now()).is_some() {
                        return Ok(());
                    }
                    continue;
                }
                Ok(Claim::Copy(copy)) => match self.whole(host.file, copy).await {
                    Some(whole) => self.unpack(host.file, whole, place.take(), taker).await,
                    None if accepted == Acceptable::Anew => break None,
                    None => {
                        accepted = Acceptable::Anew;
                        continue;
                    }
                },
                Ok(Claim::Stored) => Ok(self.kept(&host.authority, host.file, taker).await),
            };
            let (anew, now) = (accepted == Acceptable::Anew, SystemTime::now());
            let accepts = |entry: &Entry| {
                anew || !is_due(entry, now) || accepted == Acceptable::Outdated && entry.usable(now).is_some()
            };
            match copy {
                Ok(Some(entry)) if !is_older(&entry, &host.load()) && accepts(&entry) => {
                    if is_stored {
                        self.adopt(host, entry)
                    } else {
                        self.keep_unless_older(host, entry)
                    }
                    return Ok(());
                }
                // The copy is from a lagging server, or outdated only for this instance, or gone from the store.
                Ok(copy) if !anew && (is_stored || copy.is_some()) => accepted = Acceptable::Anew,
                // The copy is of another version of this program, or too long.
                Ok(_) => break None,
                // The copy is dropped while this waits for a place, and then requested again.
                Err(Crowded) => {
                    let settings = self.settings.load_full();
                    let time = SiteTime::new(settings.robots.timeout, order.patience(&settings));
                    match self.long_bodies.place(taker, &time).await {
                        Ok(free) => place = Some(free),
                        Err(FetchError::NotAsked(refusal)) => return Err(refusal),
                        Err(FetchError::Unreachable(_)) => break None,
                    }
                }
            }
        };
        drop(place);
        if !was_unknown && claimed.as_ref().is_some_and(|(_, old)| old.is_none()) {
            // The store may have a newer copy, which another process has validated, even if that is outdated, too.
            let kept = self.kept(&host.authority, host.file, taker).await;
            if let Some(newer) = kept.filter(|kept| is_newer(kept, &host.load())) {
                self.adopt(host, newer);
            }
        }
        // From here on, the site may be asked.
        let was_behind = was_behind || self.store.is_behind();
        // Boxed like the claim: moving the future into another would double its memory, for as long as the site takes.
        let alone = Box::pin(async {
            match will_do {
                true => Ok(None),
                false => self.refresh_alone(host, order, fetch).await,
            }
        });
        let Some((right, old)) = claimed else {
            self.keep_fetched(host, alone.await?, was_behind).await;
            return Ok(());
        };
        let is_sent = old.is_some();
        let old = self.unpack_now(host.file, old.filter(|_| !is_fresh), taker).await;
        // The contents that other instances may have so far: our entry's, and the fleet copy's. The fetched entry is news if it differs
        // from one of them. An unreadable copy differs from every entry.
        let own = Some(content(&host.load())).filter(|_| !is_unknown(&host.load()));
        let before = [own, is_sent.then(|| old.as_deref().map(content).unwrap_or_default())];
        if let Some(old) = old.filter(|old| is_newer(old, &host.load())) {
            let is_enough = takes_outdated && old.usable(SystemTime::now()).is_some();
            self.keep_if(host, old, is_newer);
            if is_enough {
                // The request that uses the copy renews it in the background.
                return Ok(());
            }
        }
        let fetched = right.meanwhile(alone).await?;
        let entry = fetched.clone().unwrap_or_else(|| host.load_full());
        let is_news = before.into_iter().flatten().any(|before| before != content(&entry));
        // A command's failure may be due to its own network, so the right is given back without a copy.
        let is_for_all = entry.trouble.is_none() || !is_impatient;
        // Published before it is written to disk, for which other instances need not wait.
        let right = Some(right).filter(|_| is_for_all).and_then(|right| right.publish(entry, is_news));
        self.keep_fetched(host, fetched, was_behind).await;
        if let Some(right) = right {
            tokio::spawn(right.give_back(self.store.clone()));
        }
        Ok(())
    }

    /// Keeps a fetched entry, unless another instance has asked the site later and its copy has arrived meanwhile. `was_behind`: the store
    /// was behind when the fetch began, so this waits for the store. Fetches that began before the store was behind do not wait here, as
    /// there may be many.
    async fn keep_fetched(self: &Arc<Self>, host: &HostEntry, fetched: Option<Arc<Entry>>, was_behind: bool) {
        let Some(entry) = fetched else { return };
        if was_behind {
            self.store.room().await;
        }
        self.keep_unless_older(host, entry);
    }

    fn keep_unless_older(self: &Arc<Self>, host: &HostEntry, entry: Arc<Entry>) {
        self.keep_if(host, entry, |entry, current| !is_older(entry, current));
    }

    /// Adopts the copy that another instance has published, even during a fetch of our own, which may be about to fail.
    pub(super) async fn take_published(self: &Arc<Self>, host: &HostEntry) {
        let taker = Taker::new(BACKGROUND, &host.authority);
        let published = self.unpack_now(host.file, self.fleet.take(host.name()).await, taker).await;
        if let Some(entry) = published {
            self.keep_unless_older(host, entry);
        }
    }

    /// Fetches the file from the origin. `None`: the current entry is newer than the fetched one, or the proxy is stopping.
    async fn refresh_alone(
        self: &Arc<Self>,
        host: &HostEntry,
        order: &Order,
        fetch: &Fetch,
    ) -> Result<Option<Arc<Entry>>, Refusal> {
        let (settings, taker) = (self.settings.load_full(), Taker::new(order.client, &host.authority));
        let fetched = loop {
            // Holds the entry without its file, which may be evicted meanwhile.
            let before = host.load().outline();
            let fetched = match self.ask(&settings, host, &before, order, fetch).await {
                Ok(fetched) => fetched,
                Err(FetchError::Unreachable(why)) => Fetched::Unreachable(why),
                Err(FetchError::NotAsked(refusal)) => return Err(refusal),
            };
            if fetched.needs_copy() && is_unknown(&host.load()) {
                // The copy may have been evicted since the fetch was ordered.
                self.take_kept(host, taker).await;
            }
            // A 304 is about the copy that we had when the request was sent. If we have another copy now, the file is fetched again.
            let is_confirmed = matches!(fetched, Fetched::Answer { reply: Reply { status: 304, .. }, .. });
            if !is_confirmed || host.load().conditions() == before.conditions() {
                break fetched;
            }
        };
        // Loaded again, as a reload may have happened meanwhile.
        let (settings, old) = (self.settings.load_full(), host.load_full());
        let Some(entry) = self.read(host.file, old.clone(), fetched, settings, taker).await else {
            return Ok(None);
        };
        if is_older(&entry, &host.load()) {
            // Another instance has asked the site later, and its copy has arrived meanwhile.
            return Ok(None);
        }
        let entry = Arc::new(entry);
        let is_failed = entry.trouble.is_some();
        self.count(&entry, host.file);
        if let (Some(before), SiteFile::Robots) = (&old.answer, host.file) {
            self.ages[usize::from(is_failed)].observe(Duration::from_secs(before.freshness.age(SystemTime::now())));
        }
        log(host, &old, &entry);
        Ok(Some(entry))
    }

    /// Interprets an answer. Parses a long file on another thread. `None`: the proxy is stopping.
    async fn read(
        self: &Arc<Self>,
        file: SiteFile,
        old: Arc<Entry>,
        fetched: Fetched,
        settings: Arc<Settings>,
        taker: Taker,
    ) -> Option<Entry> {
        let is_long = matches!(&fetched, Fetched::Answer { reply, .. } if reply.body.len() > LONG);
        let inner = self.clone();
        let read = move || interpret_response(file, &old, &fetched, &inner.files, &settings, SystemTime::now());
        if is_long { self.workers.compute(taker, read).await.ok() } else { Some(read()) }
    }

    fn count(&self, entry: &Entry, file: SiteFile) {
        let figures = &mut *self.figures.lock();
        match entry.trouble {
            Some(_) => figures.failed[file.kind()] += 1,
            None => {
                figures.fetched[file.kind()] += 1;
                figures.malformed.iter_mut().zip(entry.malformed()).for_each(|(count, is)| *count += u64::from(is));
            }
        }
    }

    /// Runs a fetch's work. `None`: the work has panicked, which counts as a failed fetch, so that it is not repeated at once.
    pub(super) async fn or_failed<T>(self: &Arc<Self>, host: &HostEntry, work: impl Future<Output = T>) -> Option<T> {
        let panic = AssertUnwindSafe(work).catch_unwind().await;
        panic
            .inspect_err(|panic| {
                let why = words(&**panic);
                let file = host.file.name();
                tracing::error!(authority = %host.authority, "{file}: an internal error ended its fetch: {why}");
                let failed = "an internal error of the proxy";
                let entry = Arc::new(host.load().failed(SystemTime::now(), failed, None, fastrand::f64()));
                self.count(&entry, host.file);
                self.keep(host, entry);
            })
            .ok()
    }
}

/// The message of a panic, for the log.
fn words(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

fn log(host: &HostEntry, old: &Entry, new: &Entry) {
    let (authority, file) = (&host.authority, host.file.name());
    // Requests that a browser makes by itself are logged only at debug level.
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
        tracing::warn!(%authority, hint, "{file} is an HTML page, which usually contains no rules");
    }
}

#[cfg(test)]
pub(super) mod tests;
