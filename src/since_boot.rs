//! The time since the machine was started.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Reads the time since boot, including the time that the machine slept, which `Instant` leaves out.
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    // On macOS this clock includes sleep; `Instant` uses another one there.
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
