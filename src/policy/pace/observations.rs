//! Observations of a host's answers, as input to its pace.

use std::time::Duration;

/// Observations of a host. A field is zero if nothing was observed yet, or if it is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// The backoff after 429 and 503 answers.
    pub backoff: Duration,
    /// Time to first byte of an answer, smoothed.
    pub latency: Duration,
    /// Consecutive refusals.
    pub refusals: u32,
}

impl Observed {
    /// Whether there is no backoff, and no refusal since the last success.
    pub fn is_calm(&self) -> bool {
        self.backoff.is_zero() && self.refusals == 0
    }

    /// Merges these observations with those of the fleet, `heard`: keeps the fields that have changed here since `seen`, and takes the
    /// others from `heard`.
    pub fn told(self, seen: Self, heard: Self) -> Self {
        Self {
            backoff: if self.backoff == seen.backoff { heard.backoff } else { self.backoff },
            latency: if self.latency == seen.latency { heard.latency } else { self.latency },
            refusals: if self.refusals == seen.refusals { heard.refusals } else { self.refusals },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::Schedule;

    #[test]
    fn latency_is_smoothed_and_not_shortened_by_errors() {
        let mut schedule = <Schedule>::default();
        for (after, is_good, latency) in [
            (400, true, 400),
            (200, true, 300),
            (20, false, 300),
            (700, false, 500),
            (100, true, 300),
            (300, true, 300),
        ] {
            schedule.answered(Duration::from_millis(after), is_good);
            assert_eq!(schedule.observed().latency, Duration::from_millis(latency), "after an answer in {after} ms");
        }
    }
}
