//! A client that sends exactly the given bytes, over TCP or TLS.

use super::certs::client_config;
use super::message::{Body, Framing, Head, Response, Source, show};
use super::{PATIENCE, within};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

pub struct Client {
    pub source: Source<Stream>,
}

impl Client {
    pub async fn open(address: SocketAddr) -> Self {
        let stream = within("a TCP connection", TcpStream::connect(address)).await.expect("the address listens");
        stream.set_nodelay(true).ok();
        Self::over(Stream::Plain(stream))
    }

    /// Opens a connection to the proxy and asks for a tunnel to `authority`; panics if that is refused.
    pub async fn connect(proxy: SocketAddr, authority: &str) -> Self {
        let mut client = Self::open(proxy).await;
        let head = client.ask_connect(authority).await;
        assert_eq!(head.status(), 200, "CONNECT {authority}: {head:?}");
        client
    }

    /// A client that sends its first bytes in one segment with the CONNECT head `connect`, before the answer.
    pub async fn connect_early(proxy: SocketAddr, connect: impl Into<Vec<u8>>) -> Self {
        let mut first = connect.into();
        let mut outer = Self::open(proxy).await;
        let (inner, mut pipe) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            first.resize(first.len() + 16 * 1024, 0);
            let room = first.len() - 16 * 1024;
            let Ok(length) = pipe.read(&mut first[room..]).await else {
                return;
            };
            outer.send(&first[..room + length]).await;
            assert_eq!(outer.head().await.status(), 200);
            if pipe.write_all(&outer.source.ahead).await.is_ok() {
                let _ = tokio::io::copy_bidirectional(&mut pipe, &mut outer.source.inner).await;
            }
        });
        Self::over(Stream::Pipe(inner))
    }

    /// The same connection, sending each byte in a separate segment.
    pub fn in_single_bytes(self) -> Self {
        let (inner, mut pipe) = tokio::io::duplex(1);
        let outer = self;
        tokio::spawn(async move {
            pipe.write_all(&outer.source.ahead).await.ok();
            let (mut from_pipe, mut to_pipe) = tokio::io::split(pipe);
            let (mut from_peer, mut to_peer) = tokio::io::split(outer.source.inner);
            let back = tokio::spawn(async move { tokio::io::copy(&mut from_peer, &mut to_pipe).await });
            let mut byte = [0];
            while from_pipe.read_exact(&mut byte).await.is_ok() && to_peer.write_all(&byte).await.is_ok() {
                to_peer.flush().await.ok();
            }
            back.abort();
        });
        Self::over(Stream::Pipe(inner))
    }

    pub fn over(stream: Stream) -> Self {
        Self { source: Source::new(stream) }
    }

    /// Sends a CONNECT request and reads the head of the answer.
    pub async fn ask_connect(&mut self, authority: &str) -> Head {
        self.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        self.head().await
    }

    /// Starts TLS for `name`, trusting the certificates in `roots`.
    pub async fn tls(self, name: &str, roots: &Path, alpn: &[&[u8]]) -> Self {
        self.try_tls(name, roots, alpn).await.unwrap_or_else(|error| panic!("TLS for {name}: {error}"))
    }

    pub async fn try_tls(self, name: &str, roots: &Path, alpn: &[&[u8]]) -> std::io::Result<Self> {
        self.tls_with(name, client_config(roots, alpn)).await
    }

    pub async fn tls_with(self, name: &str, config: Arc<rustls::ClientConfig>) -> std::io::Result<Self> {
        let ahead = &self.source.ahead;
        assert!(ahead.is_empty(), "bytes before the handshake: {}", show(ahead));
        let name = name.to_owned().try_into().expect("a server name");
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = within("a TLS handshake", connector.connect(name, Box::new(self.source.inner))).await?;
        Ok(Self::over(Stream::Tls(Box::new(stream))))
    }

    /// The protocol that ALPN settled on.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        match &self.source.inner {
            Stream::Plain(_) | Stream::Pipe(_) => None,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol().map(ToOwned::to_owned),
        }
    }

    /// Whether a TLS session was resumed.
    pub fn is_resumed(&self) -> bool {
        match &self.source.inner {
            Stream::Plain(_) | Stream::Pipe(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        }
    }

    /// The peer's certificates, its own first.
    pub fn peer_certificates(&self) -> Vec<rustls::pki_types::CertificateDer<'static>> {
        match &self.source.inner {
            Stream::Plain(_) | Stream::Pipe(_) => Vec::new(),
            Stream::Tls(stream) => stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec(),
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.expect("the peer reads on");
    }

    /// Like `send`, for a peer that may have closed already.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        within("room to send", async {
            self.source.inner.write_all(bytes.as_ref()).await?;
            self.source.inner.flush().await
        })
        .await
    }

    /// Closes this side; the peer can continue.
    pub async fn half_close(&mut self) {
        self.source.inner.shutdown().await.ok();
    }

    /// The head of the next message, skipping interim responses (1xx except 101).
    pub async fn head(&mut self) -> Head {
        self.try_head().await.expect("a response, not the end of the connection")
    }

    /// Like [`head`](Self::head); `None` if the connection ends first.
    pub async fn try_head(&mut self) -> Option<Head> {
        loop {
            let bytes = within("the head of a response", self.source.until(b"\r\n\r\n")).await?;
            let head = Head::parse(&bytes);
            if !matches!(head.status(), 100 | 102..200) {
                return Some(head);
            }
        }
    }

    /// Reads the response to a GET, POST or similar method.
    pub async fn response(&mut self) -> Response {
        self.response_to("GET").await
    }

    pub async fn response_to(&mut self, method: &str) -> Response {
        let head = self.head().await;
        let mut body = Body::default();
        self.read_body(&head, method, &mut body).await;
        assert!(body.complete, "cut after {} bytes: {head:?}", body.length());
        Response { head, body: body.kept, trailers: body.trailers }
    }

    /// Reads the body that follows `head` into `body`, which tells whether it is complete.
    pub async fn read_body(&mut self, head: &Head, method: &str, body: &mut Body) {
        let read = self.source.body(head.framing(method), |piece| body.push(piece));
        let end = within("the body of a response", read).await;
        body.complete = end.complete;
        body.trailers = end.trailers;
    }

    /// Reads a whole body, passing each piece to `sink`; waits longer than [`within`] if necessary.
    pub async fn stream_body(&mut self, framing: Framing, sink: impl FnMut(&[u8])) {
        let end = tokio::time::timeout(PATIENCE * 4, self.source.body(framing, sink)).await;
        assert!(end.expect("the body goes on").complete, "the body was cut");
    }

    /// Sends a request without a body, and reads the response.
    pub async fn get(&mut self, target: &str, host: &str) -> Response {
        self.send(get(target, host)).await;
        self.response().await
    }

    /// Everything that arrives until the peer closes.
    pub async fn rest(&mut self) -> Vec<u8> {
        within("the end of the connection", async {
            while self.source.fill().await {}
            std::mem::take(&mut self.source.ahead)
        })
        .await
    }

    /// Everything that has arrived, or arrives within a moment, without consuming it.
    pub async fn glance(&mut self, moment: std::time::Duration) -> &[u8] {
        let _ = tokio::time::timeout(moment, self.source.fill()).await;
        &self.source.ahead
    }
}

/// A GET request of the tests' crawler.
pub fn get(target: &str, host: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: TestBot/1.0\r\nAccept: */*\r\n\r\n")
}

pub enum Stream {
    Plain(TcpStream),
    Pipe(DuplexStream),
    Tls(Box<tokio_rustls::client::TlsStream<Box<Stream>>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buf),
            Self::Pipe(stream) => Pin::new(stream).poll_read(context, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, buf),
            Self::Pipe(stream) => Pin::new(stream).poll_write(context, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Pipe(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Pipe(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
