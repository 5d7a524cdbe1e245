//! What an origin's 429 and 503 do to its pace, and when an origin that turns requests away is left alone.

use std::time::Duration;

use crate::policy::Breaker;

/// The most that a Retry-After is obeyed, and a backoff grows to.
pub(super) const MAX: Duration = Duration::from_secs(3600);
/// The first step where the host has no longer gap.
const FIRST: Duration = Duration::from_secs(1);
/// Halved below this it is over.
const LEAST: Duration = Duration::from_millis(100);

/// A gap of its own, growing with refusals and shrinking with successes.
#[derive(Debug, Clone, Default)]
pub(super) struct Backoff {
    delay: Duration,
    /// The newest start when it was last raised. Requests in flight together are refused together; they make one step,
    /// and their successes say nothing about the raised pace.
    raised_at: u64,
    /// Answers in a row that turned requests away.
    refusals: u32,
}

impl Backoff {
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// The request of that number was answered well.
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

    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// The request of that number was turned away, `starts` being the newest. `gap`: of the host's ordinary pace.
    ///
    /// Returns for how long from now nothing may start, if it is to be left alone. From then on one request goes at a time, as
    /// in any backoff: the first that is turned away begins another pause, and one that is not ends it all.
    pub fn turned_away(&mut self, number: u64, starts: u64, breaker: Breaker, gap: Duration) -> Option<Duration> {
        let Breaker { after, pause } = breaker;
        if self.refusals >= after.get() && number <= self.raised_at {
            // Under way since before the pause.
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

    /// The request of that number was answered with 429 or 503, `starts` being the newest. `gap` and `max_delay` are
    /// those of the host's ordinary pace.
    ///
    /// Returns for how long from now nothing may start: the answer may come long after the start that gaps are measured
    /// from. Retry-After may exceed `max_delay`, which bounds what a robots.txt may ask for at every request; this is
    /// the origin's word, once.
    pub fn refused(
        &mut self,
        number: u64,
        starts: u64,
        retry_after: Option<Duration>,
        gap: Duration,
        max_delay: Duration,
    ) -> Option<Duration> {
        let of_this_round = number > self.raised_at;
        // `Retry-After: 0` with a refusal is no advice.
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

    /// Takes up how many have been turned away in the whole fleet.
    pub fn adopt_refusals(&mut self, refusals: u32) {
        self.refusals = refusals;
    }

    /// Takes up the fleet's, `starts` being the newest. If it has been raised there, what has started here by now says
    /// nothing about it.
    pub fn adopt(&mut self, delay: Duration, starts: u64) {
        let delay = delay.min(MAX);
        if delay > self.delay {
            self.raised_at = starts;
        }
        self.delay = delay;
    }

    /// Takes up the backoff of an earlier process.
    pub fn restore(&mut self, delay: Duration, refusals: u32) {
        self.delay = self.delay.max(delay.min(MAX));
        self.refusals = self.refusals.max(refusals);
    }
}
