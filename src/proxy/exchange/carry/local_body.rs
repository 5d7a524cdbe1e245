//! The body of a local answer, sent as the client reads, without a copy.

use super::side::{BodySource, SideError};
use crate::proxy::respond::Answer;
use bytes::Bytes;
use std::ops::Range;
use std::task::{Context, Poll};

/// The unsent rest of the body.
pub struct LocalBody {
    answer: Answer,
    /// The current piece.
    piece: Range<usize>,
    len: usize,
}

impl LocalBody {
    /// Creates the body of an answer. `has_body`: false if only the head is sent, as to HEAD.
    pub fn of(answer: Answer, has_body: bool) -> Self {
        let len = if has_body { answer.body().len() } else { 0 };
        LocalBody { answer, piece: 0..0, len }
    }
}

impl BodySource for LocalBody {
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

    fn poll_more(&mut self, _: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        // Sent in pieces, so that the client's rate can be measured.
        self.piece.end = self.len.min(self.piece.start + PIECE);
        Poll::Ready(Ok(!self.piece.is_empty()))
    }

    fn has_ended(&self) -> bool {
        self.piece.start == self.len
    }
}

const PIECE: usize = 32 * 1024;
