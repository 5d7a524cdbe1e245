//! A side of an exchange: the client or the origin, as source and destination of body content, in any HTTP version.

use crate::http1::HeadError;
use bytes::Bytes;
use http::HeaderMap;
use std::io;
use std::task::{Context, Poll};

/// A source of content in pieces: [`bytes`](Self::bytes) is the current piece, [`poll_more`](Self::poll_more) gets
/// the next.
pub trait BodySource {
    /// The unconsumed rest of the current piece. Stable until consumed.
    fn bytes(&self) -> &[u8];

    fn consume(&mut self, n: usize);

    /// The rest of the current piece, which stays unconsumed.
    fn share(&self) -> Bytes {
        Bytes::copy_from_slice(self.bytes())
    }

    /// Takes the first `n` bytes of the current piece.
    fn take(&mut self, n: usize) -> Bytes {
        let taken = Bytes::copy_from_slice(&self.bytes()[..n]);
        self.consume(n);
        taken
    }

    /// Gets the next piece, once the current one is consumed. `false`: the content has ended.
    fn poll_more(&mut self, _: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        Poll::Ready(Ok(false))
    }

    /// Whether neither content nor trailers follow. `false`: unknown.
    fn has_ended(&self) -> bool {
        false
    }

    /// Whether all announced content has been taken, even if the end of the body has not arrived.
    fn is_complete(&self) -> bool {
        self.has_ended()
    }

    /// Queues incoming content while the current piece waits, if unread content would block other streams. By default,
    /// content stays in the socket.
    fn gather(&mut self, _: &mut Context<'_>) {}

    /// The trailers after the content.
    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }
}

/// Content of one piece.
impl BodySource for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn consume(&mut self, n: usize) {
        drop(self.split_to(n));
    }

    fn take(&mut self, n: usize) -> Bytes {
        self.split_to(n)
    }
}

/// The client or the origin, which both send and receive content.
pub trait Side: BodySource {
    /// Sends pending output and at least some of the current piece of `from`.
    fn poll_send<S: BodySource>(&mut self, cx: &mut Context<'_>, from: &mut S) -> Poll<Result<(), SideError>>;

    /// Ends the content.
    fn end(&mut self, trailers: Option<HeaderMap>);

    /// Resolves when all output has been written.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SideError>>;
}

/// An error of one side.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    #[error("the connection ended early")]
    Ended,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Head(#[from] HeadError),
    #[error("{0}")]
    Http2(#[from] h2::Error),
}

impl SideError {
    /// Whether the other end has gone without a readable answer.
    pub fn is_end(&self) -> bool {
        match self {
            SideError::Ended | SideError::Io(_) => true,
            SideError::Http2(error) => error.is_io() || error.is_go_away(),
            SideError::Malformed(_) | SideError::Head(_) => false,
        }
    }

    /// Whether this is an HTTP/2 error for which `is` returns true.
    pub fn means(&self, is: impl FnOnce(&h2::Error) -> bool) -> bool {
        matches!(self, SideError::Http2(error) if is(error))
    }
}
