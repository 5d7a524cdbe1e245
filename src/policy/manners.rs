//! Manners beyond what a site asks for: how its answers widen the gap between requests, and when it is left alone. Read by
//! `config`. Pure.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use super::Budget;

/// What is kept at a host beside its crawl-delay. `None`: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manners {
    pub adaptive: Option<Adaptive>,
    pub breaker: Option<Breaker>,
    /// Of the host.
    pub budget: Option<Budget>,
    /// Until a page is fetched again.
    pub min_revisit: Option<Duration>,
}

/// The gap grows with the host's own latency. Small, for every permit has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// Times the latency, in hundredths.
    factor: NonZeroU32,
    /// In milliseconds, as is the other.
    min: u32,
    max: u32,
}

/// A host that turns requests away is left alone for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// So many answers in a row.
    pub after: NonZeroU32,
    pub pause: Duration,
}

impl Adaptive {
    /// `factor`: in hundredths.
    pub fn new(factor: NonZeroU32, min: Duration, max: Duration) -> Self {
        let [min, max] = [min, max].map(|bound| u32::try_from(bound.as_millis()).unwrap_or(u32::MAX));
        Self { factor, min, max }
    }

    pub fn factor(&self) -> f64 {
        f64::from(self.factor.get()) / 100.0
    }

    pub fn min(&self) -> Duration {
        Duration::from_millis(self.min.into())
    }

    pub fn max(&self) -> Duration {
        Duration::from_millis(self.max.into())
    }

    /// Between two starts. `latency`: zero where nothing has been answered yet.
    pub fn gap(&self, latency: Duration) -> Duration {
        let gap = latency.saturating_mul(self.factor.get()) / 100;
        gap.min(self.max()).max(self.min()).max(LEAST_GAP)
    }
}

impl fmt::Display for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, [min, max]) = (self.factor(), [self.min(), self.max()].map(|bound| bound.as_secs_f64()));
        write!(f, "one request in {factor} times the host's latency, {min} to {max} s")
    }
}

impl fmt::Display for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, pause } = self;
        write!(f, "left alone for {} s after turning away {after} in a row", pause.as_secs_f64())
    }
}

/// Whether an answer turns its request away, by its status and what it says of itself: 403, 429, 503, and pages that ask who
/// is there. `field` finds a field of its head.
pub fn turns_away<V: AsRef<[u8]>>(status: u16, field: impl Fn(&'static str) -> Option<V>) -> bool {
    matches!(status, 403 | 429 | 503) || challenge(field).is_some()
}

/// The field by which an answer says that it is a challenge, if it does.
pub fn challenge<V: AsRef<[u8]>>(field: impl Fn(&'static str) -> Option<V>) -> Option<&'static str> {
    let says = |&&(name, value): &&(&'static str, &str)| {
        field(name).is_some_and(|found| found.as_ref().trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
    };
    CHALLENGES.iter().find(says).map(|(name, _)| *name)
}

/// What Cloudflare and AWS WAF say of a challenge, whatever its status.
const CHALLENGES: [(&str, &str); 3] =
    [("cf-mitigated", "challenge"), ("x-amzn-waf-action", "challenge"), ("x-amzn-waf-action", "captcha")];
/// So that there is one, and requests go one by one, before anything has been answered.
const LEAST_GAP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_gap_is_a_multiple_of_the_latency_within_bounds() {
        let adaptive = |factor, min, max| Adaptive::new(NonZeroU32::new(factor).unwrap(), ms(min), ms(max));
        for (factor, min, max, latency, gap) in [
            (500, 0, 30_000, 200, 1000),
            (500, 3000, 30_000, 200, 3000),
            (500, 0, 30_000, 60_000, 30_000),
            (50, 0, 30_000, 200, 100),
            (500, 0, 30_000, 0, 1),
            (500, 0, 0, 200, 1),
        ] {
            assert_eq!(adaptive(factor, min, max).gap(ms(latency)), ms(gap), "{factor} {min}-{max} {latency}");
        }
        assert_eq!(adaptive(u32::MAX, 0, 7).gap(Duration::MAX), ms(7), "nothing overflows");
    }

    #[test]
    fn an_answer_that_turns_away_says_so() {
        let none = |_| None::<&[u8]>;
        for (status, does) in [
            (200, false),
            (301, false),
            (401, false),
            (403, true),
            (404, false),
            (429, true),
            (500, false),
            (503, true),
        ] {
            assert_eq!(turns_away(status, none), does, "{status}");
        }
        for (name, value, does) in [
            ("cf-mitigated", "challenge", true),
            ("cf-mitigated", " Challenge ", true),
            ("cf-mitigated", "block", false),
            ("x-amzn-waf-action", "captcha", true),
            ("x-amzn-waf-action", "challenge", true),
            ("server", "challenge", false),
        ] {
            assert_eq!(turns_away(202, |asked| (asked == name).then_some(value)), does, "{name}: {value}");
        }
    }
}
