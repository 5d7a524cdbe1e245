//! Records on their way to the thread that writes them. Requests never wait: a record for which there is no room is counted as
//! lost, and the writer reports it in the chain.

use super::record::{Draft, Hash, digest_of};
use crate::policy::Entry;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// What requests and the thread that writes share.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    done: Condvar,
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
    /// The writer waits for a first record.
    is_asleep: bool,
    is_writing: bool,
    /// `flush` waits for the batch.
    is_wanted: bool,
    is_closed: bool,
}

/// The records since the last batch.
#[derive(Default)]
pub(super) struct Batch {
    /// Lines that are not linked to the chain yet.
    pub lines: Vec<u8>,
    pub records: u64,
    /// The files that the lines refer to, by address in memory. They are written before the lines.
    pub files: BTreeMap<usize, EvidenceFile>,
    /// Bytes of these files.
    held: usize,
    /// When the first and the last of these requests arrived.
    pub times: Option<(SystemTime, SystemTime)>,
    /// Later records for which there was no room.
    pub lost: Option<Lost>,
}

/// A file that records refer to.
pub(super) enum EvidenceFile {
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
pub(super) struct Lost {
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
        let is_closed = state.is_closed;
        let batch = &mut state.batch;
        // Usually the batch has all of them already.
        let sites = entries.into_iter().filter_map(|entry| {
            let place = Arc::as_ptr(entry).addr();
            (!batch.files.contains_key(&place)).then(|| (place, EvidenceFile::Site(entry.clone())))
        });
        let mut files: Vec<_> = sites.collect();
        files.extend(config.and_then(|(text, hash)| {
            let place = Arc::as_ptr(text).addr();
            (!batch.files.contains_key(&place)).then(|| (place, EvidenceFile::Config(text.clone(), *hash)))
        }));
        let new: usize = files.iter().filter_map(|(_, file)| file.body()).map(|(_, bytes)| bytes.len()).sum();
        // A file larger than the limit is accepted if it is the only one.
        let is_full = batch.lines.len() + line.len() > ROOM || batch.held > 0 && batch.held + new > ROOM;
        if is_closed || is_full || line.len() > MOST_RECORD {
            let lost = Lost { count: 1, from: at, to: at };
            batch.lost = Some(batch.lost.map_or(lost, |before| before.and(lost)));
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        batch.held += new;
        batch.files.extend(files);
        batch.records += 1;
        batch.lines.extend_from_slice(line);
        batch.times = Some(batch.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        self.wake(&mut state);
    }

    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.more.notify_one();
    }

    /// Whether the queue is closed to further records.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Returns when all records so far are written or lost.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        while !state.is_closed && (!state.batch.is_empty() || state.is_writing) {
            state.is_wanted = true;
            self.more.notify_one();
            self.done.wait(&mut state);
        }
    }

    /// What has come. Waits for a first record as long as `patience`, and then a moment for others, so that a busy proxy
    /// neither wakes the writer nor writes for each. `old`: the last batch, whose room is used again. `None`: nothing will come any
    /// more.
    pub fn take(&self, mut old: Batch, patience: Duration) -> Option<Batch> {
        old.reset();
        let mut state = self.state.lock();
        state.is_writing = false;
        self.done.notify_all();
        if state.batch.is_empty() && !state.is_closed {
            state.is_asleep = true;
            self.more.wait_for(&mut state, patience);
            state.is_asleep = false;
        }
        if !state.batch.is_empty() && !state.is_closed && !state.is_wanted {
            self.more.wait_for(&mut state, MOMENT);
        }
        if state.batch.is_empty() {
            return (!state.is_closed).then_some(old);
        }
        (state.is_writing, state.is_wanted) = (true, false);
        Some(std::mem::replace(&mut state.batch, old))
    }

    fn wake(&self, state: &mut State) {
        let is_half_full = state.batch.lines.len().max(state.batch.held) > ROOM / 2 && !state.is_writing;
        if state.is_asleep || is_half_full {
            state.is_asleep = false;
            self.more.notify_one();
        }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.lost.is_none()
    }

    fn reset(&mut self) {
        self.lines.clear();
        self.lines.shrink_to(KEPT);
        *self = Self { lines: std::mem::take(&mut self.lines), ..Self::default() };
    }
}

/// Bytes of lines that wait, some ten thousand records; and as much of what they name.
pub(super) const ROOM: usize = 8 << 20;
const KEPT: usize = 1 << 16;
/// The longest record: a request's head is at most 1 MiB, and may take more when it is written as JSON.
pub(super) const MOST_RECORD: usize = (4 << 20) - 128;
const MOMENT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn what_there_is_no_room_for_is_counted_with_its_times() {
        let queue = Queue::default();
        let line = [b'x'; 1 << 10];
        let most = ROOM as u64 / 1024;
        for second in 0..most + 3 {
            queue.put(&line, None, [], AT + Duration::from_secs(second));
        }
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        let (from, to) = (AT + Duration::from_secs(most), AT + Duration::from_secs(most + 2));
        assert_eq!((batch.lost, queue.lost.load(Relaxed)), (Some(Lost { count: 3, from, to }), 3));
        assert_eq!(batch.lines.len(), ROOM);
        queue.put(&line, None, [], AT);
        let Some(batch) = queue.take(batch, Duration::ZERO) else { panic!("there is room again") };
        assert_eq!((batch.lines.len(), batch.lost), (1 << 10, None));
    }

    #[test]
    fn a_robots_txt_that_many_records_name_is_handed_on_once() {
        let (queue, one, other) = (Queue::default(), Arc::new(Entry::default()), Arc::new(Entry::default()));
        for entry in [&one, &one, &other, &one] {
            queue.put(b"{}\n", None, [entry], AT);
        }
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        assert_eq!((batch.files.len(), batch.records), (2, 4));
    }

    #[test]
    fn one_that_is_named_again_and_again_takes_its_room_once() {
        let queue = Queue::default();
        let files: Vec<_> = (0..8).map(|_| ("x".repeat(ROOM / 16).into(), [0; 32])).collect();
        for file in files.iter().cycle().take(80) {
            queue.put(b"{}\n", Some(file), [], AT);
        }
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        assert_eq!(
            (queue.lost.load(Relaxed), batch.files.len(), batch.records),
            (0, 8, 80),
            "however the hosts take turns"
        );
    }

    #[test]
    fn files_that_wait_take_no_more_room_than_there_is() {
        let queue = Queue::default();
        let file = |bytes: usize| ("x".repeat(bytes).into(), [0; 32]);
        queue.put(b"{}\n", Some(&file(2 * ROOM)), [], AT);
        queue.put(b"{}\n", Some(&file(1)), [], AT);
        assert_eq!(queue.lost.load(Relaxed), 1, "the first has all the room, however large it is");
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        for _ in 0..5 {
            queue.put(b"{}\n", Some(&file(ROOM / 4)), [], AT);
        }
        assert_eq!(queue.lost.load(Relaxed), 2);
        let Some(batch) = queue.take(batch, Duration::ZERO) else { panic!("there are four") };
        assert_eq!((batch.files.len(), batch.records), (4, 4));
    }

    #[test]
    fn what_comes_after_the_end_is_counted_as_lost() {
        let queue = Queue::default();
        queue.close();
        queue.put(b"{}\n", None, [], AT);
        assert_eq!(queue.lost.load(Relaxed), 1);
        let Some(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("it can be said still") };
        assert_eq!(batch.lost.map(|lost| lost.count), Some(1));
        assert!(queue.take(Batch::default(), Duration::ZERO).is_none());
    }

    #[test]
    fn the_end_comes_after_all_that_was_brought() {
        let queue = Queue::default();
        assert!(queue.take(Batch::default(), Duration::ZERO).is_some_and(|batch| batch.is_empty()));
        queue.put(b"{}\n", None, [], AT);
        queue.close();
        assert!(queue.take(Batch::default(), Duration::MAX).is_some_and(|batch| !batch.is_empty()));
        assert!(queue.take(Batch::default(), Duration::MAX).is_none());
    }
}
