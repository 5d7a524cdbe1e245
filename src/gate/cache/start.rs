//! Start of the cache, or restart after its files were removed: a thread locks the directory and builds the index.

use super::in_flight::PagesInFlight;
use super::index::{EntryId, EntryIndex, on_disk};
use super::page_cache::{PageCache, UNFINISHED};
use crate::config::{is_ours, open_lock, private_folder, warn_of_foreign, warn_of_others};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

impl PageCache {
    /// Opens the cache. Builds the index in the background, and waits briefly for it. `size`: maximum number of bytes on disk.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(directory: &Path, size: u64) -> io::Result<Arc<Self>> {
        open_files(directory)?;
        warn_of_others(directory, "the cache");
        let shared = Arc::new(PageCache {
            directory: directory.to_owned(),
            index: Mutex::new(EntryIndex::new(size)),
            is_ready: AtomicBool::new(false),
            lock: Mutex::default(),
            number: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(MOST_QUEUED)),
            figures: Mutex::default(),
            complained: Mutex::default(),
            is_failing: AtomicBool::default(),
            in_flight: PagesInFlight::default(),
        });
        let _ = shared.make_ready()?.recv_timeout(MOMENT);
        Ok(shared)
    }

    /// Starts the thread that makes the cache ready. The receiver gets a message when the cache is ready, or when it cannot be locked yet.
    fn make_ready(self: &Arc<Self>) -> io::Result<mpsc::Receiver<()>> {
        let weak = Arc::downgrade(self);
        let (begun, is_ready) = mpsc::channel();
        let start = move || PageCache::start(&weak, &begun);
        thread::Builder::new().name("politely-cache".into()).spawn(start)?;
        Ok(is_ready)
    }

    /// Locks the directory, then builds the index. Ends early if the cache is dropped.
    fn start(weak: &Weak<Self>, begun: &mpsc::Sender<()>) {
        let mut has_complained = false;
        let (shared, lock) = loop {
            let Some(shared) = weak.upgrade() else { return };
            // The file is opened each time, as the process that had locked it may have removed it.
            let lock = open_files(&shared.directory)
                .and_then(|lock| Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).map(|()| lock)?));
            let error = match lock {
                Ok(lock) => break (shared, lock),
                Err(error) => error,
            };
            if !std::mem::replace(&mut has_complained, true) {
                let directory = shared.directory.display();
                let why = match error.kind() {
                    io::ErrorKind::WouldBlock => "another process uses the cache",
                    _ => "cannot open the cache",
                };
                tracing::warn!(%error, "{why} {directory}: nothing is cached until this changes");
            }
            drop(shared);
            let _ = begun.send(());
            thread::park_timeout(RETRY);
        };
        let began = Instant::now();
        // Cleared before the files are read, so that the index keeps answers that are written meanwhile.
        shared.index.lock().clear();
        remove_all(&shared.directory.join(UNFINISHED));
        let mut found = shared.found();
        found.sort_unstable_by_key(|(_, _, used)| *used);
        for (id, size, _) in &found {
            if !shared.index.lock().put_found(*id, *size) {
                shared.unlink(*id);
            }
        }
        shared.evict();
        let (mut held, mut index) = (shared.lock.lock(), shared.index.lock());
        *held = Some(lock);
        index.end_finding();
        shared.is_ready.store(true, Relaxed);
        drop((held, index));
        let (entries, ms) = (found.len(), began.elapsed().as_millis());
        tracing::info!(entries, ms, "the cache is ready");
        let _ = begun.send(());
    }

    /// The files of earlier processes, by names, sizes and times alone.
    fn found(&self) -> Vec<(EntryId, u64, SystemTime)> {
        let (mut found, mut foreign) = (Vec::new(), Vec::new());
        for folder in 0..=u8::MAX {
            // A missing folder is empty.
            let Ok(files) = fs::read_dir(self.directory.join(format!("{folder:02x}"))) else { continue };
            for file in files.flatten() {
                let id = file.file_name().to_str().and_then(EntryId::parse);
                let Some((id, data)) = id.zip(file.metadata().ok().filter(fs::Metadata::is_file)) else { continue };
                if !is_ours(&data, &self.directory) {
                    foreign.push(file.path());
                    continue;
                }
                found.push((id, on_disk(data.len()), data.modified().unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
        warn_of_foreign(&foreign, "answers of the cache");
        found
    }

    /// Restarts the cache: builds the index again, unless a thread is doing so already.
    pub(super) fn begin_anew(self: &Arc<Self>) -> io::Result<()> {
        let mut lock = self.lock.lock();
        if self.is_ready.swap(false, Relaxed) {
            drop(lock.take());
            self.make_ready().inspect_err(|_| self.is_ready.store(true, Relaxed))?;
        }
        Ok(())
    }
}

/// Creates the folder of incomplete files, and opens the lock file.
fn open_files(directory: &Path) -> io::Result<File> {
    private_folder(&directory.join(UNFINISHED))?;
    open_lock(directory)
}

/// Removes the incomplete files of an earlier process.
fn remove_all(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_file(file.path());
    }
}

/// Time for which the start waits for the index.
const MOMENT: Duration = Duration::from_millis(500);
/// Time between attempts to lock the directory.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of bytes that wait to be written, of all answers.
const MOST_QUEUED: usize = 64 * 1024 * 1024;
