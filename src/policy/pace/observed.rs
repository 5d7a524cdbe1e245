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

impl Observed {
    /// Counts an answer that began after this time, with half the weight. Unless `may_shorten`, the answer cannot lower the latency, as
    /// errors are quick.
    pub fn answered(&mut self, after: Duration, may_shorten: bool) {
        let smoothed = if self.latency.is_zero() { after } else { self.latency / 2 + after / 2 };
        if may_shorten || smoothed > self.latency {
            self.latency = smoothed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_smoothed_and_errors_never_shorten_it() {
        let mut observed = Observed::default();
        for (after, is_good, latency) in [
            (400, true, 400),
            (200, true, 300),
            (20, false, 300),
            (700, false, 500),
            (100, true, 300),
            (300, true, 300),
        ] {
            observed.answered(Duration::from_millis(after), is_good);
            assert_eq!(observed.latency, Duration::from_millis(latency), "after one of {after} ms");
        }
    }
}
