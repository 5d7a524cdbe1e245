//! The client's side of a connection, as pingora's session reads and writes it: exactly one message at a time.
//! Called by `connection`, which reads each head before it lends the stream to pingora, and by `intercept`.
//!
//! What a client sends ahead (a pipelined request, a ClientHello behind CONNECT) stays in here, so pingora never
//! sees bytes of the next message. While a response is under way, reading only watches for the client leaving.

mod lent;
mod stream;

use super::chunked::Scanner;
use super::clients::Place;
use super::head::{self, Body, RequestHead};
use crate::config::{Limits, User};
use crate::policy::{Authority, Refusal};
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use parking_lot::Mutex;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{ALPN, Ssl};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
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
}

/// Peers that close TCP without close_notify are common: an end is an end.
fn eof_as_zero(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

const H2_PREFACE: usize = 24;
const READ_SIZE: usize = 8 * 1024;
