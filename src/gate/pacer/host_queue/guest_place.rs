//! Waiting to be the one guest in a host's queue.

use super::HostQueue;
use super::guests::Guests;
use crate::gate::fair_places::{FairPlace, Taker};
use crate::policy::Refusal;
use crate::policy::pace::{Refused, Terms};
use std::time::Duration;
use tokio::time::{sleep_until, timeout};

impl HostQueue {
    pub fn guests(&self) -> &Guests {
        self.guests.get_or_init(Box::default)
    }

    /// Waits for the guests' place, as long as a request may wait for its slot.
    pub async fn guest_place(&self, taker: Taker, terms: &Terms) -> Result<FairPlace, Refusal> {
        let mut waits = self.shared.waiters.enter(taker.client, terms.max_waiting);
        let place = async {
            let place = self.guests().places.take(taker).await;
            if let Some(due) = self.guests().due(terms.gap(), || self.state.lock().schedule.last_starts().last_start) {
                sleep_until(due.into()).await;
            }
            place
        };
        tokio::select! {
            biased;
            place = timeout(terms.max_wait, place) => {
                place.map_err(|_| Refused::TooLong { retry_after: GUESTS_AWAITED }.into_refusal(terms.max_wait))
            }
            refusal = waits.crowded_out() => Err(refusal),
        }
    }
}

/// Retry-After, since the end of earlier guests is unknown.
const GUESTS_AWAITED: Duration = Duration::from_secs(1);
