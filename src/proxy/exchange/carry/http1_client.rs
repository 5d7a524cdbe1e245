//! A client that speaks HTTP/1, for one exchange.

use super::answer::{Added, AnswerHead};
use super::client::Client;
use super::http1::{Http1, Sending};
use super::side::Side;
use crate::http1::{Body, Framing};
use crate::proxy::client::{Wire, socks_reply};
use crate::proxy::respond::Answer;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// A client that speaks HTTP/1.
pub struct Http1Client<'a> {
    pub side: Http1<'a, Wire>,
    framing: Framing,
    /// HTTP/1.0.
    pub is_old: bool,
    pub is_head: bool,
    /// It asked for a connection in the words of SOCKS, and is answered in them.
    pub is_socks: bool,
    pub expects_continue: bool,
    /// It would keep the connection.
    pub persists: bool,
    /// The connection ends after this exchange.
    pub is_last: bool,
    /// An answer ended that the client must not take for whole.
    pub is_cut: bool,
    /// The answer has no other end than the connection's.
    pub until_close: bool,
    began: bool,
    answered: bool,
    leaving: Leaving,
}

/// Whether it may have gone. A client that has closed its connection and one that has but said all look the same until something
/// is sent: an interim answer, which a live one passes over (RFC 9110 §15.2).
enum Leaving {
    Not,
    /// It has sent more ahead than is read; whether it has closed its half is looked at from time to time.
    Unread {
        next: Instant,
    },
    /// It says no more.
    Silent {
        probes: usize,
        next: Instant,
    },
}

impl<'a> Http1Client<'a> {
    pub fn new(mut side: Http1<'a, Wire>, framing: Framing) -> Self {
        side.receive(Body::of_request(framing), true);
        Http1Client {
            side,
            framing,
            is_old: false,
            is_head: false,
            is_socks: false,
            expects_continue: false,
            persists: true,
            is_last: false,
            is_cut: false,
            until_close: false,
            began: false,
            answered: false,
            leaving: Leaving::Not,
        }
    }

    fn connection(&mut self, is_last: bool) -> Option<&'static str> {
        self.is_last = is_last || !self.persists;
        match (self.is_last, self.is_old) {
            (true, _) => Some("close"),
            // RFC 9112 §C.2.2: HTTP/1.0 has to hear it.
            (false, true) => Some("keep-alive"),
            (false, false) => None,
        }
    }

    /// It says no more. `None`: it has not said all of its request, and never will.
    fn first_probe(&self) -> Option<usize> {
        if self.began {
            return Some(0);
        }
        let mut body = Body::of_request(self.framing);
        match body.advance(self.side.input.bytes()) {
            Ok(_) if body.is_done() => Some(0),
            Ok(_) => None,
            // It is passed on when its turn comes.
            Err(_) => Some(PROBES.len()),
        }
    }

    /// Whether it says no more behind what it has sent ahead, which only the connection itself can show.
    fn look_past_unread(&mut self) {
        let now = Instant::now();
        match self.leaving {
            Leaving::Unread { next } if now < next => {}
            Leaving::Not | Leaving::Unread { .. } if self.side.io.is_shut() => {
                self.leaving = Leaving::Silent { probes: 0, next: now + PATIENCE };
            }
            Leaving::Not | Leaving::Unread { .. } => self.leaving = Leaving::Unread { next: now + LOOK },
            Leaving::Silent { .. } => {}
        }
    }

    /// Looks by sending. Ready: it has gone.
    fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Leaving::Silent { probes, next } = &mut self.leaving else { return Poll::Pending };
        if self.is_old || self.answered {
            return Poll::Pending;
        }
        if self.side.out.is_empty() {
            if *probes == PROBES.len() || Instant::now() < *next {
                return Poll::Pending;
            }
            *next = Instant::now() + PROBES[*probes];
            *probes += 1;
            self.side.out.put(b"HTTP/1.1 102 Processing\r\n\r\n");
        }
        // What is not taken yet stays before whatever follows.
        match self.side.poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<'a> Client for Http1Client<'a> {
    type Side = Http1<'a, Wire>;

    const IS_HTTP1: bool = true;

    fn side(&mut self) -> &mut Self::Side {
        &mut self.side
    }

    fn begin_body(&mut self, raw: bool, kept: bool) -> bool {
        let has_body = !matches!(self.framing, Framing::None | Framing::Length(0));
        if self.began && has_body && !self.side.unread() {
            return false;
        }
        self.began = true;
        self.side.receive(Body::of_request(self.framing), raw);
        if kept && has_body {
            self.side.keep();
        }
        true
    }

    fn is_received(&self) -> bool {
        self.side.is_received()
    }

    fn interim(&mut self, head: &AnswerHead<'_>) {
        if !self.is_old {
            self.expects_continue &= head.status != 100;
            self.side.out.put_with(|out| head.write(out, Framing::None, None, &Added::default()));
        }
    }

    #[inline]
    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, is_last: bool) -> bool {
        self.answered = true;
        let framing = match head.framing {
            Framing::Chunked if self.is_old => Framing::UntilClose,
            Framing::UntilClose if !self.is_old => Framing::Chunked,
            framing => framing,
        };
        self.until_close = framing == Framing::UntilClose;
        let connection = self.connection(is_last || self.until_close || !self.may_skip_body());
        let is_http1 = head.version != http::Version::HTTP_2;
        self.side.out.put_with(|out| head.write(out, framing, connection, added));
        let raw = is_http1 && framing == head.framing;
        self.side.send(Sending::of(framing, raw));
        raw
    }

    fn answer_locally(&mut self, answer: Answer, is_last: bool) {
        self.answered = true;
        if self.is_socks {
            return self.side.out.put(&socks_reply::refused(answer.status));
        }
        let connection = self.connection(is_last);
        let is_head = self.is_head;
        self.side.out.put_with(|out| answer.write(out, connection, is_head));
    }

    fn may_skip_body(&self) -> bool {
        // A client that waits for 100 may send its body all the same, or the next request: nothing distinguishes the two.
        !self.expects_continue || self.is_received() || !self.side.input.is_empty()
    }

    fn grant(&mut self) {
        let granted =
            if self.is_socks { &socks_reply::GRANTED[..] } else { b"HTTP/1.1 200 Connection Established\r\n\r\n" };
        self.side.out.put(granted);
    }

    fn open(&mut self) {
        self.side.open();
    }

    fn tell(&mut self, bytes: &'static [u8]) {
        self.side.out.put(bytes);
    }

    fn switch(&mut self, head: &AnswerHead<'_>, added: &Added<'_>) {
        (self.answered, self.is_last) = (true, true);
        self.side.out.put_with(|out| head.write(out, Framing::UntilClose, Some("upgrade"), added));
    }

    fn cut(&mut self) {
        (self.is_last, self.is_cut) = (true, true);
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // What it sends ahead is kept for later, as far as there is room.
        while matches!(self.leaving, Leaving::Not | Leaving::Unread { .. }) && self.side.input.has_room() {
            match self.side.poll_fill(cx) {
                // An interim answer, by which it would differ from one that only says no more, is of HTTP.
                Poll::Ready(Ok(0)) if self.is_socks => return Poll::Ready(()),
                Poll::Ready(Ok(0)) => {
                    let Some(probes) = self.first_probe() else { return Poll::Ready(()) };
                    self.leaving = Leaving::Silent { probes, next: Instant::now() + PATIENCE };
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        match self.leaving {
            // The reader gets the error.
            Leaving::Unread { .. } if self.side.input.has_room() => self.leaving = Leaving::Not,
            Leaving::Not | Leaving::Unread { .. } if !self.side.input.has_room() => self.look_past_unread(),
            Leaving::Not | Leaving::Unread { .. } | Leaving::Silent { .. } => {}
        }
        self.poll_probe(cx)
    }

    fn wake_at(&self) -> Option<Instant> {
        match &self.leaving {
            Leaving::Silent { probes, next }
                if !self.is_old && !self.answered && *probes < PROBES.len() && self.side.out.is_empty() =>
            {
                Some(*next)
            }
            Leaving::Unread { next } => Some(*next),
            Leaving::Silent { .. } | Leaving::Not => None,
        }
    }
}

/// Most are answered before anybody has to look.
const PATIENCE: Duration = Duration::from_millis(30);
/// Between two looks at a client that has sent much ahead.
const LOOK: Duration = Duration::from_secs(1);
/// How long after each look the next one is. A closed connection answers at once, from however far.
const PROBES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::io::Buffer;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    /// What looks again without end takes the thread from everybody.
    #[tokio::test]
    async fn a_client_is_looked_at_from_time_to_time_only_while_there_is_no_room_for_what_it_sends() {
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
        assert_eq!(client.wake_at(), None, "a look that is past would be due at once, and again");
    }
}
