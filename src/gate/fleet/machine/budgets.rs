//! Spending from one budget by the processes of a machine, kept for later processes: two words of the budget's slot, each with its
//! period.

use super::clock::{micros_up, span};
use super::slot::KeySlot;
use crate::gate::fleet::Spend;
use crate::policy::Spent;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Instant, SystemTime};

/// Adds spending. False: there was no room.
pub(super) fn spend(slot: KeySlot<'_>, spend: &Spend, now: SystemTime) -> (bool, Spent) {
    let (ends, left) = spend.per.end(now);
    slot.keep(micros_up(Instant::now()).saturating_add(span(left)));
    let (requests, bytes) = (slot.free_word(REQUESTS), slot.free_word(BYTES));
    loop {
        let (word, spent) =
            (requests.load(SeqCst), Spent { ends, requests: counted(requests, ends), bytes: counted(bytes, ends) });
        let (goes, after) = spend.after(spent);
        if !goes {
            return (false, after);
        }
        if requests.compare_exchange(word, packed(after.requests, ends), SeqCst, SeqCst).is_ok() {
            let more = |_| {
                let before = counted(bytes, ends).max(spend.heard.in_period(ends).bytes);
                Some(packed(before.saturating_add(spend.bytes), ends))
            };
            let _ = bytes.fetch_update(SeqCst, SeqCst, more);
            return (true, Spent { bytes: counted(bytes, ends), ..after });
        }
    }
}

/// The count of the period that ends at `ends`; 0 for any other period.
fn counted(word: &AtomicU64, ends: u64) -> u64 {
    let word = word.load(SeqCst);
    if word >> COUNT_BITS == period(ends) { word & COUNT } else { 0 }
}

fn packed(count: u64, ends: u64) -> u64 {
    period(ends) << COUNT_BITS | count.min(COUNT)
}

/// The period's end in hours, modulo half a year: no count is kept that long.
fn period(ends: u64) -> u64 {
    ends / 3600 % (1 << (64 - COUNT_BITS))
}

/// Words that hosts use for other data.
const REQUESTS: usize = 4;
const BYTES: usize = 5;
const COUNT_BITS: u32 = 52;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
