//! What comes of a turn: its request leaves, is answered, ends; and who has to know.

use super::{HostQueue, HostQueueState};
use crate::policy::pace::{Debt, PaceOutcome, Slot};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl HostQueue {
    /// The request leaves, or `is_gone`.
    pub(in crate::gate::pacer) fn left(self: &Arc<Self>, slot: &Slot, at: Instant, is_gone: bool) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        let has_waited = schedule.left(slot, at, is_gone);
        let frees = sharing.left(schedule, self.fleet(), slot, at, is_gone);
        self.note_debt(&state, Instant::now());
        if frees || has_waited {
            self.notify(&mut state, frees);
        }
    }

    /// Its request has left, and others need not wait for the rest of it.
    pub(in crate::gate::pacer) fn pass_on(self: &Arc<Self>, slot: &mut Slot) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        let frees = sharing.ended(schedule, self.fleet(), slot, true);
        schedule.pass_on(slot);
        self.notify(&mut state, frees);
    }

    /// What the host's answer to it comes to, though it has not ended.
    pub(in crate::gate::pacer) fn learn(self: &Arc<Self>, slot: &Slot, outcome: PaceOutcome) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        sharing.catch_up(schedule, self.fleet(), outcome.is_refused());
        schedule.learn(Instant::now, slot, outcome);
        self.spread(state, false, outcome);
    }

    /// `has_left`: [`left`](Self::left) has been called. `answered`: when the answer began, and whether it may shorten the latency.
    pub(in crate::gate::pacer) fn give_back(
        self: &Arc<Self>,
        slot: Slot,
        has_left: bool,
        outcome: PaceOutcome,
        answered: Option<(Duration, bool)>,
    ) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        sharing.catch_up(schedule, self.fleet(), outcome.is_refused() || answered.is_some());
        if let Some((after, is_good)) = answered {
            schedule.answered(after, is_good);
        }
        let frees = sharing.ended(schedule, self.fleet(), &slot, has_left);
        schedule.finished(Instant::now, slot, outcome);
        self.spread(state, frees, outcome);
    }

    /// To whom it concerns: who waits here, and what has the host's pace as well. `frees`: the lease is not needed for it any more.
    fn spread(self: &Arc<Self>, mut state: MutexGuard<'_, HostQueueState>, frees: bool, outcome: PaceOutcome) {
        let is_refused = outcome.is_refused();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        let is_to_report = sharing.learned(schedule, self.fleet());
        self.notify(&mut state, frees || is_to_report && is_refused);
        if is_refused {
            let now = Instant::now();
            self.note_debt(&state, now);
            let debt = state.schedule.debt(now);
            drop(state);
            if let (Some(page), Some(debt)) = (self.page(), debt) {
                page.restore(now, debt);
            }
        }
    }

    /// A subresource was asked to come later: so are the pages.
    fn restore(self: &Arc<Self>, now: Instant, debt: Debt) {
        let mut state = self.state.lock();
        let HostQueueState { schedule, sharing, .. } = &mut *state;
        sharing.catch_up(schedule, self.fleet(), true);
        schedule.restore(now, debt);
        let is_to_report = sharing.learned(schedule, self.fleet());
        self.note_debt(&state, now);
        self.notify(&mut state, is_to_report);
    }
}
