//! The thread that writes the store's file: batches changes, and retries while the disk fails.

use super::batch::WriteBatch;
use super::disk::{Disk, DiskError, Location};
use super::queue::{Outage, WriteQueue};
use crate::config::hint_for;
use parking_lot::{Condvar, Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Shared by the writer thread and the requests.
pub(super) struct WriterShared {
    pub location: Location,
    /// Most bytes in memory waiting to be written; may change.
    pub most_queued: AtomicUsize,
    /// If another process has the store open, entries are obtained from that process.
    pub is_shared: bool,
    /// `None` while the store cannot be opened.
    pub disk: RwLock<Option<Disk>>,
    pub queue: Mutex<WriteQueue>,
    pub more: Condvar,
    pub written: Condvar,
    /// Notified with `written`.
    pub room: Notify,
    #[cfg(test)]
    pub stalled: Mutex<()>,
}

impl WriterShared {
    /// Starts the thread, after opening the store if possible.
    pub fn start(location: Location, queued: usize, is_shared: bool) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let shared = Arc::new(WriterShared {
            location,
            most_queued: queued.into(),
            is_shared,
            disk: RwLock::default(),
            queue: Mutex::default(),
            more: Condvar::new(),
            written: Condvar::new(),
            room: Notify::new(),
            #[cfg(test)]
            stalled: Mutex::default(),
        });
        if let Err(failure) = shared.open(false) {
            shared.note_failure(&mut shared.queue.lock(), &failure);
        }
        let writes = shared.clone();
        let writer = thread::Builder::new().name("politely-store".into()).spawn(move || writes.run())?;
        Ok((shared, writer))
    }

    /// Queues a change. False: the queue is full or closing.
    pub fn add(&self, queue: &mut WriteQueue, add: impl FnOnce(&mut WriteBatch)) -> bool {
        if queue.is_closing() {
            return false;
        }
        let has_room = queue.next.len() < MOST_QUEUED && queue.bytes() < self.most_queued.load(Ordering::Relaxed);
        if has_room {
            let was_empty = queue.next.is_empty();
            add(&mut queue.next);
            // Later changes wait for the same commit.
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

    /// Whether the disk is slow, though it does not fail: new files have to wait.
    pub fn is_behind(&self) -> bool {
        let queue = self.queue.lock();
        let is_hung = || queue.began.is_some_and(|began| began.elapsed() > HUNG);
        queue.outage.is_none() && !queue.is_closing() && self.is_half_full(&queue) && !is_hung()
    }

    /// A fetch has waited for a while.
    pub fn note_slow(&self) {
        if !std::mem::replace(&mut self.queue.lock().is_slow, true) {
            tracing::warn!("the store's disk is slow: new fetches of robots.txt wait for it");
        }
    }

    fn tell(&self) {
        self.written.notify_all();
        self.room.notify_waiters();
    }

    /// The disk cannot be written, until it is tried again.
    fn note_failure(&self, queue: &mut WriteQueue, failure: &DiskError) {
        let (before, is_elsewhere) = (queue.outage.take(), self.is_elsewhere(failure));
        if before.is_none() {
            self.warn(failure);
        }
        let pause = match before {
            // The process that has the store open may end soon.
            _ if is_elsewhere => RETRY_ELSEWHERE,
            Some(before) => (before.pause * 2).min(RETRY_MAX),
            None => RETRY_FIRST,
        };
        queue.outage = Some(Outage { until: Instant::now() + pause, pause, is_elsewhere });
    }

    fn run(&self) {
        let (mut checked, mut took) = (None, Duration::ZERO);
        loop {
            let closing = self.wait();
            let began = Instant::now();
            self.queue.lock().began = Some(began);
            let done = self.attempt(&mut checked, took);
            let mut queue = self.queue.lock();
            queue.began = None;
            match done {
                Err(failure) => {
                    self.note_failure(&mut queue, &failure);
                    if self.is_elsewhere(&failure) && self.is_half_full(&queue) {
                        // That process has these entries too.
                        queue.next = WriteBatch::default();
                    }
                }
                Ok(time) => {
                    took = time;
                    if queue.outage.take().is_some() {
                        tracing::info!("the store {} is written again", self.location.file().display());
                    }
                }
            }
            self.tell();
            if queue.is_slow && queue.outage.is_none() && took <= LEAST_BETWEEN && !self.is_half_full(&queue) {
                queue.is_slow = false;
                tracing::info!("the store's disk keeps up again");
            }
            queue.overflowed &= self.is_half_full(&queue);
            if closing {
                break;
            }
            // Collects changes for a while before the next commit, to spare the disk.
            while !queue.is_closing()
                && !self.is_half_full(&queue)
                && !self.more.wait_until(&mut queue, began + LEAST_BETWEEN).timed_out()
            {}
        }
        self.disk.write().take();
        self.queue.lock().has_ended = true;
        self.written.notify_all();
    }

    /// Waits for work. True: this is the last round.
    fn wait(&self) -> bool {
        let mut queue = self.queue.lock();
        match queue.outage.as_ref().map(|outage| outage.until) {
            Some(until) => while !queue.is_closing() && !self.more.wait_until(&mut queue, until).timed_out() {},
            None => {
                while queue.next.is_empty() && queue.complaint.is_none() && !queue.is_closing() {
                    self.more.wait(&mut queue);
                }
            }
        }
        queue.is_closing()
    }

    /// Writes the queued changes, reopening the file if necessary; on failure they stay queued. `checked`: when every page was last
    /// checked. `took`: the time of the last write. Returns the time of this one.
    fn attempt(&self, checked: &mut Option<Instant>, took: Duration) -> Result<Duration, DiskError> {
        let mut reopen = |failure: &DiskError| {
            let is_due = checked.is_none_or(|checked: Instant| checked.elapsed() > CHECK_EVERY);
            let suspect = matches!(failure, DiskError::Unreadable(_)) && is_due;
            if suspect {
                *checked = Some(Instant::now());
            }
            self.open(suspect)
        };
        let complaint = self.queue.lock().complaint.take();
        if let Some(failure) = complaint {
            tracing::debug!("the store could not be read: {failure}");
            reopen(&failure)?;
        } else if self.disk.read().is_none() {
            self.open(false)?;
        }
        #[cfg(test)]
        let _goes_on = self.stalled.lock();
        let (batch, in_haste) = {
            let mut queue = self.queue.lock();
            let in_haste = took > LEAST_BETWEEN && self.is_half_full(&queue) || queue.is_closing();
            queue.writing = Arc::new(std::mem::take(&mut queue.next));
            (queue.writing.clone(), in_haste)
        };
        let began = Instant::now();
        let is_late = || self.queue.lock().closing.is_some_and(|until| Instant::now() > until);
        let done = match self.disk.read().as_ref() {
            Some(disk) if !batch.is_empty() => {
                disk.commit(&batch, self.location.size.load(Ordering::Relaxed), in_haste, is_late)
            }
            Some(_) | None => Ok(0),
        };
        let done = done.map(|left_out| {
            if left_out > 0 {
                tracing::warn!("stopping: {left_out} copies of files are not stored, and will be fetched again");
            }
            began.elapsed()
        });
        let mut queue = self.queue.lock();
        queue.writing = Arc::default();
        if let Err(failure) = &done {
            queue.next.add_older(&batch);
            drop(queue);
            // A failed database cannot be read either; if reopening fails, the next attempt logs it.
            let _ = reopen(failure);
        }
        done
    }

    /// Opens the file, replacing the open database.
    fn open(&self, suspect: bool) -> Result<(), DiskError> {
        self.disk.write().take();
        let disk = self.location.open(suspect)?;
        tracing::debug!("{} authorities in {}", disk.authorities(), self.location.file().display());
        *self.disk.write() = Some(disk);
        Ok(())
    }

    /// Another process has the store open and is asked for entries.
    fn is_elsewhere(&self, failure: &DiskError) -> bool {
        self.is_shared && matches!(failure, DiskError::InUse)
    }

    /// An unusable store does not stop the proxy.
    fn warn(&self, failure: &DiskError) {
        if self.is_elsewhere(failure) {
            return tracing::debug!("another process has the store {} in use", self.location.file().display());
        }
        let hint = match failure {
            DiskError::InUse => "give each instance its own `store.directory`",
            DiskError::Io(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    "make room, or set `store.disk` lower"
                }
                _ => "set `store.directory` to a place that can be written",
            },
            DiskError::Unreadable(_) => "if this lasts, delete the file",
        };
        let hint = hint_for(&failure.to_string(), hint);
        tracing::warn!(
            "the store {} cannot be written: {failure}; copies are kept in memory only until it can; {hint}",
            self.location.file().display()
        );
    }
}

/// Most authorities in the queue.
const MOST_QUEUED: usize = 200_000;
/// Between the beginnings of two writes. A disk is slow that takes longer for one.
pub(super) const LEAST_BETWEEN: Duration = Duration::from_secs(1);
/// A write that takes longer is as good as one that fails.
const HUNG: Duration = Duration::from_secs(10);
/// Checking every page of a gigabyte takes a while.
const CHECK_EVERY: Duration = Duration::from_secs(600);
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_ELSEWHERE: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);
