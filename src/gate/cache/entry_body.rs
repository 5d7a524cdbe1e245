//! The body of a stored answer, read in pieces on the blocking threads. A short body is verified before use; damage to a long body shows
//! at its end.

use super::entry_file::{OpenEntry, short};
use bytes::Bytes;
use ring::digest::{Context as Digest, SHA256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};

/// The body, from its beginning.
pub struct EntryBody {
    /// Bytes read and not yet taken.
    first: Bytes,
    file: Arc<File>,
    /// Offset of the next read, and the bytes left.
    at: u64,
    left: u64,
    sum: Digest,
    expected: [u8; 16],
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl EntryBody {
    /// Reads the first piece. Blocks. `Ok(None)`: it is damaged.
    pub fn open(entry: &OpenEntry) -> io::Result<Option<Self>> {
        let mut body = EntryBody {
            first: Bytes::new(),
            file: entry.file.clone(),
            at: entry.body_at,
            left: entry.body_len,
            sum: Digest::new(&SHA256),
            expected: entry.body_sum,
            reading: None,
        };
        let first = read(&body.file, body.at, body.left.min(FIRST))?;
        Ok(body.took(&first).then(|| EntryBody { first, ..body }))
    }

    /// The first piece, until it is taken.
    pub fn beginning(&self) -> &[u8] {
        &self.first
    }

    /// `None`: end of the body.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.first))));
        }
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let (file, at, length) = (&self.file, self.at, self.left.min(PIECE));
        let reading = self.reading.get_or_insert_with(|| {
            let file = file.clone();
            spawn_blocking(move || read(&file, at, length))
        });
        let piece = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let piece = piece.map_err(io::Error::other)??;
        match self.took(&piece) {
            true => Poll::Ready(Ok(Some(piece))),
            false => Poll::Ready(Err(io::Error::other("the stored answer is damaged"))),
        }
    }

    /// Counts a piece. `false`: it was the last, and the body is damaged.
    fn took(&mut self, piece: &Bytes) -> bool {
        self.sum.update(piece);
        self.at += piece.len() as u64;
        self.left -= piece.len() as u64;
        self.left > 0 || short(self.sum.clone()) == self.expected
    }
}

fn read(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; usize::try_from(length).expect("it is a piece")];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

/// More than is needed to read a page's head.
const FIRST: u64 = 256 * 1024;
const PIECE: u64 = 128 * 1024;
