//! The events after a start: the request leaves, its answer begins, the request ends.

use super::{Observed, PaceOutcome, Schedule, Slot};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Corrects the time of a start to `at`, when its request leaves. `is_gone`: the request has left completely. Returns true if the next
    /// start waited for this.
    pub fn left(&mut self, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        let gap = self.delay();
        let mark = self.last.of(slot.is_first_fetch);
        let (before, start) = (*mark, mark.map_or(at, |before| before.max(at)));
        *mark = Some(start);
        if let Some((_, until)) = &mut self.longest
            && before.is_some_and(|before| *until == before + gap)
        {
            *until = start + gap;
        }
        self.pushed_back();
        is_gone && self.pending.take_if(|pending| *pending == slot.number).is_some()
    }

    /// The observations of the answers received so far.
    pub fn observed(&self) -> Observed {
        self.observed
    }

    /// Adds the latency of an answer to a request with an [`adaptive`](super::Terms::adaptive) gap to the host's moving average, with half
    /// the weight. Unless `may_shorten`, the answer cannot lower the latency, as errors are quick.
    pub fn answered(&mut self, after: Duration, may_shorten: bool) {
        let latency = &mut self.observed.latency;
        let smoothed = if latency.is_zero() { after } else { *latency / 2 + after / 2 };
        if may_shorten || smoothed > *latency {
            *latency = smoothed;
        }
        self.pushed_back();
    }

    /// Stops counting a request as in flight, although it continues.
    pub fn pass_on(&mut self, slot: &mut Slot) {
        self.in_flight -= u32::from(slot.is_in_flight);
        (slot.is_in_flight, slot.is_exclusive) = (false, false);
    }

    /// Takes back the slot of a request that has ended. `now` is called only if needed.
    pub fn finished(&mut self, now: impl Fn() -> Instant, slot: Slot, outcome: PaceOutcome) {
        self.in_flight -= u32::from(slot.is_in_flight);
        self.let_go(&slot);
        self.pending.take_if(|pending| *pending == slot.number);
        self.learn(now, &slot, outcome);
    }

    /// Applies an outcome before the request ends. The slot is later returned with [`Failure`](PaceOutcome::Failure), without effect.
    pub fn learn(&mut self, now: impl Fn() -> Instant, slot: &Slot, outcome: PaceOutcome) {
        // Until now, forecasts assumed that this request would succeed and so halve the backoff.
        if self.learned < slot.number && !self.observed.backoff.is_zero() {
            self.pushed_back();
        }
        self.learned = self.learned.max(slot.number);
        match outcome {
            PaceOutcome::Success => self.succeeded(slot),
            PaceOutcome::TurnedAway if self.breaker.is_none() => self.succeeded(slot),
            PaceOutcome::TurnedAway => self.turned_away(&now, slot),
            PaceOutcome::Backoff { retry_after } => self.refused(&now, slot, retry_after),
            PaceOutcome::Failure => {}
            // Undoes the start of a request that was never sent, unless another start has followed.
            PaceOutcome::Unused if slot.number == self.starts => *self.last.of(slot.is_first_fetch) = slot.before,
            PaceOutcome::Unused => {}
        }
    }
}
