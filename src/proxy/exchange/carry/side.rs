//! A side of an exchange: bodies come out of it and go into it, whatever the version of HTTP.

use crate::upstream::{asks_for_calm, is_broken_off, is_unprocessed, wants_http1};
use bytes::Bytes;
use http::HeaderMap;
use std::io;
use std::task::{Context, Poll};

/// Where content comes from, in pieces: [`bytes`](Self::bytes) shows the one at hand, [`poll_more`](Self::poll_more) gets the next.
pub trait BodySource {
    /// Content that has come and is not consumed yet: the same bytes until they are consumed.
    fn bytes(&self) -> &[u8];

    fn consume(&mut self, n: usize);

    /// The first `n` of what is at hand.
    fn take(&mut self, n: usize) -> Bytes;

    /// The next piece, once the one at hand is consumed. `false`: there is none.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Fault>>;

    /// Takes what comes while nobody takes the piece at hand, where that must not lie with others' content.
    fn gather(&mut self, _: &mut Context<'_>) {}

    /// Those behind the content.
    fn trailers(&mut self) -> Option<HeaderMap>;
}

/// The client or the origin: content comes from it and goes to it.
pub trait Side: BodySource {
    /// Nothing of what has been taken need be kept any more.
    fn keep_no_more(&mut self);

    /// Sends what is held, and content that `from` has at hand: some of it at least.
    fn poll_send<S: BodySource>(&mut self, cx: &mut Context<'_>, from: &mut S) -> Poll<Result<(), Fault>>;

    /// There is no more content.
    fn end(&mut self, trailers: Option<HeaderMap>);

    /// Resolves when all that was sent is on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;
}

/// Why a side cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("it ended early")]
    Ended,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
    #[error("the head is larger than {0} bytes")]
    TooLarge(usize),
    #[error("{0}")]
    Http2(#[from] h2::Error),
}

impl Fault {
    /// The other end has sent nothing of sense, for it is gone.
    pub fn is_end(&self) -> bool {
        match self {
            Fault::Ended | Fault::Io(_) => true,
            Fault::Http2(error) => error.is_io() || error.is_go_away(),
            Fault::Malformed(_) | Fault::TooLarge(_) => false,
        }
    }

    /// It says itself that it has done nothing about the request (RFC 9113 §8.7).
    pub fn is_unprocessed(&self) -> bool {
        matches!(self, Fault::Http2(error) if is_unprocessed(error))
    }

    /// The connection takes no more, and has done nothing about this request.
    pub fn goes_away(&self) -> bool {
        matches!(self, Fault::Http2(error) if error.is_go_away() && error.is_remote())
    }

    /// In the words of HTTP/2 for 429: it is asked too much.
    pub fn asks_for_calm(&self) -> bool {
        matches!(self, Fault::Http2(error) if asks_for_calm(error))
    }

    /// We have ended the connection, for what has come on it.
    pub fn is_broken_off(&self) -> bool {
        matches!(self, Fault::Http2(error) if is_broken_off(error))
    }

    /// It would rather be asked in HTTP/1.1.
    pub fn wants_http1(&self) -> bool {
        matches!(self, Fault::Http2(error) if wants_http1(error))
    }
}
