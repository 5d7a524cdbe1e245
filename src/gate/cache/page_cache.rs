//! The files of the cache and their index, shared by the requests, the tasks that write, and the thread that builds the index (`start`).
//! Functions that touch a file block, so call them on the blocking threads.

use super::entry_body::EntryBody;
use super::entry_file::{EntryWriter, OpenEntry};
use super::in_flight::{PageClaim, PagesInFlight};
use super::index::{EntryId, EntryIndex};
use crate::config::{LOCK, is_at, warn_of_foreign};
use crate::policy::cache::StoredHead;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The cache of a proxy.
pub struct PageCache {
    pub(super) directory: PathBuf,
    pub(super) index: Mutex<EntryIndex>,
    /// The index is complete. Until then, nothing is stored or found.
    pub(super) is_ready: AtomicBool,
    /// The locked file, held as long as this process uses the directory. `None`: the directory is not locked.
    pub(super) lock: Mutex<Option<File>>,
    /// Number for the next incomplete file's name.
    pub(super) number: AtomicU64,
    /// Room for bytes that wait to be written.
    pub(super) room: Arc<Semaphore>,
    /// The figures that are counters; the others are filled in when the figures are read.
    pub(super) figures: Mutex<PageCacheFigures>,
    /// Time of the last warning about a failed write.
    pub(super) complained: Mutex<Option<Instant>>,
    /// The disk has failed since an answer was last stored.
    pub(super) is_failing: AtomicBool,
    pub(super) in_flight: PagesInFlight,
}

/// Figures on the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PageCacheFigures {
    /// Requests answered without asking the site.
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
    /// Size on disk, including the room reserved for answers that are being written.
    pub bytes: u64,
    #[serde(rename = "max_bytes")]
    pub limit: u64,
    /// The index is complete, no other process uses the files, and the disk is not failing.
    #[serde(rename = "up")]
    pub is_ready: bool,
    /// The disk has failed since an answer was last stored.
    #[serde(rename = "failing")]
    pub is_failing: bool,
}

/// How an answer is to be stored.
pub struct StoreOrder {
    pub key: u128,
    /// The stored answer to replace.
    pub replaces: Option<EntryId>,
    /// The claim to store the answer, made before the request was sent. Other requests may wait until it is dropped.
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

impl PageCache {
    /// Opens an entry's file. `None`: the file cannot be used, and the entry is removed.
    pub(super) fn open_entry(&self, id: EntryId) -> Option<OpenEntry> {
        self.intact(id, OpenEntry::open(&self.path(id), &self.directory))
    }

    /// Reads the beginning of the body. `None`: the file cannot be used, and the entry is removed.
    pub(super) fn begin(&self, id: EntryId, entry: OpenEntry) -> Option<StoredAnswer> {
        let entry = Arc::new(entry);
        let body = self.intact(id, EntryBody::open(&entry))?;
        Some(StoredAnswer { id, head: entry.head.clone(), length: entry.body_len, body, entry })
    }

    /// Returns the result of a read. If the file is damaged or cannot be read, removes its entry, and the file unless it belongs to another
    /// user. Keeps both if only descriptors or memory are lacking.
    pub(super) fn intact<T>(&self, id: EntryId, read: io::Result<Option<T>>) -> Option<T> {
        let error = match read {
            Ok(Some(read)) => return Some(read),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let number = error.as_ref().and_then(io::Error::raw_os_error);
        let is_at_limit = [libc::EMFILE, libc::ENFILE, libc::ENOMEM].map(Some).contains(&number);
        let is_foreign = error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        if is_foreign {
            warn_of_foreign(&[self.path(id)], "an answer of the cache");
        }
        tracing::debug!(
            name = id.name(),
            error = error.map(tracing::field::display),
            "a file of the cache is unusable"
        );
        if is_at_limit {
            return None;
        }
        if self.index.lock().remove(id) && !is_foreign {
            self.unlink(id);
        }
        None
    }

    pub(super) fn path(&self, id: EntryId) -> PathBuf {
        let name = id.name();
        self.directory.join(&name[..2]).join(&name)
    }

    /// Begins the file of an answer. Blocks. If the cache's files have been removed, fails, and restarts the cache.
    pub(super) fn create(self: &Arc<Self>, head: &StoredHead) -> io::Result<EntryWriter> {
        let path = self.directory.join(UNFINISHED).join(self.number.fetch_add(1, Relaxed).to_string());
        let is_locked = |lock: &File| is_at(lock, &self.directory.join(LOCK)).unwrap_or(false);
        let created = match self.lock.lock().as_ref().is_some_and(is_locked) {
            true => EntryWriter::create(path, head),
            false => Err(io::ErrorKind::NotFound.into()),
        };
        if created.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            self.begin_anew()?;
            return Err(io::Error::other("the cache's files were removed: it starts again, empty"));
        }
        created
    }

    /// Maximum size of one answer in bytes.
    pub fn most_of_one(&self) -> u64 {
        self.index.lock().limit / LARGEST_PART
    }

    /// Reserves bytes. Blocks. `false`: no room.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        let evicted = self.index.lock().reserve(bytes);
        let Some(evicted) = evicted else { return false };
        self.unlink_evicted(&evicted);
        true
    }

    /// Gives a complete file its name and an entry in the index, and removes the answer that it replaces. Blocks. `is_wanted`: whether the
    /// answer is still to be stored. `reserved`: number of bytes reserved for it, set to 0 when they are released.
    pub(super) fn put(
        &self,
        mut file: EntryWriter,
        reserved: &mut u64,
        order: &StoreOrder,
        is_wanted: impl FnOnce(&EntryIndex) -> bool,
    ) -> io::Result<()> {
        let id = self.index.lock().next(order.key);
        self.with_room(0, 1, || file.rename(&self.path(id)))?;
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

    /// Writes `bytes` bytes of an answer. If the disk is full, evicts the least recently used answers and tries once more: the disk may be
    /// smaller than the cache's limit. `of`: bytes of the answer so far. If this is more than an eighth of the cached bytes, nothing is
    /// evicted.
    pub(super) fn with_room<T>(&self, of: u64, bytes: u64, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match write() {
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                let mut index = self.index.lock();
                if of > index.figures().1 / 8 {
                    return Err(error);
                }
                let evicted = index.evict_some(bytes);
                drop(index);
                self.unlink_evicted(&evicted);
                write()
            }
            done => done,
        }
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
        // If this fails, the file is found again after a restart.
        let _ = fs::remove_file(self.path(id));
    }

    /// Counts and logs a failed write.
    pub(super) fn failed(&self, error: &io::Error) {
        self.figures.lock().failed += 1;
        // An error without an OS code does not come from the disk: for example, the answer's head is too long, or the limit leaves no
        // room beside other answers that are being written.
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

/// The folder of incomplete files.
pub(super) const UNFINISHED: &str = "unfinished";
/// Minimum time between two warnings about the disk.
const COMPLAIN: Duration = Duration::from_secs(60);
/// Divisor of the cache's size: one answer may take at most an eighth.
const LARGEST_PART: u64 = 8;
