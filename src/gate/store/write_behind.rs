//! Writes in the background: a thread that commits whatever has gathered since its last commit. While the disk
//! cannot be had or written, what has gathered stays in memory, within bounds, and is written as soon as it can be.

use super::batch::Owed;
use super::disk::Location;
use super::snapshot::FileDigest;
use super::writer::{Bounds, Outage, WriterShared};
use crate::policy::pace::Debt;
use crate::policy::{Access, Entry};
use parking_lot::{Condvar, Mutex, RwLock};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

/// The file and its writer.
pub(super) struct WriteBehind {
    shared: Arc<WriterShared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl WriteBehind {
    /// With what an earlier process has left, if that can be had now.
    pub fn start(location: Location, bounds: Bounds) -> io::Result<Self> {
        let shared = Arc::new(WriterShared {
            location,
            bounds,
            disk: RwLock::new(None),
            queue: Mutex::default(),
            more: Condvar::new(),
            written: Condvar::new(),
            debts: Mutex::default(),
            has_debts: AtomicBool::new(false),
            #[cfg(test)]
            stalled: Mutex::default(),
            killed: OnceLock::new(),
        });
        let outage = shared.open(false).err().map(|failure| {
            let mut queue = shared.queue.lock();
            (queue.stuck, queue.is_lost) = (true, !shared.is_elsewhere(&failure));
            drop(queue);
            shared.warn(&failure);
            Outage::default()
        });
        let writes = shared.clone();
        let writer = thread::Builder::new().name("politely-store".into()).spawn(move || writes.run(outage))?;
        Ok(WriteBehind { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Other bounds, in bytes. What is on disk above them goes with the next write.
    pub fn resize(&self, queued: usize, disk: u64) {
        self.shared.bounds.queued.store(queued, Ordering::Relaxed);
        self.shared.location.size.store(disk, Ordering::Relaxed);
    }

    pub fn load(
        &self,
        authority: &str,
        parse: impl FnOnce(FileDigest, &dyn Fn() -> Option<Vec<u8>>) -> Option<Access>,
    ) -> Option<Arc<Entry>> {
        {
            let queue = self.shared.queue.lock();
            if let Some(entry) = queue.next.get(authority).or_else(|| queue.writing.get(authority)) {
                return entry.cloned();
            }
        }
        let read = self.shared.disk.read().as_ref()?.read(authority, SystemTime::now(), parse);
        match read {
            Ok(entry) => {
                let entry = entry?;
                self.shared.add(|batch| batch.touch(authority.into()));
                Some(Arc::new(entry))
            }
            Err(failure) => {
                self.shared.queue.lock().complaint = Some(failure);
                self.shared.more.notify_one();
                None
            }
        }
    }

    pub fn save(&self, authority: Box<str>, entry: Arc<Entry>) {
        let mut queue = self.shared.queue.lock();
        if !self.shared.add_to(&mut queue, |batch| batch.save(authority.clone(), entry)) && !queue.closing {
            // What is older must not come back in its place.
            queue.next.lose(&authority);
        }
    }

    pub fn owe(&self, key: Box<str>, owed: Owed) {
        if !self.shared.add(|batch| batch.owe(key, owed)) {
            self.shared.queue.lock().owes_more = true;
        }
    }

    /// When the store was opened, if the last process had not closed it: what it started last may not be written.
    pub fn killed(&self) -> Option<Instant> {
        self.shared.killed.get().copied()
    }

    /// What the key owes since before the start; returned once.
    pub fn debt(&self, key: impl FnOnce() -> String) -> Option<Debt> {
        let WriterShared { debts, has_debts, .. } = &*self.shared;
        if !has_debts.load(Ordering::Relaxed) {
            return None;
        }
        let mut debts = debts.lock();
        let debts = debts.as_mut()?;
        let debt = debts.remove(&*key());
        has_debts.store(!debts.is_empty(), Ordering::Relaxed);
        debt
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        let queue = self.shared.queue.lock();
        queue.next.bytes() + queue.writing.bytes()
    }

    /// Nothing is written until what is returned is dropped.
    #[cfg(test)]
    pub fn stall(&self) -> impl Drop {
        self.shared.stalled.lock()
    }

    #[cfg(test)]
    pub fn is_open(&self) -> bool {
        self.shared.disk.read().is_some()
    }

    /// Whether what is to be kept cannot be, for now.
    pub fn is_lost(&self) -> bool {
        self.shared.queue.lock().is_lost
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        std::fs::metadata(self.shared.location.file()).map_or(0, |file| file.len())
    }

    /// Returns when all is written that was to be, or nothing can be.
    pub fn flush(&self) {
        let mut queue = self.shared.queue.lock();
        while !queue.closing && !queue.stuck && (!queue.next.is_empty() || !queue.writing.is_empty()) {
            self.shared.written.wait(&mut queue);
        }
    }

    pub fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.more.notify_all();
        if let Some(writer) = self.writer.lock().take() {
            // Its panics are caught where they can happen; at the end there is nothing to report them to.
            let _ = writer.join();
        }
    }
}
