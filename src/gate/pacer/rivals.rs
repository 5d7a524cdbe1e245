//! How many others want a host, by the starts that they have reserved.

use std::time::{Duration, Instant};

/// How many want the host, this one included, each of which has one start reserved: `start` is the newest. What lies further back than
/// a gap is no sign of any: nobody has wanted the host then, or this one could not ask.
pub(super) fn rivals(last: Instant, start: Instant, gap: Duration, now: Instant) -> u32 {
    let since = now.checked_sub(gap).map_or(last, |before| last.max(before));
    let gaps = start.duration_since(since).as_secs_f64() / gap.as_secs_f64();
    (gaps.round() as u32).clamp(1, MOST_RIVALS)
}

const MOST_RIVALS: u32 = 64;
