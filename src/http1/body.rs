//! Finds where a body ends (RFC 9112 §6, §7), and which of its bytes are content. The proxy never forwards framing: it writes its own.

use super::chunked::{Chunked, take};
use super::fields::Field;
use std::ops::Range;

/// The framing of a body: how a message says where its body ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The message has no body.
    None,
    Length(u64),
    Chunked,
    /// The body ends with the connection; only in answers.
    UntilClose,
}

/// The decoder of one body.
#[derive(Debug)]
pub struct Body(Left);

#[derive(Debug)]
enum Left {
    Bytes(u64),
    Chunks(Chunked),
    UntilClose,
}

/// The body contradicts its framing; nothing after it on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("malformed body: {0}")]
    Malformed(&'static str),
    #[error("the body ended early")]
    CutShort,
}

impl Body {
    /// The body of a request. Chunks must follow the grammar exactly, and trailers that would frame or route the message are refused.
    pub fn of_request(framing: Framing) -> Self {
        Self::new(framing, true)
    }

    /// The body of an answer. Spaces after a chunk size are accepted, as some servers pad sizes with them.
    pub fn of_response(framing: Framing) -> Self {
        Self::new(framing, false)
    }

    fn new(framing: Framing, strict: bool) -> Self {
        Body(match framing {
            Framing::None => Left::Bytes(0),
            Framing::Length(length) => Left::Bytes(length),
            Framing::Chunked => Left::Chunks(Chunked::new(strict)),
            Framing::UntilClose => Left::UntilClose,
        })
    }

    #[inline]
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Left::Bytes(left) => *left == 0,
            Left::Chunks(chunks) => chunks.is_done(),
            Left::UntilClose => false,
        }
    }

    /// Returns the next piece of content as a range of the input, which has been processed up to the end of this range. Call again with
    /// the bytes after it, until the body is done or the input is used up. An empty range means that only framing or trailers were read.
    #[inline]
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Range<usize>, BodyError> {
        match &mut self.0 {
            Left::Bytes(left) => Ok(0..take(left, bytes.len())),
            Left::Chunks(chunks) => chunks.decode(bytes),
            Left::UntilClose => Ok(0..bytes.len()),
        }
    }

    /// Handles the end of the stream.
    ///
    /// # Errors
    /// The body was not done, and does not end with the stream.
    pub fn on_end_of_stream(&mut self) -> Result<(), BodyError> {
        match self.0 {
            Left::UntilClose => self.0 = Left::Bytes(0),
            _ if self.is_done() => {}
            _ => return Err(BodyError::CutShort),
        }
        Ok(())
    }

    /// The trailers of a chunked body, once it is done. Fields that must not be trailers are left out.
    pub fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        let chunks = match &self.0 {
            Left::Chunks(chunks) => Some(chunks),
            Left::Bytes(_) | Left::UntilClose => None,
        };
        chunks.into_iter().flat_map(Chunked::trailers).filter(Field::may_trail)
    }
}
