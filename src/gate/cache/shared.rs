//! The files of the cache and their index, shared by requests, the tasks that write and the thread that starts. Functions that touch a
//! file block, and belong on the blocking threads.

use super::entry_body::EntryBody;
use super::entry_file::{EntryWriter, OpenEntry};
use super::in_flight::PageClaim;
use super::index::{EntryId, EntryIndex, on_disk};
use crate::config::{is_ours, open_lock, private_folder, warn_of_foreign, warn_of_others};
use crate::policy::cache::StoredHead;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

/// Shared by requests, the tasks that write and the thread that starts.
pub(super) struct CacheShared {
    directory: PathBuf,
    pub(super) index: Mutex<EntryIndex>,
    /// The index is complete. Before, nothing is stored or found.
    pub(super) is_ready: AtomicBool,
    /// Held as long as this process uses the directory.
    lock: OnceLock<File>,
    /// Names incomplete files.
    number: AtomicU64,
    /// Room for bytes that wait to be written.
    pub(super) room: Arc<Semaphore>,
    /// What is counted of them.
    pub(super) figures: Mutex<PageCacheFigures>,
    complained: Mutex<Option<Instant>>,
    /// The last answer could not be written.
    pub(super) is_failing: AtomicBool,
}

/// Figures on the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PageCacheFigures {
    /// Requests answered without the site.
    pub hits: u64,
    /// Requests answered after the site had confirmed the stored answer.
    pub revalidated: u64,
    /// Cacheable requests that had to go to the site.
    pub misses: u64,
    pub stored: u64,
    pub evicted: u64,
    /// Answers that could not be written.
    pub failed: u64,
    pub entries: usize,
    /// On disk.
    pub bytes: u64,
    #[serde(rename = "max_bytes")]
    pub limit: u64,
    /// The index is complete, no other process uses the files, and the last answer could be written.
    #[serde(rename = "up")]
    pub is_ready: bool,
}

/// An answer's place, and what it depends on.
pub struct StoreOrder {
    pub key: u128,
    /// The stored answer to replace.
    pub replaces: Option<EntryId>,
    /// Made before the request. Others wait until it is dropped.
    pub claim: PageClaim,
}

/// A stored answer that was found.
pub struct StoredAnswer {
    pub id: EntryId,
    pub head: StoredHead,
    /// Bytes of the body.
    pub length: u64,
    pub body: EntryBody,
    pub(super) entry: Arc<OpenEntry>,
}

impl CacheShared {
    /// See [`PageCache::open`](super::PageCache::open).
    pub(super) fn open(directory: &Path, size: u64) -> io::Result<Arc<Self>> {
        let unfinished = directory.join(UNFINISHED);
        private_folder(&unfinished)?;
        warn_of_others(directory, "the cache");
        let lock = open_lock(directory)?;
        let shared = Arc::new(CacheShared {
            directory: directory.to_owned(),
            index: Mutex::new(EntryIndex::new(size)),
            is_ready: AtomicBool::new(false),
            lock: OnceLock::new(),
            number: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(MOST_QUEUED)),
            figures: Mutex::default(),
            complained: Mutex::default(),
            is_failing: AtomicBool::default(),
        });
        let weak = Arc::downgrade(&shared);
        let (begun, is_ready) = mpsc::channel();
        let start = move || CacheShared::start(&weak, lock, &begun);
        thread::Builder::new().name("politely-cache".into()).spawn(start)?;
        // Delays the start briefly; a longer scan goes on in the background.
        let _ = is_ready.recv_timeout(MOMENT);
        Ok(shared)
    }

    /// Locks the directory, then builds the index. Ends early if the cache is dropped. `begun`: told when there is nothing to wait for.
    fn start(weak: &Weak<Self>, lock: File, begun: &mpsc::Sender<()>) {
        let mut has_complained = false;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            let Some(shared) = weak.upgrade() else { return };
            if !std::mem::replace(&mut has_complained, true) {
                let directory = shared.directory.display();
                tracing::warn!(%error, "another process uses the cache {directory}: nothing is cached until it is free");
            }
            drop(shared);
            let _ = begun.send(());
            thread::park_timeout(RETRY);
        }
        let Some(shared) = weak.upgrade() else { return };
        let began = Instant::now();
        let _ = shared.lock.set(lock);
        let unfinished = shared.directory.join(UNFINISHED);
        if private_folder(&unfinished).is_ok() {
            remove_all(&unfinished);
        }
        let mut found = shared.found();
        found.sort_unstable_by_key(|(_, _, used)| *used);
        {
            let mut index = shared.index.lock();
            found.iter().for_each(|(id, size, _)| index.put(*id, *size));
        }
        shared.evict();
        shared.is_ready.store(true, Relaxed);
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

    /// `None`: it is gone, or damaged.
    pub(super) fn open_entry(&self, id: EntryId) -> Option<OpenEntry> {
        self.intact(id, OpenEntry::open(&self.path(id), &self.directory))
    }

    /// Reads the beginning of the body.
    pub(super) fn begin(&self, id: EntryId, entry: OpenEntry) -> Option<StoredAnswer> {
        let body = self.intact(id, EntryBody::open(&entry))?;
        Some(StoredAnswer { id, head: entry.head.clone(), length: entry.body_len, body, entry: Arc::new(entry) })
    }

    /// Returns what was read; a damaged file is removed, unless it is another user's.
    fn intact<T>(&self, id: EntryId, read: io::Result<Option<T>>) -> Option<T> {
        let error = match read {
            Ok(Some(read)) => return Some(read),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let is_foreign = error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        if is_foreign {
            warn_of_foreign(&[self.path(id)], "an answer of the cache");
        }
        tracing::debug!(name = id.name(), error = error.map(tracing::field::display), "a file of the cache is damaged");
        if self.index.lock().remove(id) && !is_foreign {
            self.unlink(id);
        }
        None
    }

    pub(super) fn path(&self, id: EntryId) -> PathBuf {
        let name = id.name();
        self.directory.join(&name[..2]).join(&name)
    }

    /// The path of an answer until it is complete.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.directory.join(UNFINISHED).join(self.number.fetch_add(1, Relaxed).to_string())
    }

    /// Most bytes of one answer.
    pub(super) fn most_of_one(&self) -> u64 {
        self.index.lock().limit() / LARGEST_PART
    }

    /// Reserves bytes. Blocks. `false`: no room.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        let evicted = self.index.lock().reserve(bytes);
        let Some(evicted) = evicted else { return false };
        self.unlink_evicted(&evicted);
        true
    }

    /// Gives a complete file its name. Blocks. `is_wanted`: whether it is still to be stored. `reserved`: bytes.
    pub(super) fn put(
        &self,
        mut file: EntryWriter,
        reserved: &mut u64,
        order: &StoreOrder,
        is_wanted: impl FnOnce(&EntryIndex) -> bool,
    ) -> io::Result<()> {
        let id = self.index.lock().next(order.key);
        file.rename(&self.path(id))?;
        let mut index = self.index.lock();
        if !is_wanted(&index) {
            drop(index);
            self.unlink(id);
            return Ok(());
        }
        let replaced = order.replaces.filter(|id| index.has(*id)).or_else(|| index.surplus(order.key));
        replaced.iter().for_each(|id| _ = index.remove(*id));
        index.release(std::mem::take(reserved));
        index.put(id, file.size());
        let evicted = index.evict();
        drop(index);
        self.figures.lock().stored += 1;
        self.is_failing.store(false, Relaxed);
        replaced.into_iter().for_each(|id| self.unlink(id));
        self.unlink_evicted(&evicted);
        Ok(())
    }

    pub(super) fn evict(&self) {
        let evicted = self.index.lock().evict();
        self.unlink_evicted(&evicted);
    }

    fn unlink_evicted(&self, evicted: &[EntryId]) {
        self.figures.lock().evicted += evicted.len() as u64;
        evicted.iter().for_each(|id| self.unlink(*id));
    }

    /// Deletes the file of a removed entry. Blocks.
    pub(super) fn unlink(&self, id: EntryId) {
        // A file that is left is found after a restart.
        let _ = fs::remove_file(self.path(id));
    }

    /// Counts and logs a failed write.
    pub(super) fn failed(&self, error: &io::Error) {
        self.figures.lock().failed += 1;
        // Otherwise the answer is too large, or others leave it no room.
        if error.raw_os_error().is_some() {
            self.is_failing.store(true, Relaxed);
        }
        let mut complained = self.complained.lock();
        if complained.is_none_or(|at| at.elapsed() > COMPLAIN) {
            *complained = Some(Instant::now());
            tracing::warn!(%error, "answers cannot be stored in the cache {}", self.directory.display());
        }
    }
}

/// Removes the incomplete files of an earlier process.
fn remove_all(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_file(file.path());
    }
}

/// The folder of incomplete files.
const UNFINISHED: &str = "unfinished";
/// How long the start waits for the index.
const MOMENT: Duration = Duration::from_millis(500);
/// Between attempts to lock the directory.
const RETRY: Duration = Duration::from_secs(1);
/// Between two warnings about the disk.
const COMPLAIN: Duration = Duration::from_secs(60);
/// One answer may take this part of the cache: one in so many.
const LARGEST_PART: u64 = 8;
/// Bytes of all answers that wait to be written.
const MOST_QUEUED: usize = 64 * 1024 * 1024;
