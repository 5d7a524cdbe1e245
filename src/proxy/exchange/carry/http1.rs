//! A side that speaks HTTP/1.

use super::side::{Fault, Side};
use crate::http1::{Body, BodyError, Field, FieldKind, Framing, put_chunk_head, put_last_chunk, put_trailers};
use crate::proxy::io::Buffer;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection for the length of one exchange.
pub struct Http1<'a, T> {
    pub io: &'a mut T,
    pub input: &'a mut Buffer,
    /// Written next.
    pub out: Buffer,
    receiving: Receiving,
    sending: Sending,
    unflushed: bool,
    /// Nothing more is written: to be passed on.
    is_shut: bool,
    /// What has been taken of the body, framing included, as long as all of it may have to be taken once more.
    kept: Option<Vec<u8>>,
}

/// How a body comes.
struct Receiving {
    body: Body,
    /// With its framing, as it is.
    raw: bool,
    /// Its trailers have begun: they are read, however the rest came.
    trails: bool,
    /// So many at the front of the input are content.
    cleared: usize,
    /// So many behind them are framing.
    behind: usize,
}

/// How content goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// As it comes.
    Plain,
    /// As it comes, chunks and all, but for trailers.
    Chunks,
    Chunked,
    /// As it comes, and its end is that of the stream.
    UntilShutdown,
}

impl Sending {
    /// `raw`: it comes in this framing already.
    pub fn of(framing: Framing, raw: bool) -> Self {
        match framing {
            Framing::Chunked if raw => Self::Chunks,
            Framing::Chunked => Self::Chunked,
            Framing::None | Framing::Length(_) | Framing::UntilClose => Self::Plain,
        }
    }
}

impl<'a, T: AsyncRead + AsyncWrite + Unpin> Http1<'a, T> {
    pub fn new(io: &'a mut T, input: &'a mut Buffer) -> Self {
        let receiving =
            Receiving { body: Body::of_request(Framing::None), raw: true, trails: false, cleared: 0, behind: 0 };
        let (out, sending) = (Buffer::new(), Sending::Plain);
        Http1 { io, input, out, receiving, sending, unflushed: false, is_shut: false, kept: None }
    }

    /// A body comes next.
    pub fn receive(&mut self, body: Body, raw: bool) {
        self.receiving = Receiving { body, raw, trails: false, cleared: 0, behind: 0 };
    }

    pub fn is_received(&self) -> bool {
        self.receiving.body.is_done() && self.receiving.cleared == 0
    }

    /// From now on all that comes is content, and all content goes out as it is: another protocol is spoken.
    pub fn open(&mut self) {
        self.receive(Body::of_response(Framing::UntilClose), true);
        self.sending = Sending::UntilShutdown;
    }

    pub fn send(&mut self, sending: Sending) {
        self.sending = sending;
    }

    /// From now on the body can be taken once more, as long as it is short.
    pub fn keep(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// Puts back what was taken of the body. `false`: not all of it is there.
    pub fn unread(&mut self) -> bool {
        let Some(kept) = self.kept.take() else { return false };
        if !kept.is_empty() {
            self.input.unread(&kept);
        }
        true
    }

    /// Ready when nothing of what was put out is still held back by TLS.
    #[inline]
    pub fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // That it fails shows in what comes next.
        if self.unflushed { Pin::new(&mut *self.io).poll_flush(cx).map(drop) } else { Poll::Ready(()) }
    }

    fn drop_front(&mut self, n: usize) {
        if let Some(kept) = &mut self.kept {
            if kept.len() + n <= KEPT {
                kept.extend_from_slice(&self.input.bytes()[..n]);
            } else {
                self.kept = None;
            }
        }
        self.input.consume(n);
    }

    /// Reads once. An end without TLS's goodbye is an end: framing shows whether it came too early.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.input.poll_fill(cx, self.io) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
            read => read,
        }
    }

    /// Content in the input is made known. `false`: more has to be read.
    fn clear(&mut self) -> Result<bool, BodyError> {
        while !self.input.is_empty() && !self.receiving.body.is_done() {
            let receiving = &mut self.receiving;
            if receiving.raw && !receiving.trails {
                receiving.cleared = receiving.body.advance_to_trailers(self.input.bytes())?;
                if receiving.cleared > 0 {
                    return Ok(true);
                }
                receiving.trails = true;
            }
            let piece = receiving.body.decode(self.input.bytes())?;
            (receiving.cleared, receiving.behind) = (piece.data.len(), piece.consumed - piece.data.end);
            if receiving.cleared > 0 {
                self.drop_front(piece.data.start);
                return Ok(true);
            }
            self.receiving.behind = 0;
            self.drop_front(piece.consumed);
            if piece.consumed == 0 {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Side for Http1<'_, T> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.input.bytes()[..self.receiving.cleared]
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        self.receiving.cleared -= n;
        self.drop_front(n);
        if self.receiving.cleared == 0 && self.receiving.behind > 0 {
            let behind = std::mem::take(&mut self.receiving.behind);
            self.drop_front(behind);
        }
    }

    fn take(&mut self, n: usize) -> Bytes {
        let taken = Bytes::copy_from_slice(&self.bytes()[..n]);
        self.consume(n);
        taken
    }

    #[inline]
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Fault>> {
        loop {
            if self.clear().map_err(|error| Fault::Malformed(error.to_string()))? {
                return Poll::Ready(Ok(true));
            }
            if self.receiving.body.is_done() {
                return Poll::Ready(Ok(false));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                self.receiving.body.on_end_of_stream().map_err(|_| Fault::Ended)?;
                return Poll::Ready(Ok(false));
            }
        }
    }

    fn keep_no_more(&mut self) {
        self.kept = None;
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        if self.receiving.raw && !self.receiving.trails {
            return None;
        }
        let mut trailers = HeaderMap::new();
        for Field { name, value, .. } in self.receiving.body.trailers() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                trailers.append(name, value);
            }
        }
        (self.receiving.trails || !trailers.is_empty()).then_some(trailers)
    }

    #[inline]
    fn poll_send<S: Side>(&mut self, cx: &mut Context<'_>, from: &mut S) -> Poll<Result<(), Fault>> {
        self.unflushed = true;
        if self.sending == Sending::Chunked {
            if self.out.len() < GATHERED {
                let content = from.bytes();
                let n = content.len();
                if n > 0 {
                    self.out.put_with(|out| put_chunk_head(out, n));
                    self.out.put(content);
                    self.out.put(b"\r\n");
                    from.consume(n);
                }
            }
            ready!(self.out.poll_drain(cx, self.io))?;
            return Poll::Ready(Ok(()));
        }
        if !self.out.is_empty() {
            // The head and the first of the body in one write.
            let n = self.out.put_some(from.bytes());
            from.consume(n);
            ready!(self.out.poll_drain(cx, self.io))?;
        }
        if !from.bytes().is_empty() {
            match ready!(Pin::new(&mut *self.io).poll_write(cx, from.bytes()))? {
                0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                n => from.consume(n),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        let map = trailers.as_ref();
        let fields = map.into_iter().flatten().map(|(name, value)| {
            let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
            Field { name, value, kind: FieldKind::of(name) }
        });
        match self.sending {
            Sending::Chunked => self.out.put_with(|out| put_last_chunk(out, fields)),
            // The last chunk has gone out.
            Sending::Chunks if map.is_some() => self.out.put_with(|out| put_trailers(out, fields)),
            Sending::Chunks | Sending::Plain | Sending::UntilShutdown => {}
        }
        self.is_shut = self.sending == Sending::UntilShutdown;
    }

    #[inline]
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if !self.out.is_empty() {
            self.unflushed = true;
            ready!(self.out.poll_drain(cx, self.io))?;
        }
        if self.unflushed {
            ready!(Pin::new(&mut *self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        if self.is_shut {
            ready!(Pin::new(&mut *self.io).poll_shutdown(cx))?;
            self.is_shut = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Of a request's body, for another try.
const KEPT: usize = 64 * 1024;
/// No more is gathered for one write.
const GATHERED: usize = 16 * 1024;
