//! Spending from one budget by the processes of a machine, kept for later processes. Two words of the budget's slot have the counts of
//! requests and bytes, each with its period.

use super::clock::{micros_up, span};
use super::slot::{FETCH as BYTES, KeySlot, OBSERVED as REQUESTS, OWED};
use crate::gate::fleet::Spend;
use crate::policy::Spent;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Instant, SystemTime};

/// Adds spending, and returns the new count. False: the budget has no room.
pub(super) fn spend(slot: KeySlot<'_>, spend: &Spend, now: SystemTime) -> (bool, Spent) {
    let (current, _) = spend.per.end(now);
    let (requests, bytes) = (&slot.words[REQUESTS], &slot.words[BYTES]);
    loop {
        let word = requests.load(SeqCst);
        let spent = counted(word, current).at(spend.per, now);
        let ends = spent.ends;
        slot.raise(OWED, micros_up(Instant::now()).saturating_add(span(spent.left(now))));
        let counted_bytes = |word| counted(word, ends).requests;
        let (goes, after) = spend.after(Spent { bytes: counted_bytes(bytes.load(SeqCst)), ..spent });
        if requests.compare_exchange(word, packed(after.requests, ends), SeqCst, SeqCst).is_ok() {
            // Both counts must be of the same period, even if the spending was refused.
            let more = |word| {
                let before = counted_bytes(word).max(spend.heard.in_period(ends).bytes);
                Some(packed(before.saturating_add(if goes { spend.bytes } else { 0 }), ends))
            };
            let _ = bytes.fetch_update(SeqCst, SeqCst, more);
            return (goes, Spent { bytes: counted_bytes(bytes.load(SeqCst)), ..after });
        }
    }
}

/// Reads the count of the period that ends at `ends`, or of a later period if the clock was set back. It is 0 if `word` is of an earlier
/// period.
fn counted(word: u64, ends: u64) -> Spent {
    let later = (word >> COUNT_BITS).wrapping_sub(period(ends)) % PERIODS;
    if word == 0 || later > MOST_SET_BACK {
        Spent { ends, ..Spent::default() }
    } else {
        Spent { ends: ends + 3600 * later, requests: word & COUNT, bytes: 0 }
    }
}

fn packed(count: u64, ends: u64) -> u64 {
    period(ends) << COUNT_BITS | count.min(COUNT)
}

/// The period's end in hours, modulo about half a year (`PERIODS`), as no count is kept that long.
fn period(ends: u64) -> u64 {
    ends / 3600 % PERIODS
}

const COUNT_BITS: u32 = 52;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const PERIODS: u64 = 1 << (64 - COUNT_BITS);
/// Maximum number of hours by which a stored period may end after the current one, because the clock was set back. Period numbers wrap
/// around, so one that is further ahead is an old one.
const MOST_SET_BACK: u64 = 72;
