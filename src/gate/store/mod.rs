//! What outlives the process: copies of robots.txt with all that is known of them, and delays in progress
//! (docs/robots-txt-life.md, docs/pace.md).
//!
//! Nothing waits for the disk but the first use of an authority: a thread ([`writer`]) commits whatever has gathered since its
//! last commit. What has not been written yet is read from there, so that no request sees an entry older than one already
//! used. While the disk cannot be had or written, what has gathered stays in memory, within bounds, and is written as soon as it can
//! be.

mod batch;
mod disk;
pub(super) mod snapshot;
mod tables;
mod writer;

pub(super) use snapshot::{FileDigest, digest};

use crate::config;
use crate::policy::pace::Debt;
use crate::policy::site_file::SiteFileName;
use crate::policy::{Access, Entry, PaceKey};
use batch::Owed;
use disk::Location;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use writer::{Bounds, WriterShared};

/// The store; in memory only, it forgets at once.
#[derive(Default)]
pub(super) struct Store {
    /// `None`: nothing is kept.
    disk: Option<Arc<WriterShared>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Nothing is kept.
    pub fn memory() -> Self {
        Self::default()
    }

    /// The store as configured. `max_delay`: the longest gap that a host may be given. `is_shared`: the process that uses it is
    /// asked for what it has.
    pub fn open(settings: &config::StoreSettings, max_delay: Duration, is_shared: bool) -> Self {
        if settings.disk == 0 {
            return Self::memory();
        }
        let bounds = Bounds { queued: queued(settings).into(), debt: max_delay.max(LONGEST_BACKOFF), is_shared };
        let location = Location { directory: directory(settings), size: Arc::new(settings.disk.into()) };
        match WriterShared::start(location, bounds) {
            Ok((disk, writer)) => Store { disk: Some(disk), writer: Mutex::new(Some(writer)) },
            Err(error) => {
                tracing::warn!(%error, "the store has no thread to write");
                Self::memory()
            }
        }
    }

    /// Takes up other bounds. What is on disk above them goes with the next write.
    pub fn resize(&self, settings: &config::StoreSettings) {
        if let Some(disk) = &self.disk {
            disk.bounds.queued.store(queued(settings), Ordering::Relaxed);
            disk.location.size.store(settings.disk, Ordering::Relaxed);
        }
    }

    /// Whether there is anything to ask.
    pub fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether it can be used, and the bytes of its file. `None`: nothing is kept.
    pub fn on_disk(&self) -> Option<(bool, u64)> {
        let disk = self.disk.as_ref()?;
        let is_lost = disk.queue.lock().is_lost;
        Some((!is_lost, std::fs::metadata(disk.location.file()).map_or(0, |file| file.len())))
    }

    /// Bytes in memory that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| {
            let queue = disk.queue.lock();
            queue.next.bytes() + queue.writing.bytes()
        })
    }

    /// What is kept of an authority's file. Blocks on the disk. `parse` reads a file, or finds it by its digest.
    pub fn load(
        &self,
        name: SiteFileName<'_>,
        parse: impl FnOnce(FileDigest, &dyn Fn() -> Option<Vec<u8>>) -> Option<Access>,
    ) -> Option<Arc<Entry>> {
        let (disk, name) = (self.disk.as_ref()?, name.to_string());
        {
            let queue = disk.queue.lock();
            if let Some(entry) = queue.next.get(&name).or_else(|| queue.writing.get(&name)) {
                return entry.cloned();
            }
        }
        let read = disk.disk.read().as_ref()?.read(&name, SystemTime::now(), parse);
        match read {
            Ok(entry) => {
                let entry = entry?;
                disk.add(|batch| _ = batch.used.insert(name.into()));
                Some(Arc::new(entry))
            }
            Err(failure) => {
                disk.queue.lock().complaint = Some(failure);
                disk.more.notify_one();
                None
            }
        }
    }

    /// Keeps an entry, soon.
    pub fn save(&self, name: SiteFileName<'_>, entry: &Arc<Entry>) {
        let Some(disk) = &self.disk else { return };
        let name = Box::from(name.to_string());
        let mut queue = disk.queue.lock();
        if !disk.add_to(&mut queue, |batch| batch.save(Box::clone(&name), entry.clone())) && !queue.closing {
            // What is older must not come back in its place.
            queue.next.lose(&name);
        }
    }

    /// Keeps what a key owes, soon, if it is enough to be missed. `debt` is asked for only if anything is kept.
    pub fn owe(&self, key: &PaceKey, now: Instant, debt: impl FnOnce() -> Option<Debt>) {
        let Some(disk) = &self.disk else { return };
        let Some(debt) = debt() else { return };
        let rest = debt.until.duration_since(now);
        if rest >= LEAST_DEBT {
            let noted = SystemTime::now();
            let owed = Owed { noted, until: noted + rest, backoff: debt.backoff, refusals: debt.refusals };
            if !disk.add(|batch| _ = batch.debts.insert(key.to_string().into(), owed)) {
                disk.queue.lock().owes_more = true;
            }
        }
    }

    /// The latest at which an earlier process may have started anything that it had no time to note: when the store was opened, if
    /// that one had not closed it.
    pub fn last_unnoted(&self) -> Option<Instant> {
        self.disk.as_ref()?.killed.get().copied()
    }

    /// What the key owes since before the start; returned once.
    pub fn debt(&self, key: &PaceKey, now: Instant) -> Option<Debt> {
        let WriterShared { debts, has_debts, .. } = &**self.disk.as_ref()?;
        if !has_debts.load(Ordering::Relaxed) {
            return None;
        }
        let mut debts = debts.lock();
        let debts = debts.as_mut()?;
        let debt = debts.remove(&*key.to_string());
        has_debts.store(!debts.is_empty(), Ordering::Relaxed);
        debt.filter(|debt| debt.until > now)
    }

    /// Returns when all is written that was to be, or nothing can be. Blocks.
    pub fn flush(&self) {
        let Some(disk) = &self.disk else { return };
        let mut queue = disk.queue.lock();
        while !queue.closing && !queue.stuck && (!queue.next.is_empty() || !queue.writing.is_empty()) {
            disk.written.wait(&mut queue);
        }
    }

    /// Writes what is left and closes the file. Blocks.
    pub fn close(&self) {
        let Some(disk) = &self.disk else { return };
        disk.queue.lock().closing = true;
        disk.more.notify_all();
        if let Some(writer) = self.writer.lock().take() {
            // Its panics are caught where they can happen; at the end there is nothing to report them to.
            let _ = writer.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// Bytes that may wait for the disk.
fn queued(settings: &config::StoreSettings) -> usize {
    usize::try_from(settings.memory / QUEUED_PART).unwrap_or(usize::MAX).max(LEAST_QUEUED)
}

/// Where it is, or would be.
pub(super) fn directory(settings: &config::StoreSettings) -> PathBuf {
    settings.directory.clone().unwrap_or_else(config::state_directory)
}

const LEAST_DEBT: Duration = Duration::from_secs(1);
/// As far as an origin's Retry-After is obeyed.
const LONGEST_BACKOFF: Duration = Duration::from_secs(3600);
/// Of the memory that is given: what may wait for the disk.
const QUEUED_PART: u64 = 4;
/// However little that is: what is not taken on may come back from the disk as it was before.
const LEAST_QUEUED: usize = 8 << 20;

#[cfg(test)]
mod tests;
