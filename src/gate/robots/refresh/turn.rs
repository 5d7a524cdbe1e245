//! Sends one request for a file in the host's next slot, alone or for all fetches that wait for the same answer.

use super::super::RobotsCache;
use super::super::fetch::{self, FetchError, FileRequest, Reply, TryError, no_resolver, target};
use super::super::places::{FetchLine, guests_wait};
use super::super::response::asked_to_wait;
use super::super::shared_reply::shared_reply;
use super::super::site_time::SiteTime;
use super::ask::FetchHop;
use crate::policy::PaceKey;
use crate::policy::pace::PaceOutcome;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;

impl RobotsCache {
    /// Sends the request in turn. Redirected fetches that ask for the host's own file share one reply and need not wait for other guests.
    /// The shared request gets the whole timeout, even if the fetch that sends it has used part of its own: others wait for the reply.
    pub(super) async fn in_turn_or_shared(
        &self,
        hop: &FetchHop<'_>,
        request: &mut FileRequest<'_>,
        left: &mut Duration,
    ) -> Result<Reply, FetchError> {
        let (file, url) = (request.file, request.url);
        if request.line == FetchLine::Own || target(url) != file.path() || left.is_zero() {
            return self.in_turn(hop, request, left).await;
        }
        request.line = FetchLine::Shared;
        let mut whole = hop.settings.robots.timeout;
        let ask = Box::pin(self.in_turn(hop, request, &mut whole));
        let reply = shared_reply(&self.shared_replies, (file, url.clone()), ask).await;
        *left = left.saturating_sub(hop.settings.robots.timeout - whole);
        request.line = FetchLine::Guest;
        reply
    }

    /// Sends the request in the host's next slot, like any other request.
    pub(super) async fn in_turn(
        &self,
        hop: &FetchHop<'_>,
        request: &mut FileRequest<'_>,
        left: &mut Duration,
    ) -> Result<Reply, FetchError> {
        // An expired slot counts as an attempt, but not as the site's failure.
        let (mut retries, mut is_lost) = (0..RETRIES, false);
        loop {
            let (want, why) = match self.once_in_turn(hop, request, left).await {
                Ok(reply) => return Ok(reply),
                Err(TryError::Final(error)) => return Err(error),
                Err(TryError::Again(want, why)) => (want, why),
            };
            is_lost |= why.is_none();
            match (retries.next(), why) {
                (Some(_), _) => request.want = want,
                (None, Some(why)) if !is_lost => return Err(FetchError::Unreachable(why)),
                (None, why) => {
                    let last = why.map(|why| format!("; the last try: {why}")).unwrap_or_default();
                    return Err(hop.comes_back(&format!("a slot expired before the request could be sent{last}")));
                }
            }
        }
    }

    async fn once_in_turn(
        &self,
        hop: &FetchHop<'_>,
        request: &FileRequest<'_>,
        left: &mut Duration,
    ) -> Result<Reply, TryError> {
        let settings = hop.settings;
        let late = || format!("no complete answer within {:?}", settings.robots.timeout);
        let began = Instant::now();
        // Resolves before it takes a slot, which a slow resolver would waste. A silent resolver is not the site's failure.
        let found = timeout(*left, fetch::reach(&self.upstream, request.authority, hop.order.client)).await;
        let route = found.map_err(|_| no_resolver(request.authority))??;
        *left = left.saturating_sub(began.elapsed());
        let address = route.paced_at(request.want.first);
        let pace = self.pacer.queue(&PaceKey::new(settings.pace.key, request.authority, address));
        let (taker, terms) = (hop.taker(), self.terms(hop, request.authority));
        let in_turn = self.places.take_in_turn(taker, &pace, request.line, &terms, settings.robots.timeout, hop.fetch);
        let (_place, (_guest_place, mut permit)) = in_turn.await.map_err(FetchError::NotAsked)?;
        hop.fetch.begin();
        let time = SiteTime::new(*left, hop.order.patience(settings));
        let room = (&self.long_bodies, &self.workers, taker, &time);
        let answered = {
            let get = pin!(fetch::get(&self.upstream, request, &room, settings, &mut permit));
            tokio::select! {
                answered = time.limit(get) => answered.ok_or_else(late),
                () = guests_wait(&pace), if request.line == FetchLine::Guest => {
                    let host = request.authority.host();
                    let why = format!("{host} is slow to answer, and other redirected files wait for it");
                    return Err(TryError::Final(hop.comes_back(&why)));
                }
            }
        };
        *left = time.left();
        let reply = answered??;
        permit.outcome = match reply.status {
            // The URL was chosen by another site that redirects there, so its answer must not slow down requests for this host.
            _ if request.line != FetchLine::Own => PaceOutcome::Failure,
            429 | 503 => PaceOutcome::Backoff { retry_after: asked_to_wait(&reply.headers, SystemTime::now()) },
            _ => PaceOutcome::Success,
        };
        Ok(reply)
    }
}

/// Maximum number of retries after connection failures and expired slots.
const RETRIES: usize = 2;
