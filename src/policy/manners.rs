//! Limits beyond what a site asks for: a gap that grows with its latency, and pauses after refusals. Built by `config`. Pure.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use super::Budget;

/// Limits of a host besides its crawl delay. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manners {
    pub adaptive: Option<Adaptive>,
    pub breaker: Option<Breaker>,
    /// The budget of the host.
    pub budget: Option<Budget>,
    /// Minimum time until a page is fetched again.
    pub min_revisit: Option<Duration>,
}

/// Makes the gap grow with the host's latency. Kept small, as every permit contains one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// Gap as a multiple of the latency, in hundredths.
    factor: NonZeroU32,
    /// Bounds of the gap, in milliseconds.
    min: u32,
    max: u32,
}

/// Pauses a host that refuses requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Number of refusals in a row.
    pub after: NonZeroU32,
    pub pause: Duration,
}

impl Adaptive {
    /// Creates the settings. `factor`: in hundredths.
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

    /// The gap between two starts. `latency`: zero if there was no answer yet.
    pub fn gap(&self, latency: Duration) -> Duration {
        let gap = latency.saturating_mul(self.factor.get()) / 100;
        gap.min(self.max()).max(self.min()).max(LEAST_GAP)
    }
}

impl fmt::Display for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, [min, max]) = (self.factor(), [self.min(), self.max()].map(|bound| bound.as_secs_f64()));
        write!(f, "one request every {factor} times the host's latency, {min} to {max} s")
    }
}

impl fmt::Display for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, pause } = self;
        write!(f, "paused for {} s after {after} refusals in a row", pause.as_secs_f64())
    }
}

/// Whether an answer is a refusal, by its status and fields: 403, 429, 503, and challenge pages. `field` looks up a field of its head.
pub fn turns_away<V: AsRef<[u8]>>(status: u16, field: impl Fn(&'static str) -> Option<V>) -> bool {
    matches!(status, 403 | 429 | 503) || challenge(field).is_some()
}

/// The field that marks an answer as a challenge, if it has one.
pub fn challenge<V: AsRef<[u8]>>(field: impl Fn(&'static str) -> Option<V>) -> Option<&'static str> {
    let says = |&&(name, value): &&(&'static str, &str)| {
        field(name).is_some_and(|found| found.as_ref().trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
    };
    CHALLENGES.iter().find(says).map(|(name, _)| *name)
}

/// The fields by which Cloudflare and AWS WAF mark challenges, which may have any status.
const CHALLENGES: [(&str, &str); 3] =
    [("cf-mitigated", "challenge"), ("x-amzn-waf-action", "challenge"), ("x-amzn-waf-action", "captcha")];
/// Minimum gap, so that requests start one at a time even before the first answer.
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
    fn refusing_answers_are_recognised() {
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
