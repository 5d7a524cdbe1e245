//! A key that a fleet shares: where its turns come from, and what the others know of it.

use super::pending_start::PendingStart;
use super::terms::SlotRequest;
use super::{LastStarts, Observed, Schedule, Slot, TurnSource};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Tells where its turns come from.
    pub fn follow(&mut self, source: TurnSource) {
        if self.source != source {
            self.source = source;
            self.pushed_back();
        }
    }

    /// Whether the fleet has yet to say how the key stands.
    pub fn is_unknown(&self) -> bool {
        matches!(self.source, TurnSource::Fleet { known: false, .. })
    }

    /// Somebody waits while another instance may start.
    pub fn is_behind_another(&self) -> bool {
        self.wait_queue.is_some() && matches!(self.source, TurnSource::Fleet { leased: false, .. })
    }

    /// Somebody waits for the fleet's lease: the gap that is to be kept.
    pub fn wants_lease(&self) -> Option<Duration> {
        let head = self.wait_queue.as_ref()?.head()?;
        (!self.may_turn(head)).then(|| head.gap(self.latency).min(self.max_delay))
    }

    /// When the next waiting request is due.
    pub fn head_due(&self) -> Option<Instant> {
        self.due(self.wait_queue.as_ref()?.head()?).max(self.source.reserved())
    }

    /// The next waiting request, if nothing but its turn is missing: the gap that it is to keep, and whether it is the first fetch
    /// of a robots.txt.
    pub fn head_start(&self) -> Option<(Duration, bool)> {
        let head = self.wait_queue.as_ref()?.head()?;
        let is_ready = self.has_room(head) && !self.may_turn(head);
        is_ready.then(|| (head.gap(self.latency).max(self.backoff()), head.first_fetch))
    }

    /// What starts have to keep their distance from.
    pub fn last_starts(&self) -> LastStarts {
        self.last
    }

    /// Takes up what the fleet knows: starts that others have made, and the backoff in place of its own.
    pub fn adopt(&mut self, others: LastStarts, backoff: Duration) {
        let last = self.last.max(others);
        if self.last != last || self.backoff.delay() != backoff {
            if self.last.last_start != last.last_start
                && let PendingStart::Start(number) = self.pending
            {
                self.pending = PendingStart::Overtaken(number);
            }
            self.starts += u64::from(self.last != last);
            self.last = last;
            self.backoff.adopt(backoff, self.starts);
            self.pushed_back();
        }
    }

    /// Takes up what they have come to in the fleet.
    pub fn adopt_observed(&mut self, observed: Observed) {
        if self.observed() != observed {
            self.latency = observed.latency;
            self.backoff.adopt_refusals(observed.refusals);
            self.pushed_back();
        }
    }

    /// Whether a start that has not left yet may leave now: turns still come from where its own came from, and nothing has started
    /// since. `has_lease`: that of the fleet is ours.
    pub fn holds(&self, slot: &Slot, has_lease: bool) -> bool {
        let is_there = match (self.source, slot.shared) {
            (TurnSource::Own, _) => return true,
            (TurnSource::Fleet { .. }, true) => has_lease,
            (TurnSource::Fleet { .. }, false) => slot.gap.is_zero(),
            (TurnSource::Partitioned { .. }, is_shared) => !is_shared,
        };
        is_there && (slot.gap.is_zero() || self.pending != PendingStart::Overtaken(slot.number))
    }

    /// Unless it is the fleet's to give and not given.
    #[inline]
    pub(super) fn may_turn(&self, demand: SlotRequest) -> bool {
        self.source.is_leased() || !self.source.is_shared(demand, self.backoff())
    }
}
