//! The time since the machine was started.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// With the time that the machine slept, which `Instant` leaves out.
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    // On macOS this clock includes it, but `Instant` does not.
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
