//! The body of a stored answer, read in pieces on the blocking threads. Each piece is verified before use.

use super::entry_file::{OpenEntry, PIECE};
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};

/// The body of a stored answer, or a part of that body.
pub struct EntryBody {
    entry: Arc<OpenEntry>,
    /// The first pieces, until they are taken.
    first: Bytes,
    /// The part of the body that is wanted and not yet taken.
    part: Range<u64>,
    reading: Option<JoinHandle<io::Result<Option<Bytes>>>>,
}

impl EntryBody {
    /// Reads the first pieces. Blocks. `Ok(None)`: they are damaged.
    pub fn open(entry: &Arc<OpenEntry>) -> io::Result<Option<Self>> {
        let (mut first, length) = (Vec::new(), entry.body_len);
        while (first.len() as u64) < FIRST.min(length) {
            let Some(piece) = entry.piece(first.len() as u64)? else { return Ok(None) };
            first.extend_from_slice(&piece);
        }
        Ok(Some(EntryBody { entry: entry.clone(), first: first.into(), part: 0..length, reading: None }))
    }

    /// The first pieces, until they are taken.
    pub fn beginning(&self) -> &[u8] {
        &self.first
    }

    /// Restricts the body to this part.
    pub fn select(&mut self, part: Range<u64>) {
        self.part = part;
    }

    /// Polls for the next bytes. `None`: end of the part.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.part.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let mut first = std::mem::take(&mut self.first);
        let mut at = 0;
        if self.part.start >= first.len() as u64 {
            at = self.part.start / PIECE * PIECE;
            let entry = &self.entry;
            let reading = self.reading.get_or_insert_with(|| {
                let entry = entry.clone();
                spawn_blocking(move || entry.piece(at))
            });
            let piece = ready!(Pin::new(reading).poll(cx));
            self.reading = None;
            let is_damaged = || io::Error::other("the stored answer is damaged");
            first = piece.map_err(io::Error::other)??.ok_or_else(is_damaged)?;
        }
        let place = |offset: u64| usize::try_from(offset - at).expect("an offset within a piece fits into usize");
        let end = self.part.end.min(at + first.len() as u64);
        let wanted = first.slice(place(self.part.start)..place(end));
        self.part.start = end;
        Poll::Ready(Ok(Some(wanted)))
    }
}

/// Minimum number of bytes read when a longer body is opened: more than the `<head>` of an HTML page needs, in which usage preferences are
/// looked for.
const FIRST: u64 = 2 * PIECE;
