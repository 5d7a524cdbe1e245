//! The chunked coding (RFC 9112 §7.1): read byte by byte between chunks, and by length within them. Keeps only the trailers.

use super::BodyError;
use super::fields::{Field, FieldKind};
use super::scan::{is_token, trim};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Chunked {
    state: ChunkState,
    strict: bool,
    /// Size of the chunk, as far as it was read; in its data, the number of bytes that are still to come.
    left: u64,
    /// Number of bytes that chunk extensions and padding may still have. Each byte of content allows one more, and each
    /// chunk of an answer [`MAX_PADDING`] more.
    spare: usize,
    trailers: usize,
    /// The trailer section: each line up to its CR.
    kept: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// After this number of digits of a size.
    Size(u8),
    /// Spaces after a size.
    Padding,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

impl Chunked {
    pub fn new(strict: bool) -> Self {
        Chunked { state: START, strict, left: 0, spare: MAX_SPARE, trailers: 0, kept: Vec::new() }
    }

    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Returns the range of the next content, and consumes the framing before it.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Range<usize>, BodyError> {
        let mut at = 0;
        while at < bytes.len() && self.state != ChunkState::Done {
            match self.state {
                ChunkState::Data => {
                    let start = at;
                    at += self.data(bytes.len() - at);
                    return Ok(start..at);
                }
                state => {
                    self.state = self.step(state, bytes[at]).map_err(BodyError::Malformed)?;
                    at += 1;
                }
            }
        }
        Ok(at..at)
    }

    /// The trailers, once the body is done.
    pub fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        let lines = self.kept.split(|&byte| byte == b'\r').filter(|_| self.is_done());
        lines.filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let name = &line[..colon];
            Some(Field { name, value: trim(&line[colon + 1..]), kind: FieldKind::of(name) })
        })
    }

    fn data(&mut self, there: usize) -> usize {
        let taken = take(&mut self.left, there);
        let is_whole = self.left == 0;
        // An answer may pad the size of each chunk, as some servers do.
        let padding = if self.strict || !is_whole { 0 } else { MAX_PADDING };
        self.spare = self.spare.saturating_add(taken + padding).min(MAX_SPARE);
        self.state = if is_whole { ChunkState::DataCr } else { ChunkState::Data };
        taken
    }

    fn step(&mut self, state: ChunkState, byte: u8) -> Result<ChunkState, &'static str> {
        Ok(match (state, byte) {
            (ChunkState::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.left >> (MAX_SIZE_BITS - 4) != 0 || digits == MAX_SIZE_DIGITS {
                    return Err("chunk size too large");
                }
                let digit = char::from(byte).to_digit(16).expect("matched above");
                self.left = self.left << 4 | u64::from(digit);
                ChunkState::Size(digits + 1)
            }
            (ChunkState::Size(0), _) => return Err("chunk size expected"),
            (ChunkState::Size(_) | ChunkState::Padding, b' ' | b'\t') if !self.strict => {
                self.spend()?;
                ChunkState::Padding
            }
            (ChunkState::Size(_) | ChunkState::Padding | ChunkState::Extension, b'\r') => ChunkState::SizeLf,
            (ChunkState::Size(_) | ChunkState::Padding, b';') => ChunkState::Extension,
            (ChunkState::Size(_) | ChunkState::Padding, _) => return Err("bad character in a chunk size"),
            (ChunkState::Extension, _) => {
                if is_control(byte) {
                    return Err("control character in a chunk extension");
                }
                self.spend()?;
                ChunkState::Extension
            }
            (ChunkState::SizeLf, b'\n') if self.left == 0 => ChunkState::TrailerStart,
            (ChunkState::SizeLf, b'\n') => ChunkState::Data,
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => START,
            (ChunkState::DataCr | ChunkState::DataLf, _) => return Err("chunk longer than its size"),
            (ChunkState::TrailerStart, b'\r') => ChunkState::EndLf,
            (ChunkState::TrailerStart, _) => {
                self.trailers += 1;
                self.trailer_name(byte)?
            }
            (ChunkState::TrailerName, b':') => {
                let name = self.kept.rsplit(|&byte| byte == b'\r').next().unwrap_or_default();
                if self.strict && is_framing(FieldKind::of(name)) {
                    return Err("a trailer that would frame or route the message");
                }
                self.keep(byte, ChunkState::TrailerValue)?
            }
            (ChunkState::TrailerName, _) => self.trailer_name(byte)?,
            (ChunkState::TrailerValue, b'\r') => self.keep(byte, ChunkState::TrailerLf)?,
            (ChunkState::TrailerValue, _) => {
                if is_control(byte) {
                    return Err("control character in a trailer");
                }
                self.keep(byte, ChunkState::TrailerValue)?
            }
            (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerStart,
            (ChunkState::EndLf, b'\n') => ChunkState::Done,
            (ChunkState::SizeLf | ChunkState::TrailerLf | ChunkState::EndLf, _) => return Err("CR without LF"),
            (ChunkState::Data | ChunkState::Done, _) => unreachable!("handled by the callers"),
        })
    }

    fn trailer_name(&mut self, byte: u8) -> Result<ChunkState, &'static str> {
        if !is_token(byte) {
            return Err("a trailer without a name");
        }
        self.keep(byte, ChunkState::TrailerName)
    }

    /// Appends a byte of a trailer; returns the next state.
    fn keep(&mut self, byte: u8, next: ChunkState) -> Result<ChunkState, &'static str> {
        self.kept.push(byte);
        within_trailer_limits(self.trailers, self.kept.len()).map(|()| next)
    }

    fn spend(&mut self) -> Result<(), &'static str> {
        self.spare = self.spare.checked_sub(1).ok_or("chunk extensions too long")?;
        Ok(())
    }
}

/// Checks the number and size of the trailers, in any version of HTTP. `Err`: the reason.
pub fn within_trailer_limits(count: usize, bytes: usize) -> Result<(), &'static str> {
    match () {
        () if count > MAX_TRAILERS => Err("too many trailer fields"),
        () if bytes > MAX_TRAILER_BYTES => Err("trailers too long"),
        () => Ok(()),
    }
}

/// Takes up to `left` of the bytes that are there; returns how many.
pub(super) fn take(left: &mut u64, there: usize) -> usize {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(there);
    *left -= taken as u64;
    taken
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn is_framing(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding | FieldKind::Host | FieldKind::Connection)
}

const START: ChunkState = ChunkState::Size(0);
/// Maximum number of bits of a chunk size: below 64, so that no other reader can take a size for a negative number.
const MAX_SIZE_BITS: u32 = 60;
/// Maximum number of digits of a chunk size, leading zeros included.
const MAX_SIZE_DIGITS: u8 = 32;
/// Maximum of `spare`, in bytes. Nobody uses chunk extensions, so a body with more extensions than content only wastes time.
const MAX_SPARE: usize = 8 * 1024;
/// Number of padding bytes that each chunk of an answer allows, in addition to those that its content allows.
const MAX_PADDING: usize = 32;
const MAX_TRAILER_BYTES: usize = 16 * 1024;
const MAX_TRAILERS: usize = 1024;
