//! Stores an answer in the cache while it is sent to the client: a task writes the pieces received so far, on the blocking threads. The
//! client does not wait: if the disk is too slow, the answer is not stored.

use super::entry_file::{EntryWriter, OpenEntry};
use super::index::EntryIndex;
use super::page_cache::{PageCache, StoreOrder};
use crate::policy::cache::StoredHead;
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;

/// Receives the answer's pieces. If it is dropped before [`finish`](Self::finish), nothing is stored.
pub struct StoringAnswer {
    shared: Arc<PageCache>,
    /// Sends pieces to the task, and `None` at the end. If the sender is dropped before that, the task gives the answer up.
    pieces: Option<UnboundedSender<Option<QueuedPiece>>>,
    length: u64,
}

impl StoringAnswer {
    pub(super) fn begin(shared: &Arc<PageCache>, head: StoredHead, order: StoreOrder) -> Self {
        let (pieces, from) = unbounded_channel();
        tokio::spawn(store(shared.clone(), head, order, from));
        StoringAnswer { shared: shared.clone(), pieces: Some(pieces), length: 0 }
    }

    /// Adds a piece of the content. The answer is given up if it is too long, too much waits to be written, or the task could not write.
    pub fn push(&mut self, piece: Bytes) {
        self.length += piece.len() as u64;
        let is_short = self.length <= self.shared.most_of_one();
        let room = u32::try_from(piece.len()).ok().filter(|_| is_short);
        let room = room.and_then(|length| self.shared.room.clone().try_acquire_many_owned(length).ok());
        let piece = room.map(|room| QueuedPiece { piece, _room: room });
        self.pieces.take_if(|pieces| piece.is_none_or(|piece| pieces.send(Some(piece)).is_err()));
    }

    /// Tells the task that the answer is complete.
    pub fn finish(self) {
        // Fails if the task has ended because it could not write.
        self.pieces.iter().for_each(|pieces| _ = pieces.send(None));
    }
}

/// A piece that waits to be written, and its part of the room for waiting bytes.
struct QueuedPiece {
    piece: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Writes an answer as its pieces arrive.
async fn store(
    shared: Arc<PageCache>,
    head: StoredHead,
    order: StoreOrder,
    mut pieces: UnboundedReceiver<Option<QueuedPiece>>,
) {
    let order = Arc::new(order);
    let mut writing = Writing { shared: shared.clone(), head, file: None, reserved: 0 };
    let (mut batch, mut length) = (Vec::new(), 0);
    while let Some(piece) = pieces.recv().await {
        let is_last = piece.is_none();
        length += piece.as_ref().map_or(0, |queued| queued.piece.len());
        batch.extend(piece);
        if length < BATCH && !is_last {
            continue;
        }
        let (taken, last) = (std::mem::take(&mut batch), is_last.then(|| order.clone()));
        length = 0;
        let done = spawn_blocking(move || {
            let done = writing.write(&taken).and_then(|()| last.map_or(Ok(()), |order| writing.finish(&order)));
            (writing, done)
        });
        // Fails only when the runtime is shutting down.
        let Ok((returned, done)) = done.await else { return };
        writing = returned;
        if let Err(error) = done {
            shared.failed(&error);
            break;
        }
        if is_last {
            break;
        }
    }
    // An incomplete file is removed on a blocking thread.
    let _ = spawn_blocking(move || drop(writing)).await;
    // Ends the wait of other requests for this answer.
    drop(order);
}

/// An answer being written, and its reserved room.
struct Writing {
    shared: Arc<PageCache>,
    head: StoredHead,
    file: Option<EntryWriter>,
    reserved: u64,
}

impl Writing {
    fn write(&mut self, pieces: &[QueuedPiece]) -> io::Result<()> {
        let bytes = pieces.iter().map(|queued| queued.piece.len() as u64).sum::<u64>();
        if !self.shared.reserve(bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.reserved += bytes;
        if self.file.is_none() {
            self.file = Some(self.shared.with_room(0, 1, || self.shared.create(&self.head))?);
        }
        let file = self.file.as_mut().expect("created above");
        let mut write = |piece: &Bytes| self.shared.with_room(self.reserved, piece.len() as u64, || file.write(piece));
        pieces.iter().try_for_each(|queued| write(&queued.piece))
    }

    fn finish(&mut self, order: &StoreOrder) -> io::Result<()> {
        let mut file = self.file.take().expect("`write` has created the file");
        self.shared.with_room(0, 1, || file.finish())?;
        self.shared.put(file, &mut self.reserved, order, |_| order.claim.holds())
    }

    /// Completes the answer with the body of the stored answer that it replaces. Stores nothing if that answer has been removed or replaced
    /// meanwhile, or if there is no room.
    fn finish_as(&mut self, other: &OpenEntry, order: &StoreOrder) -> io::Result<()> {
        let is_wanted =
            |index: &EntryIndex| order.replaces.is_some_and(|other| index.has(other)) && order.claim.holds();
        if !is_wanted(&self.shared.index.lock()) || !self.shared.reserve(other.body_len) {
            return Ok(());
        }
        self.reserved = other.body_len;
        let file = self.shared.with_room(other.body_len, other.body_len, || {
            let mut file = self.shared.create(&self.head)?;
            file.finish_as(other).map(|()| file)
        })?;
        self.shared.put(file, &mut self.reserved, order, is_wanted)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.shared.index.lock().release(self.reserved);
        }
    }
}

/// Stores an answer again after a 304 has confirmed it: in a new file, with its new head. Other requests wait for the end, as for a fetch.
pub(super) async fn confirm(shared: Arc<PageCache>, entry: Arc<OpenEntry>, head: StoredHead, order: StoreOrder) {
    let mut writing = Writing { shared, head, file: None, reserved: 0 };
    let written = spawn_blocking(move || {
        if let Err(error) = writing.finish_as(&entry, &order) {
            writing.shared.failed(&error);
        }
        // Ends the wait of other requests for this answer.
        drop(order);
    });
    // Fails only when the runtime is shutting down.
    let _ = written.await;
}

/// Minimum number of bytes that are written at once, except at the end of an answer.
const BATCH: usize = 256 * 1024;
