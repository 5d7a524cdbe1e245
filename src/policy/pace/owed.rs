//! What a key owes: the longest gap, the backoff and the hold that starts have to keep, over a restart as well.

use super::terms::SlotRequest;
use super::{Debt, Schedule, backoff, terms};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Until when the host is left alone, as it has turned away too many in a row.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        let is_open = self.pauses_after.is_some_and(|after| self.backoff.refusals() >= after.get());
        self.last.hold.filter(|hold| is_open && *hold > now)
    }

    /// The longest gap that is in force: of the last starts, of waiting requests, of the backoff.
    pub fn longest_gap(&self) -> Duration {
        let head = self.wait_queue.as_ref().and_then(|wait_queue| wait_queue.head());
        let head = head.map_or(Duration::ZERO, |head| head.gap(self.latency));
        self.delay().max(head).max(self.backoff())
    }

    /// Nobody owes more; what does is a clock gone wrong.
    pub fn longest_debt(&self) -> Duration {
        backoff::MAX.max(self.max_delay).min(terms::FAR)
    }

    /// What the key still owes, to be kept over a restart.
    pub fn debt(&self, now: Instant) -> Option<Debt> {
        let until = self.owed_until()?;
        (until > now).then(|| Debt { until, backoff: self.backoff(), refusals: self.backoff.refusals() })
    }

    /// For how long.
    pub fn owed(&self, now: Instant) -> Duration {
        self.debt(now).map_or(Duration::ZERO, |debt| debt.until - now)
    }

    /// Takes up what an earlier process owed. More than an hour, or `max_crawl_delay` if that is longer, is a clock gone
    /// wrong, and is cut to that by the next request.
    pub fn restore(&mut self, now: Instant, debt: Debt) {
        self.last.hold = self.last.hold.max(Some(debt.until.min(now + terms::FAR)));
        self.backoff.restore(debt.backoff, debt.refusals);
        self.pushed_back();
    }

    /// Whether nothing is lost with the schedule. A backoff, and what led to it, is remembered for an hour after the last start.
    pub fn is_idle(&self, now: Instant) -> bool {
        let is_calm = self.backoff().is_zero() && self.backoff.refusals() == 0;
        let memory = if is_calm { Duration::ZERO } else { backoff::MAX };
        let fetched = self.last.last_fetch.map(|at| at + self.delay());
        let owed = self.owed_until().max(fetched);
        self.in_flight == 0 && self.wait_queue.is_none() && owed.is_none_or(|until| until + memory <= now)
    }

    /// A shorter gap does not make a longer one forgotten.
    pub(super) fn owe_gap(&mut self, start: Instant, demand: SlotRequest) {
        let gap = demand.gap(self.latency);
        if gap >= self.delay() || self.longest_until.is_none_or(|until| until <= start) {
            (self.longest, self.longest_until) = (Some(demand), Some(start + gap));
        }
    }

    /// The longest gap that is still owed, by what the host's latency is now.
    #[inline]
    pub(super) fn delay(&self) -> Duration {
        self.longest.map_or(Duration::ZERO, |demand| demand.gap(self.latency))
    }

    /// Stored instants are not trusted beyond their sense: a longer hold is a clock gone wrong.
    pub(super) fn clamp_hold(&mut self, now: Instant) {
        let most = self.longest_debt();
        if let Some(hold) = &mut self.last.hold {
            *hold = (*hold).min(now + most);
        }
    }

    fn owed_until(&self) -> Option<Instant> {
        let gap = self.delay().max(self.backoff());
        self.last.last_start.map(|start| start + gap).max(self.last.hold)
    }
}
