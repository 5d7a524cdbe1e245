//! The client's side of a connection, as pingora's session reads and writes it: exactly one message at a time.
//! Called by `connection`, which reads each head before it lends the stream to pingora, and by `intercept`.
//!
//! What a client sends ahead (a pipelined request, a ClientHello behind CONNECT) stays in here, so pingora never
//! sees bytes of the next message. While a response is under way, reading only watches for the client leaving.

use super::chunked::Scanner;
use super::clients::Place;
use super::head::{self, Body, RequestHead};
use crate::config::{Limits, User};
use crate::policy::{Authority, Refusal};
use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use parking_lot::Mutex;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

/// A client's connection, or the decrypted inside of one.
pub(super) struct Downstream {
    io: Io,
    pub client: Client,
    /// Among the connections of the client's user.
    pub seat: Option<Place<String>>,
    /// Read from the client, not yet handed on.
    ahead: BytesMut,
    /// Written by pingora, not yet sent.
    unsent: BytesMut,
    message: Message,
    /// The Date of the answer on its way. pingora writes its own instead.
    date: Mutex<Option<HeaderValue>>,
    /// The authority of the request under way; within h2, of the connection.
    pub authority: Option<Authority>,
    digest: Option<Arc<ProxyDigest>>,
}

/// Who is at the other end, and through which CONNECT it came.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub address: SocketAddr,
    pub tunnel: Option<Tunnel>,
    /// Who asked for the tunnel, by the credentials of its CONNECT.
    pub user: Option<Arc<User>>,
}

impl Client {
    pub fn at(address: SocketAddr) -> Self {
        Client { address, tunnel: None, user: None }
    }
}

/// An accepted CONNECT whose inside is served here.
#[derive(Debug, Clone)]
pub(super) struct Tunnel {
    pub authority: Authority,
    /// The name in the ClientHello, where it is not the one in CONNECT: every request inside is answered 421.
    pub other_name: Option<String>,
}

enum Io {
    Tcp(TcpStream),
    Tls(Box<TlsStream<Box<Downstream>>>),
}

enum Message {
    /// None yet, or all of the last one handed on.
    Between,
    Head(Bytes, Body),
    Length(u64),
    Chunked(Scanner),
    /// An upgraded protocol, TLS records, h2 frames: everything goes through.
    Raw,
}

/// The time and size a client has for a request head.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadLimits {
    pub idle: Duration,
    pub head: Duration,
    pub size: usize,
}

impl From<&Limits> for HeadLimits {
    fn from(limits: &Limits) -> Self {
        HeadLimits {
            idle: limits.idle_timeout,
            head: limits.header_timeout,
            size: usize::try_from(limits.max_header_size).unwrap_or(usize::MAX),
        }
    }
}

impl Downstream {
    pub fn accepted(tcp: TcpStream, address: SocketAddr) -> Self {
        Self::over(Io::Tcp(tcp), Client::at(address))
    }

    pub fn decrypted(tls: TlsStream<Box<Downstream>>, client: Client) -> Self {
        Self::over(Io::Tls(Box::new(tls)), client)
    }

    fn over(io: Io, client: Client) -> Self {
        let (ahead, unsent) = (BytesMut::new(), BytesMut::new());
        let (message, date) = (Message::Between, Mutex::default());
        Downstream { io, client, seat: None, ahead, unsent, message, date, authority: None, digest: None }
    }

    /// The next request's head. `None`: the client left, or was idle too long. A head that comes too slowly or is
    /// too large is a refusal.
    pub async fn next_head(&mut self, limits: HeadLimits) -> io::Result<Option<Result<Bytes, Refusal>>> {
        self.message = Message::Between;
        if self.ahead.is_empty() {
            match timeout(limits.idle, self.fill()).await {
                Ok(read) => {
                    if read? == 0 {
                        return Ok(None);
                    }
                }
                Err(_) => return Ok(None),
            }
        }
        let deadline = Instant::now() + limits.head;
        let mut scanned = 0;
        loop {
            // RFC 9112 §2.2: an empty line before the request line is ignored.
            while self.ahead.starts_with(b"\r\n") {
                self.ahead.advance(2);
            }
            match head::end_of_head(&self.ahead, scanned) {
                Ok(Some(end)) if end > limits.size => {
                    return Ok(Some(Err(Refusal::HeadTooLarge { limit: limits.size })));
                }
                Ok(Some(end)) => return Ok(Some(Ok(self.ahead.split_to(end).freeze()))),
                Ok(None) if self.ahead.len() > limits.size => {
                    return Ok(Some(Err(Refusal::HeadTooLarge { limit: limits.size })));
                }
                Ok(None) => scanned = self.ahead.len().saturating_sub(1),
                Err(refusal) => return Ok(Some(Err(refusal))),
            }
            match timeout_at(deadline, self.fill()).await {
                Ok(read) => {
                    if read? == 0 {
                        return Ok(None);
                    }
                }
                Err(_) => return Ok(Some(Err(Refusal::HeadTimeout { limit: limits.head }))),
            }
        }
    }

    /// The first byte that the client sends, left in place. `None`: it sends nothing more.
    pub async fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.ahead.is_empty() {
            self.fill().await?;
        }
        Ok(self.ahead.first().copied())
    }

    /// Waits for the octets with which every h2 connection begins (RFC 9113 §3.4), left in place. False: they did not
    /// come in time.
    pub async fn preface(&mut self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        while self.ahead.len() < H2_PREFACE {
            let read = timeout_at(deadline, self.fill()).await.unwrap_or(Ok(0))?;
            if read == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lends the request to pingora: its head and body, nothing beyond.
    pub fn lend(&mut self, request: RequestHead) {
        self.authority = Some(request.authority);
        *self.date.get_mut() = None;
        self.message = Message::Head(request.bytes, request.body);
    }

    /// Resolves when the client has gone, while nothing of the message is left to read. What it sends ahead is kept.
    pub async fn left(&mut self) {
        let _ = self.read(&mut [0]).await;
    }

    /// From now on every byte goes through: TLS or a tunnel follows.
    pub fn open(&mut self) {
        self.message = Message::Raw;
    }

    /// Makes the stream known to requests that pingora multiplexes over it (h2).
    pub fn tag(&mut self, digest: ProxyDigest) {
        self.digest = Some(Arc::new(digest));
    }

    /// Keeps this Date in the answer's head that is written next (RFC 9110 §6.6.1: it is the origin's to say).
    pub fn keep_date(&self, date: HeaderValue) {
        *self.date.lock() = Some(date);
    }

    pub fn is_h2(&self) -> bool {
        matches!(self.selected_alpn_proto(), Some(ALPN::H2))
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.ahead.reserve(READ_SIZE);
        match &mut self.io {
            Io::Tcp(tcp) => tcp.read_buf(&mut self.ahead).await,
            Io::Tls(tls) => eof_as_zero(tls.read_buf(&mut self.ahead).await),
        }
    }

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

#[async_trait]
impl Shutdown for Downstream {
    async fn shutdown(&mut self) {
        // The client may be gone already; there is nobody left to tell.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Downstream {
    fn id(&self) -> UniqueIDType {
        match &self.io {
            Io::Tcp(tcp) => tcp.as_raw_fd(),
            Io::Tls(tls) => tls.get_ref().0.id(),
        }
    }
}

impl Ssl for Downstream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        None
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        match &self.io {
            Io::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2") => Some(ALPN::H2),
            Io::Tls(_) | Io::Tcp(_) => None,
        }
    }
}

impl GetTimingDigest for Downstream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Downstream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.digest.clone()
    }
}

impl GetSocketDigest for Downstream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::new(SocketDigest::from_raw_fd(self.id())))
    }
}

impl Peek for Downstream {}

impl std::fmt::Debug for Downstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Downstream").field("client", &self.client).finish_non_exhaustive()
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

/// Peers that close TCP without close_notify are common: an end is an end.
fn eof_as_zero(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
const IMF_FIXDATE: usize = 29;
const H2_PREFACE: usize = 24;
const READ_SIZE: usize = 8 * 1024;
const WRITE_SIZE: usize = 16 * 1024;
/// What a client may send ahead of the answer under way; more waits in the kernel.
const MAX_AHEAD: usize = 64 * 1024;
