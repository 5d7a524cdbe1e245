//! The two waits of a request: for the fetch of a robots.txt, and for a pacing slot. Both end when the proxy drains.

use super::pacer::{HostQueue, Permit, Stand, Waiting};
use super::robots::Fetching;
use super::waiting_requests::RETRIES;
use super::{Account, Gate, Reported, rules};
use crate::config::{Hosts, Mode};
use crate::policy::pace::Terms;
use crate::policy::{KeyBy, PaceKey, Refusal, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout, timeout_at};

impl Gate {
    /// Waits for the end of a fetch. Refuses the request as soon as it is certain that the fetch gets its slot only after the request's
    /// maximum wait; Retry-After is then the time until that slot. A fetch that has its slot may take as long as its timeout.
    pub(super) async fn wait_for_robots(
        &self,
        request: &Request<'_>,
        hosts: Option<&Hosts>,
        fetching: Fetching,
        waited: Duration,
    ) -> Result<(), Refusal> {
        let (max_wait, most, retry_after, max_waiting) = {
            let settings = self.settings.load();
            let terms = self.terms(request, rules(request, hosts, &settings), &settings, None, waited);
            // Even with `max_waiting` 0 one request may wait, or nothing would ever be fetched.
            let most = terms.max_wait + settings.robots.timeout;
            (terms.max_wait, most, terms.gap().max(AWHILE), terms.max_waiting.max(1))
        };
        let began = Instant::now();
        // At least a second: asking the fleet for a slot does not count as waiting.
        let latest = began.checked_add(max_wait.max(AWHILE)).unwrap_or(began + FAR);
        let late = fetching.clone().late(latest);
        let mut place = self.pacer.waiting().for_robots(request, max_waiting);
        tokio::select! {
            biased;
            fetched = timeout(most, fetching.end()) => {
                fetched.unwrap_or(Err(Refusal::CrawlDelay { retry_after, max_wait: None }))
            }
            due = late => {
                let wait = due.saturating_duration_since(Instant::now());
                // A wait of zero means that the slot is overdue, because another request's answer takes long.
                let retry_after = if wait.is_zero() { retry_after } else { wait.max(AWHILE) };
                Err(Refusal::CrawlDelay { retry_after, max_wait: Some(max_wait) })
            }
            refusal = place.crowded_out() => Err(refusal),
            refusal = self.drained(None) => Err(refusal),
        }
    }

    /// Waits for a slot. Returns `None` if after a reload the slot comes later than requests may be held, which in report mode is not at
    /// all.
    pub(super) async fn turn(&self, request: &Request<'_>, waiting: Waiting) -> Result<Option<Box<Permit>>, Refusal> {
        let Waiting { queue, terms, due, turn } = waiting;
        let mut place = self.pacer.waiting().for_turn(request, queue, &terms);
        let permit = tokio::select! {
            biased;
            permit = turn => permit.map(Some),
            () = self.cut_short(terms.max_wait, due) => Ok(None),
            refusal = place.crowded_out() => Err(refusal),
            refusal = self.drained(due) => Err(refusal),
        };
        place.end();
        permit
    }

    /// Takes another slot for a retry, unless nothing was sent in the first attempt and its slot is still valid. `request`: with the
    /// retry's address, if the pace is kept by address.
    pub async fn turn_again(
        &self,
        mut permit: Box<Permit>,
        request: &Request<'_>,
        account: &mut Account,
    ) -> Result<(Box<Permit>, Option<Reported>), Refusal> {
        let Request { authority, address, .. } = *request;
        let mut reported = None;
        loop {
            let before = permit.queue().clone();
            let page = before.page();
            let (in_burst, mut pages) = (page.is_some(), page.unwrap_or_else(|| before.clone()));
            if let Some(address) = address.filter(|_| !before.key().is_of(KeyBy::Address, authority, address)) {
                pages = self.pacer.queue(&PaceKey::new(KeyBy::Address, authority, Some(address)));
            }
            // A retry in a burst stays in it, unless the origin has asked for a pause meanwhile, which ends bursts.
            let queue = if in_burst && !pages.is_held_back() { pages.beside().clone() } else { pages };
            if permit.is_unused_in(&queue) {
                return Ok((permit, reported));
            }
            let (next, terms) = permit.into_retry(&queue);
            let held;
            (permit, held) = account.waits_decided(self.slot_again(request, &queue, next, &terms)).await?;
            reported = reported.or(held);
            if !in_burst {
                return Ok((permit, reported));
            }
        }
    }

    /// Waits for a retry's slot, or in report mode reports the wait that it would have had. `next`: the retry's place in the queue, if it
    /// has one.
    async fn slot_again(
        &self,
        request: &Request<'_>,
        queue: &Arc<HostQueue>,
        mut next: Option<Stand>,
        terms: &Terms,
    ) -> Result<(Box<Permit>, Option<Reported>), Refusal> {
        let since = Instant::now();
        loop {
            let settings = self.settings.load_full();
            let is_reported = settings.mode == Mode::Report;
            let max_wait = terms.max_wait.min(settings.pace.max_wait).saturating_sub(since.elapsed());
            let (stand, held) = match next.take().filter(|_| !is_reported) {
                Some(stand) => (stand, None),
                None => queue.stand_or_report(RETRIES, &Terms { max_wait, ..terms.clone() }, is_reported, None)?,
            };
            match stand {
                Stand::Go(permit) => return Ok((permit, held)),
                Stand::Wait(waiting) => {
                    if let Some(permit) = self.turn(&Request { client: RETRIES, ..*request }, waiting).await? {
                        return Ok((permit, None));
                    }
                }
            }
        }
    }

    /// Waits until a reload has shortened the time for which requests may be held, and the request's slot will not come in that time. A
    /// request whose slot will come keeps its place. `max_wait`: the request's own maximum from now. `due`: when its slot comes, if known.
    async fn cut_short(&self, max_wait: Duration, due: Option<Instant>) {
        let (since, mut max_hold) = (Instant::now(), self.max_hold.subscribe());
        loop {
            let most = *max_hold.borrow_and_update();
            let until = since.checked_add(if most < max_wait { most } else { FAR }).unwrap_or(since + FAR);
            if due.is_some_and(|due| due > until) || timeout_at(until.into(), max_hold.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a draining proxy refuses the waiting request: at once if its slot comes after the end of the drain, else at the end of
    /// the drain. `due`: when its slot comes; `None`: unknown.
    async fn drained(&self, due: Option<Instant>) -> Refusal {
        let mut drain = self.drain.subscribe();
        // The sender lives as long as the gate.
        let until = drain.wait_for(Option::is_some).await.ok().and_then(|until| *until);
        if let Some(until) = until.filter(|until| due.is_none_or(|due| due <= *until)) {
            sleep_until(until.into()).await;
        }
        Refusal::Draining { retry_after: DRAINING }
    }
}

/// Retry-After while the proxy drains, by when another instance should have taken over.
const DRAINING: Duration = Duration::from_secs(5);
/// Lower limit of a Retry-After for a slot, and of the time for which a request waits for robots.txt.
const AWHILE: Duration = Duration::from_secs(1);
/// A duration longer than any request waits.
const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
