//! The thread that writes the store: batches changes, and retries while the disk fails.

use super::batch::WriteBatch;
use super::disk::{Disk, is_full};
use super::queue::{Outage, WriteQueue};
use super::read_from::ReadFrom;
use crate::config::hint_for;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// State shared by the writer thread and the requests.
pub(super) struct WriterShared {
    pub directory: PathBuf,
    /// Maximum size of the store in bytes; may change while the store is open.
    pub size: AtomicU64,
    /// The size limit that this process last noted in the index.
    noted: AtomicU64,
    /// Maximum number of bytes in memory that wait to be written; may change.
    pub most_queued: AtomicUsize,
    /// `None` while the store cannot be opened.
    pub disk: RwLock<Option<Arc<Disk>>>,
    pub queue: Mutex<WriteQueue>,
    /// Wakes the writer thread: there is work, or the store is closing.
    pub more: Condvar,
    /// Notified after each attempt to write.
    pub written: Condvar,
    /// Notified together with `written`, for async tasks.
    pub room: Notify,
    #[cfg(test)]
    pub stalled: Mutex<()>,
}

impl WriterShared {
    /// Starts the thread, after opening the store if possible.
    pub fn start(directory: PathBuf, size: u64, queued: usize) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let shared = Arc::new(Self::new(directory, size, queued));
        if let Err(failure) = shared.open() {
            shared.note_failure(&mut shared.queue.lock(), &failure);
        }
        let writes = shared.clone();
        let writer = thread::Builder::new().name("politely-store".into()).spawn(move || writes.run())?;
        Ok((shared, writer))
    }

    pub fn new(directory: PathBuf, size: u64, queued: usize) -> Self {
        WriterShared {
            directory,
            size: size.into(),
            noted: AtomicU64::default(),
            most_queued: queued.into(),
            disk: RwLock::default(),
            queue: Mutex::default(),
            more: Condvar::new(),
            written: Condvar::new(),
            room: Notify::new(),
            #[cfg(test)]
            stalled: Mutex::default(),
        }
    }

    /// Queues a change. False: the queue is full, or the store is closing.
    pub fn add(&self, queue: &mut WriteQueue, add: impl FnOnce(&mut WriteBatch)) -> bool {
        if queue.is_closing {
            return false;
        }
        let has_room = queue.next.len() < MOST_QUEUED && queue.bytes() < self.most_queued.load(Ordering::Relaxed);
        if has_room {
            let was_empty = queue.next.is_empty();
            add(&mut queue.next);
            // The first change wakes the writer thread, which also writes the changes that follow. A queue that is half full wakes it
            // again.
            if was_empty || self.is_half_full(queue) {
                self.more.notify_one();
            }
        } else if !std::mem::replace(&mut queue.overflowed, true) {
            tracing::warn!("the store's disk does not keep up: some copies will be fetched again after a restart");
        }
        has_room
    }

    fn is_half_full(&self, queue: &WriteQueue) -> bool {
        queue.next.len() > MOST_QUEUED / 2 || queue.bytes() > self.most_queued.load(Ordering::Relaxed) / 2
    }

    /// Whether new files have to wait: the disk is slow, but does not fail.
    pub fn is_behind(&self) -> bool {
        let queue = self.queue.lock();
        queue.outage.is_none() && !queue.is_closing && self.is_half_full(&queue) && !queue.is_hung()
    }

    /// Logs that fetches wait for the disk.
    pub fn note_slow(&self) {
        if !std::mem::replace(&mut self.queue.lock().is_slow, true) {
            tracing::warn!("the store's disk is slow: new fetches of robots.txt wait for it");
        }
    }

    /// Notes that the disk cannot be written, and when to try again.
    fn note_failure(&self, queue: &mut WriteQueue, failure: &io::Error) {
        let before = queue.outage.take();
        if before.is_none() {
            self.warn(failure);
        }
        let pause = before.map_or(RETRY_FIRST, |before| (before.pause * 2).min(RETRY_MAX));
        queue.outage = Some(Outage { until: Instant::now() + pause, pause });
    }

    fn run(&self) {
        loop {
            let closing = self.wait();
            let began = Instant::now();
            self.queue.lock().began = Some(began);
            let done = self.attempt();
            let mut queue = self.queue.lock();
            queue.began = None;
            match &done {
                Err(failure) => self.note_failure(&mut queue, failure),
                Ok(_) if queue.outage.take().is_some() => {
                    tracing::info!("the store in {} can be written again", self.directory.display());
                }
                Ok(_) => {}
            }
            self.written.notify_all();
            self.room.notify_waiters();
            if queue.is_slow && done.is_ok_and(|took| took <= SLOW) && !self.is_half_full(&queue) {
                queue.is_slow = false;
                tracing::info!("the store's disk keeps up again");
            }
            queue.overflowed &= self.is_half_full(&queue);
            if closing {
                break;
            }
            // Collects changes for a moment, so that one write serves many hosts.
            while !queue.is_closing
                && !self.is_half_full(&queue)
                && !self.more.wait_until(&mut queue, began + BETWEEN).timed_out()
            {}
        }
        self.disk.write().take();
        self.queue.lock().has_ended = true;
        self.written.notify_all();
    }

    /// Waits for work. True: the store is closing, so this is the last attempt to write.
    fn wait(&self) -> bool {
        let mut queue = self.queue.lock();
        match queue.outage.as_ref().map(|outage| outage.until) {
            Some(until) => while !queue.is_closing && !self.more.wait_until(&mut queue, until).timed_out() {},
            None => {
                while queue.next.is_empty() && !queue.is_closing {
                    if self.more.wait_for(&mut queue, TIDY).timed_out() {
                        MutexGuard::unlocked(&mut queue, || self.close_removed());
                    }
                }
            }
        }
        queue.is_closing
    }

    /// Closes files that other processes have removed or replaced: they would otherwise take room on the disk until the next read or write.
    pub fn close_removed(&self) {
        match self.opened() {
            // Somebody has removed the store: the next write creates it again.
            Some(disk) if disk.index().is_replaced() && !disk.index().has_successor() => _ = self.disk.write().take(),
            // If this fails, the next write fails, too, and logs it.
            Some(disk) if disk.index().is_replaced() => _ = self.open(),
            Some(disk) => disk.segments.close_removed(),
            None => {}
        }
    }

    /// Writes the queued changes, reopening the store if necessary; on failure they stay queued. Returns the time that writing took.
    fn attempt(&self) -> io::Result<Duration> {
        let disk = match self.opened().filter(|disk| disk.index().is_named()) {
            Some(disk) => disk,
            None => self.open()?,
        };
        #[cfg(test)]
        let _goes_on = self.stalled.lock();
        let batch = {
            let mut queue = self.queue.lock();
            queue.writing = Arc::new(std::mem::take(&mut queue.next));
            queue.writing.clone()
        };
        let (began, size) = (Instant::now(), self.size.load(Ordering::Relaxed));
        let done = disk.index().limit(size, &self.noted).and_then(|size| disk.write(&batch, size));
        let mut queue = self.queue.lock();
        queue.writing = Arc::default();
        if done.is_err() {
            queue.next.add_older(&batch);
        }
        done.map(|()| began.elapsed())
    }

    /// Reads the store. `None`: the store is not open.
    pub fn on_disk<T>(&self, how: ReadFrom, read: impl FnOnce(&Disk) -> io::Result<T>) -> io::Result<Option<T>> {
        let Some(disk) = self.opened() else { return Ok(None) };
        match disk.index().is_replaced() {
            true if how == ReadFrom::Memory => Err(io::ErrorKind::WouldBlock.into()),
            true => read(&*self.open()?).map(Some),
            false => read(&disk).map(Some),
        }
    }

    /// The open store, cloned so that no lock is held while it is read.
    fn opened(&self) -> Option<Arc<Disk>> {
        self.disk.read().clone()
    }

    fn open(&self) -> io::Result<Arc<Disk>> {
        let disk = Arc::new(Disk::open(&self.directory)?);
        *self.disk.write() = Some(disk.clone());
        Ok(disk)
    }

    /// Warns of an unusable store, which does not stop the proxy.
    fn warn(&self, failure: &io::Error) {
        let hint = match failure.kind() {
            _ if is_full(failure) => "make room, or set `store.disk` lower",
            io::ErrorKind::TimedOut => "if another process that uses the store is suspended, resume or end it",
            _ => "set `store.directory` to a place that can be written",
        };
        let hint = hint_for(&failure.to_string(), hint);
        tracing::warn!(
            "the store in {} cannot be written: {failure}; until it can be, copies are kept only in memory; {hint}",
            self.directory.display()
        );
    }
}

/// Maximum number of changes that wait for the next write.
const MOST_QUEUED: usize = 200_000;
/// Time between the beginnings of two writes.
const BETWEEN: Duration = Duration::from_millis(20);
/// Time between two checks for removed files, while nothing is written.
const TIDY: Duration = Duration::from_secs(60);
/// Duration of a write above which the disk counts as slow.
pub(super) const SLOW: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
