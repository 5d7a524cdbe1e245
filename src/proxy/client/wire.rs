//! The bytes of a client's connection: TCP, or a stream of HTTP/2, or TLS inside of it as often as it takes.

use super::super::exchange::carry::Http2;
use super::super::io::{Buffer, Timer};
use h2::Reason;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

/// A client's connection, or the decrypted inside of one.
pub enum Wire {
    Tcp(TcpStream),
    Tls(Box<TlsStream<Wire>>),
    /// What is inside of a CONNECT that came in HTTP/2.
    Stream(Box<Http2>),
    /// One of which some has been read already.
    Ahead(Box<(Buffer, Wire)>),
}

impl Wire {
    /// The same, and what has been read of it comes first.
    pub fn ahead(self, input: Buffer) -> Self {
        if input.is_empty() { self } else { Wire::Ahead(Box::new((input, self))) }
    }

    /// Says no more, and reads on for a moment: closing with unread bytes would reset the connection, and take away what
    /// was said last.
    pub async fn say_goodbye(&mut self, timer: &mut Timer, patience: Duration, mut most: usize) {
        let read_on = async {
            self.shutdown().await?;
            let mut input = Buffer::new();
            while most > 0 {
                match poll_fn(|cx| input.poll_fill(cx, self)).await? {
                    0 => break,
                    n => most = most.saturating_sub(n),
                }
                input.release();
            }
            Ok::<_, io::Error>(())
        };
        let _ = timer.limit(Instant::now() + patience, read_on).await;
    }

    /// Whether HTTP/2 was agreed on.
    pub fn is_h2(&self) -> bool {
        match self {
            Wire::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
            Wire::Tcp(_) | Wire::Stream(_) | Wire::Ahead(_) => false,
        }
    }

    /// Whether the other end has closed its half at least, though not all that it sent has been read.
    pub fn is_shut(&self) -> bool {
        self.readiness(Interest::READABLE).is_some_and(|ready| ready.is_read_closed())
    }

    /// Whether the other end takes nothing any more: it has answered something with a reset.
    pub fn is_broken(&self) -> bool {
        self.readiness(Interest::WRITABLE).is_some_and(|ready| ready.is_write_closed())
    }

    /// As the runtime knows it.
    fn readiness(&self, interest: Interest) -> Option<Ready> {
        let tcp = match self {
            Wire::Tcp(tcp) => tcp,
            Wire::Tls(tls) => return tls.get_ref().0.readiness(interest),
            Wire::Ahead(ahead) => return ahead.1.readiness(interest),
            Wire::Stream(_) => return None,
        };
        match pin!(tcp.ready(interest)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.ok(),
            Poll::Pending => None,
        }
    }

    /// Dropped, it will end in a way that cannot be taken for a good one.
    pub fn will_reset(&mut self) {
        match self {
            Wire::Tcp(tcp) => {
                if let Err(error) = tcp.set_zero_linger() {
                    tracing::debug!(%error, "a connection ends as if all were well");
                }
            }
            Wire::Tls(tls) => tls.get_mut().0.will_reset(),
            Wire::Ahead(ahead) => ahead.1.will_reset(),
            Wire::Stream(stream) => stream.reset(Reason::INTERNAL_ERROR),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Stream(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(tls) => match Pin::new(tls).poll_read(cx, buf) {
                // Peers that close TCP without close_notify are common: what a request is says itself where it ends.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
            Wire::Ahead(ahead) => {
                let (input, wire) = &mut **ahead;
                if input.is_empty() {
                    return Pin::new(wire).poll_read(cx, buf);
                }
                let n = input.len().min(buf.remaining());
                buf.put_slice(&input.bytes()[..n]);
                input.consume(n);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Wire::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
            Wire::Stream(stream) => Pin::new(stream).poll_write(cx, bytes),
            Wire::Ahead(ahead) => Pin::new(&mut ahead.1).poll_write(cx, bytes),
        }
    }

    // Frames of HTTP/2 and records of TLS leave together, in one call of the system's.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, parts),
            Wire::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, parts),
            Wire::Stream(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Wire::Ahead(ahead) => Pin::new(&mut ahead.1).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Tcp(_) | Wire::Tls(_) => true,
            Wire::Stream(_) => false,
            Wire::Ahead(ahead) => ahead.1.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(_) | Wire::Stream(_) => Poll::Ready(Ok(())),
            Wire::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Wire::Ahead(ahead) => Pin::new(&mut ahead.1).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Wire::Stream(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Ahead(ahead) => Pin::new(&mut ahead.1).poll_shutdown(cx),
        }
    }
}

/// The content type of a TLS record that begins a handshake (RFC 8446 §5.1).
pub(super) const TLS_HANDSHAKE: u8 = 0x16;
/// How long is read on behind what was said last.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);
/// How much, of who has not said anything that is served.
pub(super) const GOODBYE_BYTES: usize = 64 * 1024;
