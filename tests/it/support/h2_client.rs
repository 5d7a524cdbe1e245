//! An h2 client over a [`Client`] whose handshake chose h2.

use super::client::{Client, Stream};
use super::message::{Head, Response};
use super::origin_h2::{plain, send};
use super::within;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One h2 connection; clones share it.
#[derive(Clone)]
pub struct H2Client(h2::client::SendRequest<Bytes>);

/// A request that was sent and is not answered yet. Dropping it resets the stream with CANCEL.
pub struct Pending {
    response: h2::client::ResponseFuture,
    stream: h2::SendStream<Bytes>,
}

impl H2Client {
    pub async fn over(client: Client) -> Self {
        assert_eq!(client.alpn().as_deref(), Some(&b"h2"[..]), "h2 was not agreed on");
        Self::handshake(client.source.inner).await
    }

    /// Without asking whether the peer speaks h2 (RFC 9113 §3.3).
    pub async fn known(client: Client) -> Self {
        Self::handshake(client.source.inner).await
    }

    /// A connection to `authority` in a stream, or the refusal's status.
    pub async fn connect(&self, authority: &str) -> Result<Client, u16> {
        self.open(http::Request::connect(authority).body(()).expect("an authority")).await
    }

    /// A stream that carries bytes both ways once it is answered with 200.
    pub async fn open(&self, request: http::Request<()>) -> Result<Client, u16> {
        let Pending { response, stream: mut up } = self.send(request, false).await;
        let response = within("an h2 response", response).await.expect("a head");
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        let mut down = response.into_body();
        let (inner, pipe) = tokio::io::duplex(64 * 1024);
        let (mut from_pipe, mut to_pipe) = tokio::io::split(pipe);
        tokio::spawn(async move {
            let mut piece = vec![0; 16 * 1024];
            while let Ok(n @ 1..) = from_pipe.read(&mut piece).await {
                if send(&mut up, Bytes::copy_from_slice(&piece[..n])).await.is_err() {
                    return;
                }
            }
            up.send_data(Bytes::new(), true).ok();
        });
        tokio::spawn(async move {
            while let Some(Ok(piece)) = down.data().await {
                down.flow_control().release_capacity(piece.len()).ok();
                if to_pipe.write_all(&piece).await.is_err() {
                    return;
                }
            }
            to_pipe.shutdown().await.ok();
        });
        Ok(Client::over(Stream::Pipe(inner)))
    }

    /// Waits until the peer has said that it takes extended CONNECT (RFC 8441 §3).
    pub async fn takes_protocols(&self) {
        while !self.0.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    async fn handshake(stream: Stream) -> Self {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
        let (sender, connection) =
            within("the h2 preface", builder.handshake(stream)).await.expect("the peer speaks h2");
        tokio::spawn(connection);
        Self(sender)
    }

    /// A GET of `url`.
    pub async fn get(&self, url: &str) -> Response {
        self.send(request("GET", url), true).await.response().await.expect("an answer")
    }

    pub async fn send(&self, request: http::Request<()>, end: bool) -> Pending {
        let mut sender = within("room for a stream", self.0.clone().ready()).await.expect("the connection is up");
        let (response, stream) = sender.send_request(request, end).expect("a request that h2 can send");
        Pending { response, stream }
    }

    /// Waits until the peer has ended the connection.
    pub async fn closed(&self) {
        // A connection that takes new streams is a connection that is up.
        while self.0.clone().ready().await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Sends `body` with the request, and reads the answer.
    pub async fn exchange(&self, request: http::Request<()>, body: &[u8]) -> Result<Response, h2::Error> {
        let mut pending = self.send(request, false).await;
        pending.body(body).await?;
        pending.end()?;
        pending.response().await
    }
}

impl Pending {
    pub async fn body(&mut self, body: &[u8]) -> Result<(), h2::Error> {
        within("the h2 window", send(&mut self.stream, Bytes::copy_from_slice(body))).await
    }

    /// A piece of the body that leaves as a frame of its own when there is room for it.
    pub fn queue(&mut self, piece: &'static [u8]) {
        self.stream.send_data(Bytes::from_static(piece), false).expect("the stream is open");
    }

    pub fn end(&mut self) -> Result<(), h2::Error> {
        self.stream.send_data(Bytes::new(), true)
    }

    pub fn trailers(&mut self, trailers: http::HeaderMap) -> Result<(), h2::Error> {
        self.stream.send_trailers(trailers)
    }

    /// An answer that may break off: its status, what there is of its body, and why there is no more.
    pub async fn begun(self) -> (u16, Vec<u8>, Option<h2::Error>) {
        let response = within("an h2 response", self.response).await.expect("a head");
        let (status, mut body) = (response.status().as_u16(), response.into_body());
        let mut bytes = Vec::new();
        while let Some(piece) = within("h2 data", body.data()).await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) => return (status, bytes, Some(error)),
            }
        }
        (status, bytes, None)
    }

    /// The head of the answer; nothing of its body is read.
    pub async fn head(self) -> http::Response<h2::RecvStream> {
        within("an h2 response", self.response).await.expect("a head")
    }

    pub async fn response(self) -> Result<Response, h2::Error> {
        let response = within("an h2 response", self.response).await?;
        let (head, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        while let Some(piece) = within("h2 data", body.data()).await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            bytes.extend_from_slice(&piece);
        }
        let trailers = within("h2 trailers", body.trailers()).await?;
        let head = Head { start_line: format!("HTTP/2 {}", head.status).into_bytes(), fields: plain(&head.headers) };
        Ok(Response { head, body: bytes, trailers: trailers.as_ref().map(plain).unwrap_or_default() })
    }
}

/// A request as the tests' crawler sends it.
pub fn request(method: &str, url: &str) -> http::Request<()> {
    let builder = http::Request::builder().method(method).uri(url).header("user-agent", "TestBot/1.0");
    builder.body(()).expect("a URL that h2 can carry")
}
