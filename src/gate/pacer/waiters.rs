//! All waiting requests, over all hosts: bounded by `pace.max_waiting`, and shared fairly. If there is no room, the client with the most
//! waiting requests loses its last one.

use crate::policy::Refusal;
use crate::policy::pace::ClientId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// The waiting requests, by client, in order of arrival.
#[derive(Default)]
pub(super) struct Waiters {
    by_client: Mutex<HashMap<ClientId, ByNumber>>,
    count: AtomicUsize,
    numbers: AtomicUsize,
}

/// Dropping the sender tells a waiting request that it has lost its place.
type ByNumber = BTreeMap<usize, oneshot::Sender<()>>;

/// A place among the waiting requests, given back when dropped.
pub(in crate::gate) struct WaitPlace {
    waiters: Arc<Waiters>,
    client: ClientId,
    number: usize,
    gone: oneshot::Receiver<()>,
}

impl Waiters {
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a place. If there is no room, another request loses its place, perhaps this one.
    pub fn enter(self: &Arc<Self>, client: ClientId, most: usize) -> WaitPlace {
        let (sender, gone) = oneshot::channel();
        let mut by_client = self.by_client.lock();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        by_client.entry(client).or_default().insert(number, sender);
        if self.count.fetch_add(1, Ordering::Relaxed) >= most {
            let most_of_all = by_client.iter().max_by_key(|(each, waiters)| (waiters.len(), **each == client));
            if let Some(greediest) = most_of_all.map(|(greediest, _)| *greediest) {
                self.remove(&mut by_client, greediest, None);
            }
        }
        WaitPlace { waiters: self.clone(), client, number, gone }
    }

    /// `number`: `None` is the newest.
    fn remove(&self, by_client: &mut HashMap<ClientId, ByNumber>, client: ClientId, number: Option<usize>) {
        let Some(waiters) = by_client.get_mut(&client) else { return };
        let removed = match number {
            Some(number) => waiters.remove(&number),
            None => waiters.pop_last().map(|(_, sender)| sender),
        };
        self.count.fetch_sub(usize::from(removed.is_some()), Ordering::Relaxed);
        if waiters.is_empty() {
            by_client.remove(&client);
        }
    }
}

impl WaitPlace {
    /// Returns when the place was lost to another request.
    pub async fn crowded_out(&mut self) -> Refusal {
        // The sender is dropped with the place, and never used.
        let _ = (&mut self.gone).await;
        Refusal::QueueFull { retry_after: COME_BACK }
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        let mut by_client = self.waiters.by_client.lock();
        self.waiters.remove(&mut by_client, self.client, Some(self.number));
    }
}

/// Retry-After, since it is unknown when there will be room.
const COME_BACK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: ClientId = ClientId(1);
    const MODEST: ClientId = ClientId(2);

    fn is_out(place: &mut WaitPlace) -> bool {
        !matches!(place.gone.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn the_client_that_fills_it_makes_room_for_others() {
        let waiters = Arc::new(Waiters::default());
        let mut greedy: Vec<_> = (0..3).map(|_| waiters.enter(GREEDY, 3)).collect();
        let mut modest = waiters.enter(MODEST, 3);
        assert_eq!(greedy.iter_mut().map(is_out).collect::<Vec<_>>(), [false, false, true], "the last goes");
        assert!(!is_out(&mut modest));
        assert_eq!(waiters.count(), 3);
        assert!(is_out(&mut waiters.enter(GREEDY, 3)), "and does not come back");
        // If both have two, no client has more, and the newcomer is refused.
        let mut second = waiters.enter(MODEST, 4);
        assert!(!is_out(&mut second));
        assert!(is_out(&mut waiters.enter(MODEST, 4)));
        drop((greedy, modest, second));
        assert_eq!((waiters.count(), waiters.by_client.lock().len()), (0, 0));
    }
}
