//! A connection opened by the proxy, to the origin or an upstream proxy.

use super::wide;
use bytes::Bytes;
use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop;
use tokio_openssl::SslStream;
use tokio_rustls::client::TlsStream;

/// TCP, with zero or more layers of TLS.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<Stream>>),
    /// The wider TLS, by OpenSSL.
    Wide(Box<SslStream<Stream>>),
    /// A stream from which some bytes were already read.
    Ahead(Box<(Bytes, Stream)>),
}

impl Stream {
    /// Puts `read`, the bytes that were already read, in front of the rest.
    pub(super) fn ahead(self, read: Vec<u8>) -> Self {
        if read.is_empty() { self } else { Self::Ahead(Box::new((read.into(), self))) }
    }

    /// Whether the peer chose HTTP/2 by ALPN. `None`: it chose none of the offered versions.
    pub(super) fn chose_http2(&self) -> Option<bool> {
        match self {
            Self::Tcp(_) => None,
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol().map(|chosen| chosen == b"h2"),
            Self::Wide(tls) => tls.ssl().selected_alpn_protocol().map(|chosen| chosen == b"h2"),
            Self::Ahead(ahead) => ahead.1.chose_http2(),
        }
    }

    /// Whether the system reports that nothing has arrived, not even an end. `false`: something has arrived, or it is unknown.
    pub(super) fn is_surely_quiet(&self) -> bool {
        match self {
            Self::Tcp(tcp) => {
                let peeked = SockRef::from(tcp).peek(&mut [MaybeUninit::uninit()]);
                peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(tls) => tls.get_ref().0.is_surely_quiet(),
            Self::Wide(tls) => tls.ssl().pending() == 0 && tls.get_ref().is_surely_quiet(),
            Self::Ahead(ahead) => ahead.0.is_empty() && ahead.1.is_surely_quiet(),
        }
    }

    fn output(&mut self) -> &mut (dyn AsyncWrite + Unpin) {
        match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls,
            Self::Wide(tls) => tls,
            Self::Ahead(ahead) => ahead.1.output(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => {
                let before = buf.filled().len();
                let read = ready!(Pin::new(tcp).poll_read(cx, buf));
                charge(cx, buf.filled().len() - before);
                Poll::Ready(read)
            }
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::Wide(tls) => {
                let before = buf.remaining();
                let read = ready!(Pin::new(&mut *tls).poll_read(cx, buf));
                let is_end = read.is_ok() && buf.remaining() == before && before > 0;
                // The error is the same as from rustls.
                let is_cut = is_end && !wide::received_close_notify(tls.ssl());
                Poll::Ready(if is_cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { read })
            }
            Self::Ahead(ahead) if ahead.0.is_empty() => Pin::new(&mut ahead.1).poll_read(cx, buf),
            Self::Ahead(ahead) => {
                let n = ahead.0.len().min(buf.remaining());
                buf.put_slice(&ahead.0.split_to(n));
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Charges the bytes read to the task's tokio budget: an origin that sends endlessly, in the most expensive pieces, is read for at most 128
/// KiB before other tasks run.
fn charge(cx: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / CHARGED {
        match coop::poll_proceed(cx) {
            Poll::Ready(spent) => spent.made_progress(),
            // The budget is used up: the next read waits.
            Poll::Pending => return,
        }
    }
}

/// Number of bytes that cost as much budget as one read. tokio gives a task a budget of 128 reads.
const CHARGED: usize = 1024;

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().output()).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().output()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().output()).poll_shutdown(cx)
    }
}
