//! How an authority's rules are learned: from the fleet, from the store, from the origin. Called by `RuleBook`.

use super::reading::{asked_to_wait, next};
use super::{Errand, Inner, Slot, is_unknown};
use crate::config::Settings;
use crate::gate::fetch::Fetched;
use crate::gate::fleet::{Claim, Parcel};
use crate::gate::store::snapshot;
use crate::gate::terms;
use crate::policy::pace::{Client, Outcome};
use crate::policy::{Authority, Entry, KeyBy};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

impl Inner {
    /// From the fleet, where there is one that can be asked; else on our own.
    pub(super) async fn learn(self: &Arc<Self>, slot: &Slot, crawl_delay: Option<Duration>, errand: Errand) {
        let (Some(fleet), authority) = (&self.fleet, &slot.authority) else {
            return self.learn_alone(slot, crawl_delay, errand).await;
        };
        if errand == Errand::Take {
            let copy = fleet.take(authority).await;
            let entry = copy.and_then(|copy| self.unpack(&copy));
            entry.into_iter().for_each(|entry| self.keep(slot, Arc::new(entry)));
            return;
        }
        let (right, old) = match fleet.claim(authority, errand == Errand::Anew).await {
            Ok(Claim::Copy(copy)) => match self.unpack(&copy) {
                Some(entry) => return self.keep(slot, Arc::new(entry)),
                // Another version's.
                None => return self.learn_alone(slot, crawl_delay, errand).await,
            },
            Ok(Claim::Fetch(right, old)) => (right, old),
            Err(_) => return self.learn_alone(slot, crawl_delay, errand).await,
        };
        if let Some(old) = old.and_then(|old| self.unpack(&old)).filter(|old| is_newer(old, &slot.load())) {
            let is_enough =
                errand == Errand::Learn && is_unknown(&slot.load()) && old.usable(SystemTime::now()).is_some();
            self.keep(slot, Arc::new(old));
            if is_enough {
                // Whoever uses it has it renewed, in the background; the right is still ours then.
                return;
            }
        }
        right.meanwhile(self.learn_alone(slot, crawl_delay, errand)).await;
        right.publish(&slot.load_full()).await;
    }

    fn unpack(&self, copy: &Parcel) -> Option<Entry> {
        let options = self.settings.load().robots.parse_options();
        snapshot::unpack(&copy.octets, copy.sent, SystemTime::now(), |name, body| {
            self.files.named(name, &options, body)
        })
    }

    /// From the store, else from the origin.
    async fn learn_alone(self: &Arc<Self>, slot: &Slot, crawl_delay: Option<Duration>, errand: Errand) {
        let mut old = slot.load_full();
        if is_unknown(&old)
            && let Some(kept) = self.kept(&slot.authority).await
        {
            let kept = self.shelf.put_over(slot, &old, kept);
            let now = SystemTime::now();
            if errand == Errand::Learn && (kept.usable(now).is_some() || !kept.may_fetch(now)) {
                return;
            }
            old = kept;
        }
        let settings = self.settings.load_full();
        let fetched = self.paced(&settings, &slot.authority, &old, crawl_delay).await;
        // As they are by now: a reload may have come meanwhile.
        let (settings, old) = (self.settings.load(), slot.load_full());
        let entry = Arc::new(next(&old, &fetched, &self.files, &settings, SystemTime::now()));
        let count = if entry.trouble.is_some() { &self.failed } else { &self.fetched };
        count.fetch_add(1, Ordering::Relaxed);
        tell(&slot.authority, &old, &entry);
        self.keep(slot, entry);
    }

    /// What an earlier process knew, or this one before memory ran short.
    pub(super) async fn kept(self: &Arc<Self>, authority: &Authority) -> Option<Arc<Entry>> {
        if !self.store.is_on_disk() {
            return None;
        }
        let (inner, authority) = (self.clone(), authority.clone());
        let load = move || {
            let options = inner.settings.load().robots.parse_options();
            inner.store.load(&authority, |name, body| inner.files.named(name, &options, body))
        };
        // It fails only when the runtime shuts down.
        tokio::task::spawn_blocking(load).await.ok().flatten()
    }

    /// A fetch is a request to the host like any other, and takes its turn.
    async fn paced(
        &self,
        settings: &Settings,
        authority: &Authority,
        old: &Entry,
        crawl_delay: Option<Duration>,
    ) -> Fetched {
        let terms = terms::terms(settings, crawl_delay, old.answer.is_none());
        let dialled = match settings.pace.key {
            KeyBy::Address => self.fetcher.first_address(authority).await,
            KeyBy::Host | KeyBy::Site => None,
        };
        let pace = self.pacer.pace(&terms::key(settings, authority, dialled));
        let mut permit = match pace.turn(FETCHES, terms).await {
            Ok(permit) => permit,
            Err(refusal) => {
                return Fetched::NoTurn { retry_after: refusal.retry_after() };
            }
        };
        let validators = old.answer.as_ref().map(|answer| &answer.validators);
        permit.leaves();
        let fetched = self.fetcher.fetch(authority, validators, settings).await;
        permit.outcome = match &fetched {
            Fetched::Answer { status: 429 | 503, headers, .. } => {
                Outcome::Backoff { retry_after: asked_to_wait(headers, SystemTime::now()) }
            }
            Fetched::Answer { .. } | Fetched::DeadEnd { .. } => Outcome::Success,
            Fetched::Unreachable(_) | Fetched::NoTurn { .. } => Outcome::Failure,
        };
        fetched
    }
}

fn is_newer(one: &Entry, other: &Entry) -> bool {
    let validated = |entry: &Entry| entry.answer.as_ref().map(|answer| answer.freshness.validated_at());
    is_unknown(other) || validated(one) > validated(other)
}

fn tell(authority: &Authority, old: &Entry, new: &Entry) {
    match (&old.trouble, &new.trouble) {
        (_, Some(trouble)) => tracing::warn!(%authority, failures = trouble.failures, "robots.txt: {}", trouble.why),
        (Some(_), None) => tracing::info!(%authority, "robots.txt can be read again"),
        (None, None) => {
            tracing::debug!(%authority, status = new.answer.as_ref().map(|a| a.status), "robots.txt fetched")
        }
    }
}

/// Fetches stand in the line as one client of their own.
const FETCHES: Client = Client(0);
