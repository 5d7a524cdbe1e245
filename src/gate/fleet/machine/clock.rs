//! Times in the shared file: microseconds of the monotonic clock, which is the clock behind `Instant`.

use rustix::time::{ClockId, clock_gettime};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The file's time at `at`, rounded down.
pub(super) fn micros(at: Instant) -> u64 {
    nanos(at) / 1000
}

/// The file's time at `at`, rounded up.
pub(super) fn micros_up(at: Instant) -> u64 {
    nanos(at).div_ceil(1000)
}

pub(super) fn span(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// The instant of a time in the file. `None`: 0, which means never.
pub(super) fn instant(at: u64) -> Option<Instant> {
    let (instant, nanos) = *ZERO;
    let at = Duration::from_micros(at);
    match at.checked_sub(Duration::from_nanos(nanos)) {
        Some(ahead) => instant.checked_add(ahead),
        None => instant.checked_sub(Duration::from_nanos(nanos) - at).filter(|_| !at.is_zero()),
    }
}

fn nanos(at: Instant) -> u64 {
    let (instant, nanos) = *ZERO;
    let spent = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_duration_since(instant) {
        Some(ahead) => nanos.saturating_add(spent(ahead)),
        None => nanos.saturating_sub(spent(instant - at)).max(1),
    }
}

/// The same instant by both clocks, from the quickest of several readings.
static ZERO: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    let looks = (0..8).map(|_| {
        let (before, time) = (Instant::now(), clock_gettime(ClockId::Monotonic));
        let nanos = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        (before.elapsed(), before, nanos)
    });
    let (_, instant, nanos) = looks.min_by_key(|(took, ..)| *took).expect("eight");
    (instant, nanos)
});
