//! Looks a request up in the cache: finds a fresh answer, prepares to revalidate a stale one, or waits for another
//! request's fetch (single flight).

use super::super::Exchange;
use super::super::head::SentFields;
use super::super::per_user::rules;
use crate::gate::cache::StoredAnswer;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// The result of a lookup.
pub(in crate::proxy::exchange) enum CacheLookup {
    Hit(Box<StoredAnswer>),
    /// Nothing usable is stored, and the client accepts only a stored answer (`only-if-cached`).
    Absent,
    /// No answer yet: decide the request again. If this lookup has waited for another request's fetch, the next step is another lookup;
    /// otherwise, the request goes to the origin.
    Again,
}

impl Exchange<'_> {
    /// Looks the request up. Called once the request is allowed, because a stored answer needs no slot at the host.
    pub(in crate::proxy::exchange) async fn look_up(&mut self) -> CacheLookup {
        let at_least = self.fresh_at_least();
        let (request, sent) =
            (self.request, SentFields::of(self.request.head, &self.settings, self.peer.user.as_deref()));
        let max_wait = self.settings.pace.max_wait.min(request.prefer_wait.unwrap_or(Duration::MAX));
        let Some(cached) = &mut self.cached else { return CacheLookup::Absent };
        let is_whole = request.method == "GET" && cached.wanted.range.is_none();
        // A fetch helps waiting requests only once it has ended. The site may answer a request for a part long before that.
        let longest = if is_whole { max_wait.clamp(LEAST, PATIENCE) } else { LEAST };
        let control = cached.wanted.control;
        loop {
            cached.seen = cached.cache.latest(cached.key);
            match cached.find(sent).await {
                Some(stored) if stored.head.is_fresh_for(&control, at_least, SystemTime::now()) => {
                    return CacheLookup::Hit(stored);
                }
                stale => {
                    cached.why = cached.why_forwarded(stale.as_deref(), at_least);
                    cached.stale = stale;
                }
            }
            match cached.cache.fetch(cached.key, is_whole) {
                // Another request has stored an answer since the lookup: look again.
                Ok(_) if cached.cache.latest(cached.key) != cached.seen => {}
                Err(others) if !cached.has_waited && !control.no_cache => {
                    cached.has_waited = true;
                    // However the wait ends, the request is looked up again.
                    let _ = self.trip.gate.waits(timeout(longest, others.end())).await;
                    return CacheLookup::Again;
                }
                _ if self.only_stored => return CacheLookup::Absent,
                claim => {
                    cached.claim = Some(claim.unwrap_or_else(|_| cached.cache.claim(cached.key)));
                    break;
                }
            }
        }
        if let Some(stale) = cached.stale.as_ref().filter(|_| !cached.wanted.is_conditional()) {
            cached.conditions = stale.head.conditions();
        }
        CacheLookup::Again
    }

    /// Looks the request up again when it gets its slot, if another answer was stored during the wait.
    pub(in crate::proxy::exchange) async fn stored_meanwhile(&mut self) -> Option<Box<StoredAnswer>> {
        let at_least = self.fresh_at_least();
        let sent = SentFields::of(self.request.head, &self.settings, self.peer.user.as_deref());
        let cached = self.cached.as_mut()?;
        if cached.cache.latest(cached.key) == cached.seen {
            return None;
        }
        let stored = cached.find(sent).await?;
        let is_fresh = stored.head.is_fresh_for(&cached.wanted.control, at_least, SystemTime::now());
        is_fresh.then_some(stored)
    }

    /// The host's `min_revisit`: a stored answer counts as fresh for at least this long.
    fn fresh_at_least(&self) -> Duration {
        rules(&self.settings, self.request, self.peer).manners.min_revisit.unwrap_or_default()
    }
}

/// Minimum wait for another request's fetch, even with a shorter `max_wait`: its answer may be on the way to the disk.
const LEAST: Duration = Duration::from_millis(250);
/// Longest wait for another request's fetch.
const PATIENCE: Duration = Duration::from_secs(10);
