//! Looking a request up: fresh answers are served, stale ones are to be confirmed, and what somebody else fetches is waited for.

use super::super::Exchange;
use super::super::head::SentFields;
use super::super::per_user::rules;
use crate::gate::cache::StoredAnswer;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// What a look-up has come to.
pub(in crate::proxy::exchange) enum CacheLookup {
    Hit(Box<StoredAnswer>),
    /// The client wants what is stored, and nothing else (`only-if-cached`).
    Absent,
    /// Nothing yet: the request is decided once more, and asks again or goes to its origin.
    Again,
}

impl Exchange<'_> {
    /// It may go: perhaps it need not.
    pub(in crate::proxy::exchange) async fn look_up(&mut self) -> CacheLookup {
        let at_least = self.fresh_at_least();
        let (request, sent) =
            (self.request, SentFields::of(self.request.head, &self.settings, self.peer.user.as_deref()));
        let longest =
            self.settings.pace.max_wait.min(request.prefer_wait.unwrap_or(Duration::MAX)).clamp(LEAST, PATIENCE);
        let Some(cached) = &mut self.cached else { return CacheLookup::Absent };
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
            let claim = match request.method {
                "GET" if cached.wanted.range.is_none() => cached.cache.fetch(cached.key),
                _ => Ok(cached.cache.claim(cached.key)),
            };
            match claim {
                // Somebody has stored it in between.
                Ok(_) if cached.cache.latest(cached.key) != cached.seen => {}
                Err(others) if !cached.has_waited && !control.no_cache => {
                    cached.has_waited = true;
                    // However it ends, it is looked up again.
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

    /// The same when its turn has come, if something has been stored meanwhile.
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

    /// `min_revisit`, as far as it can be kept by what is stored.
    fn fresh_at_least(&self) -> Duration {
        rules(&self.settings, self.request, self.peer).manners.min_revisit.unwrap_or_default()
    }
}

/// What is only being written is waited for, whatever wait the request would put up with.
const LEAST: Duration = Duration::from_millis(250);
/// So long is waited for what somebody else fetches.
const PATIENCE: Duration = Duration::from_secs(10);
