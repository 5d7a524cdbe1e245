//! A host's observed behaviour (latency, consecutive refusals), as input to its pace.

use std::time::Duration;

/// Zero: no answer yet, or unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// Time to first byte, smoothed.
    pub latency: Duration,
    /// Consecutive refusals.
    pub refusals: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::Schedule;

    #[test]
    fn the_latency_is_smoothed_and_errors_never_shorten_it() {
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
            assert_eq!(schedule.observed().latency, Duration::from_millis(latency), "after one of {after} ms");
        }
    }
}
