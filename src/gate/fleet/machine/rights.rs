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

    /// Logs the process that holds the right, if it is stopped.
    pub(in crate::gate::fleet) fn warn_of_stopped_fetch(&self, name: &str) {
        if let Some(process) = self.slots.holder(self.slots.id(name), None) {
            self.warn_if_stopped(process, &format!("while it fetches {name}: requests that need it"));
        }
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
            if self.holder(id, None).is_some() {
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
                if self.holder(id, Some(place)).is_none() {
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

    /// The process that holds the right by a word in another place than `own`.
    fn holder(&self, id: u64, own: Option<u64>) -> Option<u32> {
        let others = places_of(id).filter(|place| own != Some(*place)).map(|place| self.right(place).load(SeqCst));
        others.filter(|word| word & NAME == id & NAME).find(|word| self.is_held(*word)).map(|word| word as u32)
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
