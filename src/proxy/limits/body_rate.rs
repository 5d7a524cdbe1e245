//! Minimum rate of a body (`limits.min_rate`): without it, a very slow body could hold its connections and its slot forever. Pure.

use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a body in the current window.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    since: Instant,
    bytes: u64,
}

/// The minimum rate.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    /// Bytes a second, averaged over `over`.
    pub rate: u64,
    pub over: Duration,
}

impl Meter {
    /// Starts the first window.
    pub fn begin(now: Instant) -> Self {
        Meter { since: now, bytes: 0 }
    }

    /// Adds a piece. Returns false if the rate over the last window is below the minimum.
    pub fn moved(&mut self, now: Instant, bytes: usize, min_rate: MinRate) -> bool {
        self.bytes += bytes as u64;
        let passed = now - self.since;
        if passed < min_rate.over {
            return true;
        }
        let enough = u128::from(self.bytes) * 1000 >= u128::from(min_rate.rate) * passed.as_millis();
        *self = Self::begin(now);
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RATE: MinRate = MinRate { rate: 10, over: Duration::from_secs(60) };

    /// Adds a piece after each pause until the rate is too low.
    fn cut_after(bytes: usize, pause: Duration) -> Option<Duration> {
        let began = Instant::now();
        let mut meter = Meter::begin(began);
        let times = (1..1000).map(|number| pause * number);
        times.into_iter().find(|&passed| !meter.moved(began + passed, bytes, MIN_RATE))
    }

    #[test]
    fn a_body_that_drips_is_cut_off_after_the_window() {
        assert_eq!(cut_after(1, Duration::from_secs(1)), Some(Duration::from_secs(60)));
        assert_eq!(cut_after(599, Duration::from_secs(60)), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_slow_but_steady_body_is_not_cut_off() {
        assert_eq!(cut_after(10, Duration::from_secs(1)), None);
        assert_eq!(cut_after(600, Duration::from_secs(59)), None);
        assert_eq!(cut_after(1000, Duration::from_secs(90)), None);
    }

    #[test]
    fn a_fast_start_does_not_count_for_ever() {
        let began = Instant::now();
        let mut meter = Meter::begin(began);
        assert!(meter.moved(began, 1 << 20, MIN_RATE));
        assert!(meter.moved(began + Duration::from_secs(60), 1, MIN_RATE));
        assert!(!meter.moved(began + Duration::from_secs(120), 1, MIN_RATE));
    }

    #[test]
    fn at_a_rate_of_zero_nothing_is_too_slow() {
        let began = Instant::now();
        let min_rate = MinRate { rate: 0, ..MIN_RATE };
        assert!(Meter::begin(began).moved(began + Duration::from_secs(3600), 0, min_rate));
    }
}
