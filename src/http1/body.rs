//! Where a body ends (RFC 9112 §6, §7), and what is content in it: framing is never handed on, but written anew.

use super::chunked::Chunked;
use super::fields::Field;
use std::ops::Range;

/// How a message says where its body ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    Length(u64),
    Chunked,
    /// It ends with the connection: answers alone.
    UntilClose,
}

/// Follows one body to its end.
#[derive(Debug)]
pub struct Body {
    left: Left,
}

#[derive(Debug)]
enum Left {
    Bytes(u64),
    Chunks(Chunked),
    UntilClose,
}

/// The body is not what its framing says; nothing behind this can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("malformed chunked body: {0}")]
    Malformed(&'static str),
    #[error("the body ended early")]
    CutShort,
}

/// What [`Body::decode`] has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyPiece {
    /// So many bytes of the input are dealt with.
    pub consumed: usize,
    /// Content, among them.
    pub data: Range<usize>,
}

impl Body {
    /// The body of a request. In its chunks nothing is accepted that is not in the grammar, and no trailer that would change
    /// what the message is.
    pub fn of_request(framing: Framing) -> Self {
        Self::new(framing, true)
    }

    /// The body of an answer. Spaces after the size of a chunk are accepted: there are servers that fill up with them.
    pub fn of_response(framing: Framing) -> Self {
        Self::new(framing, false)
    }

    fn new(framing: Framing, strict: bool) -> Self {
        let left = match framing {
            Framing::None => Left::Bytes(0),
            Framing::Length(length) => Left::Bytes(length),
            Framing::Chunked => Left::Chunks(Chunked::new(strict)),
            Framing::UntilClose => Left::UntilClose,
        };
        Body { left }
    }

    #[inline]
    pub fn is_done(&self) -> bool {
        match &self.left {
            Left::Bytes(left) => *left == 0,
            Left::Chunks(chunks) => chunks.is_done(),
            Left::UntilClose => false,
        }
    }

    /// The next piece of content, which ends what is consumed. To be called again with what follows it, until the body is done or
    /// nothing is left of the input. A piece without content is framing, or the trailers.
    #[inline]
    pub fn decode(&mut self, bytes: &[u8]) -> Result<BodyPiece, BodyError> {
        let whole = |length| BodyPiece { consumed: length, data: 0..length };
        match &mut self.left {
            Left::Bytes(left) => Ok(whole(take(left, bytes.len()))),
            Left::Chunks(chunks) => chunks.decode(bytes),
            Left::UntilClose => Ok(whole(bytes.len())),
        }
    }

    /// The stream has ended. An error unless the body had, or ends with it.
    pub fn on_end_of_stream(&mut self) -> Result<(), BodyError> {
        match self.left {
            Left::UntilClose => self.left = Left::Bytes(0),
            _ if self.is_done() => {}
            _ => return Err(BodyError::CutShort),
        }
        Ok(())
    }

    /// The trailers of a chunked body that was decoded, once it is done. Those that may not be trailers are left out.
    pub fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        let chunks = match &self.left {
            Left::Chunks(chunks) => Some(chunks),
            Left::Bytes(_) | Left::UntilClose => None,
        };
        chunks.into_iter().flat_map(Chunked::trailers).filter(Field::may_trail)
    }
}

fn take(left: &mut u64, there: usize) -> usize {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(there);
    *left -= taken as u64;
    taken
}
