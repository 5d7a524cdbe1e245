//! How an origin's 429 and 503 answers slow its pace, and when a host that refuses requests is paused.

use super::gap::halved;
use super::terms::MAX_BACKOFF;
use super::{Schedule, Slot};
use crate::policy::Breaker;
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Counts a success.
    pub(super) fn succeeded(&mut self, slot: &Slot) {
        if slot.number > self.raised_at {
            self.observed.refusals = 0;
            self.observed.backoff = halved(self.observed.backoff);
        }
    }

    /// Counts a refusal, and pauses the host after too many in a row. After the pause one request goes at a time, as in any backoff. A
    /// refusal then begins another pause; any other answer resets the count.
    pub(super) fn turned_away(&mut self, now: &impl Fn() -> Instant, slot: &Slot) {
        let Some(Breaker { after, pause }) = self.breaker else { return };
        if self.observed.refusals >= after.get() && slot.number <= self.raised_at {
            // The request was in flight before the pause.
            return;
        }
        self.observed.refusals = self.observed.refusals.saturating_add(1);
        if self.observed.refusals >= after.get() {
            let gap = self.delay().max(slot.group_gap);
            self.raise(self.observed.backoff.max(gap).clamp(FIRST, MAX_BACKOFF), now, pause.min(MAX_BACKOFF));
        }
    }

    /// Counts a 429 or 503 answer. Nothing starts until the backoff after the answer has passed, as the answer may come long after the
    /// start of its request. Retry-After may exceed `max_crawl_delay`, as it applies once, not to every request.
    pub(super) fn refused(&mut self, now: &impl Fn() -> Instant, slot: &Slot, retry_after: Option<Duration>) {
        self.turned_away(now, slot);
        let (of_this_round, before) = (slot.number > self.raised_at, self.observed.backoff);
        // `Retry-After: 0` with a refusal is not useful advice.
        let advice = retry_after.filter(|wait| !wait.is_zero()).map(|wait| wait.min(MAX_BACKOFF));
        let raised = match advice {
            Some(wait) if of_this_round => wait,
            Some(wait) => wait.max(before),
            None if !of_this_round => return,
            None if before.is_zero() => self.delay().max(slot.group_gap).max(FIRST),
            None => before * 2,
        };
        let backoff = raised.min(self.max_delay).min(MAX_BACKOFF);
        self.raise(backoff, now, advice.unwrap_or(backoff));
    }

    fn raise(&mut self, backoff: Duration, now: &impl Fn() -> Instant, hold: Duration) {
        (self.observed.backoff, self.raised_at) = (backoff, self.starts);
        self.last.hold = self.last.hold.max(Some(now() + hold));
        self.pushed_back();
    }
}

/// The first backoff, if the host's gap is not longer.
const FIRST: Duration = Duration::from_secs(1);
