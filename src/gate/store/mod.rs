//! The persistent store: copies of robots.txt and everything known about them, shared by the processes of a machine
//! (docs/robots-txt-life.md).
//!
//! It is read for an authority whose file is not in memory and, if the fleet has no server, before a fetch, as another process may have
//! stored a copy. A thread ([`writer`]) writes the changes. Reads also see changes that are not written yet, so that no request sees an
//! entry older than one already used. While the disk cannot be opened or written, changes stay in memory, up to a limit, and are written as
//! soon as possible.

mod batch;
mod disk;
mod index;
mod limit;
mod queue;
mod read_from;
mod record_name;
mod segments;
pub(super) mod snapshot;
mod writer;

pub(super) use read_from::ReadFrom;
pub(super) use snapshot::{CopyTimes, FileDigest, ReadFile, digest, first_half};

use crate::config;
use crate::policy::site_file::SiteFileName;
use crate::policy::{Access, Entry};
use disk::{Disk, StoredEntry};
use parking_lot::Mutex;
use queue::HUNG;
use record_name::RecordName;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use writer::{SLOW, WriterShared};

/// The store. Without a disk it keeps nothing.
#[derive(Default)]
pub(super) struct Store {
    /// `None`: nothing is kept.
    disk: Option<Arc<WriterShared>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the store as configured.
    pub fn open(settings: &config::StoreSettings) -> Self {
        if settings.disk == 0 {
            return Self::default();
        }
        config::warn_of_others(&settings.place(), "the store");
        match WriterShared::start(settings.place(), settings.disk, queued(settings)) {
            Ok((disk, writer)) => Store { disk: Some(disk), writer: Mutex::new(Some(writer)) },
            Err(error) => {
                tracing::warn!(%error, "cannot start the store's writer thread");
                Self::default()
            }
        }
    }

    /// Applies changed limits. If the store exceeds the new size, the next write drops the oldest records, unless another process allows
    /// more.
    pub fn resize(&self, settings: &config::StoreSettings) {
        if let Some(disk) = &self.disk {
            disk.most_queued.store(queued(settings), Ordering::Relaxed);
            disk.size.store(settings.disk, Ordering::Relaxed);
        }
    }

    /// Whether the store is open, so that it can be read.
    pub fn is_readable(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.disk.read().is_some())
    }

    /// Whether the last attempt to write the store succeeded, and its size in bytes. `None`: nothing is kept.
    pub fn on_disk(&self) -> Option<(bool, u64)> {
        let disk = self.disk.as_ref()?;
        let is_open = disk.queue.lock().outage.is_none();
        Some((is_open, Disk::bytes(&disk.directory)))
    }

    /// Bytes in memory waiting to be written.
    pub fn queued_bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.queue.lock().bytes())
    }

    /// Bytes in memory waiting to be written, without the files, which are counted elsewhere, as files in use.
    pub fn own_bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.queue.lock().own_bytes())
    }

    /// Whether new files have to wait for [`room`](Self::room).
    pub fn is_behind(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_behind())
    }

    /// Waits until the disk keeps up again, or fails or hangs.
    pub async fn room(&self) {
        let Some(disk) = &self.disk else { return };
        loop {
            let written = disk.room.notified();
            if !disk.is_behind() {
                return;
            }
            // Looks again after a while, as a disk that hangs notifies nobody.
            if timeout(SLOW, written).await.is_err() && disk.is_behind() {
                disk.note_slow();
            }
        }
    }

    /// The stored entry for an authority's file. Blocks on the disk. `parse` returns the parsed file: from memory, if a file with this
    /// digest is there, or else by reading and parsing it.
    pub fn load(
        &self,
        name: SiteFileName<'_>,
        parse: impl FnOnce(FileDigest, &ReadFile<'_>) -> Option<Access>,
    ) -> Option<Arc<Entry>> {
        self.read(name, ReadFrom::Disk, parse).unwrap_or_else(|error| {
            tracing::debug!("the store could not be read: {error}");
            None
        })
    }

    /// Like [`load`](Self::load). An error of a read from memory means that the entry has to be read from the disk, which blocks.
    pub fn read(
        &self,
        name: SiteFileName<'_>,
        how: ReadFrom,
        parse: impl FnOnce(FileDigest, &ReadFile<'_>) -> Option<Access>,
    ) -> io::Result<Option<Arc<Entry>>> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let key = RecordName::of_entry(&name.to_string());
        if let Some(entry) = disk.queue.lock().get(key) {
            return Ok(entry.cloned());
        }
        let stored = disk.on_disk(how, |open| open.read(key, SystemTime::now(), how, parse))?.flatten();
        let Some(StoredEntry { entry, is_old }) = stored else { return Ok(None) };
        if is_old {
            let mut queue = disk.queue.lock();
            // During an outage, the queue has room only for changes.
            if queue.outage.is_none() {
                disk.add(&mut queue, |batch| _ = batch.used.insert(key));
            }
        }
        Ok(Some(Arc::new(entry)))
    }

    /// The times of the entry for an authority's file, whichever process has stored it last.
    pub async fn times(&self, name: &str) -> Option<CopyTimes> {
        let (Some(disk), name) = (&self.disk, RecordName::of_entry(name)) else { return None };
        if let Some(entry) = disk.queue.lock().get(name) {
            return entry.map(|entry| CopyTimes::of(entry));
        }
        let read = move |disk: &WriterShared, how| disk.on_disk(how, |open| open.times(name, how));
        let times = match read(disk, ReadFrom::Memory) {
            Ok(times) => times,
            // The read would block.
            Err(_) => {
                let disk = disk.clone();
                spawn_blocking(move || read(&disk, ReadFrom::Disk)).await.ok()?.ok()?
            }
        };
        times.flatten()
    }

    /// Queues an entry for writing.
    pub fn save(&self, name: SiteFileName<'_>, entry: &Arc<Entry>) {
        let Some(disk) = &self.disk else { return };
        let name = RecordName::of_entry(&name.to_string());
        let mut queue = disk.queue.lock();
        if !disk.add(&mut queue, |batch| batch.save(name, entry.clone())) && !queue.is_closing {
            // The older entry on disk must not be used instead.
            queue.next.forget(name);
        }
    }

    /// Waits until the entry is written, so that other processes find it, or until the disk fails or hangs.
    pub async fn written(&self, name: &str) {
        let Some(disk) = &self.disk else { return };
        let key = RecordName::of_entry(name);
        loop {
            let written = disk.room.notified();
            let is_queued = {
                let queue = disk.queue.lock();
                queue.get(key).is_some() && queue.outage.is_none() && !queue.is_closing && !queue.is_hung()
            };
            if !is_queued || timeout(HUNG, written).await.is_err() {
                return;
            }
        }
    }

    /// Writes the remaining changes and closes the store, unless that takes longer than [`GIVE_UP`]: the proxy stops however slow the disk
    /// is, as the lost copies can be fetched again. Blocks.
    pub fn close(&self) {
        let (Some(disk), Some(writer)) = (&self.disk, self.writer.lock().take()) else { return };
        let until = Instant::now() + GIVE_UP;
        let mut queue = disk.queue.lock();
        queue.is_closing = true;
        disk.more.notify_all();
        disk.room.notify_waiters();
        while !queue.has_ended && !writer.is_finished() {
            if disk.written.wait_until(&mut queue, until).timed_out() {
                return tracing::warn!(
                    "stopping before the store in {} has finished its write; copies that were not stored will be fetched again",
                    disk.directory.display()
                );
            }
        }
        drop(queue);
        // Fails only if the writer has panicked, which the panic's own message has reported.
        let _ = writer.join();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// Maximum number of bytes that may wait to be written.
fn queued(settings: &config::StoreSettings) -> usize {
    usize::try_from(settings.memory / QUEUED_PART).unwrap_or(usize::MAX).max(LEAST_QUEUED)
}

/// Whether a store exists. Does not open it, as that would create one.
pub(super) fn is_begun(settings: &config::StoreSettings) -> bool {
    settings.disk > 0 && settings.place().join(index::FILE).exists()
}

/// Time limit for closing the store.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Divisor: at most `store.memory` divided by this may wait to be written.
const QUEUED_PART: u64 = 4;
/// Minimum of that limit, in bytes. The minimum is generous, as a refused change may leave an outdated entry on disk.
const LEAST_QUEUED: usize = 8 << 20;

#[cfg(test)]
pub(super) mod tests;
