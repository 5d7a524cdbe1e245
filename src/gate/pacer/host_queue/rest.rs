//! A queue exists only while requests need it: before and after, what it owes is a few numbers.

use super::super::rest::Rest;
use super::{HostQueue, PacerShared};
use crate::policy::PaceKey;
use crate::policy::pace::{LastStarts, Schedule};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl HostQueue {
    /// The queue of a host, with its group, by what this process has kept.
    pub(in crate::gate::pacer) fn of(key: PaceKey, rest: &Rest, shared: Arc<PacerShared>) -> Self {
        let of = |(delay, schedule)| Arc::new(Self::new(schedule, key.of_group(delay), None, shared.clone()));
        let groups = rest.group().into_iter().map(of).collect();
        let mut queue = Self::new(rest.host(), key.clone(), None, shared.clone());
        queue.groups = Mutex::new(groups);
        queue
    }

    /// The queue of a new key. Restores an earlier process's debt. `before`: the last starts to keep a distance from.
    pub(in crate::gate::pacer) fn begin(key: PaceKey, before: LastStarts, shared: Arc<PacerShared>) -> Self {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let debts = shared.debts.as_ref().and_then(|debts| debts.machine());
        if let Some(debt) = debts.and_then(|debts| debts.debt(debts.id(&key.to_string()), now)) {
            schedule.restore(now, debt);
        }
        schedule.adopt(before);
        Self::new(schedule, key, None, shared)
    }

    /// What the queue owes, if nobody uses it and it knows no more. `id`: the key's hash.
    pub(in crate::gate::pacer) fn rest(self: &Arc<Self>, now: Instant, id: u64) -> Option<Rest> {
        let host = self.rested(now)?;
        let groups = self.groups.lock();
        // The queue alone knows when a guest last came.
        let knows_more =
            groups.len() > 1 || self.guests.get().is_some() || self.clamp_logged.load(Ordering::Relaxed) > 0;
        if knows_more || self.beside.get().is_some_and(|beside| !beside.is_idle(now)) {
            return None;
        }
        // Its delay is part of its key.
        let of_group = |group: &Arc<Self>| Some((group.rested(now)?.0, group.key.group()?));
        let group = groups.first().map_or(Some(None), |group| of_group(group).map(Some))?;
        let has_server = self.shared.fleet.as_ref().is_some_and(|fleet| fleet.has_server());
        let mut rest = Rest::new(id, host, group)?;
        rest.key = has_server.then(|| Box::new(self.key.clone()));
        Some(rest)
    }

    /// Whether nobody uses the queue, and it owes nothing.
    pub(in crate::gate::pacer) fn is_idle(self: &Arc<Self>, now: Instant) -> bool {
        let is_idle = |queue: &Arc<Self>| queue.is_idle(now);
        Arc::strong_count(self) == 1
            && self.state.lock().schedule.is_idle(now)
            && self.groups.lock().iter().all(is_idle)
            && self.beside.get().is_none_or(is_idle)
    }

    fn rested(self: &Arc<Self>, now: Instant) -> Option<(Instant, Duration)> {
        self.state.lock().schedule.rested(now).filter(|_| Arc::strong_count(self) == 1)
    }
}
