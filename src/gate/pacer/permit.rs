//! The right to one request in flight, and a place in the queue for it.

use super::host_queue::{HostQueue, Stand};
use crate::gate::waiting_requests::RETRIES;
use crate::policy::pace::{ARRIVAL, PaceOutcome, Refused, Slot, Terms, Ticket};
use crate::policy::{Authority, KeyBy, Refusal};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The right to one request in flight. Gives its slot back when dropped, with the last outcome that was set. Boxed at once, as it is moved
/// often.
pub struct Permit {
    queue: Arc<HostQueue>,
    slot: Option<Slot>,
    terms: Terms,
    stage: Stage,
    /// How the request ended; `Unused` until the request is sent.
    pub outcome: PaceOutcome,
    /// Time from sending to the beginning of the answer, and whether this time may lower the host's latency. `None` if the latency is not
    /// tracked.
    answered: Option<(Duration, bool)>,
    /// The slot held in the group's queue as well.
    group: Option<Box<Permit>>,
    /// The place of a retry. In a mutex, which is never locked, because a permit has to be `Sync` and a waiting future is not.
    next: Mutex<Option<Box<Stand>>>,
}

/// Progress of the request's head. A head is sent once: a retry is another start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Kept,
    Leaving,
    Left,
}

impl Permit {
    /// `slot`: `None` in report mode, which never holds requests, but records their starts.
    #[inline]
    pub(in crate::gate) fn new(queue: &Arc<HostQueue>, slot: Option<Slot>, terms: &Terms) -> Box<Self> {
        let (queue, terms) = (queue.clone(), terms.clone());
        let (stage, outcome) = (Stage::Kept, PaceOutcome::Unused);
        Box::new(Self { queue, slot, terms, stage, outcome, answered: None, group: None, next: Mutex::default() })
    }

    /// Adds the permit of the group. `terms`: those of host and group together.
    pub(super) fn with_group(mut self: Box<Self>, group: Box<Permit>, terms: &Terms) -> Box<Self> {
        self.terms = terms.clone();
        self.slot.iter_mut().for_each(|slot| slot.group_gap = group.gap());
        self.group = Some(group);
        self
    }

    pub(in crate::gate) fn queue(&self) -> &Arc<HostQueue> {
        &self.queue
    }

    /// The gap between this start and the next.
    pub fn gap(&self) -> Duration {
        let own = self.slot.as_ref().map_or_else(|| self.terms.gap(), |slot| slot.gap);
        self.group.as_ref().map_or(own, |group| group.gap().max(own))
    }

    /// The delay of the group in whose queue the request has waited. Zero: no group.
    pub fn group_delay(&self) -> Duration {
        self.terms.group_delay
    }

    /// Whether later starts depend on the time at which this request is sent: it has a gap, or its key is shared.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.group.is_some() || self.slot.as_ref().is_some_and(is_paced)
    }

    /// Gives the slot to the host's other requests, although this request continues. Its outcome still counts.
    pub fn pass_on(&mut self) {
        if let Some(slot) = &mut self.slot {
            self.queue.pass_on(slot);
        }
        self.group.iter_mut().for_each(|group| group.pass_on());
    }

    /// Whether the request still holds its slot, so that others wait for it. True in report mode, which has no slots.
    pub fn has_turn(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| slot.is_in_flight)
    }

    /// Takes a place in the queue for a retry. False: the retry would be refused, or this request has passed on its slot.
    pub fn stand_again(&mut self) -> bool {
        // In report mode, a request has no slot, and its retry needs no place.
        if self.slot.is_some() && self.has_turn() {
            *self.next.get_mut() = self.queue.stand(RETRIES, &self.terms).ok().map(Box::new);
        }
        self.slot.is_none() || self.next.get_mut().is_some()
    }

    /// Notes the time from sending to the beginning of the answer. `is_good`: this time may lower the host's latency.
    #[inline]
    pub fn answered(&mut self, after: Duration, is_good: bool) {
        // Once the slot is passed on, the time does not measure the host.
        if self.terms.adaptive.is_some() && self.has_turn() {
            self.answered = Some((after, is_good));
        }
    }

    /// Applies the outcome of an answer that has not ended. The request keeps its slot until the answer ends.
    pub fn learn(&mut self, outcome: PaceOutcome) {
        self.note_left();
        if let Some(slot) = &self.slot {
            self.queue.learn(slot, outcome);
        }
        self.outcome = PaceOutcome::Failure;
    }

    /// Whether repeated refusals pause the host.
    #[inline]
    pub fn has_breaker(&self) -> bool {
        self.terms.breaker.is_some()
    }

    /// Whether the slot is still valid. Check this right before the request is sent; if the slot is not valid, call `Gate::turn_again`.
    #[inline]
    pub fn holds(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| !is_paced(slot) || self.queue.holds(slot))
            && self.group.as_ref().is_none_or(|group| group.holds())
    }

    /// Like `holds`, for a connection to this address, as a pace may be kept by address.
    #[inline]
    pub fn holds_at(&self, authority: &Authority, address: Option<IpAddr>) -> bool {
        let is_here = |address| self.slot.is_none() || self.queue.key().is_of(KeyBy::Address, authority, Some(address));
        self.holds() && address.is_none_or(is_here)
    }

    /// Whether a retry in this queue may use this slot: nothing was sent, and the slot [holds](Self::holds).
    pub(in crate::gate) fn is_unused_in(&self, queue: &Arc<HostQueue>) -> bool {
        self.stage == Stage::Kept && Arc::ptr_eq(queue, &self.queue) && self.holds()
    }

    /// Gives the slot back. Returns the terms of a retry in this queue, and its place there if it has one.
    pub(in crate::gate) fn into_retry(mut self: Box<Self>, queue: &Arc<HostQueue>) -> (Option<Stand>, Terms) {
        let next = self.next.get_mut().take().filter(|_| Arc::ptr_eq(queue, &self.queue));
        let mut terms = self.terms.clone();
        if let Some(of_page) = terms.of_page.take_if(|_| queue.page().is_none()) {
            terms = *of_page;
        }
        (next.map(|next| *next), terms)
    }

    /// Notes that the request is about to be sent: the next gap counts from now, not from before the connection. `is_late`: a connection
    /// was made first, which may matter to other requests even if this request has no gap.
    pub fn leaves(&mut self, is_late: bool) {
        debug_assert_eq!(self.stage, Stage::Kept, "the request of each start is sent once");
        // This outcome stays unless an answer arrives.
        self.outcome = PaceOutcome::Failure;
        self.group.iter_mut().for_each(|group| group.leaves(is_late));
        self.note_start(Stage::Leaving);
        if let Some(slot) = self.slot.as_ref().filter(|slot| is_late && !is_paced(slot)) {
            self.queue.left(slot, Instant::now() + ARRIVAL, true);
        }
    }

    /// Reverses [`leaves`](Self::leaves), as nothing of the request was written after all.
    pub fn has_not_left(&mut self) {
        (self.stage, self.outcome) = (Stage::Kept, PaceOutcome::Unused);
        self.group.iter_mut().for_each(|group| group.has_not_left());
    }

    /// Notes that the head was sent. The gap counts from now, as writing may have taken a while.
    pub fn note_left(&mut self) {
        if self.stage == Stage::Leaving {
            self.group.iter_mut().for_each(|group| group.note_left());
            self.note_start(Stage::Left);
        }
    }

    fn note_start(&mut self, stage: Stage) {
        self.stage = stage;
        let at = || Instant::now() + self.margin();
        match &self.slot {
            Some(slot) if is_paced(slot) => self.queue.left(slot, at(), stage == Stage::Left),
            Some(_) => {}
            None => self.queue.started_freely(&self.terms, at()),
        }
    }

    /// Allowance for the time in which the request reaches the host: 0.5 % of the gap, at most [`ARRIVAL`]; without a gap, [`ARRIVAL`].
    fn margin(&self) -> Duration {
        let gap = self.gap();
        if gap.is_zero() { ARRIVAL } else { ARRIVAL.min(gap / 200) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // A head whose sending has begun counts as sent.
        self.note_left();
        if let Some(slot) = self.slot.take() {
            // A failed connection attempt is not a request.
            let has_left = self.stage == Stage::Left;
            let outcome = if has_left { self.outcome } else { PaceOutcome::Unused };
            self.queue.give_back(slot, has_left, outcome, self.answered);
        }
    }
}

fn is_paced(slot: &Slot) -> bool {
    slot.is_shared || !slot.gap.is_zero()
}

/// A place in one queue, given back when dropped.
pub(super) struct QueuePlace {
    pub queue: Arc<HostQueue>,
    pub ticket: Ticket,
    pub answer: oneshot::Receiver<Result<Slot, Refused>>,
    pub terms: Terms,
}

impl QueuePlace {
    /// Waits for the slot.
    pub async fn turn(mut self) -> Result<Box<Permit>, Refusal> {
        let fleet = self.queue.fleet();
        let answer = tokio::select! {
            biased;
            answer = &mut self.answer => answer,
            refusal = fleet.refuses() => return Err(refusal),
        };
        match answer {
            Ok(Ok(slot)) => Ok(Permit::new(&self.queue, Some(slot), &self.terms)),
            Ok(Err(refused)) => Err(refused.into_refusal(self.terms.max_wait)),
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        // The slot may have been granted at this very moment.
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(slot)) => self.queue.give_back(slot, false, PaceOutcome::Unused, None),
            Ok(Err(_)) => {}
            Err(_) => self.queue.cancel(self.ticket),
        }
    }
}

const DRAINING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fleet::Fleet;
    use crate::gate::pacer::{Pacer, Stand};
    use crate::gate::waiting_requests::PacedQueue;
    use crate::policy::PaceKey;
    use crate::policy::pace::ClientId;

    fn host() -> Arc<HostQueue> {
        let key = PaceKey::from_text("a.example").expect("a key");
        Pacer::new(Fleet::alone()).queue(&key)
    }

    fn stand(host: &Arc<HostQueue>) -> Stand {
        let terms = Terms { crawl_delay: Duration::from_secs(100), max_wait: Duration::MAX, ..Terms::default() };
        host.stand(ClientId(1), &terms).expect("the request may wait")
    }

    fn go(host: &Arc<HostQueue>) -> Box<Permit> {
        match stand(host) {
            Stand::Go(permit) => permit,
            Stand::Wait(_) => panic!("the queue is new"),
        }
    }

    #[tokio::test]
    async fn attempt_that_never_left_keeps_its_slot() {
        let host = host();
        let mut permit = go(&host);
        assert!(permit.is_unused_in(&host), "the retry keeps its slot");
        permit.leaves(true);
        assert!(!permit.is_unused_in(&host));
        let (next, terms) = permit.into_retry(&host);
        let waits = matches!(host.stand(RETRIES, &terms), Ok(Stand::Wait(_)));
        assert!(next.is_none() && waits, "once a request has left, a retry waits for the gap");
    }

    #[tokio::test]
    async fn retry_applies_the_outcome_of_the_first_attempt() {
        let host = host();
        let mut permit = go(&host);
        permit.leaves(true);
        permit.outcome = PaceOutcome::Backoff { retry_after: None };
        drop(permit.into_retry(&host));
        assert_eq!(host.figures().backoff, Duration::from_secs(100));
    }

    #[tokio::test]
    async fn learned_outcome_counts_at_once_and_the_slot_lasts_until_the_end() {
        let host = host();
        let mut permit = go(&host);
        permit.leaves(true);
        permit.learn(PaceOutcome::Backoff { retry_after: None });
        let stands = || (host.figures().backoff, host.figures().in_flight);
        assert_eq!(stands(), (Duration::from_secs(100), 1));
        drop(permit);
        assert_eq!(stands(), (Duration::from_secs(100), 0), "the backoff counts once");
    }

    #[tokio::test]
    async fn gap_after_a_request_without_a_delay_counts_from_when_it_leaves() {
        let host = host();
        let Ok(Stand::Go(mut permit)) = host.stand(ClientId(1), &Terms::default()) else { panic!("the queue is new") };
        let began = Instant::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
        permit.leaves(true);
        let Stand::Wait(waiting) = stand(&host) else { panic!("the gap counts from the request before") };
        assert!(waiting.due.is_some_and(|due| due >= began + Duration::from_millis(100_020)));
    }

    #[tokio::test]
    async fn request_that_passed_on_its_slot_still_reports_its_outcome() {
        let host = host();
        let mut permit = go(&host);
        permit.leaves(true);
        permit.note_left();
        permit.pass_on();
        assert_eq!((permit.has_turn(), host.figures().in_flight), (false, 0));
        permit.outcome = PaceOutcome::Backoff { retry_after: None };
        drop(permit);
        assert_eq!((host.figures().backoff, host.figures().in_flight), (Duration::from_secs(100), 0));
    }

    #[tokio::test]
    async fn slot_granted_to_a_dropped_waiter_goes_to_the_next() {
        let host = host();
        let terms = Terms { max_concurrent: 1, ..Terms::default() };
        let stand = || host.stand(ClientId(1), &terms).expect("the request may wait");
        let Stand::Go(permit) = stand() else { panic!("the queue is new") };
        let Stand::Wait(waiting) = stand() else { panic!("the second request waits") };
        drop(permit);
        while host.figures().waiting > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(host.figures().in_flight, 1, "the slot is granted, but the waiting request has not polled");
        drop(waiting);
        assert!(matches!(stand(), Stand::Go(_)));
    }

    #[tokio::test]
    async fn unused_slot_costs_no_gap() {
        let host = host();
        let mut permit = go(&host);
        permit.outcome = PaceOutcome::Failure;
        drop(permit);
        let mut permit = go(&host);
        permit.leaves(true);
        drop(permit);
        assert!(matches!(stand(&host), Stand::Wait(_)));
    }
}
