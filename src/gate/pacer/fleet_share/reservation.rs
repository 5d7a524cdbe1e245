//! A reserved start and the request that uses it. Pure.

use crate::gate::fleet::{PaceAnswer, PaceCall, StartWindow};
use crate::policy::pace::Slot;
use std::time::{Duration, Instant};

/// A start reserved for this instance. Instants are by the local clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReservedStart {
    pub window: StartWindow,
    pub start: Instant,
    pub until: Instant,
    pub gap: Duration,
    /// Extension of the window: the time by which the previous start was late.
    missed: Duration,
    /// Total postponement of the key's starts that `start` and `until` include, in microseconds.
    put_off: u64,
}

impl ReservedStart {
    pub fn new(window: StartWindow, answer: &PaceAnswer, gap: Duration, missed: Duration) -> Self {
        let [start, until] = [window.start, window.end].map(|micros| answer.clock.instant(micros));
        Self { window, start, until, gap: gap.max(answer.observed.backoff), missed, put_off: answer.put_off }
    }

    /// Earliest time at which the request may be sent.
    pub fn due(&self, busy: Option<Instant>) -> Instant {
        busy.map_or(self.start, |busy| busy.max(self.start))
    }

    /// Latest time at which the request may be sent: after its window, only as long as the next instance can still learn in time that this
    /// start is late.
    pub fn latest(&self, ways: Duration) -> Instant {
        self.until + self.gap.saturating_sub(ways)
    }

    /// By how much a request that is ready at `at` misses the window, not counting the window's extension.
    pub fn missed_by(&self, at: Instant, ways: Duration) -> Duration {
        (at + self.missed).saturating_duration_since(self.latest(ways))
    }

    /// Postpones the start. `put_off`: total postponement of the key's starts, in microseconds.
    pub fn put_off(&mut self, put_off: u64) {
        let more = put_off.saturating_sub(self.put_off);
        self.put_off += more;
        self.window.put_off(more);
        self.start += Duration::from_micros(more);
        self.until += Duration::from_micros(more);
    }
}

/// A used start, kept while there may be something to report about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedStart {
    pub of: ReservedStart,
    slot: u64,
    is_exclusive: bool,
    left: Option<Instant>,
    has_ended: bool,
    /// Time until which the request is in flight according to the last report.
    in_flight: Option<Instant>,
}

impl UsedStart {
    pub fn new(of: ReservedStart, slot: &Slot) -> Self {
        let (slot, is_exclusive) = (slot.number, slot.is_exclusive);
        Self { of, slot, is_exclusive, left: None, has_ended: false, in_flight: None }
    }

    pub fn is(&self, slot: &Slot) -> bool {
        self.slot == slot.number && !self.has_ended
    }

    pub fn has_left(&self) -> bool {
        self.left.is_some()
    }

    pub fn leaves(&mut self, at: Instant) {
        self.left = self.left.max(Some(at));
    }

    /// Handles the request's end. `None`: nothing is left to report.
    pub fn ends(mut self) -> Option<Self> {
        self.has_ended = true;
        (self.in_flight.is_some() || self.is_late()).then_some(self)
    }

    /// Latest time to report about this start to the other instances.
    pub fn tells_at(&self, ways: Duration) -> Option<Instant> {
        // If the gap is too short for a late start, other instances need not know that the request is still connecting.
        let is_connecting = self.left.is_none() && self.of.gap >= ways * 2;
        let is_in_flight = is_connecting || self.left.is_some() && self.is_exclusive && !self.has_ended;
        match self.in_flight {
            Some(told) if self.is_exclusive => Some(if is_in_flight { told - ways } else { self.of.start }),
            _ if self.is_late() || is_connecting => Some(self.of.until + self.of.gap.saturating_sub(ways) / 2),
            _ if is_in_flight => Some(self.of.until + self.of.gap.saturating_sub(ways).max(self.of.gap / PROMPT)),
            _ => None,
        }
    }

    /// The missed window, and how late the request was sent, or will be sent at the earliest. `None`: the request is not late.
    pub fn late(&self, now: Instant) -> Option<(StartWindow, Duration)> {
        let by = self.left.unwrap_or(now).saturating_duration_since(self.of.until);
        (!by.is_zero()).then_some((self.of.window, by))
    }

    /// How long the request will still be in flight, to be reported to other instances. Zero: it has ended. `None`: no report is due.
    pub fn in_flight(&self, now: Instant, ways: Duration) -> Option<Duration> {
        if self.has_ended {
            return self.in_flight.map(|_| Duration::ZERO);
        }
        let is_in_flight = self.is_exclusive && self.left.is_some();
        let is_due = is_in_flight && !self.is_late() && self.tells_at(ways).is_some_and(|at| at <= now);
        is_due.then(|| self.of.gap.max(ways + self.of.gap / 2))
    }

    /// Updates this start after the server has received the report. `None`: nothing is left to report.
    pub fn told(mut self, call: &PaceCall, asked: Instant) -> Option<Self> {
        if let Some((window, by)) = call.late.filter(|(window, _)| *window == self.of.window) {
            self.of.window = window;
            self.of.window.put_off(u64::try_from(by.as_micros()).unwrap_or(u64::MAX));
            self.of.until += by;
        }
        self.in_flight = match call.in_flight {
            Some(Duration::ZERO) => None,
            Some(time) => Some(asked + time),
            None => self.in_flight,
        };
        if self.has_ended { self.ends() } else { Some(self) }
    }

    fn is_late(&self) -> bool {
        self.left.is_some_and(|left| left > self.of.until)
    }
}

/// A request that ends within a gap divided by this number is not reported as in flight.
const PROMPT: u32 = 4;
