//! The body of an answer of the proxy's own: it goes out as the client takes it, and is not copied to wait for that.

use super::side::{BodySource, Fault};
use crate::proxy::respond::Answer;
use bytes::Bytes;
use http::HeaderMap;
use std::ops::Range;
use std::task::{Context, Poll};

/// What is left of it.
pub struct OwnBody {
    answer: Answer,
    /// The piece at hand.
    piece: Range<usize>,
    len: usize,
}

impl OwnBody {
    /// `has_body`: it does not answer HEAD, or the like.
    pub fn of(answer: Answer, has_body: bool) -> Self {
        let len = if has_body { answer.body().len() } else { 0 };
        OwnBody { answer, piece: 0..0, len }
    }
}

impl BodySource for OwnBody {
    fn bytes(&self) -> &[u8] {
        &self.answer.body()[self.piece.clone()]
    }

    fn consume(&mut self, n: usize) {
        self.piece.start += n;
    }

    fn take(&mut self, n: usize) -> Bytes {
        let start = self.piece.start;
        self.consume(n);
        self.answer.share(start..start + n)
    }

    fn poll_more(&mut self, _: &mut Context<'_>) -> Poll<Result<bool, Fault>> {
        // Piece by piece, so that it is seen how fast they are taken.
        self.piece.end = self.len.min(self.piece.start + PIECE);
        Poll::Ready(Ok(!self.piece.is_empty()))
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }
}

const PIECE: usize = 32 * 1024;
