//! The gap between two starts, from robots.txt, the operator, the host's latency and the backoff; and the last starts, from which the next
//! start keeps its distance. Pure.

use std::time::{Duration, Instant};

use super::terms::{FAR, SlotRequest, Terms};

impl Terms {
    /// The time between two starts, without latency and backoff.
    pub fn gap(&self) -> Duration {
        self.asked().min(self.max_crawl_delay).min(FAR)
    }

    /// The requested delay, if it exceeds `max_crawl_delay` and is cut. The caller logs it.
    pub fn clamped(&self) -> Option<Duration> {
        let asked = self.asked();
        (asked > self.max_crawl_delay).then_some(asked)
    }

    /// The terms for the group's schedule, with the group's delay only. `None`: the group has no delay, or this is a first fetch of
    /// robots.txt.
    pub fn of_group(&self) -> Option<Self> {
        let has_group = !self.group_delay.is_zero() && !self.first_fetch;
        let (crawl_delay, none) = (self.group_delay, Duration::ZERO);
        // Most requests have no group, and need no copy.
        has_group.then(|| Self {
            crawl_delay,
            group_delay: none,
            min_delay: none,
            adaptive: None,
            of_page: None,
            ..self.clone()
        })
    }

    /// The terms for the host's schedule.
    #[must_use]
    pub fn of_host(&self) -> Self {
        Self { group_delay: Duration::ZERO, ..self.clone() }
    }

    fn asked(&self) -> Duration {
        self.crawl_delay.max(self.group_delay).max(self.min_delay)
    }
}

impl SlotRequest {
    /// The time between two starts without backoff.
    #[inline]
    pub fn gap(&self, latency: Duration) -> Duration {
        self.adaptive.map_or(self.delay, |adaptive| adaptive.gap(latency).min(FAR).max(self.delay))
    }

    /// Whether the gap is not zero.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.delay.is_zero() || self.adaptive.is_some()
    }
}

/// Inputs to the gap besides the request: the host's latency, its backoff, and how the rate is shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct GapInputs {
    pub backoff: Duration,
    pub latency: Duration,
    /// Each gap is multiplied by `times.0 / times.1`.
    pub times: (u32, u32),
}

impl GapInputs {
    /// The time between two starts, with all inputs.
    pub fn between_starts(&self, request: SlotRequest) -> Duration {
        let gap = request.gap(self.latency).max(self.backoff);
        let (times, parts) = self.times;
        if times > parts { gap.saturating_mul(times) / parts } else { gap }
    }
}

/// The instants from which a start keeps its distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastStarts {
    pub last_start: Option<Instant>,
    /// Start of the last first fetch of a robots.txt. Other first fetches keep their distance from it; requests do not.
    pub last_fetch: Option<Instant>,
    /// The instant before which nothing starts, as the origin asked for a pause or refused requests.
    pub hold: Option<Instant>,
}

impl LastStarts {
    /// The later instant of each field.
    pub fn max(self, other: Self) -> Self {
        Self {
            last_start: self.last_start.max(other.last_start),
            last_fetch: self.last_fetch.max(other.last_fetch),
            hold: self.hold.max(other.hold),
        }
    }

    /// The earliest start of a request. `None`: the request may start at any time.
    pub(super) fn due(&self, request: SlotRequest, inputs: GapInputs) -> Option<Instant> {
        let gap = inputs.between_starts(request);
        if gap.is_zero() {
            return self.hold;
        }
        let last = if request.first_fetch { self.last_start.max(self.last_fetch) } else { self.last_start };
        last.map(|last| last + gap).max(self.hold)
    }

    pub(super) fn of(&mut self, first_fetch: bool) -> &mut Option<Instant> {
        if first_fetch { &mut self.last_fetch } else { &mut self.last_start }
    }
}

/// A simulation of the next starts, as if each request succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forecast {
    pub last: LastStarts,
    pub inputs: GapInputs,
}

impl Forecast {
    /// Starts a request, not before `at`. Returns the time of the start.
    pub fn start(&mut self, demand: SlotRequest, at: Instant) -> Instant {
        let start = self.last.due(demand, self.inputs).map_or(at, |due| due.max(at));
        *self.last.of(demand.first_fetch) = Some(start);
        self.inputs.backoff = halved(self.inputs.backoff);
        start
    }
}

/// A host's backoff after a success.
pub(super) fn halved(backoff: Duration) -> Duration {
    let half = backoff / 2;
    if half < LEAST { Duration::ZERO } else { half }
}

/// Minimum backoff. A backoff that would be halved to less ends.
const LEAST: Duration = Duration::from_millis(100);
