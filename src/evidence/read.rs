//! What was written, line by line, from plain segments and compressed ones.

use super::chain::{Hash, from_hex, sha256};
use super::segment::{MOST_LINE, Stored};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Deserializer, de};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

/// A line of any kind.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    #[serde(deserialize_with = "hash")]
    pub prev: Hash,
    #[serde(deserialize_with = "time")]
    pub time: SystemTime,
    #[serde(flatten)]
    pub kind: Kind,
}

/// What a line is about.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The first of its segment.
    Segment {
        segment: u64,
    },
    /// A process begins to write.
    Start {
        /// The one before was killed, or lost its power.
        #[serde(default)]
        unclean: bool,
        #[serde(default, deserialize_with = "some_hash")]
        config: Option<Hash>,
    },
    /// It ends.
    Stop,
    Decision(Box<Decision>),
    /// Records for which there was no room.
    Lost {
        count: u64,
        #[serde(deserialize_with = "time")]
        from: SystemTime,
        #[serde(deserialize_with = "time")]
        to: SystemTime,
    },
    /// A segment that was kept long enough.
    Removed {
        segment: u64,
        /// Of its last line.
        #[serde(deserialize_with = "hash")]
        head: Hash,
    },
    /// Of a later version.
    #[serde(other)]
    Other,
}

/// One request, and what was decided about it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Decision {
    pub client: String,
    pub user: Option<String>,
    pub method: Option<String>,
    pub url: Option<String>,
    pub product_tokens: Vec<String>,
    pub purpose: Vec<String>,
    pub outcome: String,
    /// `allowed`, `refused`, or `reported`; `None`: nothing was decided.
    pub verdict: Option<String>,
    pub reason: Option<String>,
    pub rule: Option<String>,
    pub line: Option<u32>,
    pub robots: Option<SiteCopy>,
    pub tdmrep: Option<SiteCopy>,
    /// What the answer asked for in return: where its licence is, and a price.
    pub license: Option<String>,
    pub price: Option<String>,
    #[serde(deserialize_with = "some_hash")]
    pub config: Option<Hash>,
    pub status: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub held_ms: u64,
    pub origin_ms: Option<u64>,
    pub ms: u64,
}

/// The robots.txt or tdmrep.json that it rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SiteCopy {
    /// Of the answer that it came with, or that said that there is none.
    pub status: Option<u16>,
    #[serde(deserialize_with = "some_hash")]
    pub sha256: Option<Hash>,
    /// Fetched, or confirmed.
    #[serde(deserialize_with = "some_time")]
    pub fetched: Option<SystemTime>,
    /// Why it could not be fetched since, and since when.
    pub failure: Option<String>,
    #[serde(deserialize_with = "some_time")]
    pub failing_since: Option<SystemTime>,
}

/// Why a segment cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no line of evidence: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it is longer than any that is written")]
    TooLong,
    #[error("its end is missing")]
    Torn,
    #[error("there is no line in it")]
    Empty,
    #[error("segment {segment}, line {line}: {error}")]
    At { segment: u64, line: u64, error: Box<ReadError> },
}

/// The lines of a segment. Nothing comes after an error that is the file's.
pub(super) struct Lines {
    input: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    is_over: bool,
}

impl Lines {
    pub fn of(stored: &Stored) -> io::Result<Self> {
        let input: Box<dyn Read> = match File::open(&stored.path) {
            Ok(file) if stored.is_compressed => Box::new(MultiGzDecoder::new(file)),
            Ok(file) => Box::new(file),
            // It was compressed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Box::new(MultiGzDecoder::new(File::open(stored.compressed_path()).map_err(|_| error)?))
            }
            Err(error) => return Err(error),
        };
        Ok(Self::new(input))
    }

    /// Those of a plain one that end behind this byte.
    fn behind(stored: &Stored, byte: u64) -> io::Result<Self> {
        let mut file = File::open(&stored.path)?;
        file.seek(SeekFrom::Start(byte))?;
        Ok(Self::new(Box::new(file)))
    }

    fn new(input: Box<dyn Read>) -> Self {
        Lines { input: BufReader::with_capacity(1 << 16, input), line: Vec::new(), is_over: false }
    }

    /// The next, as it is written and its hash.
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

    /// Whether the file ends in the line that was read last, which has no end then.
    fn ends_here(&mut self) -> io::Result<bool> {
        self.input.read_until(b'\n', &mut self.line)?;
        Ok(self.line.last() != Some(&b'\n'))
    }
}

/// Hands each line of a directory to `see`, with its segment and its number. The last may be being written.
pub(super) fn each_line(
    directory: &Path,
    mut see: impl FnMut(u64, u64, &[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let all = Stored::all(directory)?;
    if all.is_empty() {
        return Err(ReadError::Empty);
    }
    for stored in all {
        let (mut lines, segment) = (Lines::of(&stored)?, stored.number);
        for number in 1.. {
            let seen = match lines.next() {
                None | Some(Err(ReadError::Torn)) => break,
                Some(read) => read.and_then(|(line, _)| see(segment, number, line)),
            };
            seen.map_err(|error| ReadError::At { segment, line: number, error: Box::new(error) })?;
        }
    }
    Ok(())
}

/// How a segment ends.
#[derive(Default)]
pub(super) struct Tail {
    /// Bytes of its whole lines.
    pub length: u64,
    /// The last whole line, with its end.
    pub last: Option<Vec<u8>>,
    /// What comes after it: a line that was just being written.
    pub torn: Vec<u8>,
}

impl Tail {
    /// Of a plain one, no more is read than there has to be. `all`: its lines.
    pub fn of(stored: &Stored, all: Lines) -> Result<Self, ReadError> {
        let length = if stored.is_compressed { 0 } else { fs::metadata(&stored.path)?.len() };
        let most = [1, 16, 256].map(|times| times * TAIL).into_iter();
        for begin in most.filter_map(|most| length.checked_sub(most)) {
            let mut lines = Lines::behind(stored, begin)?;
            // The first may have begun before.
            let Some(Ok((line, _))) = lines.next() else { continue };
            let tail = Self::read(begin + line.len() as u64, lines)?;
            if tail.last.is_some() {
                return Ok(tail);
            }
        }
        Self::read(0, all)
    }

    /// `length`: of the lines before these.
    fn read(length: u64, mut lines: Lines) -> Result<Self, ReadError> {
        let mut tail = Tail { length, ..Self::default() };
        while let Some(read) = lines.next() {
            match read {
                Ok((line, _)) => {
                    tail.length += line.len() as u64;
                    line.clone_into(tail.last.get_or_insert_default());
                }
                Err(error) => match error {
                    // A lost power leaves zeros where the file had grown and nothing was written yet: longer than any line, without an end.
                    ReadError::Torn | ReadError::TooLong if lines.ends_here()? => tail.torn.clone_from(&lines.line),
                    error => return Err(error),
                },
            }
        }
        Ok(tail)
    }
}

/// Some dozens of records.
const TAIL: u64 = 1 << 16;

/// What a line says.
pub(super) fn parse(line: &[u8]) -> Result<Line, ReadError> {
    Ok(serde_json::from_slice(line)?)
}

impl Stored {
    /// When it began, by its first line, and what that line says of the one before.
    pub fn beginning(&self) -> Result<(SystemTime, Hash), ReadError> {
        let mut lines = Lines::of(self)?;
        let (line, _) = lines.next().unwrap_or(Err(ReadError::Empty))?;
        let Line { time, prev, .. } = parse(line)?;
        Ok((time, prev))
    }
}

fn hash<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
    let text = String::deserialize(from)?;
    from_hex(&text).ok_or_else(|| de::Error::custom("a SHA-256 has 64 digits"))
}

fn some_hash<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Hash>, D::Error> {
    hash(from).map(Some)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(from)?;
    crate::rfc3339::parse(&text).ok_or_else(|| de::Error::custom("a time is written as RFC 3339 has it"))
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
    time(from).map(Some)
}
