//! The queue of records for the thread that writes them. While the writer makes progress, every record fits, however large the sites' files
//! are; requests wait while the queue is full. Records are lost only when the writer makes no progress, and the chain records the loss.

use crate::evidence::record::{Draft, Hash, digest_of};
use crate::policy::Entry;
use parking_lot::{Condvar, Mutex};
use std::collections::btree_map::{self, BTreeMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;
use tokio::time::timeout_at;

/// State shared by requests and the thread that writes.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Notified when the writer takes the batch.
    taken: Notify,
    /// How long segments are kept, in seconds.
    pub keep: AtomicU64,
    /// Records that this process has written to the chain, and records that it has lost.
    pub written: AtomicU64,
    pub lost: AtomicU64,
    /// The number of the current segment, and the SHA-256 of its last line.
    pub head: Mutex<(u64, Hash)>,
}

#[derive(Default)]
struct State {
    batch: Batch,
    /// When the batch became full, or when the writer last made progress since. `None`: the batch is not full.
    full_at: Option<Instant>,
    /// Whether the writer waits for a first record.
    is_asleep: bool,
    is_closed: bool,
}

/// The records since the last batch.
#[derive(Default)]
pub struct Batch {
    /// Lines that are not linked to the chain yet.
    pub lines: Vec<u8>,
    pub records: u64,
    /// The files that the lines refer to, by address in memory. They are written before the lines.
    pub files: BTreeMap<usize, EvidenceFile>,
    /// Bytes of `files`.
    held: usize,
    /// When the first and the last request of the batch arrived.
    pub times: Option<(SystemTime, SystemTime)>,
    /// Records for which there was no room in this batch.
    pub lost: Option<Lost>,
    /// Why the last record was lost.
    pub why: &'static str,
}

/// A file that records refer to.
pub enum EvidenceFile {
    Site(Arc<Entry>),
    Config(Arc<str>, Hash),
}

impl EvidenceFile {
    /// The SHA-256 and the bytes. `None`: the site has no such file.
    pub fn body(&self) -> Option<(&Hash, &[u8])> {
        match self {
            Self::Site(entry) => {
                let access = &entry.answer.as_ref()?.access;
                digest_of(access).zip(access.source())
            }
            Self::Config(text, hash) => Some((hash, text.as_bytes())),
        }
    }
}

/// Records that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub count: u64,
    pub from: SystemTime,
    pub to: SystemTime,
}

impl Lost {
    pub fn and(self, other: Self) -> Self {
        Lost { count: self.count + other.count, from: self.from.min(other.from), to: self.to.max(other.to) }
    }

    /// The line that records the loss.
    pub fn draft(self) -> Draft {
        let mut draft = Draft::new("lost", SystemTime::now());
        draft.number("count", self.count);
        draft.time("from", self.from);
        draft.time("to", self.to);
        draft
    }
}

impl Queue {
    pub fn new(keep: Duration) -> Self {
        Self { keep: keep.as_secs().into(), ..Self::default() }
    }

    /// Adds a record, and the files that it refers to.
    pub fn put<'a>(
        &self,
        line: &[u8],
        config: Option<&(Arc<str>, Hash)>,
        entries: impl IntoIterator<Item = &'a Arc<Entry>>,
        at: SystemTime,
    ) {
        let mut state = self.state.lock();
        let why = match state.full_at {
            _ if state.is_closed => Some("the queue is closed"),
            _ if line.len() > MOST_RECORD => Some("a record is longer than 4 MiB"),
            Some(at) if at.elapsed() >= STANDSTILL => Some("nothing could be written for 5 s"),
            _ => None,
        };
        let batch = &mut state.batch;
        if let Some(why) = why {
            batch.why = why;
            let lost = Lost { count: 1, from: at, to: at };
            batch.lost = Some(batch.lost.map_or(lost, |before| before.and(lost)));
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        for entry in entries {
            batch.refer(Arc::as_ptr(entry).addr(), || EvidenceFile::Site(entry.clone()));
        }
        if let Some((text, hash)) = config {
            batch.refer(Arc::as_ptr(text).addr(), || EvidenceFile::Config(text.clone(), *hash));
        }
        batch.records += 1;
        batch.lines.extend_from_slice(line);
        batch.times = Some(batch.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        if batch.lines.len().max(batch.held) > ROOM {
            state.full_at.get_or_insert_with(Instant::now);
        }
        self.wake(&mut state);
    }

    /// Whether the batch is full, so that callers should wait if they can.
    pub fn is_full(&self) -> bool {
        self.state.lock().full_at.is_some()
    }

    /// Waits until the batch is not full, or the writer has made no progress for [`STANDSTILL`].
    pub async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            let Some(until) = self.state.lock().full_at.map(|at| at + STANDSTILL) else { return };
            if until <= Instant::now() {
                return;
            }
            let _ = timeout_at(until.into(), taken).await;
        }
    }

    /// Notes that the writer made progress.
    pub fn note_progress(&self) {
        self.state.lock().full_at.iter_mut().for_each(|at| *at = Instant::now());
    }

    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.more.notify_one();
    }

    /// Whether the queue is closed to further records.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Takes the batch. Waits up to `patience` for a first record, and then a moment for others, so that a busy proxy does not wake the
    /// writer for each record. `old`: the last batch, whose memory is reused. `None`: the queue is closed, and empty.
    pub fn take(&self, mut old: Batch, patience: Duration) -> Option<Batch> {
        old.reset();
        let mut state = self.state.lock();
        if state.batch.is_empty() && !state.is_closed {
            state.is_asleep = true;
            self.more.wait_for(&mut state, patience);
            state.is_asleep = false;
        }
        if !state.batch.is_empty() && !state.is_closed {
            self.more.wait_for(&mut state, MOMENT);
        }
        if state.batch.is_empty() {
            return (!state.is_closed).then_some(old);
        }
        state.full_at = None;
        self.taken.notify_waiters();
        Some(std::mem::replace(&mut state.batch, old))
    }

    fn wake(&self, state: &mut State) {
        if state.is_asleep || state.batch.lines.len().max(state.batch.held) > ROOM / 2 {
            state.is_asleep = false;
            self.more.notify_one();
        }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.lost.is_none()
    }

    /// Adds a file, unless the batch already has it, which is the usual case. `place`: the file's address in memory.
    fn refer(&mut self, place: usize, file: impl FnOnce() -> EvidenceFile) {
        let btree_map::Entry::Vacant(new) = self.files.entry(place) else { return };
        let file = new.insert(file());
        self.held += file.body().map_or(0, |(_, bytes)| bytes.len());
    }

    fn reset(&mut self) {
        self.lines.clear();
        self.lines.shrink_to(KEPT);
        *self = Self { lines: std::mem::take(&mut self.lines), ..Self::default() };
    }
}

/// Maximum bytes of waiting lines (some ten thousand records), and of the files that they name, before requests have to wait.
pub const ROOM: usize = 8 << 20;
/// Maximum time for which the writer may make no progress while the batch is full. After that, records are lost.
const STANDSTILL: Duration = Duration::from_secs(5);
const KEPT: usize = 1 << 16;
/// Maximum size of a record in bytes: a request's head is at most 1 MiB, and may take more when it is written as JSON.
pub const MOST_RECORD: usize = (4 << 20) - 128;
const MOMENT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    /// A file of this many bytes, to which no other record refers.
    fn file(bytes: usize) -> (Arc<str>, Hash) {
        ("x".repeat(bytes).into(), [0; 32])
    }

    /// Makes the queue believe that the writer has made no progress for too long.
    fn stand_still(queue: &Queue) {
        let mut state = queue.state.lock();
        let at = state.full_at.as_mut().expect("the batch is full");
        *at = at.checked_sub(STANDSTILL).expect("the machine started longer ago than that");
    }

    /// A site must not be able to prevent records of its visits by serving long files.
    #[tokio::test]
    async fn working_writer_loses_nothing_and_a_full_queue_delays_producers() {
        let queue = Queue::default();
        assert!(queue.room().now_or_never().is_some());
        for _ in 0..40 {
            queue.put(b"{}\n", Some(&file(ROOM / 4)), [], AT);
        }
        let mut waits = Box::pin(queue.room());
        assert!((&mut waits).now_or_never().is_none(), "callers wait until the batch is taken");
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("a batch is queued") };
        assert_eq!((batch.files.len(), batch.records, batch.lost, queue.lost.load(Relaxed)), (40, 40, None, 0));
        waits.await;
        assert!(queue.room().now_or_never().is_some());
    }

    #[test]
    fn stalled_writer_does_not_delay_producers() {
        let queue = Queue::default();
        queue.put(b"{}\n", Some(&file(2 * ROOM)), [], AT);
        stand_still(&queue);
        assert!(queue.room().now_or_never().is_some());
        queue.note_progress();
        queue.put(b"{}\n", Some(&file(ROOM)), [], AT);
        assert_eq!(queue.lost.load(Relaxed), 0, "progress keeps a slow writer from losing records");
    }

    #[test]
    fn records_over_the_limit_of_a_stalled_writer_are_counted_as_lost_with_their_times() {
        let queue = Queue::default();
        let line = [b'x'; 1 << 10];
        let most = ROOM as u64 / 1024 + 1;
        for second in 0..most {
            queue.put(&line, None, [], AT + Duration::from_secs(second));
        }
        assert_eq!(queue.lost.load(Relaxed), 0);
        stand_still(&queue);
        for second in most..most + 3 {
            queue.put(&line, None, [], AT + Duration::from_secs(second));
        }
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("a batch is queued") };
        let (from, to) = (AT + Duration::from_secs(most), AT + Duration::from_secs(most + 2));
        assert_eq!((batch.lost, queue.lost.load(Relaxed)), (Some(Lost { count: 3, from, to }), 3));
        assert_eq!(batch.records, most);
        queue.put(&line, None, [], AT);
        let Some(batch) = queue.take(batch, Duration::ZERO) else { panic!("a batch is queued") };
        assert_eq!((batch.lines.len(), batch.lost), (1 << 10, None));
    }

    #[test]
    fn file_named_by_many_records_is_queued_once() {
        let (queue, one, other) = (Queue::default(), Arc::new(Entry::default()), Arc::new(Entry::default()));
        for entry in [&one, &one, &other, &one] {
            queue.put(b"{}\n", None, [entry], AT);
        }
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("a batch is queued") };
        assert_eq!((batch.files.len(), batch.records), (2, 4));
    }

    #[test]
    fn file_named_repeatedly_counts_once_towards_the_limit() {
        let queue = Queue::default();
        let files: Vec<_> = (0..8).map(|_| ("x".repeat(ROOM / 16).into(), [0; 32])).collect();
        for file in files.iter().cycle().take(80) {
            queue.put(b"{}\n", Some(file), [], AT);
        }
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("a batch is queued") };
        assert_eq!((queue.lost.load(Relaxed), batch.files.len(), batch.records), (0, 8, 80), "each file counts once");
    }

    #[test]
    fn record_after_close_is_counted_as_lost() {
        let queue = Queue::default();
        queue.close();
        queue.put(b"{}\n", None, [], AT);
        assert_eq!(queue.lost.load(Relaxed), 1);
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("the loss is still reported") };
        assert_eq!(batch.lost.map(|lost| lost.count), Some(1));
        assert!(queue.take(Batch::default(), Duration::ZERO).is_none());
    }

    #[test]
    fn close_takes_effect_after_all_queued_records() {
        let queue = Queue::default();
        assert!(queue.take(Batch::default(), Duration::ZERO).is_some_and(|batch| batch.is_empty()));
        queue.put(b"{}\n", None, [], AT);
        queue.close();
        assert!(queue.take(Batch::default(), Duration::MAX).is_some_and(|batch| !batch.is_empty()));
        assert!(queue.take(Batch::default(), Duration::MAX).is_none());
    }
}
