//! What the chain does not say yet, because there was no room for it: said before the next record.

use super::super::chain::Hash;
use super::super::draft::Draft;
use super::super::queue::Lost;
use super::Writer;
use std::io;
use std::time::SystemTime;

#[derive(Default)]
pub(super) struct Unsaid {
    /// In their order.
    removed: Vec<Removed>,
    lost: Option<Lost>,
}

/// A segment that was kept long enough.
pub(super) struct Removed {
    pub segment: u64,
    /// Of its last line.
    pub head: Hash,
    pub from: Option<SystemTime>,
    pub to: SystemTime,
}

impl Unsaid {
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    pub fn lose(&mut self, lost: Lost) {
        if lost.count > 0 {
            self.lost = Some(self.lost.map_or(lost, |before| before.and(lost)));
        }
    }

    pub fn removed(&mut self, removed: Removed) {
        self.removed.push(removed);
    }
}

impl Removed {
    pub fn draft(&self) -> Draft {
        let mut draft = Draft::new("removed", SystemTime::now());
        draft.number("segment", self.segment);
        draft.hash("head", &self.head);
        if let Some(from) = self.from {
            draft.time("from", from);
        }
        draft.time("to", self.to);
        draft
    }
}

impl Writer {
    /// Says all of it, as far as there is room.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        while let Some(removed) = self.unsaid.removed.first() {
            self.say(removed.draft())?;
            self.unsaid.removed.remove(0);
        }
        if let Some(lost) = self.unsaid.lost {
            let mut draft = Draft::new("lost", SystemTime::now());
            draft.number("count", lost.count);
            draft.time("from", lost.from);
            draft.time("to", lost.to);
            self.say(draft)?;
            self.unsaid.lost = None;
        }
        Ok(())
    }
}
