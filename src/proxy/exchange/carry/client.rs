//! The client's side: it asks, and is answered once.

use super::answer::{Added, AnswerHead};
use super::http1::{Http1, Sending};
use super::http2::Http2;
use super::side::Side;
use crate::http1::{Body, Framing};
use crate::proxy::client::Wire;
use crate::proxy::io::Timer;
use crate::proxy::respond::Answer;
use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Whoever sent the request under way.
pub trait Client {
    type Side: Side;

    fn side(&mut self) -> &mut Self::Side;

    /// The request's body comes now, from its beginning. `raw`: what it goes to has the same framing. `kept`: it may have to be
    /// sent once more. `false`: its beginning is not there any more.
    fn begin_body(&mut self, raw: bool, kept: bool) -> bool;

    /// Nothing of the body need be kept any more.
    fn keep_no_more(&mut self);

    /// All of the request has been taken.
    fn is_received(&self) -> bool;

    /// Whether the framing of both sides' HTTP/1 bodies can be left as it is.
    fn is_http1(&self) -> bool;

    fn interim(&mut self, head: &AnswerHead<'_>);

    /// The answer begins. `is_last`: the connection is not kept. Whether the origin's body is handed on with its framing.
    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, is_last: bool) -> bool;

    /// An answer of the proxy's own, whole. `is_last`: the connection is not kept.
    fn answer_locally(&mut self, answer: &Answer, is_last: bool);

    /// Whether the connection can be kept behind a final answer that comes before the body has.
    fn may_skip_body(&self) -> bool;

    /// From now on every byte goes through, both ways.
    fn open(&mut self);

    /// The connection switches to another protocol.
    fn switch(&mut self, head: &AnswerHead<'_>, added: &Added<'_>);

    /// The answer cannot be completed: the client must be able to tell.
    fn cut(&mut self);

    /// Ready when it has gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// When to look again whether it has gone.
    fn wake_at(&self) -> Option<Instant>;

    /// Resolves with the output of what it waits for, or with none when it has gone.
    fn wait<F: Future>(&mut self, timer: &mut Timer, waited_for: F) -> impl Future<Output = Option<F::Output>> {
        async {
            let mut waited_for = std::pin::pin!(waited_for);
            poll_fn(|cx| {
                if let Poll::Ready(output) = waited_for.as_mut().poll(cx) {
                    return Poll::Ready(Some(output));
                }
                loop {
                    if self.poll_gone(cx).is_ready() {
                        return Poll::Ready(None);
                    }
                    match self.wake_at() {
                        Some(at) if timer.poll(cx, at).is_ready() => {}
                        Some(_) | None => return Poll::Pending,
                    }
                }
            })
            .await
        }
    }
}

/// A client that speaks HTTP/1.
pub struct Http1Client<'a> {
    pub side: Http1<'a, Wire>,
    pub framing: Framing,
    /// HTTP/1.0.
    pub is_old: bool,
    pub is_head: bool,
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
            // RFC 9112 §C.2.2: HTTP/1.0 has to be told.
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
            // It is told when its turn comes.
            Err(_) => Some(PROBES.len()),
        }
    }

    /// Whether it says no more behind what it has sent ahead, which only the connection itself can tell.
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

    fn keep_no_more(&mut self) {
        self.side.keep_no_more();
    }

    fn is_received(&self) -> bool {
        self.side.is_received()
    }

    fn is_http1(&self) -> bool {
        true
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

    fn answer_locally(&mut self, answer: &Answer, is_last: bool) {
        self.answered = true;
        let connection = self.connection(is_last);
        let is_head = self.is_head;
        self.side.out.put_with(|out| answer.write(out, connection, is_head));
    }

    fn may_skip_body(&self) -> bool {
        // A client that waits for 100 may send its body all the same, or the next request: nobody could tell them apart.
        !self.expects_continue || self.is_received() || !self.side.input.is_empty()
    }

    fn open(&mut self) {
        self.side.open();
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
                Poll::Ready(Ok(0)) => {
                    let Some(probes) = self.first_probe() else { return Poll::Ready(()) };
                    self.leaving = Leaving::Silent { probes, next: Instant::now() + PATIENCE };
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if !self.side.input.has_room() {
            self.look_past_unread();
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

/// A client's stream in HTTP/2.
pub struct Http2Client {
    pub side: Http2,
    pub respond: SendResponse<Bytes>,
    pub is_head: bool,
    began: bool,
    answered: bool,
    is_cut: bool,
}

impl Http2Client {
    pub fn new(side: Http2, respond: SendResponse<Bytes>, is_head: bool) -> Self {
        Http2Client { side, respond, is_head, began: false, answered: false, is_cut: false }
    }

    /// The end of the stream, behind the exchange.
    pub async fn finish(&mut self) {
        match (self.answered, self.is_cut) {
            // A reset overtakes what has not gone out.
            (true, true) => {
                let _ = timeout(SENT_TIME, self.side.sent()).await;
                self.side.reset(Reason::INTERNAL_ERROR);
            }
            (true, false) => self.pass_over_rest().await,
            (false, _) => {}
        }
    }

    /// What still comes of the request behind its whole answer, within bounds. With the stream's last handle a reset goes
    /// out (RFC 9113 §8.1), and clients lose an answer that they have not read by then.
    async fn pass_over_rest(&mut self) {
        self.side.consume(self.side.bytes().len());
        let Some(receiving) = &mut self.side.receiving else { return };
        let rest = async {
            let mut room = REST;
            while let Some(Ok(piece)) = receiving.data().await {
                let Some(left) = room.checked_sub(piece.len()) else { return };
                room = left;
                // It fails where the stream has ended.
                let _ = receiving.flow_control().release_capacity(piece.len());
            }
        };
        let _ = timeout(REST_TIME, rest).await;
    }
}

/// Of an upload that has been answered already, so much is passed over, for so long.
const REST: usize = 16 * 1024 * 1024;
const REST_TIME: Duration = Duration::from_secs(5);
/// So long is waited for what is there of an answer to go out before it is cut.
const SENT_TIME: Duration = Duration::from_secs(1);

impl Client for Http2Client {
    type Side = Http2;

    fn side(&mut self) -> &mut Self::Side {
        &mut self.side
    }

    fn begin_body(&mut self, _: bool, kept: bool) -> bool {
        if self.began && !self.side.unread() {
            return false;
        }
        self.began = true;
        if kept {
            self.side.keep();
        }
        true
    }

    fn keep_no_more(&mut self) {
        self.side.keep_no_more();
    }

    fn is_received(&self) -> bool {
        self.side.bytes().is_empty() && self.side.receiving.as_ref().is_none_or(h2::RecvStream::is_end_stream)
    }

    fn is_http1(&self) -> bool {
        false
    }

    fn interim(&mut self, head: &AnswerHead<'_>) {
        // It fails where the stream has ended, which is told elsewhere.
        let _ = self.respond.send_informational(head.to_http2(&Added::default()));
    }

    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, _: bool) -> bool {
        self.answered = true;
        let ends = matches!(head.framing, Framing::None | Framing::Length(0));
        match self.respond.send_response(head.to_http2(added), ends) {
            Ok(sending) => self.side.sending = (!ends).then_some(sending),
            Err(error) => tracing::debug!(%error, "an answer could not be sent"),
        }
        false
    }

    fn answer_locally(&mut self, answer: &Answer, _: bool) {
        self.answered = true;
        let ends = self.is_head || answer.body.is_empty();
        let sent = self.respond.send_response(answer.head(), ends);
        let sent = sent.and_then(|mut stream| if ends { Ok(()) } else { stream.send_data(answer.body.clone(), true) });
        if let Err(error) = sent {
            tracing::debug!(%error, "an answer could not be sent");
        }
    }

    fn may_skip_body(&self) -> bool {
        true
    }

    fn open(&mut self) {}

    fn switch(&mut self, _: &AnswerHead<'_>, _: &Added<'_>) {
        // HTTP/2 knows no 101; nobody asks for it there.
        self.cut();
    }

    fn cut(&mut self) {
        self.is_cut = true;
        if !self.answered {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.side.sending {
            Some(sending) => sending.poll_reset(cx).map(drop),
            None if self.answered => Poll::Pending,
            None => self.respond.poll_reset(cx).map(drop),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}
