//! How an origin's 429 and 503 answers slow its pace, and when a host that refuses requests is paused.

use std::time::Duration;

use crate::policy::Breaker;

/// Upper limit for an obeyed Retry-After and for a backoff.
pub(super) const MAX: Duration = Duration::from_secs(3600);
/// The first step, if the host's gap is not longer.
const FIRST: Duration = Duration::from_secs(1);
/// A backoff halved below this ends.
const LEAST: Duration = Duration::from_millis(100);

/// The backoff gap, which grows with refusals and shrinks with successes.
#[derive(Debug, Clone, Default)]
pub(super) struct Backoff {
    pub delay: Duration,
    /// Number of the newest start at the last raise. Requests in flight together are refused together: they make one step, and their
    /// successes say nothing about the raised pace.
    raised_at: u64,
    /// Consecutive refusals.
    pub refusals: u32,
}

impl Backoff {
    /// Counts a success of the request of that number.
    pub fn succeeded(&mut self, number: u64) {
        if (self.delay.is_zero() && self.refusals == 0) || number <= self.raised_at {
            return;
        }
        self.refusals = 0;
        if !self.delay.is_zero() {
            self.delay /= 2;
            if self.delay < LEAST {
                self.delay = Duration::ZERO;
            }
        }
    }

    /// Counts a refusal of the request of that number. `starts`: the newest start. `gap`: of the host's ordinary pace.
    ///
    /// Returns the pause from now, if the host is to be paused. After it one request goes at a time, as in any backoff: a refusal begins
    /// another pause, and any other answer ends it all.
    pub fn turned_away(&mut self, number: u64, starts: u64, breaker: Breaker, gap: Duration) -> Option<Duration> {
        let Breaker { after, pause } = breaker;
        if self.refusals >= after.get() && number <= self.raised_at {
            // The request was in flight before the pause.
            return None;
        }
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals < after.get() {
            return None;
        }
        self.delay = self.delay.max(gap).clamp(FIRST, MAX);
        self.raised_at = starts;
        Some(pause.min(MAX))
    }

    /// Counts a 429 or 503 answer to the request of that number. `starts`: the newest start. `gap` and `max_delay`: of the host's
    /// ordinary pace.
    ///
    /// Returns for how long from now nothing may start: the answer may come long after the start that gaps are measured from. Retry-After
    /// may exceed `max_delay`, which limits what robots.txt asks for at every request; a Retry-After applies once.
    pub fn refused(
        &mut self,
        number: u64,
        starts: u64,
        retry_after: Option<Duration>,
        gap: Duration,
        max_delay: Duration,
    ) -> Option<Duration> {
        let of_this_round = number > self.raised_at;
        // `Retry-After: 0` with a refusal is not useful advice.
        let advice = retry_after.filter(|wait| !wait.is_zero()).map(|wait| wait.min(MAX));
        let raised = match advice {
            Some(wait) if of_this_round => wait,
            Some(wait) => wait.max(self.delay),
            None if !of_this_round => return None,
            None if self.delay.is_zero() => gap.max(FIRST),
            None => self.delay * 2,
        };
        self.delay = raised.min(max_delay).min(MAX);
        self.raised_at = starts;
        Some(advice.unwrap_or(self.delay))
    }

    /// Adopts the fleet's backoff. `starts`: the newest start. If the backoff was raised, starts until now say nothing about it.
    pub fn adopt(&mut self, delay: Duration, refusals: u32, starts: u64) {
        let delay = delay.min(MAX);
        if delay > self.delay {
            self.raised_at = starts;
        }
        (self.delay, self.refusals) = (delay, refusals);
    }

    /// Adopts the backoff of an earlier process.
    pub fn restore(&mut self, delay: Duration, refusals: u32) {
        self.delay = self.delay.max(delay.min(MAX));
        self.refusals = self.refusals.max(refusals);
    }
}
