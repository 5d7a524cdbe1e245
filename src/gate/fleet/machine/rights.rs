//! The right to fetch a robots.txt, held by one process of the machine at a time: a word of their file with a hash of the name and the
//! process, valid while that process lives.

use super::Machine;
use super::slots::Slots;
use crate::gate::fleet::parcel::FoundCopy;
use crate::gate::store::{CopyTimes, Store};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

impl Machine {
    /// Tells whether the store has a copy that is fresh or no older than `age`; otherwise takes the right to fetch one if no other process
    /// has it or its holder may be stopped. `anew`: freshness does not count.
    pub(in crate::gate::fleet) fn look(&self, store: &Store, name: &str, anew: bool, age: Duration) -> FoundCopy {
        // Before the store is asked, so that no process writes one in between.
        let has_right = self.slots.take_right(self.slots.id(name));
        let (times, now) = (store.times(name), SystemTime::now());
        let is_usable = match times {
            Ok(None) => false,
            // It is read, and asked for anew if it is of no use.
            Err(_) => !anew,
            Ok(Some(CopyTimes { validated_at, has_failed, fresh_until })) => {
                let is_fresh = !anew && now < fresh_until;
                // A copy from the future was written before the clock was set back.
                validated_at.map_or(is_fresh, |at| at <= now && (is_fresh || !has_failed && at + age >= now))
            }
        };
        match is_usable {
            true => FoundCopy::Stored,
            // Fetching twice is better than never.
            false if has_right || age >= FETCH_LASTS => FoundCopy::Right(None, 0),
            false => FoundCopy::Busy(LOOK_EVERY),
        }
    }

    /// Gives the right back, if this process has it.
    pub fn give_right(&self, name: &str) {
        self.slots.give_right(self.slots.id(name));
    }
}

impl Slots {
    /// Takes the right for this process, which may have it already. False: another process has it, or asks for it at this moment.
    pub fn take_right(&self, id: u64) -> bool {
        loop {
            let words = || self.rights_of(id).map(|place| (place, place.load(SeqCst)));
            let held = words().find(|(_, word)| word & NAME == id & NAME);
            let Some((place, before)) = held.or_else(|| words().find(|(_, word)| !self.is_held(*word))) else {
                // All words are in use: fetching twice is better than never.
                return true;
            };
            if self.is_held(before) {
                return before == self.own_right(id);
            }
            if place.compare_exchange(before, self.own_right(id), SeqCst, SeqCst).is_ok() {
                return self.keeps_right(id);
            }
        }
    }

    /// Gives the right back, if this process has it.
    pub fn give_right(&self, id: u64) {
        for place in self.rights_of(id) {
            let _ = place.compare_exchange(self.own_right(id), 0, SeqCst, SeqCst);
        }
    }

    /// Gives the right back if another process has put a word for the name as well, in another place: of two that ask at once, at least one
    /// sees the other's.
    fn keeps_right(&self, id: u64) -> bool {
        let is_others = |word: u64| word & NAME == id & NAME && word != self.own_right(id) && self.is_held(word);
        let keeps = !self.rights_of(id).any(|place| is_others(place.load(SeqCst)));
        if !keeps {
            self.give_right(id);
        }
        keeps
    }

    fn is_held(&self, word: u64) -> bool {
        word != 0 && self.lives(word as u32)
    }

    fn rights_of(&self, id: u64) -> impl Iterator<Item = &AtomicU64> {
        (0..PROBES).map(move |probe| self.right((id >> 16) + probe))
    }

    fn own_right(&self, id: u64) -> u64 {
        id & NAME | u64::from(self.me)
    }
}

/// Fetches rarely take longer, with all redirects.
const FETCH_LASTS: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Words tried for one name.
const PROBES: u64 = 8;
/// The part of a word for the name; the rest is the process.
const NAME: u64 = !0xffff_ffff;
