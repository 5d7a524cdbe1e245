//! The right to fetch a robots.txt, held by one process of the machine at a time: a word of their file with a hash of the name and the
//! process, valid while that process lives.

use super::slots::Slots;
use std::sync::atomic::Ordering::SeqCst;

impl Slots {
    /// Takes the right for this process, which may have it already. False: another process has it.
    pub fn take_right(&self, id: u64) -> bool {
        let places = || (0..PROBES).map(|probe| self.right((id >> 16) + probe));
        for place in places() {
            let word = place.load(SeqCst);
            if word & NAME == id & NAME {
                let process = word as u32;
                let is_free = process != self.me && !self.lives(process);
                return process == self.me || is_free && self.put_right(place, word, id);
            }
        }
        for place in places() {
            let word = place.load(SeqCst);
            if (word == 0 || !self.lives(word as u32)) && self.put_right(place, word, id) {
                return true;
            }
        }
        // All words are in use: fetching twice is better than never.
        true
    }

    /// Gives the right back, if this process has it.
    pub fn give_right(&self, id: u64) {
        for probe in 0..PROBES {
            let _ = self.right((id >> 16) + probe).compare_exchange(self.own_right(id), 0, SeqCst, SeqCst);
        }
    }

    fn put_right(&self, place: &std::sync::atomic::AtomicU64, before: u64, id: u64) -> bool {
        place.compare_exchange(before, self.own_right(id), SeqCst, SeqCst).is_ok()
    }

    fn own_right(&self, id: u64) -> u64 {
        id & NAME | u64::from(self.me)
    }
}

/// Words tried for one name.
const PROBES: u64 = 8;
/// The part of a word for the name; the rest is the process.
const NAME: u64 = !0xffff_ffff;
