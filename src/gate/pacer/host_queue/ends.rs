//! The end of a slot in three steps: its request is sent, is answered, and ends. Each step informs the queues and instances that depend on
//! it.

use super::{HostQueue, HostQueueState, HostSchedule};
use crate::policy::pace::{Observed, PaceOutcome, Slot};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl HostQueue {
    /// Handles a request that is about to be sent or, if `is_gone`, was sent. `at`: when it should reach the host.
    pub(in crate::gate::pacer) fn left(self: &Arc<Self>, slot: &Slot, at: Instant, is_gone: bool) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        let has_waited = schedule.left(slot, at, is_gone);
        let frees = sharing.left(schedule, slot, at, is_gone);
        self.note_debt(&state, at);
        if frees || has_waited {
            self.notify(&mut state, frees);
        }
    }

    /// Frees the slot of a request that was sent but has not ended, as others need not wait for its end.
    pub(in crate::gate::pacer) fn pass_on(self: &Arc<Self>, slot: &mut Slot) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        let frees = sharing.ended(slot, true);
        schedule.pass_on(slot);
        self.notify(&mut state, frees);
    }

    /// Applies the outcome of an answer before the request has ended.
    pub(in crate::gate::pacer) fn learn(self: &Arc<Self>, slot: &Slot, outcome: PaceOutcome) {
        let mut state = self.state.lock();
        self.note(&mut state, outcome.is_refused(), |schedule| schedule.learn(Instant::now, slot, outcome));
        self.spread(state, false, outcome);
    }

    /// Returns a slot. `has_left`: [`left`](Self::left) was called. `answered`: time from sending to the beginning of the answer, and
    /// whether this time may lower the host's latency.
    pub(in crate::gate::pacer) fn give_back(
        self: &Arc<Self>,
        slot: Slot,
        has_left: bool,
        outcome: PaceOutcome,
        answered: Option<(Duration, bool)>,
    ) {
        let mut state = self.state.lock();
        // The answer is counted before the slot is freed, as the next start depends on the answer.
        self.note(&mut state, outcome.is_refused() || answered.is_some(), |schedule| {
            answered.inspect(|(after, is_good)| schedule.answered(*after, *is_good));
            schedule.learn(Instant::now, &slot, outcome);
        });
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        let frees = sharing.ended(&slot, has_left);
        schedule.finished(Instant::now, slot, PaceOutcome::Failure);
        self.spread(state, frees, outcome);
    }

    /// Applies `count`, which counts an answer's outcome, and publishes the result to the processes of this machine. `changes_more`: as for
    /// [`catch_up`](super::Sharing::catch_up).
    fn note(&self, state: &mut HostQueueState, changes_more: bool, count: impl FnOnce(&mut HostSchedule)) {
        let HostQueueState { schedule, sharing, .. } = state;
        sharing.catch_up(schedule, changes_more);
        count(schedule);
        if let Some(share) = sharing.machine() {
            share.learned(schedule);
        }
        self.note_debt(state, Instant::now());
    }

    /// Informs the waiting requests here, the fleet's server, and the host's other queues of an outcome. `frees`: the slot is free.
    fn spread(self: &Arc<Self>, mut state: MutexGuard<'_, HostQueueState>, frees: bool, outcome: PaceOutcome) {
        let is_refused = outcome.is_refused();
        self.notify(&mut state, frees || is_refused);
        if is_refused {
            let (until, observed) = (state.schedule.owed(Instant::now()), state.schedule.observed());
            drop(state);
            if let Some(until) = until {
                self.hold_groups(until, observed);
                if let Some(page) = self.page() {
                    page.hold(until, observed);
                    page.hold_groups(until, observed);
                }
            }
        }
    }

    /// Lets nothing start here before `until`, because the host has asked for a pause in an answer to another queue's request: the queue of
    /// pages follows the queue of their subresources, and a group's queue follows the host's.
    pub(super) fn hold(self: &Arc<Self>, until: Instant, observed: Observed) {
        let mut state = self.state.lock();
        self.note(&mut state, true, |schedule| schedule.hold(until, observed));
        self.notify(&mut state, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fleet::{Fleet, MachineLink, MachineStart, MachineTurn};
    use crate::gate::pacer::Pacer;
    use crate::policy::PaceKey;
    use crate::policy::pace::{ClientId, Terms};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// If the next process did not know the answer, its request would start before the pause that the host has asked for is over.
    #[tokio::test]
    async fn next_turn_obeys_the_retry_after_of_the_last_answer() {
        let directory = tempfile::tempdir().unwrap();
        let open = || MachineLink::open(Some(directory.path()), Duration::from_secs(3600));
        let (other, pacer) = (open(), Pacer::new(Arc::new(Fleet::on_machine(open(), Arc::default()))));
        let other = other.machine();
        let terms = Terms { crawl_delay: Duration::from_millis(1), ..Terms::default() };
        for number in 0..300 {
            let key = format!("a{number}.example");
            let queue = pacer.queue(&PaceKey::from_text(&key).unwrap());
            let mut permit = queue.turn(ClientId(1), &terms).await.unwrap();
            permit.leaves(true);
            permit.outcome = PaceOutcome::Backoff { retry_after: Some(Duration::from_secs(60)) };
            let (id, start) = (other.id(&key), MachineStart { gap: Duration::ZERO, is_fetch: false, own: None });
            let waits = AtomicBool::new(false);
            let takes = || loop {
                match other.take(id, start, Instant::now()) {
                    MachineTurn::Busy => waits.store(true, Ordering::Relaxed),
                    turn => return turn,
                }
            };
            let turn = thread::scope(|scope| {
                let next = scope.spawn(takes);
                while !waits.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(permit);
                next.join().unwrap()
            });
            assert!(matches!(turn, MachineTurn::NotBefore(_)), "{number}: {turn:?}");
        }
    }
}
