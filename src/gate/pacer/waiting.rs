//! A place in the line for the right to a request in flight.

use super::host_queue::{HostQueue, Stand};
use super::permit::Permit;
use super::waiters::WaitPlace;
use crate::gate::fleet::Fleet;
use crate::policy::Refusal;
use crate::policy::pace::{ARRIVAL, ClientId, PaceOutcome, Refused, Slot, Terms, Ticket};
use futures_util::future::OptionFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A place in the line, given back when its holder goes.
pub(in crate::gate) struct Waiting {
    queue: Arc<HostQueue>,
    client: ClientId,
    ticket: Ticket,
    answer: oneshot::Receiver<Result<Slot, Refused>>,
    terms: Box<Terms>,
    since: Instant,
    due: Option<Instant>,
    /// `None`: it takes none from others.
    place: Option<WaitPlace>,
    /// It has its group's turn already.
    group: Option<Permit>,
    /// It waits in its group's queue, and then in this.
    host: Option<Arc<HostQueue>>,
}

impl Waiting {
    #[allow(clippy::too_many_arguments, reason = "made in one place")]
    pub(super) fn new(
        queue: &Arc<HostQueue>,
        client: ClientId,
        ticket: Ticket,
        answer: oneshot::Receiver<Result<Slot, Refused>>,
        terms: &Terms,
        since: Instant,
        due: Option<Instant>,
        place: Option<WaitPlace>,
    ) -> Self {
        let (queue, terms) = (queue.clone(), Box::new(terms.clone()));
        Waiting { queue, client, ticket, answer, terms, since, due, place, group: None, host: None }
    }

    /// It waits for the host as well, when it has its group's turn. `terms`: its own, of host and group.
    pub(super) fn then(mut self, host: &Arc<HostQueue>, terms: &Terms) -> Self {
        (self.host, self.terms) = (Some(host.clone()), Box::new(terms.clone()));
        self
    }

    /// It has its group's turn already.
    pub(super) fn behind(mut self, group: Permit, terms: &Terms) -> Self {
        (self.group, self.terms) = (Some(group), Box::new(terms.clone()));
        self
    }

    /// Of the host.
    pub fn queue(&self) -> &Arc<HostQueue> {
        self.host.as_ref().unwrap_or(&self.queue)
    }

    /// When its turn is likely to come. `None`: nobody knows.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What holds for it.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Until its turn has come.
    pub async fn turn(&mut self) -> Result<Permit, Refusal> {
        let permit = self.turn_here().await?;
        let Some(host) = self.host.take() else { return Ok(permit) };
        let waited = self.since.elapsed();
        let terms = Terms { max_wait: self.terms.max_wait.saturating_sub(waited), ..(*self.terms).clone() };
        let mut permit = match host.stand_behind(permit, self.client, &terms)? {
            Stand::Go(permit) => permit,
            Stand::Wait(mut waiting) => waiting.turn_here().await?,
        };
        permit.waited = self.since.elapsed();
        Ok(permit)
    }

    /// In this queue alone.
    async fn turn_here(&mut self) -> Result<Permit, Refusal> {
        let answer = tokio::select! {
            biased;
            answer = &mut self.answer => answer,
            Some(refusal) = OptionFuture::from(self.queue.fleet().map(Fleet::refuses)) => return Err(refusal),
            Some(refusal) = OptionFuture::from(self.place.as_mut().map(WaitPlace::crowded_out)) => return Err(refusal),
        };
        match answer {
            Ok(Ok(slot)) => {
                let mut permit = Permit::new(&self.queue, Some(slot), &self.terms);
                permit.waited = self.since.elapsed();
                Ok(match self.group.take() {
                    Some(group) => permit.with_group(group, &self.terms),
                    None => permit,
                })
            }
            Ok(Err(refused)) => Err(refusal(refused, self.terms.max_wait)),
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The turn may have come in this very moment.
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(slot)) => self.queue.give_back(slot, false, PaceOutcome::Unused, None),
            Ok(Err(_)) => {}
            Err(_) => self.queue.cancel(self.ticket),
        }
    }
}

/// What a refusal says: the gap as it was asked for.
pub(super) fn refusal(refused: Refused, max_wait: Duration) -> Refusal {
    let refused = match refused {
        Refused::TooLong { retry_after } => {
            // As long as it is over `max_wait`, or the wait was not for the gap.
            let asked = retry_after.saturating_sub(ARRIVAL);
            Refused::TooLong { retry_after: if asked > max_wait { asked } else { retry_after } }
        }
        Refused::Paused { retry_after, refusals } => {
            Refused::Paused { retry_after: retry_after.saturating_sub(ARRIVAL), refusals }
        }
        Refused::Full { .. } => refused,
    };
    refused.into_refusal(max_wait)
}

const DRAINING: Duration = Duration::from_secs(1);
