//! Counts of requests by outcome.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of requests by outcome.
#[derive(Default)]
pub(super) struct Outcomes {
    /// Counted without a lock, because nearly all requests are forwarded.
    forwarded: AtomicU64,
    others: Mutex<OutcomeCounts>,
}

/// Counts by slug, as in the label `outcome` of the metrics.
pub type OutcomeCounts = BTreeMap<&'static str, u64>;

impl Outcomes {
    #[inline]
    pub(super) fn count(&self, slug: &'static str) {
        if slug == FORWARDED {
            self.forwarded.fetch_add(1, Relaxed);
        } else {
            *self.others.lock().entry(slug).or_default() += 1;
        }
    }

    pub(super) fn read(&self) -> OutcomeCounts {
        let mut counts = OutcomeCounts::from([("failed", 0), ("client-gone", 0)]);
        add(&mut counts, &self.others.lock());
        counts.insert(FORWARDED, self.forwarded.load(Relaxed));
        counts
    }

    pub(super) fn take_over(&self, counts: &OutcomeCounts) {
        let mut others = counts.clone();
        self.forwarded.fetch_add(others.remove(FORWARDED).unwrap_or_default(), Relaxed);
        add(&mut self.others.lock(), &others);
    }
}

pub(super) fn add(all: &mut OutcomeCounts, more: &OutcomeCounts) {
    for (slug, count) in more {
        *all.entry(slug).or_default() += count;
    }
}

pub(super) const FORWARDED: &str = "forwarded";
