//! Guests: fetches of files on this host to which other sites redirect or link. One guest at a time is in the queue, behind the requests
//! for the host itself. Beside these, guests get a tenth of the starts that the delay allows: no site shall use up another site's pace.

use crate::gate::fair_places::{FairPlace, FairPlaces, Taker};
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

    /// Waits for the guests' place, and until its guest may enter the queue. `host_start`: as for [`due`](Self::due).
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

    /// When the next guest may enter the queue. `host_start`: the host's last start, a guest's or not.
    fn due(&self, gap: Duration, host_start: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let last = (*self.last_start.lock())?;
        let is_shared = host_start().is_some_and(|start| start >= last + gap);
        is_shared.then(|| last + gap * GAPS_APART)
    }
}

const GAPS_APART: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_where_only_guests_come_has_them_at_its_own_pace() {
        let (guests, gap) = (Guests::new(), Duration::from_secs(10));
        assert_eq!(guests.due(gap, || None), None, "the first");
        guests.started();
        let last = guests.last_start.lock().unwrap();
        assert_eq!(guests.due(gap, || Some(last)), None, "its own start");
        assert_eq!(guests.due(gap, || Some(last + gap)), Some(last + gap * 10), "another request's start");
        assert_eq!(guests.due(Duration::ZERO, || Some(last)), Some(last), "without a delay, there is no wait");
    }
}
