//! The pace in one line, whoever keeps it: this process, the processes of a machine, a fleet's server.

/// The next free start, in any unit: `last` is the latest start there is to be so far, by whomever; it is this one then.
/// Nothing starts before `hold`. A `last` of 0 is none.
#[inline]
pub fn reserve(last: u64, gap: u64, hold: u64, now: u64) -> u64 {
    let free = if last == 0 { 0 } else { last.saturating_add(gap) };
    now.max(free).max(hold)
}
