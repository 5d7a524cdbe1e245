//! A connection of our own making, as far as the origin or an upstream proxy.

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

/// TCP, with TLS over it as often as it takes.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<Stream>>),
    /// The second, wider TLS.
    Wide(Box<SslStream<Stream>>),
    /// One of which some has been read already.
    Ahead(Box<(Bytes, Stream)>),
}

impl Stream {
    /// The same, and what has been read of it comes first.
    pub(super) fn ahead(self, read: Vec<u8>) -> Self {
        if read.is_empty() { self } else { Self::Ahead(Box::new((read.into(), self))) }
    }

    /// Whether the other side has chosen HTTP/2. `None`: none of the versions that it was offered.
    pub(super) fn chose_http2(&self) -> Option<bool> {
        match self {
            Self::Tcp(_) => None,
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol().map(|chosen| chosen == b"h2"),
            Self::Wide(tls) => tls.ssl().selected_alpn_protocol().map(|chosen| chosen == b"h2"),
            Self::Ahead(ahead) => ahead.1.chose_http2(),
        }
    }

    /// Nothing has come, and no end, as the system has it at this moment. `false`: something has, or that is not known.
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
                // As rustls says it.
                let is_cut = is_end && !wide::said_goodbye(tls.ssl());
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

/// Counts what has been read against the task's turn: an origin that sends without end, and in the dearest pieces, has other tasks wait
/// for no more than 128 KiB.
fn charge(cx: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / CHARGED {
        match coop::poll_proceed(cx) {
            Poll::Ready(spent) => spent.made_progress(),
            // The turn is over: the next read waits.
            Poll::Pending => return,
        }
    }
}

/// Bytes that count as much as a read; a turn has 128.
const CHARGED: usize = 1024;

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
            Self::Wide(tls) => Pin::new(tls).poll_write(cx, bytes),
            Self::Ahead(ahead) => Pin::new(&mut ahead.1).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Self::Wide(tls) => Pin::new(tls).poll_flush(cx),
            Self::Ahead(ahead) => Pin::new(&mut ahead.1).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Wide(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Ahead(ahead) => Pin::new(&mut ahead.1).poll_shutdown(cx),
        }
    }
}
