//! The body of an answer to one of the proxy's own requests, and its errors.

use super::connect::Http1Link;
use super::dial_error::DialError;
use super::http2::{Http2Link, check_trailers};
use crate::http1::{Body, BodyError, HeadError};
use bytes::{Bytes, BytesMut};
use std::{io, mem};
use tokio::io::AsyncReadExt;

/// The body of an answer. Dropping it early closes its HTTP/1 connection, or resets its HTTP/2 stream.
pub struct BodyStream {
    pub(super) carried: ReplyBody,
    /// Whether the body ended with the connection, which was TLS and ended without close_notify.
    pub(super) may_be_cut: bool,
}

/// Why an answer is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("connection closed early: {}", crate::tls_words::with_cure(crate::tls_words::in_plain(.0)))]
    Ended(#[from] io::Error),
    #[error("malformed answer: {0}")]
    Head(#[from] HeadError),
    #[error("malformed answer: {0}")]
    Body(#[from] BodyError),
    #[error("malformed answer: {0}")]
    Malformed(&'static str),
    #[error("HTTP/2: {0}")]
    Http2(#[from] h2::Error),
    #[error("the pacing slot expired before the request was sent")]
    NotSent,
}

/// The body, by protocol version.
pub(super) enum ReplyBody {
    Http1 { link: Http1Link, input: BytesMut, body: Body, close: bool },
    Http2 { stream: h2::RecvStream, _link: Http2Link },
    Ended,
}

impl BodyStream {
    /// The next piece; `None` after the last one.
    ///
    /// # Errors
    /// The body was truncated, or contradicts its framing.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, GetError> {
        loop {
            match &mut self.carried {
                ReplyBody::Ended => return Ok(None),
                ReplyBody::Http2 { stream, .. } => match stream.data().await.transpose()? {
                    Some(piece) => {
                        stream.flow_control().release_capacity(piece.len())?;
                        return Ok(Some(piece));
                    }
                    None => {
                        stream.trailers().await?.as_ref().map(check_trailers).transpose()?;
                        self.carried = ReplyBody::Ended;
                    }
                },
                ReplyBody::Http1 { link, input, body, .. } => {
                    if input.is_empty() {
                        let read = match link.stream.read_buf(input).await {
                            // TLS ended without close_notify, which many servers never send.
                            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                                self.may_be_cut = true;
                                0
                            }
                            read => read?,
                        };
                        if read == 0 {
                            body.on_end_of_stream()?;
                            self.carried = ReplyBody::Ended;
                            continue;
                        }
                    }
                    let piece = body.decode(input)?;
                    let content = input.split_to(piece.end).split_off(piece.start);
                    self.carried.keep_if_done();
                    if !content.is_empty() {
                        return Ok(Some(content.freeze()));
                    }
                }
            }
        }
    }

    /// Whether the body, read to its end, may have been truncated by somebody on the network path: only the end of the connection marks
    /// its end, and over TLS no close_notify confirmed it (RFC 9112 §9.8).
    pub fn may_be_cut(&self) -> bool {
        self.may_be_cut
    }

    /// Reads and discards the rest of the body, up to `limit` bytes, so that the connection can be kept.
    pub async fn discard(mut self, limit: usize) {
        let mut left = limit;
        while let Ok(Some(piece)) = self.chunk().await {
            if piece.len() > left {
                return;
            }
            left -= piece.len();
        }
    }
}

impl ReplyBody {
    /// Returns the connection to the pool if the body was read to its end.
    pub fn keep_if_done(&mut self) {
        if let Self::Http1 { body, .. } = self
            && body.is_done()
            && let Self::Http1 { link, input, close: false, .. } = mem::replace(self, Self::Ended)
            && input.is_empty()
        {
            link.keep();
        }
    }
}
