//! Estimates how many instances want a host, from their reserved starts.

use std::time::{Duration, Instant};

/// Number of instances or processes that want the host, including this one. Each has one reserved start, `start` being the newest. Time
/// more than a gap ago does not count: nobody wanted the host then, or this instance could not ask.
pub(super) fn rivals(last: Instant, start: Instant, gap: Duration, now: Instant) -> u32 {
    let since = now.checked_sub(gap).map_or(last, |before| last.max(before));
    let gaps = start.duration_since(since).as_secs_f64() / gap.as_secs_f64();
    (gaps.round() as u32).clamp(1, MOST_RIVALS)
}

const MOST_RIVALS: u32 = 64;
