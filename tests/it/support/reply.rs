//! Answers for an origin to send, well-formed or not.

use std::time::Duration;

/// One answer. Build with [`Reply::text`] and the like, then modify it.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Content,
    pub framing: Delimit,
    pub trailers: Vec<(String, String)>,
    /// Delay before the head is sent.
    pub after: Duration,
    /// Whether to read the request's body first. False: the answer is sent at once, and the body read afterwards.
    pub wait_for_body: bool,
    pub then: Then,
}

#[derive(Clone, Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    /// This many bytes of the pattern, generated while sending.
    Pattern(u64),
    /// The pieces, with a pause before each.
    Drip(Vec<Vec<u8>>, Duration),
    /// The request's body.
    Echo,
    /// HTTP/1 only: these bytes in place of the whole response.
    Raw(Vec<u8>),
    /// No answer; the connection stays open until the client closes it.
    Silence,
    /// Resets the connection (HTTP/1) or the stream (h2).
    Reset,
    /// Completes the WebSocket handshake, and echoes every message.
    WebSocket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimit {
    Length,
    Chunked,
    /// Neither field; the end of the connection ends the body.
    Close,
    /// A Content-Length that exceeds the bytes sent by this many.
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

    /// A refusal with its reason, after which the connection closes.
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
