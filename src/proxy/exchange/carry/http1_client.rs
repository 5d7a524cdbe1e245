//! The client side in HTTP/1, for one exchange.

use super::answer::{Added, AnswerHead};
use super::client::Client;
use super::http1::{Http1, Sending};
use super::side::Side;
use crate::http1::{Body, BodyError, Framing};
use crate::proxy::client::{Wire, socks_reply};
use crate::proxy::io::Buffer;
use crate::proxy::respond::Answer;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// A client that speaks HTTP/1.
pub struct Http1Client<'a> {
    pub side: Http1<'a, Wire>,
    framing: Framing,
    /// The client speaks HTTP/1.0.
    pub is_http10: bool,
    pub is_head: bool,
    /// The client speaks SOCKS and gets SOCKS replies.
    pub is_socks: bool,
    pub expects_continue: bool,
    /// The client wants to keep the connection.
    pub persists: bool,
    /// The connection ends after this exchange.
    pub is_last: bool,
    /// The answer was cut off, and the client must be able to see that.
    pub is_cut: bool,
    /// The end of the connection ends the answer.
    pub until_close: bool,
    began: bool,
    answered: bool,
    presence: Presence,
}

/// Whether the client may have gone. A closed connection and a half-closed one look the same until something is sent:
/// an interim answer, which a live client ignores (RFC 9110 §15.2) and a closed connection answers with a reset.
enum Presence {
    Connected,
    /// The input is full; `next` is when to check for a half-close.
    InputFull {
        next: Instant,
    },
    /// The client has closed its sending half.
    HalfClosed {
        /// A probe was sent, or must not be sent.
        is_probed: bool,
        probes: usize,
        next: Instant,
    },
}

impl<'a> Http1Client<'a> {
    pub fn new(mut side: Http1<'a, Wire>, framing: Framing) -> Self {
        side.receive(Body::of_request(framing));
        Http1Client {
            side,
            framing,
            is_http10: false,
            is_head: false,
            is_socks: false,
            expects_continue: false,
            persists: true,
            is_last: false,
            is_cut: false,
            until_close: false,
            began: false,
            answered: false,
            presence: Presence::Connected,
        }
    }

    /// A client that has sent a TLS handshake or a SOCKS request. Its input is kept, and no interim answers are sent to see whether it has
    /// gone.
    pub fn not_http(wire: &'a mut Wire, input: &'a mut Buffer) -> Self {
        Http1Client { is_socks: true, ..Self::new(Http1::new(wire, input), Framing::None) }
    }

    fn connection(&mut self, is_last: bool) -> Option<&'static str> {
        self.is_last = is_last || !self.persists;
        match (self.is_last, self.is_http10) {
            (true, _) => Some("close"),
            // RFC 9112 §C.2.2: HTTP/1.0 clients need the field.
            (false, true) => Some("keep-alive"),
            (false, false) => None,
        }
    }

    /// Records a half-close. Returns false if the request is incomplete.
    fn on_half_close(&mut self) -> bool {
        // A malformed body is reported when it is forwarded.
        let is_malformed = match self.is_whole() {
            Ok(true) => false,
            Ok(false) => return false,
            Err(_) => true,
        };
        self.presence = Presence::HalfClosed { is_probed: is_malformed, probes: 0, next: Instant::now() + FIRST_PROBE };
        true
    }

    /// Whether the input has the whole body.
    fn is_whole(&self) -> Result<bool, BodyError> {
        let (mut body, mut bytes) = (Body::of_request(self.framing), self.side.input.bytes());
        while !self.began && !body.is_done() {
            match body.decode(bytes)?.end {
                0 => return Ok(false),
                n => bytes = &bytes[n..],
            }
        }
        Ok(true)
    }

    /// Checks the socket for a half-close behind unread input.
    fn check_half_close(&mut self) {
        let now = Instant::now();
        match self.presence {
            Presence::InputFull { next } if now < next => {}
            Presence::Connected | Presence::InputFull { .. } if self.side.io.is_shut() => {
                self.presence = Presence::HalfClosed { is_probed: false, probes: 0, next: now + FIRST_PROBE };
            }
            Presence::Connected | Presence::InputFull { .. } => {
                self.presence = Presence::InputFull { next: now + CHECK_INTERVAL }
            }
            Presence::HalfClosed { .. } => {}
        }
    }

    /// Probes whether a half-closed client has gone.
    fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Presence::HalfClosed { is_probed, probes, next } = &mut self.presence else { return Poll::Pending };
        if self.side.io.is_broken() {
            return Poll::Ready(());
        }
        let now = Instant::now();
        if now >= *next {
            *next = now + PROBE_INTERVALS.get(*probes).copied().unwrap_or(CHECK_INTERVAL);
            *probes += 1;
            if !*is_probed && !self.is_http10 && !self.answered {
                *is_probed = true;
                self.side.out.put(b"HTTP/1.1 102 Processing\r\n\r\n");
            }
        }
        if self.answered {
            return Poll::Pending;
        }
        // Output that is not sent now stays queued, before later output.
        match self.side.poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<'a> Client for Http1Client<'a> {
    type Side = Http1<'a, Wire>;

    fn side(&mut self) -> &mut Self::Side {
        &mut self.side
    }

    fn begin_body(&mut self) {
        self.began = true;
    }

    fn is_received(&self) -> bool {
        self.side.is_received()
    }

    fn interim(&mut self, head: &AnswerHead<'_>) {
        if !self.is_http10 {
            self.expects_continue &= head.status != 100;
            self.side.out.put_with(|out| head.write(out, Framing::None, None, &Added::default()));
        }
    }

    #[inline]
    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, is_last: bool) {
        self.answered = true;
        let framing = match head.framing {
            Framing::Chunked if self.is_http10 => Framing::UntilClose,
            Framing::UntilClose if !self.is_http10 => Framing::Chunked,
            framing => framing,
        };
        self.until_close = framing == Framing::UntilClose;
        let connection = self.connection(is_last || self.until_close || !self.may_skip_body());
        self.side.out.put_with(|out| head.write(out, framing, connection, added));
        self.side.send(framing.into());
    }

    fn answer_locally(&mut self, answer: &Answer, is_last: bool) -> bool {
        self.answered = true;
        if self.is_socks {
            self.side.out.put(&socks_reply::refused(answer.status));
            return false;
        }
        let connection = self.connection(is_last);
        self.side.out.put_with(|out| answer.write_head(out, connection));
        self.side.send(Sending::Plain);
        !self.is_head
    }

    fn may_skip_body(&self) -> bool {
        // After an early answer, a client that waits for 100 may send its body or its next request: these cannot be told apart.
        !self.expects_continue || self.is_received() || !self.side.input.is_empty()
    }

    fn grant(&mut self) {
        let granted =
            if self.is_socks { &socks_reply::GRANTED[..] } else { b"HTTP/1.1 200 Connection established\r\n\r\n" };
        self.side.out.put(granted);
    }

    fn open(&mut self) {
        self.side.open();
    }

    fn tell(&mut self, bytes: &'static [u8]) {
        self.side.out.put(bytes);
    }

    fn switch(&mut self, head: &AnswerHead<'_>, added: &Added<'_>) -> u16 {
        (self.answered, self.is_last) = (true, true);
        self.side.out.put_with(|out| head.write(out, Framing::UntilClose, Some("upgrade"), added));
        head.status
    }

    fn cut(&mut self) {
        (self.is_last, self.is_cut) = (true, true);
    }

    fn is_half_closed(&self) -> bool {
        matches!(self.presence, Presence::HalfClosed { .. })
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Buffers input that arrives early, while there is room.
        while matches!(self.presence, Presence::Connected | Presence::InputFull { .. }) && self.side.input.has_room() {
            match self.side.poll_fill(cx) {
                // SOCKS has no interim answer with which to probe the client.
                Poll::Ready(Ok(0)) if self.is_socks => return Poll::Ready(()),
                Poll::Ready(Ok(0)) if !self.on_half_close() => return Poll::Ready(()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        match self.presence {
            // There is room again: the next read shows whether the client has gone.
            Presence::InputFull { .. } if self.side.input.has_room() => self.presence = Presence::Connected,
            Presence::Connected | Presence::InputFull { .. } if !self.side.input.has_room() => self.check_half_close(),
            Presence::Connected | Presence::InputFull { .. } | Presence::HalfClosed { .. } => {}
        }
        if self.is_socks && self.is_half_closed() {
            return Poll::Ready(());
        }
        self.poll_half_closed(cx)
    }

    fn wake_at(&self) -> Option<Instant> {
        match &self.presence {
            Presence::HalfClosed { next, .. } | Presence::InputFull { next } => Some(*next),
            Presence::Connected => None,
        }
    }
}

/// Delay of the first probe: most requests are answered earlier.
const FIRST_PROBE: Duration = Duration::from_millis(30);
/// Interval of checks and later probes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Intervals after the first probes: the reset from a closed connection takes only a round trip.
const PROBE_INTERVALS: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(400)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::io::Timer;
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    /// If the check stayed due, its task would be woken again and again, and would block the thread.
    #[tokio::test]
    async fn checks_for_a_half_close_run_only_while_the_input_is_full() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut wire, mut input) = (Wire::Tcp(listener.accept().await.unwrap().0), Buffer::new());
        let mut client = Http1Client::new(Http1::new(&mut wire, &mut input), Framing::Length(1 << 20));
        while client.wake_at().is_none() {
            theirs.write_all(&[b'x'; 1000]).await.unwrap();
            assert!(poll_fn(|cx| Poll::Ready(client.poll_gone(cx).is_pending())).await);
        }
        loop {
            client.side.input.release();
            assert!(poll_fn(|cx| Poll::Ready(client.poll_gone(cx).is_pending())).await);
            if client.side.input.is_empty() {
                break;
            }
        }
        assert_eq!(client.wake_at(), None, "a check that stays due would wake the task again and again");
    }

    /// The proxy cannot send a probe before it has a request.
    #[tokio::test]
    async fn half_close_before_a_request_means_the_client_has_gone() {
        for sent in [0, 10, 100_000] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut wire, mut input) = (Wire::Tcp(listener.accept().await.unwrap().0), Buffer::new());
            theirs.write_all(&vec![b'x'; sent]).await.unwrap();
            theirs.shutdown().await.unwrap();
            let mut client = Http1Client::not_http(&mut wire, &mut input);
            let (mut timer, mut never) = (Timer::new(), pin!(pending::<()>()));
            let waits = client.wait(&mut timer, never.as_mut());
            assert_eq!(timeout(Duration::from_secs(60), waits).await, Ok(None), "{sent}");
            assert!(input.len() == sent || input.len() < 32 * 1024);
            drop(wire);
            let mut got = Vec::new();
            let _ = theirs.read_to_end(&mut got).await;
            assert!(got.is_empty(), "{}", got.escape_ascii());
        }
    }
}
