//! What a host owes while nobody asks for it: a few numbers, from which a queue is made anew.

use super::host_queue::HostSchedule;
use crate::policy::PaceKey;
use std::time::{Duration, Instant};

/// One unused queue.
pub(super) struct Rest {
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
    pub fn new(id: u64, host: (Instant, Duration), group: Option<(Instant, Duration)>) -> Option<Self> {
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

    pub fn host(&self) -> HostSchedule {
        HostSchedule::of(self.start, MILLI * self.gap)
    }

    /// The delay and the schedule of its group.
    pub fn group(&self) -> Option<(Duration, HostSchedule)> {
        let delay = MILLI * self.group;
        (self.group > 0).then(|| (delay, HostSchedule::of(self.start, delay)))
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
        assert_eq!((host.until() - now, host.group().is_none()), (Duration::from_millis(2), true), "rounded up");
        let both = rest((now, Duration::ZERO), Some((now + TOGETHER, secs(50)))).unwrap();
        assert_eq!(both.until(), now + TOGETHER + secs(50));
        assert_eq!(both.group().map(|(delay, _)| delay), Some(secs(50)));
        assert_eq!(both.host().rested(now + TOGETHER), Some((now + TOGETHER, Duration::ZERO)));
        let uncommon = [(now + secs(1), secs(50)), (now, Duration::from_nanos(50_000_000_100))];
        assert!(uncommon.iter().all(|group| rest((now, secs(100)), Some(*group)).is_none()));
    }
}
