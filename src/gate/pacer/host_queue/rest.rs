//! A queue exists only while requests need it: before and after, what it owes is a few numbers.

use super::{HostQueue, PacerShared};
use crate::policy::PaceKey;
use crate::policy::pace::{LastStarts, Schedule};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One unused queue.
pub(in crate::gate::pacer) struct Rest {
    /// The key's hash.
    pub id: u64,
    /// Known in a fleet whose server may have to be told what is owed.
    pub key: Option<Box<PaceKey>>,
    /// The last start of the host and of its group.
    start: Instant,
    /// The host's gap, rounded up, and the delay of its group, in milliseconds; 0: none.
    gap: u32,
    group: u32,
}

impl Rest {
    /// `host`, `group`: last starts, with the gap and the delay. `None`: they do not fit into few numbers.
    fn new(id: u64, host: (Instant, Duration), group: Option<(Instant, Duration)>) -> Option<Self> {
        let (at, delay) = group.unwrap_or((host.0, Duration::ZERO));
        let start = host.0.max(at);
        let millis = |duration: Duration| u32::try_from(duration.as_nanos().div_ceil(1_000_000)).ok();
        let (gap, group) = (millis(host.1)?, millis(delay)?);
        // A delay is part of its group's key.
        let fits = host.0.min(at) + TOGETHER >= start && MILLI * group == delay;
        fits.then_some(Self { id, key: None, start, gap, group })
    }

    /// When nothing is owed any more.
    pub fn until(&self) -> Instant {
        self.start + MILLI * self.gap.max(self.group)
    }
}

impl HostQueue {
    /// The queue of a host, with its group, by what this process has kept.
    pub(in crate::gate::pacer) fn of(key: PaceKey, rest: &Rest, shared: Arc<PacerShared>) -> Self {
        let [host, group] = [rest.gap, rest.group].map(|millis| MILLI * millis);
        let with = |key, gap| Self::new(Schedule::of(rest.start, gap), key, None, shared.clone());
        let groups = (!group.is_zero()).then(|| Arc::new(with(key.of_group(group), group)));
        let mut queue = with(key, host);
        queue.groups.get_mut().extend(groups);
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
        let key = has_server.then(|| Box::new(self.key.clone()));
        Some(Rest { key, ..Rest::new(id, host, group)? })
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

const MILLI: Duration = Duration::from_millis(1);
/// A group's start is its host's: both are noted, one after the other.
const TOGETHER: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_into_few_numbers_comes_back_and_nothing_else_does() {
        let (now, secs) = (Instant::now(), Duration::from_secs);
        let rest = |host, group| Rest::new(7, host, group);
        let host = rest((now, Duration::from_nanos(1_500_001)), None).unwrap();
        assert_eq!((host.until() - now, host.group), (Duration::from_millis(2), 0), "rounded up");
        let both = rest((now, Duration::ZERO), Some((now + TOGETHER, secs(50)))).unwrap();
        assert_eq!(both.until(), now + TOGETHER + secs(50));
        assert_eq!((both.start, both.gap, both.group), (now + TOGETHER, 0, 50_000));
        let uncommon = [(now + secs(1), secs(50)), (now, Duration::from_nanos(50_000_000_100))];
        assert!(uncommon.iter().all(|group| rest((now, secs(100)), Some(*group)).is_none()));
    }
}
