//! Writes behind those who serve: a thread that commits whatever has gathered since its last commit. Called by `Store`.

use super::disk::{Batch, Disk, Failure, Owed};
use super::record::Digest;
use crate::policy::Entry;
use crate::robots::RobotsTxt;
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// The file and its writer.
pub(super) struct Behind {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// `None` once it has failed or is closed.
    disk: RwLock<Option<Disk>>,
    queue: Mutex<Queue>,
    more: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct Queue {
    next: Batch,
    /// What the writer has in hand.
    writing: Arc<Batch>,
    closing: bool,
    overflowed: bool,
}

impl Behind {
    pub fn start(disk: Disk) -> Self {
        let shared = Arc::new(Shared {
            disk: RwLock::new(Some(disk)),
            queue: Mutex::default(),
            more: Condvar::new(),
            written: Condvar::new(),
        });
        let writes = shared.clone();
        let writer = thread::Builder::new().name("politely-store".into()).spawn(move || writes.write());
        let writer = writer.inspect_err(|error| tracing::warn!(%error, "the store has no thread to write")).ok();
        Behind { shared, writer: Mutex::new(writer) }
    }

    pub fn load(
        &self,
        authority: &str,
        parse: impl FnOnce(Digest, &dyn Fn() -> Option<Vec<u8>>) -> Option<RobotsTxt>,
    ) -> Option<Arc<Entry>> {
        {
            let queue = self.shared.queue.lock();
            let queued = queue.next.entries.get(authority).or_else(|| queue.writing.entries.get(authority));
            if let Some(entry) = queued {
                return Some(entry.clone());
            }
        }
        let read = self.shared.disk.read().as_ref()?.read(authority, parse);
        match read {
            Ok(entry) => {
                let entry = entry?;
                self.shared.add(|batch| _ = batch.used.insert(authority.into()));
                Some(Arc::new(entry))
            }
            Err(failure) => {
                self.shared.fail(&failure);
                None
            }
        }
    }

    pub fn save(&self, authority: Box<str>, entry: Arc<Entry>) {
        self.shared.add(|batch| _ = batch.entries.insert(authority, entry));
    }

    pub fn owe(&self, key: Box<str>, owed: Owed) {
        self.shared.add(|batch| _ = batch.owed.insert(key, owed));
    }

    pub fn flush(&self) {
        let mut queue = self.shared.queue.lock();
        while !queue.closing && (!queue.next.is_empty() || !queue.writing.is_empty()) {
            self.shared.written.wait(&mut queue);
        }
    }

    pub fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.more.notify_all();
        if let Some(writer) = self.writer.lock().take() {
            // Its panics are caught where they can happen; there is nobody to tell at the end.
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn add(&self, add: impl FnOnce(&mut Batch)) {
        let mut queue = self.queue.lock();
        if queue.closing {
            return;
        }
        let batch = &mut queue.next;
        if batch.entries.len() + batch.used.len() + batch.owed.len() < MOST_QUEUED {
            add(batch);
            self.more.notify_one();
        } else if !std::mem::replace(&mut queue.overflowed, true) {
            tracing::warn!("the store's disk is too slow: some copies will be fetched again after a restart");
        }
    }

    fn write(&self) {
        let mut forgotten = Instant::now();
        loop {
            let (batch, closing) = {
                let mut queue = self.queue.lock();
                while queue.next.is_empty() && !queue.closing {
                    self.more.wait(&mut queue);
                }
                queue.writing = Arc::new(std::mem::take(&mut queue.next));
                (queue.writing.clone(), queue.closing)
            };
            let began = Instant::now();
            if !batch.is_empty() {
                self.work(|disk| disk.commit(&batch, SystemTime::now()));
            }
            if forgotten.elapsed() > FORGET_EVERY {
                forgotten = Instant::now();
                self.work(|disk| disk.forget_paid(SystemTime::now()));
            }
            {
                let mut queue = self.queue.lock();
                queue.writing = Arc::default();
                self.written.notify_all();
                queue.overflowed &= queue.next.entries.len() > MOST_QUEUED / 2;
                if closing {
                    break;
                }
                // Gathers what comes at once after this, and spares the disk.
                let pause = began + LEAST_BETWEEN;
                while !queue.closing && !self.more.wait_until(&mut queue, pause).timed_out() {}
            }
        }
        self.disk.write().take();
    }

    fn work(&self, work: impl FnOnce(&Disk) -> Result<(), Failure>) {
        let failed = match self.disk.read().as_ref() {
            Some(disk) => work(disk),
            None => Ok(()),
        };
        if let Err(failure) = failed {
            self.fail(&failure);
        }
    }

    /// From here on in memory only. A file that cannot be read is not left for the next start to trip over.
    fn fail(&self, failure: &Failure) {
        let Some(disk) = self.disk.write().take() else { return };
        let path = disk.path().to_owned();
        let aside = match failure {
            Failure::Unreadable(_) => disk.set_aside().ok(),
            Failure::InUse | Failure::Io(_) => None,
        };
        let aside = aside.map(|aside| format!(", and set aside as {}", aside.display())).unwrap_or_default();
        tracing::error!("the store {} is given up until the next start{aside}: {failure}", path.display());
    }
}

/// Authorities and keys that wait to be written at most.
const MOST_QUEUED: usize = 200_000;
const LEAST_BETWEEN: Duration = Duration::from_millis(20);
const FORGET_EVERY: Duration = Duration::from_secs(600);
