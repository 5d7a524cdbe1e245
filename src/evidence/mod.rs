//! Evidence of decisions: one record for each request, in a chain of lines that reveals changes, with the robots.txt that each decision
//! is based on. Written by a thread of its own; read by `politely evidence`, `report` and
//! `explain --at`. docs/evidence.md has the format.
//!
//! To write: `record` makes a line, `queue` takes it to the thread of `writer`, which appends it to `chain`, in files of
//! `segment`; `start` finds the end of an earlier chain. To read: `read` reads the lines, `line` and `decision` parse them; `verify`, `report`, `counted` and
//! `past` use them; `own_fetch` is what they say of politely's own fetches. `timestamp` reads an authority's time stamp of a line.

mod basis;
mod chain;
mod counted;
mod decision;
mod line;
mod own_fetch;
mod owner;
mod past;
mod queue;
mod read;
mod record;
mod report;
mod segment;
mod selection;
mod start;
mod timestamp;
mod verify;
mod writer;

pub use basis::{Basis, ConfigUse, CopyUse, Instance, MOST_NAMES, SiteBasis};
pub use counted::each_counted;
pub use decision::{Decision, Figure, SiteCopy};
pub use line::ReadError;
pub use own_fetch::FileFetch;
pub use past::{Found, Past, PastCopy, PastFile, find};
pub use read::{FileError, stored_file};
pub use record::{Draft, Hash, digest_of, digits, from_hex, sha256};
pub use report::{By, Group, Report, report};
pub use segment::foreign;
pub use selection::{HostSelection, Selection};
pub use start::OpenError;
pub use timestamp::{MOST_RESPONSE, Stamp, StampError, check, query};
pub use verify::{Fault, Verified, verify};

use crate::policy::Entry;
use queue::Queue;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use writer::Writer;

/// A directory to which evidence is written. Dropping it writes the queued records.
pub struct Evidence {
    directory: PathBuf,
    queue: Arc<Queue>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

/// Counters, and the head of the chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Figures {
    /// Records that this process has written.
    pub written: u64,
    /// Records that this process has lost, for want of room.
    pub lost: u64,
    /// The segment that is written to, and the SHA-256 of its last line.
    pub segment: u64,
    pub head: String,
}

impl Evidence {
    /// Continues the chain in this directory, or begins one. `instance`: the name of this process; `config`: the configuration as text.
    ///
    /// # Errors
    /// It cannot be written, or another process writes to it.
    pub fn open(directory: &Path, keep: Duration, instance: &str, config: &str) -> Result<Self, OpenError> {
        let queue = Arc::new(Queue::new(keep));
        let writer = Writer::open(directory, queue.clone(), instance, config)?;
        let thread = std::thread::Builder::new().name("politely-evidence".into()).spawn(move || writer.run());
        let thread = thread.map_err(|source| OpenError::Io { path: directory.to_owned(), source })?;
        Ok(Evidence { directory: directory.to_owned(), queue, thread: parking_lot::Mutex::new(Some(thread)) })
    }

    /// How long segments are kept from now on.
    pub fn keep_for(&self, keep: Duration) {
        self.queue.keep.store(keep.as_secs(), Relaxed);
    }

    /// The record of a request that came at `at`.
    pub fn draft(&self, at: SystemTime) -> Draft {
        Draft::new("decision", at)
    }

    /// Queues a record with the files that it refers to: the configuration (text and SHA-256), and those of these entries. Never waits: who
    /// can wait does so afterwards, for [`room`](Self::room).
    pub fn put<'a>(
        &self,
        mut draft: Draft,
        config: &(Arc<str>, Hash),
        entries: impl IntoIterator<Item = &'a Arc<Entry>>,
    ) {
        draft.hash("config", &config.1);
        let at = draft.at();
        draft.end(|line| self.queue.put(line, Some(config), entries, at));
    }

    /// Returns when the writer keeps up with what has come, or stands still.
    pub async fn room(&self) {
        if self.queue.is_full() {
            // Boxed, as hardly any request has to wait.
            Box::pin(self.queue.room()).await;
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn figures(&self) -> Figures {
        let (segment, head) = *self.queue.head.lock();
        let [written, lost] = [&self.queue.written, &self.queue.lost].map(|count| count.load(Relaxed));
        Figures { written, lost, segment, head: digits(&head) }
    }

    /// Returns when all that came so far is on its way to the disk.
    pub fn flush(&self) {
        self.queue.flush();
    }

    /// Writes the queued records and the `stop` line. Later records are lost. Blocks.
    pub fn close(&self) {
        self.queue.close();
        if let Some(thread) = self.thread.lock().take() {
            // It has logged why, if it has failed.
            let _ = thread.join();
        }
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
use record::NOTHING;
#[cfg(test)]
mod tests;
