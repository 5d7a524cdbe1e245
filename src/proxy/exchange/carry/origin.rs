//! The origin side of an exchange.

use super::answer::AnswerHead;
use super::http1::Http1;
use super::http2::Http2;
use super::side::{Side, SideError};
use crate::http1::{Body, Framing, ResponseHead, number, read_response};
use crate::upstream::{SentHead, check_head};
use h2::client::ResponseFuture;
use http::{HeaderMap, header};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// The origin that answers the request.
pub trait Origin {
    type Side: Side;

    fn side(&mut self) -> &mut Self::Side;

    /// Reads the next head, interim or final. `limit`: its maximum size in bytes.
    fn poll_head<R>(
        &mut self,
        cx: &mut Context<'_>,
        method: &str,
        limit: usize,
        read: impl FnMut(&AnswerHead<'_>) -> R,
    ) -> Poll<Result<R, SideError>>;

    /// Starts the body of the last head.
    fn begin_body(&mut self);

    /// Whether no byte of an answer has arrived.
    fn is_unanswered(&self) -> bool;

    /// Whether the origin may still read the rest of the request after its answer.
    fn reads_on(&self) -> bool;

    /// Ready when the head of the request has been written.
    fn poll_head_written(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// An origin that speaks HTTP/1.
pub struct Http1Origin<'a, T> {
    pub side: Http1<'a, T>,
    scanned: usize,
    framing: Framing,
    /// Whether the connection closes after this answer.
    closes: bool,
    has_answered: bool,
    /// Whether this task has polled the connection without finding input, so that it is woken when input arrives.
    is_watched: bool,
}

impl<'a, T: AsyncRead + AsyncWrite + Unpin> Http1Origin<'a, T> {
    /// `is_watched`: this task has just found nothing to read.
    pub fn new(side: Http1<'a, T>, is_watched: bool) -> Self {
        Http1Origin { side, scanned: 0, framing: Framing::None, closes: true, has_answered: false, is_watched }
    }

    /// Whether the connection can be reused: the answer is complete and nothing follows it.
    pub fn is_kept(&self) -> bool {
        !self.closes && self.side.is_received() && self.side.input.is_empty() && self.side.out.is_empty()
    }
}

impl<'a, T: AsyncRead + AsyncWrite + Unpin> Origin for Http1Origin<'a, T> {
    type Side = Http1<'a, T>;

    fn side(&mut self) -> &mut Self::Side {
        &mut self.side
    }

    #[inline]
    fn poll_head<R>(
        &mut self,
        cx: &mut Context<'_>,
        method: &str,
        limit: usize,
        mut read: impl FnMut(&AnswerHead<'_>) -> R,
    ) -> Poll<Result<R, SideError>> {
        loop {
            if !self.side.input.is_empty() {
                let look = |head: &ResponseHead<'_>| {
                    (self.framing, self.closes) = (head.framing, head.close);
                    (head.len, read(&AnswerHead::of_http1(head)))
                };
                let input = self.side.input.bytes_mut();
                if let Some((len, done)) = read_response(input, &mut self.scanned, limit, method, look)? {
                    self.side.input.consume(len);
                    self.scanned = 0;
                    return Poll::Ready(Ok(done));
                }
            }
            if std::mem::take(&mut self.is_watched) {
                return Poll::Pending;
            }
            if ready!(self.side.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(SideError::Ended));
            }
            self.has_answered = true;
        }
    }

    fn begin_body(&mut self) {
        self.side.receive(Body::of_response(self.framing));
    }

    fn is_unanswered(&self) -> bool {
        !self.has_answered
    }

    fn reads_on(&self) -> bool {
        // RFC 9112 §9.5: an origin that closes the connection after its answer does not read on.
        !self.closes
    }

    #[inline]
    fn poll_head_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.side.out.is_empty() { self.side.poll_flushed(cx) } else { Poll::Pending }
    }
}

/// An origin's stream in HTTP/2.
pub struct Http2Origin {
    pub side: Http2,
    response: ResponseFuture,
    /// Reports when the head of a paced request has been written.
    sent_head: Option<SentHead>,
    /// Whether interim heads may still arrive.
    interim: bool,
    has_answered: bool,
}

impl Http2Origin {
    pub fn new(side: Http2, response: ResponseFuture, sent_head: Option<SentHead>) -> Self {
        Http2Origin { side, response, sent_head, interim: true, has_answered: false }
    }
}

impl Origin for Http2Origin {
    type Side = Http2;

    fn side(&mut self) -> &mut Http2 {
        &mut self.side
    }

    fn poll_head<R>(
        &mut self,
        cx: &mut Context<'_>,
        method: &str,
        limit: usize,
        mut read: impl FnMut(&AnswerHead<'_>) -> R,
    ) -> Poll<Result<R, SideError>> {
        if self.interim {
            match ready!(self.response.poll_informational(cx)) {
                Some(Ok(head)) => {
                    self.has_answered = true;
                    check_head(0, head.headers(), limit)?;
                    let done = read(&AnswerHead::of_http2(head.status(), head.headers(), Framing::None));
                    return Poll::Ready(Ok(done));
                }
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                None => self.interim = false,
            }
        }
        let (parts, body) = ready!(Pin::new(&mut self.response).poll(cx))?.into_parts();
        self.has_answered = true;
        check_head(0, &parts.headers, limit)?;
        let framing = framing(method, parts.status.as_u16(), &parts.headers, body.is_end_stream())?;
        // Drops content of an answer that must have none: an HTTP/1 client would read it as the next answer.
        self.side.receiving = (framing != Framing::None).then_some(body);
        self.side.remaining = match framing {
            Framing::Length(length) => Some(length),
            Framing::None | Framing::Chunked | Framing::UntilClose => None,
        };
        Poll::Ready(Ok(read(&AnswerHead::of_http2(parts.status, &parts.headers, framing))))
    }

    fn begin_body(&mut self) {}

    fn is_unanswered(&self) -> bool {
        !self.has_answered
    }

    fn reads_on(&self) -> bool {
        // RFC 9113 §8.1: an origin that does not read on resets the stream.
        true
    }

    fn poll_head_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.sent_head {
            Some(head) if !self.has_answered => head.poll_written(cx),
            _ => Poll::Ready(()),
        }
    }
}

/// Body framing (RFC 9113 §8.1.1). Content-Length fields must agree.
fn framing(method: &str, status: u16, fields: &HeaderMap, ends: bool) -> Result<Framing, SideError> {
    let mut length = None;
    for field in fields.get_all(header::CONTENT_LENGTH) {
        let told = number(field.as_bytes())
            .ok_or_else(|| SideError::Malformed("its Content-Length is not a number".into()))?;
        if length.replace(told).is_some_and(|before| before != told) {
            return Err(SideError::Malformed("its Content-Length fields differ".into()));
        }
    }
    Ok(match (method, status, length) {
        ("HEAD", ..) | (_, 204 | 304, _) => Framing::None,
        _ if ends => Framing::Length(0),
        (.., Some(length)) => Framing::Length(length),
        (.., None) => Framing::Chunked,
    })
}
