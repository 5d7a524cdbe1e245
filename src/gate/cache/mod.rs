//! A shared cache of answers on disk (RFC 9111), for clients that fetch the same pages: its files, and what is known of them in
//! memory. What may be stored and served is for `policy::cache`, and which request may be answered for the exchange.

mod entry_body;
mod entry_file;
mod index;
mod storing;
mod under_way;

pub use entry_body::EntryBody;
pub use index::EntryId;
pub use storing::{StoreOrder, StoringAnswer};
pub use under_way::{OthersFetch, OwnFetch, PageFetch};

use crate::policy::cache::StoredHead;
use entry_file::OpenEntry;
use index::{EntryIndex, on_disk};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::task::spawn_blocking;
use under_way::PagesUnderWay;

/// The cache of a proxy.
pub struct PageCache {
    shared: Arc<CacheShared>,
    under_way: PagesUnderWay,
}

/// What requests, the tasks that write and the thread that starts share.
struct CacheShared {
    directory: PathBuf,
    index: Mutex<EntryIndex>,
    /// Its files are known. Before, nothing is stored or found.
    is_ready: AtomicBool,
    /// Held as long as this process uses the directory.
    lock: OnceLock<File>,
    /// Names files that are not whole yet.
    number: AtomicU64,
    /// Bytes that wait to be written.
    queued: AtomicUsize,
    counts: CacheCounts,
    complained: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct CacheCounts {
    hits: AtomicU64,
    revalidated: AtomicU64,
    misses: AtomicU64,
    stored: AtomicU64,
    evicted: AtomicU64,
    failed: AtomicU64,
}

/// A reading of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCacheFigures {
    /// Requests that were answered without the site.
    pub hits: u64,
    /// Requests that were answered after the site had confirmed what was stored.
    pub revalidated: u64,
    /// Requests that could have been answered, and had to go to the site.
    pub misses: u64,
    pub stored: u64,
    pub evicted: u64,
    /// Answers that could not be written.
    pub failed: u64,
    pub entries: usize,
    /// On disk.
    pub bytes: u64,
    pub limit: u64,
    /// Its files are known, and no other process has them.
    pub is_ready: bool,
}

/// How a request fared with the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheResult {
    Hit,
    Revalidated,
    Miss,
}

/// A stored answer that was found.
pub struct StoredAnswer {
    pub id: EntryId,
    pub head: StoredHead,
    /// Bytes of the body.
    pub length: u64,
    pub body: EntryBody,
    entry: Arc<OpenEntry>,
    /// When it was written, as the index has it.
    made: u64,
}

impl PageCache {
    /// Its files become known in the background, which is waited for a moment. `size`: bytes on disk.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(directory: &Path, size: u64) -> io::Result<Self> {
        let unfinished = directory.join(UNFINISHED);
        DirBuilder::new().recursive(true).mode(0o700).create(&unfinished)?;
        let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(directory.join(LOCK))?;
        let shared = Arc::new(CacheShared {
            directory: directory.to_owned(),
            index: Mutex::new(EntryIndex::new(size)),
            is_ready: AtomicBool::new(false),
            lock: OnceLock::new(),
            number: AtomicU64::new(0),
            queued: AtomicUsize::new(0),
            counts: CacheCounts::default(),
            complained: Mutex::default(),
        });
        let weak = Arc::downgrade(&shared);
        let (begun, is_ready) = mpsc::channel();
        let start = move || CacheShared::start(&weak, lock, &begun);
        thread::Builder::new().name("politely-cache".into()).spawn(start)?;
        // Nobody is answered meanwhile; what takes longer is not waited for.
        let _ = is_ready.recv_timeout(MOMENT);
        Ok(PageCache { shared, under_way: PagesUnderWay::default() })
    }

    /// The hash of a URL.
    pub fn key(url: &[u8]) -> u128 {
        let hash = digest(&SHA256, url);
        u128::from_be_bytes(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// Takes up another limit.
    pub fn resize(&self, size: u64) {
        if self.shared.index.lock().limit() == size {
            return;
        }
        self.shared.index.lock().set_limit(size);
        let shared = self.shared.clone();
        thread::spawn(move || shared.evict());
    }

    /// The newest stored answer of this URL that is wanted. A file that is damaged is removed.
    pub async fn find(
        &self,
        key: u128,
        is_wanted: impl Fn(&StoredHead) -> bool + Send + 'static,
    ) -> Option<StoredAnswer> {
        if !self.shared.is_ready.load(Relaxed) {
            return None;
        }
        let ids: Vec<(EntryId, u64)> = {
            let index = self.shared.index.lock();
            index.of(key).into_iter().map(|id| (id, index.made_of(id))).collect()
        };
        if ids.is_empty() {
            return None;
        }
        let shared = self.shared.clone();
        let newest = spawn_blocking(move || {
            let opened = ids.into_iter().filter_map(|(id, made)| Some((id, made, shared.open_entry(id)?)));
            let wanted = opened.filter(|(.., entry)| is_wanted(&entry.head));
            let (id, made, entry) = wanted.max_by_key(|(.., entry)| entry.head.received)?;
            shared.begin(id, made, entry)
        });
        let newest = newest.await.ok()??;
        self.shared.index.lock().touch(newest.id);
        Some(newest)
    }

    /// Goes up when an answer of the URL is stored. 0: there is none.
    pub fn made(&self, key: u128) -> u64 {
        self.shared.index.lock().made(key)
    }

    /// So many times something has been invalidated.
    pub fn invalidations(&self) -> u64 {
        self.shared.index.lock().invalidations()
    }

    /// Whether somebody fetches it already.
    pub fn enter(&self, key: u128) -> PageFetch {
        self.under_way.enter(key)
    }

    /// An answer is to be stored, if there is a cache to store it in.
    pub fn store(&self, head: StoredHead, order: StoreOrder) -> Option<StoringAnswer> {
        self.shared.is_ready.load(Relaxed).then(|| StoringAnswer::begin(&self.shared, head, order))
    }

    /// A stored answer has been confirmed, and has this head now.
    pub fn confirm(&self, stored: &StoredAnswer, head: StoredHead, order: StoreOrder) {
        tokio::spawn(storing::confirm(
            self.shared.clone(),
            (stored.entry.clone(), stored.id, stored.made),
            head,
            order,
        ));
    }

    /// What is stored of this URL, and what is on its way there, is no longer true (RFC 9111 §4.4), or not to be served.
    pub fn invalidate(&self, key: u128) {
        let ids = self.shared.index.lock().invalidate(key);
        if !ids.is_empty() {
            self.remove(ids);
        }
    }

    fn remove(&self, ids: Vec<EntryId>) {
        let shared = self.shared.clone();
        drop(spawn_blocking(move || ids.into_iter().for_each(|id| shared.unlink(id))));
    }

    pub fn count(&self, result: CacheResult) {
        let counts = &self.shared.counts;
        let count = match result {
            CacheResult::Hit => &counts.hits,
            CacheResult::Revalidated => &counts.revalidated,
            CacheResult::Miss => &counts.misses,
        };
        count.fetch_add(1, Relaxed);
    }

    pub fn figures(&self) -> PageCacheFigures {
        let CacheShared { counts, index, is_ready, .. } = &*self.shared;
        let index = index.lock();
        let (entries, bytes) = index.figures();
        PageCacheFigures {
            hits: counts.hits.load(Relaxed),
            revalidated: counts.revalidated.load(Relaxed),
            misses: counts.misses.load(Relaxed),
            stored: counts.stored.load(Relaxed),
            evicted: counts.evicted.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            entries,
            bytes,
            limit: index.limit(),
            is_ready: is_ready.load(Relaxed),
        }
    }
}

impl CacheResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
        }
    }
}

impl CacheShared {
    /// Has the directory for itself, then learns what is there. Ends early if the cache is dropped. `begun`: told when nothing
    /// more is to be waited for.
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
        remove_all(&shared.directory.join(UNFINISHED));
        let mut found = shared.found();
        found.sort_unstable_by_key(|(_, _, used)| *used);
        {
            let mut index = shared.index.lock();
            found.iter().for_each(|(id, size, _)| index.put_found(*id, *size));
        }
        shared.evict();
        let entries = found.len();
        tracing::info!(entries, ms = began.elapsed().as_millis() as u64, "the cache is ready");
        shared.is_ready.store(true, Relaxed);
        let _ = begun.send(());
    }

    /// The files that an earlier process has left, by names, sizes and times alone.
    fn found(&self) -> Vec<(EntryId, u64, SystemTime)> {
        let mut found = Vec::new();
        for folder in 0..=u8::MAX {
            // One that is not there is empty.
            let Ok(files) = fs::read_dir(self.directory.join(format!("{folder:02x}"))) else { continue };
            for file in files.flatten() {
                let id = file.file_name().to_str().and_then(EntryId::parse);
                let Some((id, data)) = id.zip(file.metadata().ok().filter(fs::Metadata::is_file)) else { continue };
                found.push((id, on_disk(data.len()), data.modified().unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
        found
    }

    /// `None`: it is gone, or damaged.
    fn open_entry(&self, id: EntryId) -> Option<OpenEntry> {
        self.intact(id, OpenEntry::open(&self.path(id)))
    }

    /// With the beginning of its body.
    fn begin(&self, id: EntryId, made: u64, entry: OpenEntry) -> Option<StoredAnswer> {
        let body = self.intact(id, EntryBody::open(&entry))?;
        Some(StoredAnswer { id, head: entry.head.clone(), length: entry.body_len, body, entry: Arc::new(entry), made })
    }

    /// What was read of a file, which is removed if it is damaged.
    fn intact<T>(&self, id: EntryId, read: io::Result<Option<T>>) -> Option<T> {
        let error = match read {
            Ok(Some(read)) => return Some(read),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        tracing::debug!(name = id.name(), error = error.map(tracing::field::display), "a damaged file of the cache");
        if self.index.lock().remove(id) {
            self.unlink(id);
        }
        None
    }

    fn path(&self, id: EntryId) -> PathBuf {
        let name = id.name();
        self.directory.join(&name[..2]).join(&name)
    }

    /// Where an answer is until it is whole.
    fn unfinished(&self) -> PathBuf {
        self.directory.join(UNFINISHED).join(self.number.fetch_add(1, Relaxed).to_string())
    }

    /// Bytes that one answer may have.
    fn most_of_one(&self) -> u64 {
        self.index.lock().limit() / LARGEST_PART
    }

    /// Room for so much. Blocks. `false`: there is none.
    fn reserve(&self, bytes: u64) -> bool {
        let evicted = self.index.lock().reserve(bytes);
        let Some(evicted) = evicted else { return false };
        self.unlink_evicted(&evicted);
        true
    }

    /// It is on disk. Blocks. `reserved`: for it.
    fn put(&self, id: EntryId, size: u64, reserved: u64) {
        let evicted = {
            let mut index = self.index.lock();
            index.put(id, size, reserved);
            index.evict()
        };
        self.counts.stored.fetch_add(1, Relaxed);
        self.unlink_evicted(&evicted);
    }

    fn evict(&self) {
        let evicted = self.index.lock().evict();
        self.unlink_evicted(&evicted);
    }

    fn unlink_evicted(&self, evicted: &[EntryId]) {
        self.counts.evicted.fetch_add(evicted.len() as u64, Relaxed);
        evicted.iter().for_each(|id| self.unlink(*id));
    }

    fn unlink(&self, id: EntryId) {
        // One that is left is found by the next start.
        let _ = fs::remove_file(self.path(id));
    }

    /// Something could not be written.
    fn failed(&self, error: &io::Error) {
        self.counts.failed.fetch_add(1, Relaxed);
        let mut complained = self.complained.lock();
        if complained.is_none_or(|at| at.elapsed() > COMPLAIN) {
            *complained = Some(Instant::now());
            tracing::warn!(%error, "answers cannot be stored in the cache {}", self.directory.display());
        }
    }
}

/// What an earlier process did not finish.
fn remove_all(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_file(file.path());
    }
}

/// The folder of files that are not whole.
const UNFINISHED: &str = "unfinished";
const LOCK: &str = "lock";
/// That the start waits for the files.
const MOMENT: Duration = Duration::from_millis(500);
/// While another process has the directory.
const RETRY: Duration = Duration::from_secs(1);
/// Between two complaints about the disk.
const COMPLAIN: Duration = Duration::from_secs(60);
/// The part of the cache that one answer may take.
const LARGEST_PART: u64 = 8;
