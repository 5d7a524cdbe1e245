//! The debt of a key: the longest gap, the backoff and the hold that delay later starts.

use super::terms::{FAR, MAX_BACKOFF, SlotRequest, Terms};
use super::{Observed, Schedule};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// The end of the pause after too many consecutive refusals. `None`: the host is not paused.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        let is_open = self.pauses_after.is_some_and(|after| self.observed.refusals >= after.get());
        self.last.hold.filter(|hold| is_open && *hold > now)
    }

    /// The longest gap in force: the gap owed by the last starts, the gap of the next waiting request, or the backoff.
    pub fn longest_gap(&self) -> Duration {
        let head = self.wait_queue.as_ref().and_then(|wait_queue| wait_queue.head());
        let head = head.map_or(Duration::ZERO, |head| head.gap(self.observed.latency));
        self.delay().max(head).max(self.backoff())
    }

    /// Upper limit of a debt. A longer debt comes from a wrong clock.
    pub fn longest_debt(&self) -> Duration {
        MAX_BACKOFF.max(self.max_delay).min(FAR)
    }

    /// The end of the debt: the end of the longest gap or backoff, or of the hold if that is later. `None`: nothing is owed.
    pub fn owed(&self, now: Instant) -> Option<Instant> {
        let gap = self.delay().max(self.backoff());
        let until = self.last.last_start.map(|start| start + gap).max(self.last.hold);
        until.filter(|until| *until > now)
    }

    /// Holds all starts until `until`, and adopts the backoff and refusals: the host asked for time when it answered a request of another
    /// schedule.
    pub fn hold(&mut self, until: Instant, Observed { backoff, refusals, .. }: Observed) {
        self.last.hold = self.last.hold.max(Some(until));
        self.observed.backoff = self.observed.backoff.max(backoff);
        self.observed.refusals = self.observed.refusals.max(refusals);
        self.pushed_back();
    }

    /// Whether no request waits or is in flight.
    pub fn is_unused(&self) -> bool {
        self.in_flight == 0 && self.wait_queue.is_none()
    }

    /// Whether the longest gap owed follows the last start, so that the last start and this gap are the whole debt.
    pub fn owes_one_gap(&self) -> bool {
        let (start, gap) = (self.last.last_start, self.delay());
        gap.is_zero() || self.longest.is_some_and(|(_, until)| start.is_some_and(|start| until == start + gap))
    }

    /// Adopts the end of the longest gap that a dropped schedule or another process owes, unless this schedule has started a request.
    pub fn adopt_owed(&mut self, until: Instant) {
        if let (Some(start), None) = (self.last.last_start, self.longest) {
            let delay = until.duration_since(start);
            self.longest = Some((SlotRequest { delay, adaptive: None, max_concurrent: 1, first_fetch: false }, until));
        }
    }

    /// Records a start that took no slot, so that the next start keeps its distance.
    pub fn record_start(&mut self, at: Instant, terms: &Terms) {
        // In report mode only renewals of robots.txt wait in the queue. Requests that keep no distance would delay them for ever.
        if self.wait_queue.is_none() {
            self.owe_gap(at, SlotRequest::from(terms));
            self.starts += 1;
            self.last.last_start = self.last.last_start.max(Some(at));
        }
    }

    /// Records the gap that a start owes. A shorter gap does not replace a longer gap that is still owed.
    pub(super) fn owe_gap(&mut self, start: Instant, demand: SlotRequest) {
        let gap = demand.gap(self.observed.latency);
        if gap >= self.delay() || self.longest.is_none_or(|(_, until)| until <= start) {
            self.longest = Some((demand, start + gap));
        }
    }

    /// The longest gap still owed, computed with the host's current latency.
    #[inline]
    pub(super) fn delay(&self) -> Duration {
        self.longest.map_or(Duration::ZERO, |(demand, _)| demand.gap(self.observed.latency))
    }
}
