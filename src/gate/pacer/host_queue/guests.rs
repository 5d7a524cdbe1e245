//! Guests: fetches of files that other sites redirect or link to this host. One at a time is in the queue, behind the host's own clients.
//! Where those come, guests take a tenth of the starts that a delay allows: otherwise any site could use up another one's pace.

use super::HostQueue;
use crate::gate::fair_places::{FairPlace, FairPlaces, Taker};
use crate::policy::Refusal;
use crate::policy::pace::{Refused, Terms};
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};

pub(in crate::gate) struct Guests {
    pub places: FairPlaces,
    last_start: Mutex<Option<Instant>>,
}

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

impl Default for Guests {
    fn default() -> Self {
        Self { places: FairPlaces::new(1), last_start: Mutex::default() }
    }
}

impl Guests {
    pub fn started(&self) {
        *self.last_start.lock() = Some(Instant::now());
    }

    /// When the next guest may enter the queue. `host_start`: the host's last start, a guest's or not.
    pub fn due(&self, gap: Duration, host_start: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let last = (*self.last_start.lock())?;
        let is_shared = host_start().is_some_and(|start| start >= last + gap);
        is_shared.then(|| last + gap * GAPS_APART)
    }
}

const GAPS_APART: u32 = 10;
/// Retry-After, since the end of earlier guests is unknown.
const GUESTS_AWAITED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_where_only_guests_come_has_them_at_its_own_pace() {
        let (guests, gap) = (Guests::default(), Duration::from_secs(10));
        assert_eq!(guests.due(gap, || None), None, "the first");
        guests.started();
        let last = guests.last_start.lock().unwrap();
        assert_eq!(guests.due(gap, || Some(last)), None, "its own start");
        assert_eq!(guests.due(gap, || Some(last + gap)), Some(last + gap * 10), "somebody else's");
        assert_eq!(guests.due(Duration::ZERO, || Some(last)), Some(last), "no delay, no wait");
    }
}
