//! The gap between two starts: what robots.txt or the operator asks for, the host's latency, a backoff. Pure.

use std::time::Duration;

use super::terms::{FAR, SlotRequest, Terms};

impl Terms {
    /// The time between two starts, but for what the host's answers ask for: its latency, its refusals.
    pub fn gap(&self) -> Duration {
        self.asked().min(self.max_crawl_delay).min(FAR)
    }

    /// The delay that is cut down to `max_crawl_delay`, if it is: to be logged once for each robots.txt.
    pub fn clamped(&self) -> Option<Duration> {
        let asked = self.asked();
        (asked > self.max_crawl_delay).then_some(asked)
    }

    /// What holds in the schedule of its group: the delay alone. `None`: it has none of its own. A first fetch of robots.txt has no
    /// group yet.
    pub fn of_group(&self) -> Option<Self> {
        let has_group = !self.group_delay.is_zero() && !self.first_fetch;
        let (crawl_delay, none) = (self.group_delay, Duration::ZERO);
        // Most requests have none, and need no copy.
        has_group.then(|| Self {
            crawl_delay,
            group_delay: none,
            min_delay: none,
            adaptive: None,
            of_page: None,
            ..self.clone()
        })
    }

    /// What holds in the host's.
    #[must_use]
    pub fn of_host(&self) -> Self {
        Self { group_delay: Duration::ZERO, ..self.clone() }
    }

    fn asked(&self) -> Duration {
        self.crawl_delay.max(self.group_delay).max(self.min_delay)
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
