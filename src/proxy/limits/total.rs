//! How many connections clients have in all, whichever listener they came to (`limits.max_connections`).

use std::sync::Arc;
use tokio::sync::watch;

/// The connections that are open.
#[derive(Default)]
pub struct Room(Arc<watch::Sender<usize>>);

/// One connection's place. Given back when it is dropped.
pub struct Seat(Arc<watch::Sender<usize>>);

impl Room {
    /// Resolves when fewer than `limit` are open. Cancel-safe.
    pub async fn seat(&self, limit: usize) -> Seat {
        let mut open = self.0.subscribe();
        loop {
            if let Some(seat) = self.take(limit) {
                return seat;
            }
            // The sender is here: it cannot be gone.
            let _ = open.changed().await;
        }
    }

    fn take(&self, limit: usize) -> Option<Seat> {
        let mut taken = false;
        self.0.send_if_modified(|open| {
            taken = *open < limit;
            *open += usize::from(taken);
            // Nobody waits for more to be open.
            false
        });
        taken.then(|| Seat(self.0.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_gets_the_next_seat_that_is_given_back() {
        let room = Room::default();
        let (first, _second) = (room.seat(2).await, room.seat(2).await);
        assert!(room.take(2).is_none());
        let (third, ()) = tokio::join!(room.seat(2), async { drop(first) });
        assert!(room.take(2).is_none());
        assert!(room.take(3).is_some(), "a reload may make room");
        drop(third);
        assert!(room.take(2).is_some());
    }
}
