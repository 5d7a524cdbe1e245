//! The right to one request in flight, and a place in the line for it. Made by `pace`, held by `proxy`.

use super::pace::Pace;
use crate::policy::Refusal;
use crate::policy::pace::{Client, Outcome, Refused, Slot, Terms, Ticket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Gives its slot back when dropped, with the outcome set until then.
pub struct Permit {
    pace: Arc<Pace>,
    slot: Option<Slot>,
    terms: Terms,
    leaving: bool,
    /// Its head has left.
    has_left: bool,
    /// Before its turn came; nothing: it could go at once.
    pub(in crate::gate) waited: Duration,
    /// How the request ended. Until it is set, the request was never sent.
    pub outcome: Outcome,
}

impl Permit {
    /// `slot`: none in report mode, which is held back by nothing.
    #[inline]
    pub(super) fn new(pace: &Arc<Pace>, slot: Option<Slot>, terms: Terms) -> Self {
        let (pace, waited) = (pace.clone(), Duration::ZERO);
        Self { pace, slot, terms, leaving: false, has_left: false, waited, outcome: Outcome::Unused }
    }

    /// One more request to the host under the same permit, in its turn: a retry.
    pub async fn again(&mut self) -> Result<(), Refusal> {
        // In report mode there is none.
        let Some(slot) = self.slot.take() else { return Ok(()) };
        self.pace.give_back(slot, std::mem::take(&mut self.has_left), Outcome::Failure);
        // It has waited for its turn already and stands at the end of the line now.
        let mut next = self.pace.turn(RETRIES, self.terms.clone()).await?;
        self.slot = next.slot.take();
        Ok(())
    }

    /// The request leaves now: the gap to the next is counted from here, not from before the connection was made.
    pub fn leaves(&mut self) {
        // Until an answer says otherwise.
        self.outcome = Outcome::Failure;
        self.leaving = true;
        self.note_start(false);
    }

    /// Its head has left. What the origin sees is this: writing may have taken a while.
    pub fn has_left(&mut self) {
        if std::mem::take(&mut self.leaving) {
            self.note_start(true);
        }
    }

    fn note_start(&mut self, is_gone: bool) {
        let Some(slot) = &self.slot else { return };
        let at = Instant::now() + if slot.is_shared() { ARRIVAL_IN_TURN } else { ARRIVAL };
        self.has_left = is_gone;
        if slot.is_shared() || !self.terms.gap().is_zero() {
            self.pace.left(slot, at, is_gone);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pace.give_back(slot, self.has_left, self.outcome);
        }
    }
}

/// A place in the line, given back when its holder goes.
pub(in crate::gate) struct Waiting {
    pace: Arc<Pace>,
    ticket: Ticket,
    answer: oneshot::Receiver<Result<Permit, Refused>>,
    terms: Terms,
    since: Instant,
}

impl Waiting {
    pub(super) fn new(
        pace: &Arc<Pace>,
        ticket: Ticket,
        answer: oneshot::Receiver<Result<Permit, Refused>>,
        terms: Terms,
        since: Instant,
    ) -> Self {
        pace.waiting().fetch_add(usize::from(!terms.is_renewal), Ordering::Relaxed);
        Waiting { pace: pace.clone(), ticket, answer, terms, since }
    }

    /// Until its turn has come.
    pub async fn turn(mut self) -> Result<Permit, Refusal> {
        let answer = tokio::select! {
            biased;
            answer = &mut self.answer => answer,
            refusal = self.pace.refused_meanwhile() => return Err(refusal),
        };
        match answer {
            Ok(Ok(mut permit)) => {
                permit.terms = self.terms.clone();
                permit.waited = self.since.elapsed();
                Ok(permit)
            }
            Ok(Err(refused)) => Err(told(refused)),
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pace.waiting().fetch_sub(usize::from(!self.terms.is_renewal), Ordering::Relaxed);
        self.pace.cancel(self.ticket);
    }
}

/// What the one who is turned away is told: the gap as it was asked for.
pub(super) fn told(refused: Refused) -> Refusal {
    match refused {
        Refused::TooLong { retry_after } => {
            Refused::TooLong { retry_after: retry_after.saturating_sub(ARRIVAL) }.into()
        }
        Refused::Full { .. } => refused.into(),
    }
}

/// What one request may take longer to arrive than the next: the gap is promised to the origin, which sees arrivals.
const ARRIVAL: Duration = Duration::from_millis(2);
/// The same where the fleet gives the turns: what its server is told and tells comes late by a round trip, never early.
const ARRIVAL_IN_TURN: Duration = Duration::from_millis(1);
/// Retries share their turns as one client does.
const RETRIES: Client = Client(u64::MAX);
const DRAINING: Duration = Duration::from_secs(1);
