//! Lock-free histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts durations by bucket.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets in milliseconds, ascending.
    bounds: &'static [u64],
    /// Number of durations in each bucket: above the previous bound, up to its own. The last bucket has no upper bound.
    counts: Box<[AtomicU64]>,
    /// Sum of the durations, in microseconds.
    sum: AtomicU64,
}

/// Snapshot of a [`Histogram`].
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Upper bound in seconds and count of each bucket, not cumulative. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of the durations, in seconds.
    pub sum: f64,
}

/// Buckets for durations of network operations: 1 ms to 1 minute.
impl Default for Histogram {
    fn default() -> Self {
        Self::new(&[1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000])
    }
}

impl Histogram {
    /// Creates an empty histogram. `bounds`: upper bounds in milliseconds, ascending.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one duration.
    #[inline]
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let within = self.bounds.iter().position(|&bound| micros <= bound * 1000).unwrap_or(self.bounds.len());
        self.counts[within].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    /// Takes a snapshot.
    pub fn read(&self) -> Distribution {
        let bounds = self.bounds.iter().map(|&bound| bound as f64 / 1e3).chain([f64::INFINITY]);
        let buckets = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        Distribution { buckets, sum: self.sum.load(Relaxed) as f64 / 1e6 }
    }
}

impl Distribution {
    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_counts_in_the_first_bucket_with_a_sufficient_bound() {
        let histogram = Histogram::new(&[10, 1000]);
        for micros in [0, 10_000, 10_001, 1_000_000, 1_000_001, 60_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let read = histogram.read();
        assert_eq!(read.buckets, [(0.01, 2), (1.0, 2), (f64::INFINITY, 2)]);
        assert_eq!((read.count(), (read.sum * 1e3).round()), (6, 62_020.0));
    }
}
