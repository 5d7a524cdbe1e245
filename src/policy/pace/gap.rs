//! The gap between two starts: what robots.txt or the operator asks for, the host's latency, a backoff. Pure.

use std::time::Duration;

use super::terms::{FAR, SlotRequest, Terms};

impl Terms {
    /// The time between two starts, but for what the host's answers ask for: its latency, its refusals.
    pub fn gap(&self) -> Duration {
        self.crawl_delay.max(self.min_delay).min(self.max_crawl_delay).min(FAR)
    }

    /// The delay that is cut down to `max_crawl_delay`, if it is: to be logged once for each robots.txt.
    pub fn clamped(&self) -> Option<Duration> {
        let asked = self.crawl_delay.max(self.min_delay);
        (asked > self.max_crawl_delay).then_some(asked)
    }
}

impl SlotRequest {
    /// The time between two starts without any backoff.
    #[inline]
    pub fn gap(&self, latency: Duration) -> Duration {
        self.adaptive.map_or(self.delay, |adaptive| adaptive.gap(latency).min(FAR).max(self.delay))
    }

    /// Whether there is such a gap.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.delay.is_zero() || self.adaptive.is_some()
    }
}

/// What the gap comes to besides what the request asks for: the host's latency, its backoff, and how the rate is shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct GapInputs {
    pub backoff: Duration,
    pub latency: Duration,
    /// Each gap is kept `times.0 / times.1` times.
    pub times: (u32, u32),
}

impl GapInputs {
    /// The time between two starts, all counted.
    pub fn between_starts(&self, request: SlotRequest) -> Duration {
        let gap = request.gap(self.latency).max(self.backoff);
        let (times, parts) = self.times;
        if times > parts { gap.saturating_mul(times) / parts } else { gap }
    }
}
