//! The debt of a key: the longest gap, the backoff and the hold that later starts have to keep, also after a restart.

use super::terms::SlotRequest;
use super::{Debt, LastStarts, Observed, Schedule, backoff, terms};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// What an unused schedule knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rested {
    pub last: LastStarts,
    /// The longest gap, without the backoff, and until when no shorter one replaces it.
    pub gap: Duration,
    pub gap_until: Option<Instant>,
    pub observed: Observed,
    pub pauses_after: Option<NonZeroU32>,
}

impl Rested {
    /// Until when later requests depend on it. Backoff and refusals are kept for an hour after the last start.
    pub fn until(&self) -> Option<Instant> {
        let LastStarts { last_start, last_fetch, hold } = self.last;
        let Observed { backoff, .. } = self.observed;
        let memory = if self.observed.is_calm() { Duration::ZERO } else { backoff::MAX };
        let starts =
            last_start.map(|start| start + self.gap.max(backoff)).max(last_fetch.map(|fetch| fetch + self.gap));
        starts.max(hold).map(|until| until + memory)
    }
}

impl<W> Schedule<W> {
    /// Until when the host is paused after too many consecutive refusals.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        let is_open = self.pauses_after.is_some_and(|after| self.backoff.refusals >= after.get());
        self.last.hold.filter(|hold| is_open && *hold > now)
    }

    /// The longest gap in force: of the last starts, of waiting requests, of the backoff.
    pub fn longest_gap(&self) -> Duration {
        let head = self.wait_queue.as_ref().and_then(|wait_queue| wait_queue.head());
        let head = head.map_or(Duration::ZERO, |head| head.gap(self.latency));
        self.delay().max(head).max(self.backoff())
    }

    /// Upper limit of a debt; a longer one comes from a wrong clock.
    pub fn longest_debt(&self) -> Duration {
        backoff::MAX.max(self.max_delay).min(terms::FAR)
    }

    /// The key's debt, to be kept over a restart.
    pub fn debt(&self, now: Instant) -> Option<Debt> {
        let until = self.owed_until()?;
        (until > now).then(|| Debt { until, backoff: self.backoff(), refusals: self.backoff.refusals })
    }

    /// Remaining time of the debt.
    pub fn owed(&self, now: Instant) -> Duration {
        self.debt(now).map_or(Duration::ZERO, |debt| debt.until - now)
    }

    /// Adopts an earlier process's debt. A debt above one hour, or `max_crawl_delay` if longer, comes from a wrong clock, and the next
    /// request cuts it to that.
    pub fn restore(&mut self, now: Instant, debt: Debt) {
        self.last.hold = self.last.hold.max(Some(debt.until.min(now + terms::FAR)));
        self.backoff.restore(debt.backoff, debt.refusals);
        self.pushed_back();
    }

    /// Whether the schedule can be dropped without loss.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.is_unused() && self.rested().until().is_none_or(|until| until <= now)
    }

    /// Whether no request waits or is in flight.
    pub fn is_unused(&self) -> bool {
        self.in_flight == 0 && self.wait_queue.is_none()
    }

    /// What an unused schedule knows: all that [`of`](Self::of) needs.
    pub fn rested(&self) -> Rested {
        let Self { last, pauses_after, longest_until: gap_until, .. } = *self;
        Rested { last, gap: self.delay(), gap_until, observed: self.observed(), pauses_after }
    }

    /// The schedule that has rested.
    pub fn of(rested: Rested) -> Self {
        let Rested { last, gap, gap_until, observed, pauses_after } = rested;
        let mut schedule = Self { last, latency: observed.latency, pauses_after, ..Self::default() };
        schedule.backoff.restore(observed.backoff, observed.refusals);
        let longest = SlotRequest { delay: gap, adaptive: None, max_concurrent: 1, first_fetch: false };
        (schedule.longest, schedule.longest_until) = (Some(longest), gap_until);
        schedule
    }

    /// A shorter gap does not replace a longer one still owed.
    pub(super) fn owe_gap(&mut self, start: Instant, demand: SlotRequest) {
        let gap = demand.gap(self.latency);
        if gap >= self.delay() || self.longest_until.is_none_or(|until| until <= start) {
            (self.longest, self.longest_until) = (Some(demand), Some(start + gap));
        }
    }

    /// The longest gap still owed, by the host's current latency.
    #[inline]
    pub(super) fn delay(&self) -> Duration {
        self.longest.map_or(Duration::ZERO, |demand| demand.gap(self.latency))
    }

    /// Limits stored instants: a longer hold comes from a wrong clock.
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
