//! How long something took, each time: counted without a lock, by how long it was.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What has been counted so far.
#[derive(Debug)]
pub struct Histogram {
    /// In milliseconds, in their order.
    bounds: &'static [u64],
    /// By the first bound that was not exceeded; the last is for what exceeds all of them.
    counts: Box<[AtomicU64]>,
    /// In microseconds.
    sum: AtomicU64,
}

/// A reading of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Upper bounds in seconds, with how many are within each and exceed the one before. The last is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// In seconds.
    pub sum: f64,
}

/// For what takes a network: up to a minute.
impl Default for Histogram {
    fn default() -> Self {
        Self::new(&[1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000])
    }
}

impl Histogram {
    /// `bounds`: in milliseconds, in their order.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// One more.
    #[inline]
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let within = self.bounds.iter().position(|&bound| micros <= bound * 1000).unwrap_or(self.bounds.len());
        self.counts[within].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    /// What there is by now.
    pub fn read(&self) -> Distribution {
        let bounds = self.bounds.iter().map(|&bound| bound as f64 / 1e3).chain([f64::INFINITY]);
        let buckets = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        Distribution { buckets, sum: self.sum.load(Relaxed) as f64 / 1e6 }
    }
}

impl Distribution {
    /// All there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_at_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::new(&[10, 1000]);
        for micros in [0, 10_000, 10_001, 1_000_000, 1_000_001, 60_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let read = histogram.read();
        assert_eq!(read.buckets, [(0.01, 2), (1.0, 2), (f64::INFINITY, 2)]);
        assert_eq!((read.count(), (read.sum * 1e3).round()), (6, 62_020.0));
    }
}
