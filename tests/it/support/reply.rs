//! What an origin is told to answer with, well-formed or not.

use std::time::Duration;

/// One answer. Build with [`Reply::text`] and the like, then change what should differ.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Content,
    pub framing: Delimit,
    pub trailers: Vec<(String, String)>,
    /// Waited before the head is sent.
    pub after: Duration,
    /// Read the request's body before answering? False: the answer goes out at once, the body is read afterwards.
    pub wait_for_body: bool,
    pub then: Then,
}

#[derive(Clone, Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    /// So many bytes of the pattern, made as they are sent.
    Pattern(u64),
    /// The pieces with a pause before each.
    Drip(Vec<Vec<u8>>, Duration),
    /// The request's body.
    Echo,
    /// HTTP/1 only: in place of the whole response, these bytes.
    Raw(Vec<u8>),
    /// Never anything; the connection stays open until the client closes it.
    Silence,
    /// HTTP/1: the connection is reset. h2: the stream is.
    Reset,
    /// The WebSocket handshake is completed and every message echoed.
    WebSocket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimit {
    Length,
    Chunked,
    /// Neither field; the end of the connection is the end of the body.
    Close,
    /// A Content-Length that promises so many bytes more than come before the connection is closed.
    Short(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    KeepAlive,
    Close,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            fields: Vec::new(),
            body: Content::Bytes(Vec::new()),
            framing: Delimit::Length,
            trailers: Vec::new(),
            after: Duration::ZERO,
            wait_for_body: true,
            then: Then::KeepAlive,
        }
    }

    pub fn text(body: impl AsRef<[u8]>) -> Self {
        Self::status(200).body(body).field("content-type", "text/plain")
    }

    /// A refusal that says why, and is the connection's last.
    pub fn refusal(why: &str) -> Self {
        Self { then: Then::Close, ..Self::status(400).body(why) }
    }

    pub fn redirect(location: impl Into<String>) -> Self {
        Self::status(302).field("location", location)
    }

    pub fn pattern(length: u64) -> Self {
        Self { body: Content::Pattern(length), ..Self::status(200) }
    }

    pub fn drip(pieces: &[&str], pause: Duration) -> Self {
        let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
        Self { body: Content::Drip(pieces, pause), framing: Delimit::Chunked, ..Self::status(200) }
    }

    pub fn echo() -> Self {
        Self { body: Content::Echo, ..Self::status(200) }
    }

    pub fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self { body: Content::Raw(bytes.as_ref().to_vec()), then: Then::Close, ..Self::status(200) }
    }

    pub fn silence() -> Self {
        Self { body: Content::Silence, ..Self::status(200) }
    }

    pub fn reset() -> Self {
        Self { body: Content::Reset, ..Self::status(200) }
    }

    pub fn websocket() -> Self {
        Self { body: Content::WebSocket, ..Self::status(101) }
    }

    pub fn field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = Content::Bytes(body.as_ref().to_vec());
        self
    }

    pub fn framed(mut self, framing: Delimit) -> Self {
        self.framing = framing;
        self
    }

    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self.framing = Delimit::Chunked;
        self
    }

    pub fn after(mut self, pause: Duration) -> Self {
        self.after = pause;
        self
    }

    pub fn before_the_body(mut self) -> Self {
        self.wait_for_body = false;
        self
    }

    pub fn then_close(mut self) -> Self {
        self.then = Then::Close;
        self
    }
}
