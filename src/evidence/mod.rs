//! Evidence of decisions: one record for each request, in a hash chain of lines that reveals later changes, with the robots.txt that each
//! decision is based on. A separate thread writes the chain; `politely evidence`, `report` and `explain --at` read it. docs/evidence.md
//! describes the format.
//!
//! `record` makes a line, and `writer` appends it to the chain, in the files of `segment`. `reader` reads the lines and verifies the chain,
//! `report` computes totals, and `timestamp` handles an authority's time stamp of a line.

mod reader;
mod record;
mod report;
mod segment;
mod timestamp;
mod writer;

pub use reader::{Decision, Fault, Figure, FileError, ReadError, SiteCopy, Verified, stored_file, verify};
pub use record::{Draft, Hash, digest_of, digits, from_hex, sha256};
pub use report::{
    Basis, By, ConfigUse, CopyUse, FileFetch, Found, Group, Instance, MOST_NAMES, Past, PastCopy, PastFile, Report,
    Selection, SiteBasis, find, report, report_each, when,
};
pub use segment::foreign;
pub use timestamp::{MOST_RESPONSE, Stamp, check, query};
pub use writer::unusable;

use crate::config::UnusableFile;
use crate::policy::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use writer::{Queue, Writer};

/// A directory to which evidence is written. Dropping this value writes the queued records.
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
    /// Records that this process has lost, for example because the disk was full or too slow.
    pub lost: u64,
    /// The current segment, and (`head`) the SHA-256 of its last line.
    pub segment: u64,
    pub head: String,
}

impl Evidence {
    /// Continues the chain in this directory, or begins one. `instance`: the name of this process; `config`: the configuration as text.
    ///
    /// # Errors
    /// The directory cannot be written, or another process writes to it.
    pub fn open(directory: &Path, keep: Duration, instance: &str, config: &str) -> Result<Self, UnusableFile> {
        let queue = Arc::new(Queue::new(keep));
        let writer = Writer::open(directory, queue.clone(), instance, config)?;
        let thread = std::thread::Builder::new().name("politely-evidence".into()).spawn(move || writer.run());
        let thread = thread.map_err(|error| unusable(directory, &error))?;
        Ok(Evidence { directory: directory.to_owned(), queue, thread: parking_lot::Mutex::new(Some(thread)) })
    }

    /// Sets how long segments are kept.
    pub fn keep_for(&self, keep: Duration) {
        self.queue.keep.store(keep.as_secs(), Relaxed);
    }

    /// Begins the record of a request that arrived at `at`.
    pub fn draft(&self, at: SystemTime) -> Draft {
        Draft::new("decision", at)
    }

    /// Queues a record with the files that it refers to: the configuration (text and SHA-256), and the site files in `entries`. Never
    /// waits: callers that can wait call [`room`](Self::room) afterwards.
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

    /// Waits until the queue is not full, or the writer has made no progress for a while.
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

    /// Writes the queued records and the `stop` line. Later records are lost. Blocks.
    pub fn close(&self) {
        self.queue.close();
        if let Some(thread) = self.thread.lock().take() {
            // If the thread has panicked, the reason is already logged.
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
