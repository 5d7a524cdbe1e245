//! The chunked coding (RFC 9112 §7.1), followed byte by byte between the chunks and by length within them. Keeps nothing but,
//! where they are asked for, the trailers.

use super::fields::{Field, FieldKind};
use super::scan::{is_token, trim};
use super::{BodyError, Piece};

#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    strict: bool,
    /// Bytes that chunk extensions may still take: content earns more.
    spare: usize,
    /// Bytes that trailers may still take.
    room: usize,
    trailers: usize,
    /// The name of the trailer that is being read, as far as one could be that matters.
    name: [u8; LONGEST_NAME],
    name_len: usize,
    /// The trailer section, where the body is decoded.
    kept: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        value: u64,
        digits: u8,
    },
    /// Spaces after a size.
    Padding {
        value: u64,
    },
    Extension {
        value: u64,
    },
    SizeLf {
        value: u64,
    },
    Data {
        left: u64,
    },
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
        Chunked {
            state: START,
            strict,
            spare: MAX_SPARE,
            room: MAX_TRAILER_BYTES,
            trailers: 0,
            name: [0; LONGEST_NAME],
            name_len: 0,
            kept: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many of `bytes` belong to the body: all of them, unless it ends among them, or `before_trailers` there are some.
    pub fn advance(&mut self, bytes: &[u8], before_trailers: bool) -> Result<usize, BodyError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            match self.state {
                State::Data { left } => at += self.data(left, bytes.len() - at),
                State::TrailerStart if before_trailers && bytes[at] != b'\r' => break,
                state => {
                    self.state = self.step(state, bytes[at]).map_err(BodyError::Malformed)?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    /// The next run of content, and the framing before it.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Piece, BodyError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            match self.state {
                State::Data { left } => {
                    let start = at;
                    at += self.data(left, bytes.len() - at);
                    return Ok(Piece { consumed: at, data: start..at });
                }
                state => {
                    self.state = self.step(state, bytes[at]).map_err(BodyError::Malformed)?;
                    if matches!(self.state, State::TrailerName | State::TrailerValue | State::TrailerLf) {
                        self.kept.push(bytes[at]);
                    }
                    at += 1;
                }
            }
        }
        Ok(Piece { consumed: at, data: at..at })
    }

    /// What [`Self::decode`] has met, once the body is done.
    pub fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        // Each line was kept as far as its CR.
        let lines = self.kept.split(|&byte| byte == b'\r').filter(|_| self.is_done());
        lines.filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let name = &line[..colon];
            Some(Field { name, value: trim(&line[colon + 1..]), kind: FieldKind::of(name) })
        })
    }

    fn data(&mut self, left: u64, there: usize) -> usize {
        let taken = left.min(there as u64);
        self.spare = self.spare.saturating_add(taken as usize).min(MAX_SPARE);
        self.state = if taken == left { State::DataCr } else { State::Data { left: left - taken } };
        taken as usize
    }

    fn step(&mut self, state: State, byte: u8) -> Result<State, &'static str> {
        Ok(match (state, byte) {
            (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == MAX_SIZE_DIGITS {
                    return Err("chunk size too large");
                }
                let digit = char::from(byte).to_digit(16).expect("matched above");
                State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return Err("chunk size expected"),
            (State::Size { value, .. } | State::Padding { value }, b' ' | b'\t') if !self.strict => {
                self.spend()?;
                State::Padding { value }
            }
            (State::Size { value, .. } | State::Padding { value } | State::Extension { value }, b'\r') => {
                State::SizeLf { value }
            }
            (State::Size { value, .. } | State::Padding { value }, b';') => State::Extension { value },
            (State::Size { .. } | State::Padding { .. }, _) => return Err("bad character in a chunk size"),
            (State::Extension { value }, _) => {
                if is_control(byte) {
                    return Err("control character in a chunk extension");
                }
                self.spend()?;
                State::Extension { value }
            }
            (State::SizeLf { value: 0 }, b'\n') => State::TrailerStart,
            (State::SizeLf { value }, b'\n') => State::Data { left: value },
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => START,
            (State::DataCr | State::DataLf, _) => return Err("chunk longer than its size"),
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart, _) => {
                self.trailers += 1;
                if self.trailers > MAX_TRAILERS {
                    return Err("too many trailer fields");
                }
                self.name_len = 0;
                self.trailer_name(byte)?
            }
            (State::TrailerName, b':') => {
                let name = &self.name[..self.name_len.min(LONGEST_NAME)];
                let known = self.name_len <= LONGEST_NAME;
                if self.strict && known && is_framing(FieldKind::of(name)) {
                    return Err("a trailer that would frame or route the message");
                }
                State::TrailerValue
            }
            (State::TrailerName, _) => self.trailer_name(byte)?,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) => {
                if is_control(byte) {
                    return Err("control character in a trailer");
                }
                self.trailer_byte()?;
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::Done,
            (State::SizeLf { .. } | State::TrailerLf | State::EndLf, _) => return Err("CR without LF"),
            (State::Data { .. } | State::Done, _) => unreachable!("handled by the callers"),
        })
    }

    fn trailer_name(&mut self, byte: u8) -> Result<State, &'static str> {
        if !is_token(byte) {
            return Err("a trailer without a name");
        }
        self.trailer_byte()?;
        if let Some(place) = self.name.get_mut(self.name_len) {
            *place = byte;
        }
        self.name_len += 1;
        Ok(State::TrailerName)
    }

    fn trailer_byte(&mut self) -> Result<(), &'static str> {
        self.room = self.room.checked_sub(1).ok_or("trailers too long")?;
        Ok(())
    }

    fn spend(&mut self) -> Result<(), &'static str> {
        self.spare = self.spare.checked_sub(1).ok_or("chunk extensions too long")?;
        Ok(())
    }
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn is_framing(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding | FieldKind::Host | FieldKind::Connection)
}

const START: State = State::Size { value: 0, digits: 0 };
const MAX_SIZE_DIGITS: u8 = 15;
/// Extensions are worth nothing to anybody: with more of them than of content a body is there to keep us busy.
const MAX_SPARE: usize = 8 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;
const MAX_TRAILERS: usize = 64;
/// Transfer-Encoding is the longest name that is looked for.
const LONGEST_NAME: usize = 17;
