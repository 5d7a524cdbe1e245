//! The body of a stored answer, read in pieces on the blocking threads, each verified before use.

use super::entry_file::{EntrySum, OpenEntry, PIECE, sum};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};

/// The body, from its beginning, or a part of it.
pub struct EntryBody {
    file: Arc<CheckedFile>,
    /// The first pieces, until they are taken.
    first: Bytes,
    /// What is wanted, and has not been taken.
    part: Range<u64>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

/// The file, with the checksum of each piece of the body.
struct CheckedFile {
    file: Arc<File>,
    body_at: u64,
    body_len: u64,
    sums: Box<[EntrySum]>,
}

impl EntryBody {
    /// Reads the first pieces. Blocks. `Ok(None)`: they or the checksums are damaged.
    pub fn open(entry: &OpenEntry) -> io::Result<Option<Self>> {
        let OpenEntry { ref file, body_at, body_len, .. } = *entry;
        let Some(sums) = entry.sums()? else { return Ok(None) };
        let file = Arc::new(CheckedFile { file: file.clone(), body_at, body_len, sums });
        let first = file.read(0, FIRST)?;
        Ok(first.map(|first| EntryBody { file, first, part: 0..body_len, reading: None }))
    }

    /// The first pieces, until they are taken.
    pub fn beginning(&self) -> &[u8] {
        &self.first
    }

    /// Leaves only this part of the body.
    pub fn select(&mut self, part: Range<u64>) {
        self.part = part;
    }

    /// `None`: end of the part.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.part.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let mut first = std::mem::take(&mut self.first);
        let mut at = 0;
        if self.part.start >= first.len() as u64 {
            at = self.part.start / PIECE * PIECE;
            let file = &self.file;
            let reading = self.reading.get_or_insert_with(|| {
                let file = file.clone();
                spawn_blocking(move || {
                    file.read(at, PIECE)?.ok_or_else(|| io::Error::other("the stored answer is damaged"))
                })
            });
            let piece = ready!(Pin::new(reading).poll(cx));
            self.reading = None;
            first = piece.map_err(io::Error::other)??;
        }
        let place = |offset: u64| usize::try_from(offset - at).expect("it is within a piece");
        let end = self.part.end.min(at + first.len() as u64);
        let wanted = first.slice(place(self.part.start)..place(end));
        self.part.start = end;
        Poll::Ready(Ok(Some(wanted)))
    }
}

impl CheckedFile {
    /// Reads the pieces from there on. `Ok(None)`: they are damaged.
    fn read(&self, at: u64, length: u64) -> io::Result<Option<Bytes>> {
        let length = length.min(self.body_len - at);
        let mut bytes = vec![0; usize::try_from(length).expect("it is short")];
        self.file.read_exact_at(&mut bytes, self.body_at + at)?;
        let first = usize::try_from(at / PIECE).expect("there is a sum in memory for each");
        let is_sound =
            bytes.chunks(PIECE as usize).zip(&self.sums[first..]).all(|(piece, expected)| sum(piece) == *expected);
        Ok(is_sound.then(|| bytes.into()))
    }
}

/// More than is needed to read a page's head.
const FIRST: u64 = 2 * PIECE;
