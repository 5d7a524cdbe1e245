//! The right to fetch a robots.txt, held by one process of the machine at a time: a word of their file with a hash of the name and the
//! process, valid while that process lives.

use super::Machine;
use super::slots::Slots;
use std::sync::atomic::Ordering::SeqCst;

/// The right, which only its holder can give back.
#[derive(Debug)]
pub(in crate::gate::fleet) struct MachineRight {
    /// The word that says so. `None`: all that could are in use.
    place: Option<u64>,
    word: u64,
}

impl Machine {
    /// Takes the right to fetch the file. `None`: it is taken, or somebody asks for it at this moment.
    pub(in crate::gate::fleet) fn take_right(&self, name: &str) -> Option<MachineRight> {
        self.slots.take_right(self.slots.id(name))
    }

    pub(in crate::gate::fleet) fn give_right(&self, right: &MachineRight) {
        self.slots.give_right(right);
    }
}

impl Slots {
    /// Takes the right. `None`: it is taken, or somebody asks for it at this moment.
    pub fn take_right(&self, id: u64) -> Option<MachineRight> {
        let word = id & NAME | u64::from(self.me);
        loop {
            if self.is_taken(id, None) {
                return None;
            }
            let mut words = places_of(id).map(|place| (place, self.right(place).load(SeqCst)));
            let Some((place, before)) = words.find(|(_, word)| !self.is_held(*word)) else {
                // All words are in use: fetching twice is better than never.
                return Some(MachineRight { place: None, word });
            };
            if self.right(place).compare_exchange(before, word, SeqCst, SeqCst).is_ok() {
                let right = MachineRight { place: Some(place), word };
                // Of two that ask at once, at least one sees the other's word, in another place.
                if !self.is_taken(id, Some(place)) {
                    return Some(right);
                }
                self.give_right(&right);
                return None;
            }
        }
    }

    pub fn give_right(&self, right: &MachineRight) {
        if let Some(place) = right.place {
            let _ = self.right(place).compare_exchange(right.word, 0, SeqCst, SeqCst);
        }
    }

    /// Whether the right is held by a word in another place than `own`.
    fn is_taken(&self, id: u64, own: Option<u64>) -> bool {
        let is_its = |word: u64| word & NAME == id & NAME && self.is_held(word);
        places_of(id).any(|place| own != Some(place) && is_its(self.right(place).load(SeqCst)))
    }

    fn is_held(&self, word: u64) -> bool {
        word != 0 && self.lives(word as u32)
    }
}

fn places_of(id: u64) -> impl Iterator<Item = u64> {
    (0..PROBES).map(move |probe| (id >> 16) + probe)
}

/// Words tried for one name.
const PROBES: u64 = 8;
/// The part of a word for the name; the rest is the process.
const NAME: u64 = !0xffff_ffff;
