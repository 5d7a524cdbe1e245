//! What the chain does not record yet, because there was no room for it: recorded before the next decision.

use super::super::chain::Hash;
use super::super::draft::Draft;
use super::super::queue::Lost;
use std::io;
use std::time::{Duration, Instant, SystemTime};

#[derive(Default)]
pub(super) struct Unsaid {
    /// In their order.
    removed: Vec<Removed>,
    lost: Option<Lost>,
    /// When the log had it last.
    logged: Option<Instant>,
}

/// A segment that was kept long enough.
pub(super) struct Removed {
    pub segment: u64,
    /// Of its last line.
    pub head: Hash,
    pub from: SystemTime,
    pub to: SystemTime,
}

impl Unsaid {
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Whether the log has had nothing lately of what is lost.
    pub fn is_to_be_logged(&mut self) -> bool {
        let is_quiet = self.logged.is_some_and(|logged| logged.elapsed() <= QUIET);
        if !is_quiet {
            self.logged = Some(Instant::now());
        }
        !is_quiet
    }

    pub fn lose(&mut self, lost: Lost) {
        if lost.count > 0 {
            self.lost = Some(self.lost.map_or(lost, |before| before.and(lost)));
        }
    }

    pub fn removed(&mut self, removed: Removed) {
        self.removed.push(removed);
    }

    /// All of it, as far as there is room.
    pub fn say(&mut self, mut line: impl FnMut(Draft) -> io::Result<()>) -> io::Result<()> {
        while let Some(removed) = self.removed.first() {
            line(removed.draft())?;
            self.removed.remove(0);
        }
        if let Some(lost) = self.lost {
            let mut draft = Draft::new("lost", SystemTime::now());
            draft.number("count", lost.count);
            draft.time("from", lost.from);
            draft.time("to", lost.to);
            line(draft)?;
            self.lost = None;
        }
        Ok(())
    }
}

impl Removed {
    pub fn draft(&self) -> Draft {
        let mut draft = Draft::new("removed", SystemTime::now());
        draft.number("segment", self.segment);
        draft.hash("head", &self.head);
        draft.time("from", self.from);
        draft.time("to", self.to);
        draft
    }
}

/// Whether room would help.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Between two words in the log.
const QUIET: Duration = Duration::from_secs(60);
