//! A queue exists only while requests need it: before and after, what it owes is a few numbers.

use super::super::rests::RestedHost;
use super::{HostQueue, HostSchedule, PacerShared};
use crate::policy::PaceKey;
use crate::policy::pace::{LastStarts, Observed, Rested, Schedule};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl HostQueue {
    /// The queue of a host, with its groups, by what this process has kept.
    pub(in crate::gate::pacer) fn of(key: PaceKey, shared: Arc<PacerShared>) -> Self {
        let Some(RestedHost { host, groups, clamp_logged }) = shared.rests.take(&key) else {
            return Self::begin(key, LastStarts::default(), shared);
        };
        let of = |key, rested| Self::new(HostSchedule::of(rested), key, None, shared.clone());
        let groups = groups.iter().map(|(delay, group)| Arc::new(of(key.of_group(*delay), *group))).collect();
        let mut queue = of(key.clone(), host);
        (queue.groups, queue.clamp_logged) = (Mutex::new(groups), clamp_logged.into());
        queue
    }

    /// The queue of a new key. Restores an earlier process's debt. `before`: the last starts to keep a distance from.
    pub(super) fn begin(key: PaceKey, before: LastStarts, shared: Arc<PacerShared>) -> Self {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        if let Some(debt) = shared.debts.as_ref().and_then(|debts| debts.debt(debts.id(&key.to_string()), now)) {
            schedule.restore(now, debt);
        }
        schedule.adopt(before);
        Self::new(schedule, key, None, shared)
    }

    /// Whether the queue can be dropped: nobody uses it, and what it owes is kept.
    pub(in crate::gate::pacer) fn rests(self: &Arc<Self>, now: Instant) -> bool {
        let Some(host) = self.rested() else { return false };
        let of_group = |group: &Arc<Self>| Some((group.key.group()?, group.rested()?));
        let Some(groups) = self.groups.lock().iter().map(of_group).collect() else { return false };
        if self.beside.get().is_some_and(|beside| !beside.is_idle(now)) {
            return false;
        }
        let kept = RestedHost { host, groups, clamp_logged: self.clamp_logged.load(Ordering::Relaxed) };
        let Some(until) = kept.until().filter(|until| *until > now) else { return true };
        let has_server = self.shared.fleet.as_ref().is_some_and(|fleet| fleet.machine().is_none());
        // The queue alone knows when a guest last came, and what a server has been told of the answers.
        if self.guests.get().is_some() || has_server && host.observed != Observed::default() {
            return false;
        }
        self.shared.rests.put(&self.key, kept, (now, until), has_server);
        true
    }

    /// Whether nobody uses this queue of a group or of subresources, and it owes nothing.
    pub(super) fn is_idle(self: &Arc<Self>, now: Instant) -> bool {
        self.rested().is_some_and(|rested| rested.until().is_none_or(|until| until <= now))
    }

    /// What it knows, if nobody uses it.
    fn rested(self: &Arc<Self>) -> Option<Rested> {
        let state = self.state.lock();
        (Arc::strong_count(self) == 1 && state.schedule.is_unused()).then(|| state.schedule.rested())
    }
}
