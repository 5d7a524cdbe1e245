//! What comes of a start: when it leaves, when its answer begins, how it ends.

use super::{Observed, PaceOutcome, Schedule, Slot};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Corrects the time of a start to when it leaves. `is_gone`: it has left. True: the next has waited for that.
    pub fn left(&mut self, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        let mark = self.last.of(slot.first_fetch);
        *mark = (*mark).max(Some(at));
        self.pushed_back();
        is_gone && self.pending.end(slot.number)
    }

    /// What the host's answers have come to.
    pub fn observed(&self) -> Observed {
        Observed { latency: self.latency, refusals: self.backoff.refusals() }
    }

    /// The answer to a request that keeps the host's [`adaptive`](super::Terms::adaptive) gap began after this time. `may_shorten`:
    /// it is one to go by; errors are quick.
    pub fn answered(&mut self, after: Duration, may_shorten: bool) {
        let mut observed = self.observed();
        observed.answered(after, may_shorten);
        self.latency = observed.latency;
        self.pushed_back();
    }

    /// The request goes on, and others need not wait for it: it is none in flight any more.
    pub fn pass_on(&mut self, slot: &mut Slot) {
        self.in_flight -= u32::from(slot.in_flight);
        (slot.in_flight, slot.exclusive) = (false, false);
    }

    /// Takes the slot of a request that is over. `now` is asked for only if it matters.
    pub fn finished(&mut self, now: impl Fn() -> Instant, slot: Slot, outcome: PaceOutcome) {
        self.in_flight -= u32::from(slot.in_flight);
        self.let_go(&slot);
        self.pending.end(slot.number);
        self.learn(now, &slot, outcome);
    }

    /// What is known of a request before it is over; it is taken back as a [`Failure`](PaceOutcome::Failure) then, which says nothing.
    pub fn learn(&mut self, now: impl Fn() -> Instant, slot: &Slot, outcome: PaceOutcome) {
        match outcome {
            PaceOutcome::Success => self.backoff.succeeded(slot.number),
            PaceOutcome::TurnedAway if self.breaker.is_none() => self.backoff.succeeded(slot.number),
            PaceOutcome::TurnedAway => self.turned_away(&now, slot),
            PaceOutcome::Backoff { retry_after } => {
                self.turned_away(&now, slot);
                let gap = self.delay().max(slot.group_gap);
                let hold = self.backoff.refused(slot.number, self.starts, retry_after, gap, self.max_delay);
                self.last.hold = self.last.hold.max(hold.map(|hold| now() + hold));
                self.pushed_back();
            }
            PaceOutcome::Failure => {}
            // A start nobody made binds nobody, unless one has come after it.
            PaceOutcome::Unused if slot.number == self.starts => *self.last.of(slot.first_fetch) = slot.before,
            PaceOutcome::Unused => {}
        }
    }

    /// The host is left alone if that were too many in a row.
    fn turned_away(&mut self, now: &impl Fn() -> Instant, slot: &Slot) {
        let Some(breaker) = self.breaker else { return };
        if let Some(pause) =
            self.backoff.turned_away(slot.number, self.starts, breaker, self.delay().max(slot.group_gap))
        {
            self.last.hold = self.last.hold.max(Some(now() + pause));
            self.pushed_back();
        }
    }
}
