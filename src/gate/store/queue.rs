//! What waits to be written, and how far the thread that writes it is.

use super::batch::WriteBatch;
use super::disk::DiskError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes to be written.
#[derive(Default)]
pub(super) struct WriteQueue {
    pub next: WriteBatch,
    /// The batch being written.
    pub writing: Arc<WriteBatch>,
    /// Since when the file is opened, checked or written.
    pub began: Option<Instant>,
    /// The store is closing: until when entries are written.
    pub closing: Option<Instant>,
    pub has_ended: bool,
    pub overflowed: bool,
    /// Fetches have waited for the disk, and the log says so.
    pub is_slow: bool,
    /// The last attempt to write failed.
    pub outage: Option<Outage>,
    /// The last error of a reader.
    pub complaint: Option<DiskError>,
}

/// A period in which the disk cannot be written.
pub(super) struct Outage {
    /// When to try again.
    pub until: Instant,
    pub pause: Duration,
    /// Another process has the store open, and serves this one.
    pub is_elsewhere: bool,
}

impl WriteQueue {
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub fn bytes(&self) -> usize {
        self.next.bytes() + self.writing.bytes()
    }

    /// Without the files.
    pub fn own_bytes(&self) -> usize {
        self.next.own_bytes() + self.writing.own_bytes()
    }
}
