//! Keeps every host's pace. Finds the queue for a request or for a message of the fleet.
//!
//! Finding a known host's queue takes only a read lock, so that hosts do not wait for each other.

mod fleet_share;
mod host_queue;
mod machine_share;
mod pace_figures;
mod permit;

pub(super) use host_queue::{HostQueue, Stand, Waiting};
pub use pace_figures::PaceFigures;
pub use permit::Permit;

use super::fleet::{Fleet, WaitNews};
use super::waiting_requests::{PacedQueue, WaitingRequests};
use crate::policy::PaceKey;
use crate::policy::pace::Terms;
use futures_util::{StreamExt, stream};
use hashbrown::{HashMap, HashTable};
use host_queue::PacerShared;
use parking_lot::RwLock;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// All queues in use. The debts of unused keys (when their next requests may start) are in the machine's shared memory.
pub(super) struct Pacer {
    shards: Box<[RwLock<Shard>]>,
    /// Randomly keyed, so that no site can choose names that collide.
    hasher: RandomState,
    shared: Arc<PacerShared>,
}

#[derive(Default)]
struct Shard {
    queues: HashTable<Arc<HostQueue>>,
    /// Unused keys with debts, and when each key's next request may start. Empty without a fleet's server, as debts are reported only to a
    /// server.
    owing: HashMap<PaceKey, Instant>,
    /// Number of queues at which unused ones are dropped.
    sweep_at: usize,
}

impl Pacer {
    pub fn new(fleet: Arc<Fleet>) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(Shard { sweep_at: MIN_SWEEP, ..Shard::default() }));
        let shared = Arc::new(PacerShared { waiting: Arc::default(), fleet, queues: AtomicUsize::new(0) });
        Pacer { shards: shards.collect(), hasher: RandomState::new(), shared }
    }

    /// The waiting requests of all hosts.
    pub fn waiting(&self) -> &Arc<WaitingRequests> {
        &self.shared.waiting
    }

    /// The key's figures. `None`: the key was not used lately.
    pub fn figures(&self, key: &PaceKey) -> Option<PaceFigures> {
        let (machine, now) = (self.shared.fleet.machine.machine(), Instant::now());
        let [_, owed] = machine.debt(machine.id(&key.to_string()), now);
        let figures = self.find(key).or_else(|| owed.map(|_| self.queue(key)))?.figures();
        Some(PaceFigures { owed: figures.owed.max(owed.map_or(Duration::ZERO, |owed| owed - now)), ..figures })
    }

    /// Memory in bytes, without the waiting requests.
    pub fn bytes(&self) -> usize {
        // This is called after each fetch. Without a server, the shards need not be locked, as `owing` is empty.
        let noted = if self.shared.fleet.has_server() { &self.shards[..] } else { &[] };
        let owing: usize = noted.iter().map(|shard| shard.read().owing.allocation_size()).sum();
        let own = self.shared.fleet.machine.machine().own_bytes();
        self.shared.queues.load(Ordering::Relaxed) * QUEUE_BYTES + owing + own
    }

    /// Drops unused queues.
    pub fn sweep(&self) {
        for shard in &self.shards {
            let mut shard = shard.write();
            shard.sweep(&self.shared.fleet);
            shard.owing.shrink_to_fit();
        }
    }

    /// Returns the key's queue, created if necessary.
    pub fn queue(&self, key: &PaceKey) -> Arc<HostQueue> {
        if let Some(queue) = self.find(key) {
            return queue;
        }
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).write();
        if shard.queues.len() >= shard.sweep_at {
            shard.sweep(&self.shared.fleet);
        }
        shard.owing.remove(key);
        let new = || Arc::new(HostQueue::new(key.clone(), None, self.shared.clone()));
        let rehash = |queue: &Arc<HostQueue>| self.hasher.hash_one(queue.key());
        shard.queues.entry(hash, |queue| queue.key() == key, rehash).or_insert_with(new).get().clone()
    }

    /// Handles a change of the link to the fleet's server: the server may be lost, back or replaced by another, and messages may have been
    /// lost. A limited number of hosts report their debts at a time. Returns when all have.
    pub async fn link_changed(&self) {
        let queues = self.shards.iter().flat_map(|shard| {
            let keys = shard.read().keys();
            keys.into_iter().flat_map(|key| self.queue(&key.of_all()).with_groups(key.group()))
        });
        let (server, late) = (self.shared.fleet.reach().link, OnceLock::new());
        let tell = async |queue: Arc<HostQueue>| {
            // If a node of a cluster does not answer, this instance counts as having reported after `FAILOVER`, so that hosts of
            // other nodes need not wait until all hosts of that node have been tried.
            if !queue.link_changed().await && late.get_or_init(Instant::now).elapsed() > FAILOVER {
                self.shared.fleet.told(server);
            }
        };
        stream::iter(queues).for_each_concurrent(MAX_REPORTING, tell).await;
    }

    /// Handles a message that the state of a key has changed in the fleet. `news`: what the holders of reservations need to know.
    pub fn hear(&self, key: &str, news: Option<WaitNews>) {
        // Without a queue no request waits here, so the message does not matter.
        if let Some(queue) = PaceKey::from_text(key).and_then(|key| self.find(&key.of_all())?.named(&key)) {
            queue.hear(news);
        }
    }

    fn find(&self, key: &PaceKey) -> Option<Arc<HostQueue>> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).read().queues.find(hash, |queue| queue.key() == key).cloned()
    }

    /// Selects a shard by the middle bits of the hash, as the hash table uses both ends.
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    /// Drops unused queues.
    fn sweep(&mut self, fleet: &Fleet) {
        let now = Instant::now();
        self.owing.retain(|_, until| *until > now);
        self.queues.retain(|queue| {
            let rest = queue.rest(now);
            if let Ok(Some(until)) = rest
                && fleet.has_server()
            {
                let queues = queue.clone().with_groups(None);
                self.owing.extend(queues.into_iter().map(|queue| (queue.key().clone(), until)));
            }
            rest.is_err()
        });
        self.sweep_at = MIN_SWEEP.max(self.queues.len() * 2);
    }

    /// The keys of all queues, and the unused keys with debts, which may have to be reported to the server.
    fn keys(&self) -> Vec<PaceKey> {
        self.queues.iter().map(|queue| queue.key()).chain(self.owing.keys()).cloned().collect()
    }
}

/// The terms for a subresource that follows its page: no delay applies, and the limit of requests in flight is lower by one, as the page
/// may be in flight, too.
pub(super) fn without_delay(terms: Terms) -> Terms {
    let max_concurrent = (terms.max_concurrent - 1).max(1);
    let of_page = Some(Box::new(terms.clone()));
    let none = Duration::ZERO;
    Terms { crawl_delay: none, group_delay: none, min_delay: none, adaptive: None, max_concurrent, of_page, ..terms }
}

const SHARDS: usize = 256;
/// Maximum number of hosts that report debts to the fleet at a time.
const MAX_REPORTING: usize = 256;
/// Time for which the fleet waits for a host whose debts cannot be reported to its server. A replica has taken over from a lost master by
/// then.
const FAILOVER: Duration = Duration::from_secs(30);
const MIN_SWEEP: usize = 8;
/// Size of a queue with its table row; the key usually shares the authority's memory.
const QUEUE_BYTES: usize = size_of::<HostQueue>() + 4 * size_of::<usize>() + 2 * size_of::<Arc<HostQueue>>();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fleet::MachineLink;
    use crate::policy::pace::{ARRIVAL, ClientId, PaceOutcome};

    #[test]
    fn full_table_drops_only_queues_that_are_not_in_use() {
        let pacer = Pacer::new(Fleet::alone());
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

    /// Sends a request on these terms, so that its host then owes a gap. Returns a time just after the request was sent.
    async fn start(queue: Arc<HostQueue>, terms: &Terms, outcome: PaceOutcome) -> Instant {
        let mut permit = queue.turn(ClientId(1), terms).await.expect("at once");
        permit.leaves(false);
        permit.note_left();
        permit.outcome = outcome;
        Instant::now()
    }

    /// The terms with an operator's delay and a group's, in milliseconds.
    fn terms(delay: u64, group: u64) -> Terms {
        let (crawl_delay, group_delay) = (Duration::from_millis(delay), Duration::from_millis(group));
        Terms { crawl_delay, group_delay, max_wait: Duration::MAX, ..Terms::default() }
    }

    /// Lets the queues' drivers end, and drops the queues whose state can be noted in the machine's memory.
    async fn rests(pacer: &Pacer) {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
            pacer.sweep();
        }
    }

    /// In report mode a process sends requests as they come. Each start delays the next one, but not one that waits already.
    #[tokio::test]
    async fn requests_of_report_mode_do_not_delay_another_process_for_ever() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [reports, enforces] = [(); 2].map(|()| {
            let machine = MachineLink::open(Some(directory.path()), Duration::from_secs(3600));
            let pacer = Pacer::new(Arc::new(Fleet::on_machine(machine, Arc::default())));
            pacer.queue(&PaceKey::from_text("a.example").expect("a key"))
        });
        let terms =
            Terms { crawl_delay: Duration::from_millis(300), max_wait: Duration::from_secs(60), ..Terms::default() };
        let send = || {
            let (stand, _) = reports.stand_or_report(ClientId(1), &terms, true, None).expect("it is not refused");
            let Stand::Go(mut permit) = stand else { panic!("report mode holds nothing") };
            permit.leaves(false);
            permit.note_left();
        };
        send();
        let mut sent = 0;
        let mut waits = Box::pin(async { enforces.stand(ClientId(2), &terms).expect("it may wait").turn().await });
        loop {
            tokio::select! {
                permit = &mut waits => break drop(permit.expect("it gets its slot")),
                () = tokio::time::sleep(Duration::from_millis(20)) => send(),
            }
            sent += 1;
            assert!(sent < 500, "it waits for ever");
        }
    }

    #[tokio::test]
    async fn debts_outlive_their_queue() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let machine = MachineLink::open(Some(directory.path()), Duration::from_secs(3600));
        let fleet = Arc::new(Fleet::on_machine(machine, Arc::default()));
        let asked = PaceOutcome::Backoff { retry_after: Some(Duration::from_secs(70)) };
        // Cases: an operator's delay, a group's, a group's that changes, a group beside a quicker group, and a host's Retry-After.
        for (name, before, outcome, then, owed) in [
            ("a", vec![(100_000, 0)], PaceOutcome::Success, (100_000, 0), 100),
            ("b", vec![(0, 50_000)], PaceOutcome::Success, (0, 50_000), 50),
            ("c", vec![(0, 50_000)], PaceOutcome::Success, (0, 200_000), 200),
            ("d", vec![(0, 50_000), (0, 100)], PaceOutcome::Success, (0, 50_000), 50),
            ("e", vec![(0, 0)], asked, (0, 0), 70),
        ] {
            for pacer in [Fleet::alone(), fleet.clone()].map(Pacer::new) {
                let host = PaceKey::from_text(&format!("{name}.example")).expect("a key");
                let (began, mut left_by) = (Instant::now(), None);
                for (delay, group) in &before {
                    let left = start(pacer.queue(&host), &terms(*delay, *group), outcome).await;
                    left_by = left_by.or(Some(left));
                }
                rests(&pacer).await;
                // For the other cases, it does not matter here whether the queue was dropped: the debt must last in any case.
                assert!(name != "a" || pacer.find(&host).is_none());
                let figures = pacer.figures(&host).expect("the host owes a delay");
                assert!(figures.owed + began.elapsed() >= Duration::from_secs(owed.min(50)), "{name}: {figures:?}");
                let stand = pacer.queue(&host).stand(ClientId(1), &terms(then.0, then.1));
                let Ok(Stand::Wait(waiting)) = stand else { panic!("{name}: no debt") };
                let (due, owed) = (waiting.due.expect("the due time is known"), Duration::from_secs(owed));
                let late = left_by.expect("a start") + ARRIVAL + Duration::from_millis(10);
                assert!(due >= began + owed && due <= late + owed, "{name}: {:?}", due - began);
            }
        }
    }

    #[tokio::test]
    async fn host_with_only_a_groups_delay_takes_one_key() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let link = MachineLink::open(Some(directory.path()), Duration::from_secs(3600));
        let pacer = Pacer::new(Arc::new(Fleet::on_machine(link.clone(), Arc::default())));
        for number in 0..100 {
            let host = PaceKey::from_text(&format!("{number}.example")).expect("a key");
            start(pacer.queue(&host), &terms(0, 50_000), PaceOutcome::Success).await;
        }
        rests(&pacer).await;
        // The queues begin again with these debts, and are dropped again.
        for number in 0..100 {
            let host = PaceKey::from_text(&format!("{number}.example")).expect("a key");
            assert!(pacer.figures(&host).is_some_and(|figures| figures.owed > Duration::from_secs(40)));
        }
        rests(&pacer).await;
        assert_eq!(link.machine().keys(), 100);
    }

    /// The group's own delay is over.
    #[tokio::test]
    async fn group_without_a_debt_does_not_wait_for_another_groups_start() {
        let (pacer, host) = (Pacer::new(Fleet::alone()), PaceKey::from_text("a.example").expect("a key"));
        let mut left = Vec::new();
        for group in [100_000, 300, 200] {
            left.push(start(pacer.queue(&host), &terms(0, group), PaceOutcome::Success).await);
        }
        rests(&pacer).await;
        // By then this group's delay is over, but the other group started later.
        tokio::time::sleep_until((left[1] + Duration::from_millis(300) + ARRIVAL).into()).await;
        assert!(matches!(pacer.queue(&host).stand(ClientId(1), &terms(0, 300)), Ok(Stand::Go(_))));
    }

    #[tokio::test]
    async fn request_waiting_for_its_group_and_its_host_counts_once() {
        let (pacer, host) = (Pacer::new(Fleet::alone()), PaceKey::from_text("a.example").expect("a key"));
        let queue = pacer.queue(&host);
        start(queue.clone(), &terms(0, 50), PaceOutcome::Success).await;
        let one = Terms { max_concurrent: 1, ..Terms::default() };
        let Ok(Stand::Go(_held)) = queue.stand(ClientId(1), &one) else { panic!("the host is free") };
        let terms = Terms { max_concurrent: 1, ..terms(0, 50) };
        let mut turn = std::pin::pin!(queue.turn(ClientId(2), &terms));
        let _ = tokio::time::timeout(Duration::from_millis(200), &mut turn).await;
        assert_eq!(queue.figures().waiting, 1);
    }
}
