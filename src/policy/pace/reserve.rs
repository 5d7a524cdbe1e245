//! The rule for the next start, used by a process, the processes of a machine and a fleet's server.

/// Returns the next free start, in any unit; the caller makes it the new `last`. `last`: the latest start reserved so far, 0: none.
/// Nothing starts before `hold`.
#[inline]
pub fn reserve(last: u64, gap: u64, hold: u64, now: u64) -> u64 {
    let free = if last == 0 { 0 } else { last.saturating_add(gap) };
    now.max(free).max(hold)
}
