//! The right to fetch a robots.txt, held by one process of the machine at a time: the turn of a key for the file.

use super::Machine;
use super::clock::micros;
use std::time::Instant;

impl Machine {
    /// Takes the right to fetch the file. False: it is taken, or somebody asks for it at this moment.
    pub(in crate::gate::fleet) fn take_right(&self, name: &str) -> bool {
        let now = micros(Instant::now());
        let lives = |process| self.lives(process);
        self.slot(self.id(name), now).is_some_and(|slot| slot.take_right(self.me, now, lives))
    }

    /// Logs the process that holds the right, if it is stopped.
    pub(in crate::gate::fleet) fn warn_of_stopped_fetch(&self, name: &str) {
        if let Some(process) = self.find(self.id(name)).and_then(|slot| slot.process()) {
            self.warn_if_stopped(process, &format!("while it fetches {name}: requests that need it"));
        }
    }

    /// Gives the right back, if this process has it.
    pub(in crate::gate::fleet) fn give_right(&self, name: &str) {
        if let Some(slot) = self.find(self.id(name)) {
            slot.give_right(self.me);
        }
    }
}
