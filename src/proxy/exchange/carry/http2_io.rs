//! An HTTP/2 stream as a byte stream: the content of a CONNECT (RFC 9113 §8.5).

use super::http2::Http2;
use super::side::{BodySource, Side, SideError};
use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

impl AsyncRead for Http2 {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bytes().is_empty() && !ready!(this.poll_more(cx)).map_err(to_io_error)? {
            return Poll::Ready(Ok(()));
        }
        let n = this.bytes().len().min(buf.remaining());
        buf.put_slice(&this.bytes()[..n]);
        this.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2 {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let n = ready!(this.poll_room(cx, bytes.len())).map_err(to_io_error)?;
        let Some(sending) = &mut this.sending else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        let sent = sending.send_data(Bytes::copy_from_slice(&bytes[..n]), false);
        Poll::Ready(sent.map(|()| n).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing to flush here: the connection's own task writes.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().end(None);
        Poll::Ready(Ok(()))
    }
}

fn to_io_error(fault: SideError) -> io::Error {
    match fault {
        SideError::Io(error) => error,
        fault => io::Error::other(fault),
    }
}
