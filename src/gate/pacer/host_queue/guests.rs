//! Guests: fetches of files on this host to which other sites redirect or link. One guest at a time is in the queue, behind the requests
//! for the host itself. If there are such requests, guests get only a tenth of the starts that the delay allows, so that no site can use
//! up another site's pace.

use crate::fair_places::{FairPlace, FairPlaces, Taker};
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

pub(in crate::gate) struct Guests {
    pub places: FairPlaces,
    last_start: Mutex<Option<Instant>>,
}

impl Guests {
    pub fn new() -> Self {
        Self { places: FairPlaces::new(1), last_start: Mutex::default() }
    }

    /// Waits until no other guest is in this queue, and then until the caller's fetch may enter it. `host_start`: returns the
    /// host's last start.
    pub async fn place(&self, taker: Taker, gap: Duration, host_start: impl Fn() -> Option<Instant>) -> FairPlace {
        let place = self.places.take(taker).await;
        if let Some(due) = self.due(gap, host_start) {
            sleep_until(due.into()).await;
        }
        place
    }

    pub fn started(&self) {
        *self.last_start.lock() = Some(Instant::now());
    }

    /// When the next guest may enter the queue. `None`: now. `host_start`: returns the host's last start, of a guest or another request.
    fn due(&self, gap: Duration, host_start: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let last = (*self.last_start.lock())?;
        let is_shared = host_start().is_some_and(|start| start >= last + gap);
        is_shared.then(|| last + gap * GAPS_APART)
    }
}

/// Number of gaps between two guests at a host that has other requests.
const GAPS_APART: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_of_a_host_without_other_requests_keep_its_usual_gap() {
        let (guests, gap) = (Guests::new(), Duration::from_secs(10));
        assert_eq!(guests.due(gap, || None), None, "the first");
        guests.started();
        let last = guests.last_start.lock().unwrap();
        assert_eq!(guests.due(gap, || Some(last)), None, "the guest's own start");
        assert_eq!(guests.due(gap, || Some(last + gap)), Some(last + gap * 10), "another request's start");
        assert_eq!(guests.due(Duration::ZERO, || Some(last)), Some(last), "without a delay, there is no wait");
    }
}
