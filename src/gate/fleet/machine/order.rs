//! The order of a key's starts. Each process reserves one start ahead, one gap after the previous reservation.
//!
//! Reservations are in the key's own time, which is the clock's time minus `OFF`. Own time stands still while the key is late: while the
//! request with the turn takes longer than the gap to connect or to be answered, or the host has asked for a pause. A process whose start
//! is due while another process has the turn sets own time back to its start. So all reservations move together, and one is due at a time.
//! Own time decides only the order of starts; the turn and the gap since the last start decide whether a request may start (`slot`).

use super::clock::span;
use super::slot::{KeySlot, OFF, START, TAIL};
use super::start::MachineStart;
use std::sync::atomic::Ordering::SeqCst;

impl KeySlot<'_> {
    /// Reserves the next start, in the key's own time. If the last reservation is not used yet, the new start is at least one gap after
    /// it, even if that is in the past: setting own time back postpones both.
    pub fn reserve(&self, start: MachineStart, now: u64) -> u64 {
        let gap = span(start.gap);
        loop {
            let (tail, last, due) = (self.get(TAIL), self.get(START), self.due(start));
            let known = tail.wrapping_add(self.get(OFF));
            let is_open = tail != 0 && known > last && known <= latest(due, gap, now);
            let first = if is_open { known.wrapping_add(gap) } else { now };
            let own = tail.wrapping_add(first.max(due)).wrapping_sub(known);
            if self.words[TAIL].compare_exchange(tail, own, SeqCst, SeqCst).is_ok() {
                return own;
            }
        }
    }

    /// When a reserved start is due. `None`: the time is implausible.
    pub fn reserved(&self, start: &mut MachineStart, now: u64) -> Option<u64> {
        let (last, off, due) = (self.get(START), self.get(OFF), self.due(*start));
        let own = start.own.as_mut()?;
        let at = own.wrapping_add(off);
        if at > latest(due, span(start.gap), now) {
            return None;
        }
        if at < last {
            // This process slept past its reservation, and another process has started a request since. Moves the reservation to that
            // start, so that `delay` postpones the others by one gap, and not by the time slept.
            *own = last.wrapping_sub(off);
        }
        // If the gap has grown, or the host has asked for a pause, later reservations are postponed as well.
        self.delay(*own, due);
        Some(own.wrapping_add(self.get(OFF)))
    }

    /// Gives an unused start back. If it is still the last reservation, the next caller gets it.
    pub fn give_back(&self, MachineStart { own, gap, .. }: MachineStart) {
        let before = |tail: u64| (own == Some(tail)).then(|| tail.wrapping_sub(span(gap)));
        let _ = self.words[TAIL].fetch_update(SeqCst, SeqCst, before);
    }

    /// Sets own time back so that the start `own` comes no earlier than `at`. All later starts move with it.
    pub(super) fn delay(&self, own: u64, at: u64) {
        let off = at.wrapping_sub(own);
        let later = |now: u64| (off.wrapping_sub(now).cast_signed() > 0).then_some(off);
        let _ = self.words[OFF].fetch_update(SeqCst, SeqCst, later);
    }
}

/// The latest plausible time of a reservation.
fn latest(due: u64, gap: u64, now: u64) -> u64 {
    due.max(now).saturating_add(gap.saturating_mul(MOST_RESERVED))
}

/// Maximum plausible number of processes ahead, each with one reserved start.
const MOST_RESERVED: u64 = 64;
