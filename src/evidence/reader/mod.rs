//! Reads the chain, line by line, from plain segments and compressed ones: `line` and `decision` parse a line, and `verify` checks that the
//! chain is complete and unchanged.

mod decision;
mod line;
mod verify;

pub use decision::{Decision, Figure, SiteCopy};
pub use line::{Kind, Line, ReadError, parse};
pub use verify::{Fault, Verified, verify, verify_each};

use crate::evidence::record::{Hash, sha256};
use crate::evidence::segment::{Stored, open};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::MultiGzDecoder;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Iterates over the lines of a segment. Ends after an error.
pub struct Lines {
    input: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    is_over: bool,
}

impl Lines {
    pub fn of(stored: &Stored) -> io::Result<Self> {
        let input: Box<dyn Read> = match stored.open() {
            Ok(file) if stored.is_compressed => Box::new(MultiGzDecoder::new(file)),
            Ok(file) => Box::new(file),
            // The segment was compressed after the directory was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Box::new(MultiGzDecoder::new(open(&stored.compressed_path()).map_err(|_| error)?))
            }
            Err(error) => return Err(error),
        };
        Ok(Self::new(input))
    }

    /// Reads the lines of an uncompressed segment that end after this byte.
    fn behind(stored: &Stored, byte: u64) -> io::Result<Self> {
        let mut file = stored.open()?;
        file.seek(SeekFrom::Start(byte))?;
        Ok(Self::new(Box::new(file)))
    }

    fn new(input: Box<dyn Read>) -> Self {
        Lines { input: BufReader::with_capacity(1 << 16, input), line: Vec::new(), is_over: false }
    }

    /// The next line, as stored, and its hash.
    pub fn next(&mut self) -> Option<Result<(&[u8], Hash), ReadError>> {
        if self.is_over {
            return None;
        }
        self.line.clear();
        let read = (&mut self.input).take(MOST_LINE as u64 + 1).read_until(b'\n', &mut self.line);
        self.is_over = true;
        Some(match read {
            Err(error) => Err(error.into()),
            Ok(0) => return None,
            Ok(length) if length > MOST_LINE => Err(ReadError::TooLong),
            Ok(_) if self.line.last() != Some(&b'\n') => Err(ReadError::Torn),
            Ok(_) => {
                self.is_over = false;
                Ok((&self.line, sha256(&self.line)))
            }
        })
    }

    /// Whether the file ends within the line that was read last.
    fn ends_here(&mut self) -> io::Result<bool> {
        self.input.read_until(b'\n', &mut self.line)?;
        Ok(self.line.last() != Some(&b'\n'))
    }
}

/// The end of a segment.
#[derive(Default)]
pub struct Tail {
    /// Total length of the complete lines in bytes.
    pub length: u64,
    /// The last complete line, with its line end.
    pub last: Option<Vec<u8>>,
    /// Bytes after the last complete line: a line whose writing was interrupted.
    pub torn: Vec<u8>,
}

impl Tail {
    /// Finds the end of a segment. Reads only the last part of an uncompressed segment if that suffices. `all`: all lines of the segment.
    pub fn of(stored: &Stored, all: Lines) -> Result<Self, ReadError> {
        let length = if stored.is_compressed { 0 } else { fs::metadata(&stored.path)?.len() };
        let most = [1, 16, 256].map(|times| times * TAIL).into_iter();
        for begin in most.filter_map(|most| length.checked_sub(most)) {
            let mut lines = Lines::behind(stored, begin)?;
            // `begin` may be within a line: skips its rest.
            let Some(Ok((line, _))) = lines.next() else { continue };
            let tail = Self::read(begin + line.len() as u64, lines)?;
            if tail.last.is_some() {
                return Ok(tail);
            }
        }
        Self::read(0, all)
    }

    /// Reads these lines to the end. `length`: bytes of the lines before them.
    fn read(length: u64, mut lines: Lines) -> Result<Self, ReadError> {
        let mut tail = Tail { length, ..Self::default() };
        while let Some(read) = lines.next() {
            match read {
                Ok((line, _)) => {
                    tail.length += line.len() as u64;
                    line.clone_into(tail.last.get_or_insert_default());
                }
                Err(error) => match error {
                    // After a power failure, the file may end with zeros, if it had grown but its new part was not written. The zeros
                    // count as an incomplete line of any length.
                    ReadError::Torn | ReadError::TooLong if lines.ends_here()? => tail.torn.clone_from(&lines.line),
                    error => return Err(error),
                },
            }
        }
        Ok(tail)
    }
}

/// Number of bytes before a segment's end that are read first: some dozens of records.
const TAIL: u64 = 1 << 16;

impl Stored {
    /// The hash of the last line, as the `next` segment names it; if `next` is damaged, the hash of the last readable line.
    pub fn head(&self, next: &Self) -> Hash {
        next.first().map(|first| first.prev).unwrap_or_else(|_| {
            let (mut head, mut lines) = (Hash::default(), Lines::of(self).ok());
            while let Some(Ok((_, hash))) = lines.as_mut().and_then(Lines::next) {
                head = hash;
            }
            head
        })
    }

    /// The first line, which names the last line of the segment before.
    pub fn first(&self) -> Result<Line, ReadError> {
        self.line_after(0)
    }

    /// Hash of the last line of the previous segment that is surely on disk, if fsync failed for that segment. The second line of this
    /// segment records it.
    pub fn synced_before(&self) -> Option<Hash> {
        let Kind::Lost { synced, .. } = self.line_after(1).ok()?.kind else { return None };
        synced
    }

    fn line_after(&self, before: usize) -> Result<Line, ReadError> {
        let mut lines = Lines::of(self)?;
        for _ in 0..before {
            lines.next().transpose()?;
        }
        parse(lines.next().unwrap_or(Err(ReadError::Empty))?.0)
    }
}

/// Why a file that a record refers to is missing or not intact.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("it is missing")]
    Missing,
    #[error("it was changed")]
    Changed,
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Decodes the bytes of a file line, and verifies their hash.
pub fn decoded(hash: &Hash, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, FileError> {
    let bytes = match (text, base64) {
        (Some(text), _) => text.into_bytes(),
        (None, base64) => BASE64_STANDARD.decode(base64.unwrap_or_default()).map_err(|_| FileError::Changed)?,
    };
    if sha256(&bytes) == *hash { Ok(bytes) } else { Err(FileError::Changed) }
}

/// Reads a file that a record refers to, from this segment (`None`: from any).
///
/// # Errors
/// The file is missing or was changed, or a segment cannot be read.
pub fn stored_file(directory: &Path, segment: Option<u64>, hash: &Hash) -> Result<Vec<u8>, FileError> {
    let mut found = Err(FileError::Missing);
    stored_files(directory, segment, HashSet::from([*hash]), |_, file| found = file)?;
    found
}

/// Finds each of these files as [`stored_file`] does, and passes it to `see`.
///
/// # Errors
/// A segment cannot be read.
pub fn stored_files(
    directory: &Path,
    segment: Option<u64>,
    mut wanted: HashSet<Hash>,
    mut see: impl FnMut(&Hash, Result<Vec<u8>, FileError>),
) -> io::Result<()> {
    let is_file = memchr::memmem::Finder::new(b"\"type\":\"file\"");
    // A file may be in several segments, and damaged in some of them.
    let mut damaged = HashMap::new();
    for stored in Stored::all(directory)?.iter().filter(|stored| segment.is_none_or(|it| it == stored.number)) {
        let mut lines = Lines::of(stored)?;
        while !wanted.is_empty()
            && let Some(Ok((line, _))) = lines.next()
        {
            if is_file.find(line).is_some()
                && let Ok(Line { kind: Kind::File { sha256, text, base64 }, .. }) = parse(line)
                && wanted.contains(&sha256)
            {
                match decoded(&sha256, text, base64) {
                    Err(error) => _ = damaged.insert(sha256, error),
                    file => {
                        wanted.remove(&sha256);
                        see(&sha256, file);
                    }
                }
            }
        }
    }
    for hash in wanted {
        see(&hash, Err(damaged.remove(&hash).unwrap_or(FileError::Missing)));
    }
    Ok(())
}

/// The largest `robots.max_size`, plus one byte to detect longer files.
const MOST_FILE: u64 = (64 << 20) + 1;
/// Maximum length of a line in bytes: the largest file, with each character escaped, and 1 KiB for the rest.
pub const MOST_LINE: usize = (2 * MOST_FILE + (1 << 10)) as usize;
