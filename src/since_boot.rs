//! The time since the machine was started.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Reads the time since boot, including the time that the machine slept, which `Instant` leaves out.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
