//! The right to fetch a robots.txt, held by one process of the machine at a time: a word of their file with a hash of the name and the
//! process, valid while that process lives.

use super::slots::Slots;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

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

/// Words tried for one name.
const PROBES: u64 = 8;
/// The part of a word for the name; the rest is the process.
const NAME: u64 = !0xffff_ffff;
