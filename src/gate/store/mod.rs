//! The persistent store: copies of robots.txt and everything known about them (docs/robots-txt-life.md).
//!
//! Only the first use of an authority waits for the disk: a thread ([`writer`]) commits the changes since its last commit. Reads see
//! uncommitted changes, so that no request sees an entry older than one already used. While the disk cannot be opened or written,
//! changes stay in memory, up to a limit, and are written as soon as possible.

mod batch;
mod disk;
mod queue;
pub(super) mod snapshot;
mod tables;
mod writer;

pub(super) use snapshot::{FileDigest, ReadFile, digest, digest_of, first_half};

use crate::config;
use crate::policy::site_file::SiteFileName;
use crate::policy::{Access, Entry};
use disk::Location;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;
use writer::{LEAST_BETWEEN, WriterShared};

/// The store. Without a disk it keeps nothing.
#[derive(Default)]
pub(super) struct Store {
    /// `None`: nothing is kept.
    disk: Option<Arc<WriterShared>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// A store that keeps nothing.
    pub fn memory() -> Self {
        Self::default()
    }

    /// Opens the store as configured. `is_shared`: if another process has the store open, that process is asked for entries.
    pub fn open(settings: &config::StoreSettings, is_shared: bool) -> Self {
        if settings.disk == 0 {
            return Self::memory();
        }
        config::warn_of_others(&directory(settings), "the store");
        let location = Location { directory: directory(settings), size: settings.disk.into() };
        match WriterShared::start(location, queued(settings), is_shared) {
            Ok((disk, writer)) => Store { disk: Some(disk), writer: Mutex::new(Some(writer)) },
            Err(error) => {
                tracing::warn!(%error, "cannot start the store's writer thread");
                Self::memory()
            }
        }
    }

    /// Applies changed limits. What exceeds the new size on disk is dropped with the next write.
    pub fn resize(&self, settings: &config::StoreSettings) {
        if let Some(disk) = &self.disk {
            disk.most_queued.store(queued(settings), Ordering::Relaxed);
            disk.location.size.store(settings.disk, Ordering::Relaxed);
        }
    }

    /// Whether the store keeps anything.
    pub fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether the store can be read now: it is open here, and not in another process.
    pub fn is_readable(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.disk.read().is_some())
    }

    /// Whether the store works, and the size of its file in bytes. `None`: nothing is kept.
    pub fn on_disk(&self) -> Option<(bool, u64)> {
        let disk = self.disk.as_ref()?;
        let is_open = disk.queue.lock().outage.as_ref().is_none_or(|outage| outage.is_elsewhere);
        Some((is_open, std::fs::metadata(disk.location.file()).map_or(0, |file| file.len())))
    }

    /// Bytes in memory waiting to be written.
    pub fn queued_bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.queue.lock().bytes())
    }

    /// Without the files, which count as files in use.
    pub fn own_bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.queue.lock().own_bytes())
    }

    /// Whether new files have to wait for [`room`](Self::room).
    pub fn is_behind(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_behind())
    }

    /// Returns when the disk keeps up, or fails, or hangs.
    pub async fn room(&self) {
        let Some(disk) = &self.disk else { return };
        loop {
            let written = disk.room.notified();
            if !disk.is_behind() {
                return;
            }
            // Times out so that a disk that hangs is seen.
            if timeout(LEAST_BETWEEN, written).await.is_err() && disk.is_behind() {
                disk.note_slow();
            }
        }
    }

    /// The stored entry for an authority's file. Blocks on the disk. `parse` reads a file, or finds it by its digest.
    pub fn load(
        &self,
        name: SiteFileName<'_>,
        parse: impl FnOnce(FileDigest, &ReadFile<'_>) -> Option<Access>,
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
                disk.add(&mut disk.queue.lock(), |batch| _ = batch.used.insert(name.into()));
                Some(Arc::new(entry))
            }
            Err(failure) => {
                disk.queue.lock().complaint = Some(failure);
                disk.more.notify_one();
                None
            }
        }
    }

    /// Queues an entry for writing.
    pub fn save(&self, name: SiteFileName<'_>, entry: &Arc<Entry>) {
        let Some(disk) = &self.disk else { return };
        let name = Box::from(name.to_string());
        let mut queue = disk.queue.lock();
        if !disk.add(&mut queue, |batch| batch.save(Box::clone(&name), entry.clone())) && !queue.is_closing() {
            // The older entry on disk must not be used instead.
            queue.next.lose(&name);
        }
    }

    /// Writes the remaining changes, as far as that takes no longer than [`CLOSE`], and closes the file, unless the disk takes longer than
    /// [`GIVE_UP`]: the proxy stops however slow it is, as the lost copies can be fetched again. Blocks.
    pub fn close(&self) {
        let (Some(disk), Some(writer)) = (&self.disk, self.writer.lock().take()) else { return };
        let (mut queue, now) = (disk.queue.lock(), Instant::now());
        queue.closing = Some(now + CLOSE);
        disk.more.notify_all();
        disk.room.notify_waiters();
        while !queue.has_ended && !writer.is_finished() {
            if disk.written.wait_until(&mut queue, now + GIVE_UP).timed_out() {
                return tracing::warn!(
                    "the store {} does not end its write, and is not waited for",
                    disk.location.file().display()
                );
            }
        }
        drop(queue);
        // The writer catches panics where they can occur; at the end there is nowhere to report them.
        let _ = writer.join();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// Most bytes that may wait for the disk.
fn queued(settings: &config::StoreSettings) -> usize {
    usize::try_from(settings.memory / QUEUED_PART).unwrap_or(usize::MAX).max(LEAST_QUEUED)
}

/// The configured or default directory.
pub(super) fn directory(settings: &config::StoreSettings) -> PathBuf {
    settings.directory.clone().unwrap_or_else(config::state_directory)
}

/// How long entries are written while the store closes, and how long the disk is waited for in all.
const CLOSE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(5);
/// The share of `store.memory` that may wait for the disk: one in this many.
const QUEUED_PART: u64 = 4;
/// Lower limit of that share: a refused change may leave an outdated row on disk.
const LEAST_QUEUED: usize = 8 << 20;

#[cfg(test)]
pub(super) mod tests;
