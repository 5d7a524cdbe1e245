//! The debt of a key: the longest gap, the backoff and the hold that later starts have to keep, also after a restart.

use super::terms::SlotRequest;
use super::{Debt, LastStarts, Observed, Schedule, terms};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Until when the host is paused after too many consecutive refusals.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        let is_open = self.pauses_after.is_some_and(|after| self.observed.refusals >= after.get());
        self.last.hold.filter(|hold| is_open && *hold > now)
    }

    /// The longest gap in force: of the last starts, of waiting requests, of the backoff.
    pub fn longest_gap(&self) -> Duration {
        let head = self.wait_queue.as_ref().and_then(|wait_queue| wait_queue.head());
        let head = head.map_or(Duration::ZERO, |head| head.gap(self.observed.latency));
        self.delay().max(head).max(self.backoff())
    }

    /// Upper limit of a debt; a longer one comes from a wrong clock.
    pub fn longest_debt(&self) -> Duration {
        terms::MAX_BACKOFF.max(self.max_delay).min(terms::FAR)
    }

    /// The key's debt, to be kept over a restart.
    pub fn debt(&self, now: Instant) -> Option<Debt> {
        let until = self.owed_until()?;
        (until > now).then(|| Debt { until, backoff: self.backoff(), refusals: self.observed.refusals })
    }

    /// Remaining time of the debt.
    pub fn owed(&self, now: Instant) -> Duration {
        self.debt(now).map_or(Duration::ZERO, |debt| debt.until - now)
    }

    /// Adopts an earlier process's debt. A debt above one hour, or `max_crawl_delay` if longer, comes from a wrong clock, and the next
    /// request cuts it to that.
    pub fn restore(&mut self, now: Instant, debt: Debt) {
        self.last.hold = self.last.hold.max(Some(debt.until.min(now + terms::FAR)));
        self.observed.backoff = self.observed.backoff.max(debt.backoff.min(terms::MAX_BACKOFF));
        self.observed.refusals = self.observed.refusals.max(debt.refusals);
        self.pushed_back();
    }

    /// Whether the schedule can be dropped without loss. Backoff and refusals are kept for an hour after the last start.
    pub fn is_idle(&self, now: Instant) -> bool {
        let memory = if self.observed().is_calm() { Duration::ZERO } else { terms::MAX_BACKOFF };
        let until = self.owed_until().max(self.last.last_fetch.map(|fetch| fetch + self.delay()));
        self.is_unused() && until.is_none_or(|until| until + memory <= now)
    }

    /// Whether no request waits or is in flight.
    pub fn is_unused(&self) -> bool {
        self.in_flight == 0 && self.wait_queue.is_none()
    }

    /// The last start and the gap, if nothing else is known, as of most schedules that nobody uses.
    pub fn rested(&self, now: Instant) -> Option<(Instant, Duration)> {
        let LastStarts { last_start, last_fetch, hold } = self.last;
        let (start, gap) = (last_start?, self.delay());
        let is_all = self.is_unused()
            && self.observed() == Observed::default()
            && last_fetch <= last_start
            && hold.is_none_or(|hold| hold <= now)
            && (gap.is_zero() || self.longest.is_some_and(|(_, until)| until == start + gap));
        is_all.then_some((start, gap))
    }

    /// The schedule that has rested.
    pub fn of(start: Instant, gap: Duration) -> Self {
        let longest = SlotRequest { delay: gap, adaptive: None, max_concurrent: 1, first_fetch: false };
        let last = LastStarts { last_start: Some(start), ..LastStarts::default() };
        Self { last, longest: Some((longest, start + gap)), ..Self::default() }
    }

    /// A shorter gap does not replace a longer one still owed.
    pub(super) fn owe_gap(&mut self, start: Instant, demand: SlotRequest) {
        let gap = demand.gap(self.observed.latency);
        if gap >= self.delay() || self.longest.is_none_or(|(_, until)| until <= start) {
            self.longest = Some((demand, start + gap));
        }
    }

    /// The longest gap still owed, by the host's current latency.
    #[inline]
    pub(super) fn delay(&self) -> Duration {
        self.longest.map_or(Duration::ZERO, |(demand, _)| demand.gap(self.observed.latency))
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
