//! An instance's estimate of the server's clock. Pure.

use std::time::{Duration, Instant};

/// The server's clock, which times reserved starts and the time slices of partitioned instances. It is estimated from the quickest answer,
/// assuming that the server read its clock in the middle of the round trip. The error is half the difference between the delay of the call
/// and the delay of the answer. The older an estimate, the slower an answer may be to replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct ServerClock {
    /// When the server's clock showed 0, by the local clock.
    epoch: Instant,
    /// Round trip of the answer that the estimate is based on: twice the largest possible error.
    round_trip: Duration,
    estimated_at: Instant,
}

impl ServerClock {
    /// The clock of a server that has not answered yet: a random time.
    pub fn unknown(now: Instant) -> Self {
        let epoch = before(now, Duration::from_millis(fastrand::u64(..DAY)));
        Self { epoch, round_trip: Duration::MAX, estimated_at: now }
    }

    /// Adds a reading: the server's clock showed `micros` between `asked` and `now`.
    #[must_use]
    pub fn heard(self, micros: u64, asked: Instant, now: Instant) -> Self {
        let round_trip = now - asked;
        let drifted = (now - self.estimated_at) / DRIFTS * 2;
        if round_trip <= self.round_trip.saturating_add(drifted) || self.is_wrong(micros, asked, now) {
            let epoch = before(asked + round_trip / 2, Duration::from_micros(micros));
            return Self { epoch, round_trip, estimated_at: now };
        }
        self
    }

    /// When the clock shows `micros`, by the local clock.
    pub fn instant(&self, micros: u64) -> Instant {
        self.epoch.checked_add(Duration::from_micros(micros)).unwrap_or(self.epoch)
    }

    /// The clock's reading at `at`, in microseconds.
    pub fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }

    /// Round trip of the answer that the estimate is based on. Zero: no answer yet.
    pub fn round_trip(&self) -> Duration {
        if self.round_trip == Duration::MAX { Duration::ZERO } else { self.round_trip }
    }

    /// Whether two estimates differ so much that the clock must have been set in between.
    pub fn is_far_from(&self, other: Self) -> bool {
        self.epoch.max(other.epoch) - self.epoch.min(other.epoch) > FAR_OFF
    }

    pub fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Whether the reading contradicts the estimate: the clock was set, or this machine has been suspended.
    fn is_wrong(&self, micros: u64, asked: Instant, now: Instant) -> bool {
        let (shown, off) = (self.instant(micros), self.round_trip / 2 + DRIFT);
        shown + off < asked || shown > now + off
    }
}

/// Returns `at - by`, or `at` if the result cannot be represented, as it is before the machine's start.
fn before(at: Instant, by: Duration) -> Instant {
    at.checked_sub(by).unwrap_or(at)
}

/// A day in milliseconds.
const DAY: u64 = 24 * 3600 * 1000;
/// Divisor: two clocks drift apart by at most a 10,000th of the time, 100 µs a second.
const DRIFTS: u32 = 10_000;
const FAR_OFF: Duration = Duration::from_secs(2);
/// If a reading is further off than half the estimate's round trip plus this, the clock counts as having been set.
const DRIFT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The reading of a server whose clock was at 0 an hour before `zero`.
    fn says(at: Duration) -> u64 {
        u64::try_from((HOUR + at).as_micros()).unwrap()
    }

    /// The error of the estimate.
    fn off(clock: ServerClock, zero: Instant) -> Duration {
        let (epoch, real) = (clock.epoch(), zero - HOUR);
        epoch.max(real) - epoch.min(real)
    }

    #[test]
    fn quickest_answer_determines_the_clock_until_it_may_have_drifted() {
        let zero = Instant::now();
        // Delays of the call and of the answer: 80 and 0 ms; then 10 and 12 ms; then 300 and 0 ms.
        let clock = ServerClock::unknown(zero).heard(says(ms(80)), zero, zero + ms(80));
        assert_eq!(off(clock, zero), ms(40));
        let clock = clock.heard(says(ms(1010)), zero + ms(1000), zero + ms(1022));
        assert_eq!(off(clock, zero), ms(1));
        let slow = |clock: ServerClock, at| clock.heard(says(at + ms(300)), zero + at, zero + at + ms(300));
        let clock = slow(clock, ms(2000));
        assert_eq!(off(clock, zero), ms(1));
        assert_eq!(off(slow(clock, ms(62_000)), zero), ms(1), "an error of 150 ms is worse than a minute's drift");
        let clock = clock.heard(says(ms(62_014)), zero + ms(62_000), zero + ms(62_034));
        assert_eq!(off(clock, zero), ms(3), "clocks drift");
        assert_eq!(clock.instant(says(ms(500))), zero + ms(503));
        assert_eq!(clock.micros(zero + ms(503)), says(ms(500)));
    }

    #[test]
    fn set_clock_is_detected_by_the_next_answer() {
        let zero = Instant::now();
        for set_to in [ms(0), HOUR * 48] {
            let clock = ServerClock::unknown(zero).heard(says(HOUR * 24), zero, zero + ms(2));
            let clock = clock.heard(says(set_to), zero + ms(1000), zero + ms(1100));
            assert_eq!(clock.instant(says(set_to)), zero + ms(1050));
        }
    }
}
