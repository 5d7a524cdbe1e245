//! Records on their way to the thread that writes them. Requests never wait: a record for which there is no room is counted as
//! lost, and the writer reports it in the chain.

use super::chain::Hash;
use super::segment::MOST_LINE;
use crate::policy::Entry;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    written: Condvar,
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    batch: Batch,
    /// The writer waits for a first record.
    is_asleep: bool,
    is_writing: bool,
    /// Somebody waits until it is written.
    is_wanted: bool,
    is_closed: bool,
}

/// What has come since the last.
#[derive(Default)]
pub(super) struct Batch {
    /// Lines without their place in the chain.
    pub lines: Vec<u8>,
    pub records: u64,
    /// What the lines name, and has to be there before they are.
    pub bodies: Vec<Body>,
    /// Where these are in memory: each is there once.
    places: HashSet<usize>,
    /// Their bytes.
    held: usize,
    /// When the first and the last request of these came.
    pub times: Option<(SystemTime, SystemTime)>,
    /// What came after these, for which there was no room.
    pub lost: Option<Lost>,
}

/// What is kept by its hash.
#[derive(Debug)]
pub(super) enum Body {
    /// The file of its answer.
    Of(Arc<Entry>),
    Text(Arc<str>, Hash),
}

/// The same, where it need not be kept: most records name what the one before has named.
#[derive(Clone, Copy)]
pub(super) enum BodyRef<'a> {
    Of(&'a Arc<Entry>),
    Text(&'a Arc<str>, Hash),
}

impl BodyRef<'_> {
    fn place(self) -> usize {
        match self {
            Self::Of(entry) => Arc::as_ptr(entry).addr(),
            Self::Text(text, _) => Arc::as_ptr(text).addr(),
        }
    }

    fn kept(self) -> Body {
        match self {
            Self::Of(entry) => Body::Of(entry.clone()),
            Self::Text(text, hash) => Body::Text(text.clone(), hash),
        }
    }
}

impl Body {
    fn named(&self) -> BodyRef<'_> {
        match self {
            Self::Of(entry) => BodyRef::Of(entry),
            Self::Text(text, hash) => BodyRef::Text(text, *hash),
        }
    }

    fn place(&self) -> usize {
        self.named().place()
    }

    fn len(&self) -> usize {
        match self {
            Self::Of(entry) => entry.answer.as_ref().and_then(|answer| answer.access.source()).map_or(0, <[u8]>::len),
            Self::Text(text, _) => text.len(),
        }
    }
}

/// Records that are not in the chain.
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
}

pub(super) enum Taken {
    Batch(Batch),
    /// Nothing has come in time.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

impl Queue {
    /// A record, and what it names.
    pub fn put<'a>(&self, line: &[u8], bodies: impl IntoIterator<Item = BodyRef<'a>>, at: SystemTime) {
        let mut state = self.state.lock();
        let is_closed = state.is_closed;
        let batch = &mut state.batch;
        let before = batch.bodies.len();
        for body in bodies {
            let place = body.place();
            // Mostly it is what the record before named.
            let is_last = batch.bodies.iter().rev().take(3).any(|last| last.place() == place);
            if !is_last && batch.places.insert(place) {
                batch.bodies.push(body.kept());
            }
        }
        let new: usize = batch.bodies[before..].iter().map(Body::len).sum();
        // A file that is larger than all the room has it for itself.
        let is_full = batch.lines.len() + line.len() > ROOM || batch.held > 0 && batch.held + new > ROOM;
        if is_closed || is_full || line.len() > MOST_LINE - LINKED {
            for body in batch.bodies.drain(before..) {
                batch.places.remove(&body.place());
            }
            let lost = Lost { count: 1, from: at, to: at };
            batch.lost = Some(batch.lost.map_or(lost, |before| before.and(lost)));
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        batch.held += new;
        batch.records += 1;
        batch.lines.extend_from_slice(line);
        batch.times = Some(batch.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        self.wake(&mut state);
    }

    /// Records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.more.notify_one();
    }

    /// Whether nothing more will come.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Returns when all that came so far is written, or cannot be.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        while !state.is_closed && (!state.batch.is_empty() || state.is_writing) {
            state.is_wanted = true;
            self.more.notify_one();
            self.written.wait(&mut state);
        }
    }

    /// What has come. Waits for a first record as long as `patience`, and then a moment for others, so that a busy proxy
    /// neither wakes the writer nor writes for each. `old`: the last batch, whose room is used again.
    pub fn take(&self, mut old: Batch, patience: Duration) -> Taken {
        old.reset();
        let mut state = self.state.lock();
        state.is_writing = false;
        self.written.notify_all();
        if state.batch.is_empty() && !state.is_closed {
            state.is_asleep = true;
            self.more.wait_for(&mut state, patience);
            state.is_asleep = false;
        }
        if !state.batch.is_empty() && !state.is_closed && !state.is_wanted {
            self.more.wait_for(&mut state, MOMENT);
        }
        if state.batch.is_empty() {
            return if state.is_closed { Taken::Closed } else { Taken::Nothing };
        }
        (state.is_writing, state.is_wanted) = (true, false);
        Taken::Batch(std::mem::replace(&mut state.batch, old))
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
        self.lines.is_empty() && self.bodies.is_empty() && self.lost.is_none()
    }

    fn reset(&mut self) {
        self.lines.clear();
        self.lines.shrink_to(KEPT);
        self.bodies.clear();
        self.bodies.shrink_to(KEPT / 64);
        self.places.clear();
        self.places.shrink_to(KEPT / 64);
        (self.times, self.lost, self.held, self.records) = (None, None, 0, 0);
    }
}

/// Bytes of lines that wait, some ten thousand records; and as much of what they name.
pub(super) const ROOM: usize = 8 << 20;
const KEPT: usize = 1 << 16;
/// More than what puts a line into the chain.
const LINKED: usize = 128;
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
            queue.put(&line, [], AT + Duration::from_secs(second));
        }
        let Taken::Batch(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        let (from, to) = (AT + Duration::from_secs(most), AT + Duration::from_secs(most + 2));
        assert_eq!((batch.lost, queue.lost()), (Some(Lost { count: 3, from, to }), 3));
        assert_eq!(batch.lines.len(), ROOM);
        queue.put(&line, [], AT);
        let Taken::Batch(batch) = queue.take(batch, Duration::ZERO) else { panic!("there is room again") };
        assert_eq!((batch.lines.len(), batch.lost), (1 << 10, None));
    }

    #[test]
    fn a_robots_txt_that_many_records_name_is_handed_on_once() {
        let (queue, one, other) = (Queue::default(), Arc::new(Entry::default()), Arc::new(Entry::default()));
        for entry in [&one, &one, &other, &one] {
            queue.put(b"{}\n", [BodyRef::Of(entry)], AT);
        }
        let Taken::Batch(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        assert_eq!((batch.bodies.len(), batch.records), (2, 4));
    }

    #[test]
    fn one_that_is_named_again_and_again_takes_its_room_once() {
        let queue = Queue::default();
        let files: Vec<_> = (0..8).map(|_| Body::Text("x".repeat(ROOM / 16).into(), [0; 32])).collect();
        for file in files.iter().cycle().take(80) {
            queue.put(b"{}\n", [file.named()], AT);
        }
        let Taken::Batch(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        assert_eq!((queue.lost(), batch.bodies.len(), batch.records), (0, 8, 80), "however the hosts take turns");
    }

    #[test]
    fn files_that_wait_take_no_more_room_than_there_is() {
        let queue = Queue::default();
        let file = |bytes: usize| Body::Text("x".repeat(bytes).into(), [0; 32]);
        queue.put(b"{}\n", [file(2 * ROOM).named()], AT);
        queue.put(b"{}\n", [file(1).named()], AT);
        assert_eq!(queue.lost(), 1, "the first has all the room, however large it is");
        let Taken::Batch(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("there is one") };
        for _ in 0..5 {
            queue.put(b"{}\n", [file(ROOM / 4).named()], AT);
        }
        assert_eq!(queue.lost(), 2);
        let Taken::Batch(batch) = queue.take(batch, Duration::ZERO) else { panic!("there are four") };
        assert_eq!((batch.bodies.len(), batch.records), (4, 4));
    }

    #[test]
    fn what_comes_after_the_end_is_counted_as_lost() {
        let queue = Queue::default();
        queue.close();
        queue.put(b"{}\n", [], AT);
        assert_eq!(queue.lost(), 1);
        let Taken::Batch(batch) = queue.take(Batch::default(), Duration::ZERO) else { panic!("it can be said still") };
        assert_eq!(batch.lost.map(|lost| lost.count), Some(1));
        assert!(matches!(queue.take(Batch::default(), Duration::ZERO), Taken::Closed));
    }

    #[test]
    fn the_end_comes_after_all_that_was_brought() {
        let queue = Queue::default();
        assert!(matches!(queue.take(Batch::default(), Duration::ZERO), Taken::Nothing));
        queue.put(b"{}\n", [], AT);
        queue.close();
        assert!(matches!(queue.take(Batch::default(), Duration::MAX), Taken::Batch(_)));
        assert!(matches!(queue.take(Batch::default(), Duration::MAX), Taken::Closed));
    }
}
