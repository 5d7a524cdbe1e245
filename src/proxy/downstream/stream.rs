//! A client's connection as a stream: reading ends with the message, writing is gathered. Used by pingora and by
//! whoever carries a connection on.

use super::super::chunked::Scanner;
use super::{Body, Downstream, Io, Message, eof_as_zero};
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

impl AsyncRead for Downstream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.message {
                Message::Head(head, body) => {
                    let n = head.len().min(buf.remaining());
                    buf.put_slice(&head.split_to(n));
                    if head.is_empty() {
                        this.message = match *body {
                            Body::Length(n) => Message::Length(n),
                            Body::Chunked => Message::Chunked(Scanner::new()),
                        };
                    }
                    return Poll::Ready(Ok(()));
                }
                Message::Between => return this.poll_leaving(cx),
                Message::Length(0) => this.message = Message::Between,
                Message::Length(left) => {
                    let limit = *left;
                    let n = ready!(this.poll_body(cx, buf, limit))? as u64;
                    this.message = Message::Length(limit - n);
                    return Poll::Ready(Ok(()));
                }
                Message::Chunked(scanner) if scanner.is_done() => this.message = Message::Between,
                Message::Chunked(_) => return this.poll_chunks(cx, buf),
                Message::Raw => return this.poll_io(cx, buf),
            }
        }
    }
}

impl Downstream {
    fn poll_chunks(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        ready!(self.poll_body(cx, buf, u64::MAX))?;
        let Message::Chunked(scanner) = &mut self.message else { return Poll::Ready(Ok(())) };
        let read = &buf.filled()[start..];
        let used = scanner.advance(read).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if used < read.len() {
            // The next message has begun: it goes back in front of what is still to be read.
            let mut rest = BytesMut::from(&read[used..]);
            rest.unsplit(std::mem::take(&mut self.ahead));
            self.ahead = rest;
            buf.set_filled(start + used);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Downstream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unsent.len() + bytes.len() > WRITE_SIZE {
            ready!(self.poll_send(cx))?;
        }
        if bytes.len() < WRITE_SIZE {
            let start = self.unsent.len();
            self.unsent.extend_from_slice(bytes);
            if let Some(date) = self.date.get_mut().take() {
                restore_date(&mut self.unsent[start..], date.as_bytes());
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        match &mut self.io {
            Io::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Io::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        match &mut self.io {
            Io::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Io::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        match &mut self.io {
            Io::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Io::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

impl Downstream {
    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let n = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..n]);
            self.ahead.advance(n);
            return Poll::Ready(Ok(()));
        }
        match &mut self.io {
            Io::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Io::Tls(tls) => {
                let read = ready!(Pin::new(tls).poll_read(cx, buf));
                Poll::Ready(eof_as_zero(read.map(|()| 0)).map(|_| ()))
            }
        }
    }

    /// At most `limit` bytes of the message's body.
    fn poll_body(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, limit: u64) -> Poll<io::Result<usize>> {
        let room = buf.remaining().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(self.poll_io(cx, &mut part))?;
        let n = part.filled().len();
        buf.advance(n);
        Poll::Ready(Ok(n))
    }

    /// Nothing of this message is left: only an end of the connection is news.
    fn poll_leaving(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < MAX_AHEAD {
            let mut space = [0; 2048];
            let mut buf = ReadBuf::new(&mut space);
            match &mut self.io {
                Io::Tcp(tcp) => ready!(Pin::new(tcp).poll_read(cx, &mut buf))?,
                Io::Tls(tls) => {
                    let read = ready!(Pin::new(tls).poll_read(cx, &mut buf));
                    eof_as_zero(read.map(|()| 0))?;
                }
            }
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.ahead.extend_from_slice(buf.filled());
        }
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let n = match &mut self.io {
                Io::Tcp(tcp) => ready!(Pin::new(tcp).poll_write(cx, &self.unsent))?,
                Io::Tls(tls) => ready!(Pin::new(tls).poll_write(cx, &self.unsent))?,
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(n);
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes `date` over the Date in this head. All dates in the one format that is allowed are of one length.
fn restore_date(head: &mut [u8], date: &[u8]) {
    const FIELD: &[u8] = b"\r\ndate: ";
    let field = head.windows(FIELD.len()).position(|window| window.eq_ignore_ascii_case(FIELD));
    let Some(start) = field.map(|at| at + FIELD.len()) else { return };
    if let Some(value) = head.get_mut(start..start + date.len()).filter(|_| date.len() == IMF_FIXDATE) {
        value.copy_from_slice(date);
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
const IMF_FIXDATE: usize = 29;
const WRITE_SIZE: usize = 16 * 1024;
/// What a client may send ahead of the answer under way; more waits in the kernel.
const MAX_AHEAD: usize = 64 * 1024;
