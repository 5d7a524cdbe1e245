//! The debts of unused queues (when the next request may start): noted as a few numbers in the machine's shared memory, so that the
//! queues can be dropped.

use super::{HostQueue, HostQueueState, HostSchedule, Sharing};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl HostQueue {
    /// Notes the debts of an unused queue. Returns when the last of them ends. `Err`: the queue is in use, or has state that cannot be
    /// noted.
    pub(in crate::gate::pacer) fn rest(self: &Arc<Self>, now: Instant) -> Result<Option<Instant>, ()> {
        let mut until = None;
        for queue in self.groups.lock().iter().chain(self.beside.get()) {
            until = until.max(queue.rest(now)?);
        }
        let state = self.state.lock();
        let (schedule, owed) = (&state.schedule, state.schedule.owed(now));
        // Some state cannot be noted, for example when a guest last came, or a backoff that the fleet's server may have lost.
        let knows_more = self.guests.get().is_some()
            || !schedule.owes_one_gap()
            || self.clamp_logged.load(Ordering::Relaxed) > 0
            || matches!(state.sharing, Sharing::Server(_)) && !schedule.observed().is_calm();
        if Arc::strong_count(self) > 1 || !schedule.is_unused() || knows_more && owed.is_some() {
            return Err(());
        }
        if let Some(owed) = owed {
            self.owe(schedule, owed);
        }
        Ok(until.max(owed))
    }

    /// With a fleet's server, notes the debts in this machine's memory, too: this process may be restarted while the server is lost.
    pub(super) fn note_debt(&self, HostQueueState { schedule, sharing, .. }: &HostQueueState, now: Instant) {
        if let (Sharing::Server(_), Some(until)) = (sharing, schedule.owed(now))
            && until >= now + LEAST_DEBT
        {
            self.owe(schedule, until);
        }
    }

    pub(super) fn owe(&self, schedule: &HostSchedule, until: Instant) {
        let machine = self.fleet().machine.machine();
        machine.owe(machine.id(&self.name()), schedule.last_starts(), until);
    }
}

/// Shorter debts are not noted: they end before a process can be restarted.
const LEAST_DEBT: Duration = Duration::from_secs(1);
