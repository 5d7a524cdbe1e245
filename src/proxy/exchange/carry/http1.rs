//! The client or the origin of an exchange in HTTP/1.

use super::side::{BodySource, Side, SideError};
use crate::http1::{Body, BodyError, Field, FieldKind, Framing, put_chunk_head, put_last_chunk};
use crate::proxy::io::Buffer;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection during one exchange.
pub struct Http1<'a, T> {
    pub io: &'a mut T,
    pub input: &'a mut Buffer,
    /// Pending output.
    pub out: Buffer,
    /// Decoder of the incoming body.
    body: Body,
    /// Number of decoded content bytes at the front of the input.
    content: usize,
    sending: Sending,
    /// Bytes of the current chunk still to be written.
    chunk: usize,
    is_unflushed: bool,
    /// Output has ended: shut down after the flush.
    is_shut: bool,
}

/// Framing of outgoing content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Unframed.
    Plain,
    Chunked,
    /// Unframed; the end is a shutdown of the stream.
    UntilShutdown,
}

impl From<Framing> for Sending {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self::Chunked,
            Framing::None | Framing::Length(_) | Framing::UntilClose => Self::Plain,
        }
    }
}

impl<'a, T: AsyncRead + AsyncWrite + Unpin> Http1<'a, T> {
    pub fn new(io: &'a mut T, input: &'a mut Buffer) -> Self {
        Http1 {
            io,
            input,
            out: Buffer::new(),
            body: Body::of_request(Framing::None),
            content: 0,
            sending: Sending::Plain,
            chunk: 0,
            is_unflushed: false,
            is_shut: false,
        }
    }

    /// Starts an incoming body.
    pub fn receive(&mut self, body: Body) {
        (self.body, self.content) = (body, 0);
    }

    pub fn is_received(&self) -> bool {
        self.body.is_done() && self.content == 0
    }

    /// Passes all bytes unframed in both directions, for another protocol.
    pub fn open(&mut self) {
        self.receive(Body::of_response(Framing::UntilClose));
        self.sending = Sending::UntilShutdown;
    }

    pub fn send(&mut self, sending: Sending) {
        self.sending = sending;
    }

    /// Ready when the TLS layer has written all its output.
    #[inline]
    pub fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The next read or write returns the error again.
        if self.is_unflushed { Pin::new(&mut *self.io).poll_flush(cx).map(drop) } else { Poll::Ready(()) }
    }

    /// Reads once. Treats the end of TLS input without close_notify as a normal end; framing shows whether it is premature.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.input.poll_fill(cx, self.io) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
            read => read,
        }
    }

    /// Decodes the next content in the input. Returns false if more input is needed.
    fn decode_next(&mut self) -> Result<bool, BodyError> {
        while !self.input.is_empty() && !self.body.is_done() {
            let piece = self.body.decode(self.input.bytes())?;
            self.content = piece.len();
            self.input.consume(piece.start);
            if self.content > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Accounts for `n` bytes of `from` that were written.
    fn sent(&mut self, from: &mut impl BodySource, n: usize) {
        from.consume(n);
        if self.chunk > 0 && n > 0 {
            self.chunk -= n;
            if self.chunk == 0 {
                self.out.put(b"\r\n");
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> BodySource for Http1<'_, T> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.input.bytes()[..self.content]
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        self.content -= n;
        self.input.consume(n);
    }

    #[inline]
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        loop {
            if self.decode_next().map_err(|error| SideError::Malformed(error.to_string()))? {
                return Poll::Ready(Ok(true));
            }
            if self.body.is_done() {
                return Poll::Ready(Ok(false));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                self.body.on_end_of_stream().map_err(|_| SideError::Ended)?;
                return Poll::Ready(Ok(false));
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.is_received()
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        let mut trailers = None;
        for Field { name, value, .. } in self.body.trailers() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                trailers.get_or_insert_with(HeaderMap::new).append(name, value);
            }
        }
        trailers
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Side for Http1<'_, T> {
    #[inline]
    fn poll_send<S: BodySource>(&mut self, cx: &mut Context<'_>, from: &mut S) -> Poll<Result<(), SideError>> {
        self.is_unflushed = true;
        if self.sending == Sending::Chunked && self.chunk == 0 {
            let content = from.bytes();
            let n = content.len();
            if self.out.len() >= MAX_GATHERED {
                ready!(self.out.poll_drain(cx, self.io))?;
            }
            self.out.put_with(|out| put_chunk_head(out, n));
            self.chunk = n;
            if n <= SMALL_CHUNK {
                // Small chunks are gathered into one write.
                self.out.put(content);
                self.sent(from, n);
                return Poll::Ready(Ok(()));
            }
        }
        // The head and the start of the body share one write. Short content is copied, which costs less than a vectored write.
        if !self.out.is_empty() && from.bytes().len() <= self.out.room() {
            let n = from.bytes().len();
            self.out.put(from.bytes());
            self.sent(from, n);
        }
        let n = ready!(self.out.poll_drain_with(cx, self.io, from.bytes()))?;
        self.sent(from, n);
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        if self.sending == Sending::Chunked {
            let fields = trailers.iter().flatten().map(|(name, value)| {
                let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
                Field { name, value, kind: FieldKind::of(name) }
            });
            self.out.put_with(|out| put_last_chunk(out, fields));
        }
        self.is_shut = self.sending == Sending::UntilShutdown;
    }

    #[inline]
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SideError>> {
        if !self.out.is_empty() {
            self.is_unflushed = true;
            ready!(self.out.poll_drain(cx, self.io))?;
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut *self.io).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        if self.is_shut {
            ready!(Pin::new(&mut *self.io).poll_shutdown(cx))?;
            self.is_shut = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Maximum number of bytes gathered for one write.
const MAX_GATHERED: usize = 16 * 1024;
/// Maximum bytes of a chunk that is copied; larger chunks are written in place.
const SMALL_CHUNK: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::super::Flow;
    use super::super::narrow::Narrow;
    use super::*;
    use crate::proxy::limits::body_rate::MinRate;
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test]
    async fn head_and_body_share_a_write_and_short_writes_lose_nothing() {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        for (length, chunk) in [(100, "64"), (70_000, "11170")] {
            let content: Vec<u8> = (0..length).map(|n| n as u8).collect();
            for most in [1, 7, head.len(), head.len() + 9, 8192, usize::MAX] {
                for sending in [Sending::Plain, Sending::Chunked] {
                    let (mut nothing, mut input, mut unread) = (tokio::io::empty(), Buffer::new(), Buffer::new());
                    input.put(&content);
                    let mut from = Http1::new(&mut nothing, &mut input);
                    from.receive(Body::of_response(Framing::Length(length)));
                    let mut io = Narrow::new(most, usize::MAX);
                    let mut to = Http1::new(&mut io, &mut unread);
                    to.out.put(head);
                    to.send(sending);
                    let (rate, now) = (MinRate { rate: 0, over: Duration::from_secs(1) }, Instant::now());
                    let mut flow = Flow::new(now);
                    poll_fn(|cx| flow.poll(cx, &mut from, &mut to, rate, now, |_| Ok(()))).await.unwrap();
                    let expected = match sending {
                        Sending::Chunked => [head, chunk.as_bytes(), b"\r\n", &content, b"\r\n0\r\n\r\n"].concat(),
                        _ => [&head[..], &content].concat(),
                    };
                    assert_eq!(io.written, expected, "{length} bytes, {most} at a time, {sending:?}");
                    if most == usize::MAX && sending == Sending::Plain {
                        assert_eq!(io.writes, 1);
                    }
                }
            }
        }
    }
}
