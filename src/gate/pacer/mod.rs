//! Keeps every host's pace: finds the queue for a request or a message of the fleet.
//!
//! Finding a known host's queue takes only a read lock, so that hosts do not wait for each other.

mod fleet_share;
mod host_queue;
mod machine_share;
mod permit;
mod waiters;

pub use host_queue::PaceFigures;
pub(super) use host_queue::{HostQueue, Stand};
pub use permit::Permit;
pub(super) use permit::Waiting;
pub(super) use waiters::WaitPlace;

use super::fleet::{Fleet, Machine, WaitNews};
use crate::policy::PaceKey;
use crate::policy::pace::{ClientId, LastStarts, Terms};
use hashbrown::{DefaultHashBuilder, HashTable};
use host_queue::PacerShared;
use parking_lot::RwLock;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// All queues.
pub(super) struct Pacer {
    shards: Box<[RwLock<Shard>]>,
    hasher: DefaultHashBuilder,
    shared: Arc<PacerShared>,
}

#[derive(Default)]
struct Shard {
    queues: HashTable<Arc<HostQueue>>,
    /// Number of queues at which those without debt are dropped.
    sweep_at: usize,
}

impl Pacer {
    /// `debts`: where debts are kept for later processes.
    pub fn new(fleet: Option<Arc<Fleet>>, debts: Option<Arc<Machine>>) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(Shard { sweep_at: MIN_SWEEP, ..Shard::default() }));
        let shared = Arc::new(PacerShared { waiters: Arc::default(), fleet, debts, queues: AtomicUsize::new(0) });
        Pacer { shards: shards.collect(), hasher: DefaultHashBuilder::default(), shared }
    }

    /// Number of waiting requests, over all hosts.
    pub fn waiting(&self) -> usize {
        self.shared.waiters.count()
    }

    /// Takes a place among the waiting requests for a request that waits for something other than a slot.
    pub fn wait_place(&self, client: ClientId, max_waiting: usize) -> WaitPlace {
        self.shared.waiters.enter(client, max_waiting)
    }

    /// The key's figures; `None`: no queue, as the key was not used lately.
    pub fn figures(&self, key: &PaceKey) -> Option<PaceFigures> {
        Some(self.find(key)?.figures())
    }

    /// Memory of the queues in bytes, without the waiting requests.
    pub fn bytes(&self) -> usize {
        self.shared.queues.load(Ordering::Relaxed) * QUEUE_BYTES
    }

    /// Drops the queues without debt.
    pub fn sweep(&self) {
        self.shards.iter().for_each(|shard| shard.write().sweep());
    }

    /// Returns the key's queue, created if necessary.
    pub fn queue(&self, key: &PaceKey) -> Arc<HostQueue> {
        if let Some(queue) = self.find(key) {
            return queue;
        }
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).write();
        if shard.queues.len() >= shard.sweep_at {
            shard.sweep();
        }
        let new = || Arc::new(HostQueue::of(key.clone(), LastStarts::default(), self.shared.clone()));
        let rehash = |queue: &Arc<HostQueue>| self.hasher.hash_one(queue.key());
        shard.queues.entry(hash, |queue| queue.key() == key, rehash).or_insert_with(new).get().clone()
    }

    /// Handles a change of link: the server may be lost, back or another, and messages may be missing. A bounded number of hosts report
    /// their debts at a time; returns when all have.
    pub async fn link_changed(&self) {
        let places = Arc::new(Semaphore::new(MAX_REPORTING));
        for shard in &self.shards {
            let queues: Vec<_> = shard.read().queues.iter().cloned().collect();
            for queue in queues.into_iter().flat_map(|queue| queue.with_groups()) {
                let place = if queue.has_news() { places.clone().acquire_owned().await.ok() } else { None };
                // Messages may have been lost.
                queue.hear(None, place);
            }
        }
        // Queues with a driver report at once by themselves.
        tokio::time::sleep(AT_ONCE).await;
        let _ = places.acquire_many(MAX_REPORTING as u32).await;
    }

    /// Handles a change of a key's state in the fleet. `news`: for holders of a reservation.
    pub fn hear(&self, key: &str, news: Option<WaitNews>) {
        // Without a queue no request waits here, and other instances soon have the slot.
        if let Some(queue) = PaceKey::from_text(key).and_then(|key| self.find(&key.of_all())?.named(&key)) {
            queue.hear(news, None);
        }
    }

    fn find(&self, key: &PaceKey) -> Option<Arc<HostQueue>> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).read().queues.find(hash, |queue| queue.key() == key).cloned()
    }

    /// Selects by the middle bits, as the hash table uses both ends of the hash.
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    /// Drops the queues without debt.
    fn sweep(&mut self) {
        let now = Instant::now();
        self.queues.retain(|queue| Arc::strong_count(queue) > 1 || !queue.is_idle(now));
        self.sweep_at = MIN_SWEEP.max(self.queues.len() * 2);
    }
}

/// The terms of a subresource that follows its page: without the delay. The page may still be in flight.
pub(super) fn without_delay(terms: Terms) -> Terms {
    let max_concurrent = (terms.max_concurrent - 1).max(1);
    let of_page = Some(Box::new(terms.clone()));
    let none = Duration::ZERO;
    Terms { crawl_delay: none, group_delay: none, min_delay: none, adaptive: None, max_concurrent, of_page, ..terms }
}

const SHARDS: usize = 256;
/// Time for queues with a driver to report by themselves.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Hosts that report debts to the fleet at a time.
const MAX_REPORTING: usize = 256;
const MIN_SWEEP: usize = 64;
/// Size of a queue with its table row; the key usually shares the authority's memory.
const QUEUE_BYTES: usize = size_of::<HostQueue>() + 4 * size_of::<usize>() + 2 * size_of::<Arc<HostQueue>>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_drops_the_queues_that_owe_nothing_and_no_other() {
        let pacer = Pacer::new(None, None);
        let key = |number: u32| PaceKey::from_text(&format!("{number}.example")).expect("a key");
        let is_here = |key: &PaceKey| std::ptr::eq(pacer.shard(pacer.hasher.hash_one(key)), &pacer.shards[0]);
        let mut keys = (0..).map(key).filter(is_here);
        let held = pacer.queue(&keys.next().expect("some"));
        let kept = || pacer.shards[0].read().queues.len();
        keys.by_ref().take(MIN_SWEEP - 1).for_each(|key| drop(pacer.queue(&key)));
        assert_eq!(kept(), MIN_SWEEP, "there is room");
        keys.take(MIN_SWEEP).for_each(|key| drop(pacer.queue(&key)));
        assert!(kept() <= MIN_SWEEP, "{}", kept());
        assert!(Arc::ptr_eq(&held, &pacer.queue(held.key())));
    }
}
