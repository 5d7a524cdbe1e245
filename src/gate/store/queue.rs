//! The queue of changes that wait to be written, and the progress of the writer thread.

use super::batch::WriteBatch;
use super::record_name::RecordName;
use crate::policy::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes to be written.
#[derive(Default)]
pub(super) struct WriteQueue {
    pub next: WriteBatch,
    /// The batch being written.
    pub writing: Arc<WriteBatch>,
    /// When the current attempt to open or write the store began.
    pub began: Option<Instant>,
    pub is_closing: bool,
    pub has_ended: bool,
    pub overflowed: bool,
    /// Whether the log has said that fetches wait for the disk.
    pub is_slow: bool,
    /// `Some` if the last attempt to open or write the store failed.
    pub outage: Option<Outage>,
}

/// A period in which the disk cannot be written.
pub(super) struct Outage {
    /// When to try again.
    pub until: Instant,
    pub pause: Duration,
}

impl WriteQueue {
    /// An authority's entry that waits to be written: as [`WriteBatch::get`].
    pub fn get(&self, key: RecordName) -> Option<Option<&Arc<Entry>>> {
        self.next.get(key).or_else(|| self.writing.get(key))
    }

    /// Whether the current attempt to write has taken so long that the disk counts as hung.
    pub fn is_hung(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() > HUNG)
    }

    pub fn bytes(&self) -> usize {
        self.next.bytes() + self.writing.bytes()
    }

    /// Bytes in memory without the files.
    pub fn own_bytes(&self) -> usize {
        self.next.own_bytes() + self.writing.own_bytes()
    }
}

/// Duration of a write above which the disk counts as hung.
pub(super) const HUNG: Duration = Duration::from_secs(10);
