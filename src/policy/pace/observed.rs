//! What a host's answers have shown (latency, refusals in a row), as input to `manners`.

use std::time::Duration;

/// Zero where nothing has been answered, or nothing is made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// To the first byte of an answer, smoothed.
    pub latency: Duration,
    /// Answers in a row that turned requests away.
    pub refusals: u32,
}

impl Observed {
    /// An answer began after this time. It counts for half of the new latency, unless that would shorten it
    /// and the answer may not (`may_shorten`): errors are quick.
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
