//! What outlives the process: copies of robots.txt with all that is known of them (docs/robots-txt-life.md).
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

pub(super) use snapshot::{FileDigest, digest, digest_of, first_half};

use crate::config;
use crate::policy::site_file::SiteFileName;
use crate::policy::{Access, Entry};
use disk::Location;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::SystemTime;
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

    /// The store as configured. `is_shared`: the process that uses it is asked for what it has.
    pub fn open(settings: &config::StoreSettings, is_shared: bool) -> Self {
        if settings.disk == 0 {
            return Self::memory();
        }
        let bounds = Bounds { queued: queued(settings).into(), is_shared };
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

    /// Whether what is kept can be read now: it is open, and no other process has it.
    pub fn is_readable(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.disk.read().is_some())
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

    /// Returns when all is written that was to be, or nothing can be. Blocks.
    pub fn flush(&self) {
        let Some(disk) = &self.disk else { return };
        let mut queue = disk.queue.lock();
        while !queue.closing && !queue.stuck && (!queue.next.is_empty() || !queue.writing.is_empty()) {
            queue.is_urgent = true;
            disk.more.notify_all();
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

/// Of the memory that is given: what may wait for the disk.
const QUEUED_PART: u64 = 4;
/// However little that is: what is not taken on may come back from the disk as it was before.
const LEAST_QUEUED: usize = 8 << 20;

#[cfg(test)]
mod tests;
