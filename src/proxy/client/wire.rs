//! The bytes of a client connection: TCP, an HTTP/2 stream, or TLS over either, nested as needed.

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

/// A client's connection, or the decrypted content of one.
pub enum Wire {
    Tcp(TcpStream),
    Tls(Box<TlsStream<Wire>>),
    /// The content of a CONNECT over HTTP/2.
    Stream(Box<Http2>),
    /// A connection with input that was already read.
    Prefixed(Box<(Buffer, Wire)>),
}

impl Wire {
    /// Puts `input`, which was already read, in front of the rest.
    pub fn prefixed(self, input: Buffer) -> Self {
        if input.is_empty() { self } else { Wire::Prefixed(Box::new((input, self))) }
    }

    /// Puts `input` back in front of the rest.
    pub fn unread(&mut self, input: Buffer) {
        let wire = std::mem::replace(self, Wire::Stream(Box::default()));
        *self = wire.prefixed(input);
    }

    /// Lingering close: ends output, then reads on for a moment. Closing with unread input would reset the connection
    /// and lose the last answer.
    pub async fn lingering_close(&mut self, timer: &mut Timer, limit: Duration, mut most: usize) {
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
        let _ = timer.limit(Instant::now() + limit, read_on).await;
    }

    /// Whether ALPN selected HTTP/2.
    pub fn is_h2(&self) -> bool {
        match self {
            Wire::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
            Wire::Tcp(_) | Wire::Stream(_) | Wire::Prefixed(_) => false,
        }
    }

    /// Whether the client has closed its sending half, even if unread input is left.
    pub fn is_shut(&self) -> bool {
        self.readiness(Interest::READABLE).is_some_and(|ready| ready.is_read_closed())
    }

    /// Whether the client has reset the connection.
    pub fn is_broken(&self) -> bool {
        self.readiness(Interest::WRITABLE).is_some_and(|ready| ready.is_write_closed())
    }

    /// The readiness that the runtime has recorded, without a system call.
    fn readiness(&self, interest: Interest) -> Option<Ready> {
        let tcp = match self {
            Wire::Tcp(tcp) => tcp,
            Wire::Tls(tls) => return tls.get_ref().0.readiness(interest),
            Wire::Prefixed(prefixed) => return prefixed.1.readiness(interest),
            Wire::Stream(_) => return None,
        };
        match pin!(tcp.ready(interest)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.ok(),
            Poll::Pending => None,
        }
    }

    /// Makes a drop reset the connection, so that a cut answer does not look complete.
    pub fn will_reset(&mut self) {
        match self {
            Wire::Tcp(tcp) => {
                if let Err(error) = tcp.set_zero_linger() {
                    tracing::debug!(%error, "cannot reset a connection: its cut answer may look complete");
                }
            }
            Wire::Tls(tls) => tls.get_mut().0.will_reset(),
            Wire::Prefixed(prefixed) => prefixed.1.will_reset(),
            Wire::Stream(stream) => stream.reset(Reason::INTERNAL_ERROR),
        }
    }

    fn output(&mut self) -> &mut (dyn AsyncWrite + Unpin) {
        match self {
            Wire::Tcp(tcp) => tcp,
            Wire::Tls(tls) => tls,
            Wire::Stream(stream) => stream,
            Wire::Prefixed(prefixed) => prefixed.1.output(),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Stream(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(tls) => match Pin::new(tls).poll_read(cx, buf) {
                // Many peers close TCP without close_notify; HTTP framing shows whether the input is complete.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
            Wire::Prefixed(prefixed) => {
                let (input, wire) = &mut **prefixed;
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
        Pin::new(self.get_mut().output()).poll_write(cx, bytes)
    }

    // Vectored writes reach the socket, so that HTTP/2 frames and TLS records are written in one system call.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().output()).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Tcp(_) | Wire::Tls(_) => true,
            Wire::Stream(_) => false,
            Wire::Prefixed(prefixed) => prefixed.1.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().output()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().output()).poll_shutdown(cx)
    }
}

/// The content type of a TLS record that begins a handshake (RFC 8446 §5.1).
pub(super) const TLS_HANDSHAKE: u8 = 0x16;
/// Log message about another protocol inside an intercepted CONNECT.
pub(super) const NOT_HTTP: &str =
    "neither TLS nor HTTP inside CONNECT: closed; `intercept: { hosts: { HOST: tunnel } }` passes other protocols on";
/// Duration of a lingering close.
pub(super) const LINGER_TIME: Duration = Duration::from_secs(2);
/// Maximum number of bytes that a lingering close reads from a client that sent no valid request.
pub(super) const LINGER_BYTES: usize = 64 * 1024;
