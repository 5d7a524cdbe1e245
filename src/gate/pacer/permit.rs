//! The right to one request in flight, and a place in the line for it. Made by `pace`, held by `proxy`.

use super::pace::Pace;
use crate::policy::Refusal;
use crate::policy::pace::{Client, Outcome, Slot, Terms, Ticket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Gives its slot back when dropped, with the outcome set until then.
pub struct Permit {
    pace: Arc<Pace>,
    slot: Option<Slot>,
    pub(super) terms: Terms,
    leaving: bool,
    /// When it left; that it arrives is a little later.
    left: Option<Instant>,
    /// Before its turn came; nothing: it could go at once.
    pub(in crate::gate) waited: Duration,
    /// How the request ended. Until it is set, the request was never sent.
    pub outcome: Outcome,
}

impl Permit {
    /// `slot`: none in report mode, which is held back by nothing.
    pub(super) fn new(pace: &Arc<Pace>, slot: Option<Slot>, terms: Terms) -> Self {
        let (pace, waited) = (pace.clone(), Duration::ZERO);
        Self { pace, slot, terms, leaving: false, left: None, waited, outcome: Outcome::Unused }
    }

    /// One more request to the host under the same permit, in its turn: a retry.
    pub async fn again(&mut self) -> Result<(), Refusal> {
        // In report mode there is none.
        let Some(slot) = self.slot.take() else { return Ok(()) };
        self.pace.give_back(slot, self.left.take(), Outcome::Failure);
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
        self.left = Some(at);
        if slot.is_shared() || !self.terms.gap().is_zero() {
            self.pace.left(slot, at, is_gone);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pace.give_back(slot, self.left, self.outcome);
        }
    }
}

/// A place in the line, given back when its holder goes.
pub(super) struct Place<'a> {
    pace: &'a Pace,
    ticket: Ticket,
}

impl<'a> Place<'a> {
    pub fn take(pace: &'a Pace, ticket: Ticket) -> Self {
        pace.waiting().fetch_add(1, Ordering::Relaxed);
        Place { pace, ticket }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pace.waiting().fetch_sub(1, Ordering::Relaxed);
        self.pace.cancel(self.ticket);
    }
}

/// What one request may take longer to arrive than the next: the gap is promised to the origin, which sees arrivals.
pub(super) const ARRIVAL: Duration = Duration::from_millis(3);
/// The same where the fleet gives the turns: what its server is told and tells comes late by a round trip, never early.
const ARRIVAL_IN_TURN: Duration = Duration::from_millis(1);
/// Retries share their turns as one client does.
const RETRIES: Client = Client(u64::MAX);
