//! A client's stream in HTTP/2.

use super::DRAIN_TIMEOUT;
use super::answer::{Added, AnswerHead};
use super::client::Client;
use super::http2::Http2;
use super::side::BodySource;
use crate::http1::Framing;
use crate::proxy::respond::Answer;
use crate::upstream::TaskTurns;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{StatusCode, header};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A client's stream in HTTP/2.
pub struct Http2Client {
    pub side: Http2,
    respond: SendResponse<Bytes>,
    /// The turns of the connection's task, shared by all its streams.
    turns: TaskTurns,
    is_head: bool,
    answered: bool,
    /// The stream was reset before the answer began.
    is_gone: bool,
    is_cut: bool,
    /// Content of the requested protocol, withheld until the switch to it.
    withheld: Option<RecvStream>,
    is_open: bool,
}

impl Http2Client {
    pub fn new(receiving: Option<RecvStream>, respond: SendResponse<Bytes>, turns: TaskTurns, is_head: bool) -> Self {
        let mut side = Http2::default();
        side.receiving = receiving;
        Http2Client {
            side,
            respond,
            turns,
            is_head,
            answered: false,
            is_gone: false,
            is_cut: false,
            withheld: None,
            is_open: false,
        }
    }

    /// Withholds content until [`open`](Client::open).
    pub fn withhold(&mut self) {
        self.withheld = self.side.receiving.take();
    }

    /// Sends the head. `ends`: the answer has no body.
    fn begin(&mut self, head: http::Response<()>, ends: bool) {
        self.answered = true;
        match self.respond.send_response(head, ends) {
            Ok(sending) => self.side.sending = (!ends).then_some(sending),
            Err(error) => {
                tracing::debug!(%error, "an answer could not be sent");
                self.is_gone = true;
            }
        }
    }

    /// Ends the stream after the exchange.
    pub async fn finish(&mut self) {
        // A client whose upgrade was refused has no more to send, so a short wait is enough.
        let limit = if self.withheld.is_some() { WRITE_TIMEOUT } else { DRAIN_TIMEOUT };
        self.side.receiving = self.withheld.take().or(self.side.receiving.take());
        match (self.answered, self.is_cut) {
            (true, true) => self.end_early(Reason::INTERNAL_ERROR).await,
            // RFC 9113 §8.5: the connection to the origin broke.
            (true, false) if self.is_open && !self.side.is_over() => self.end_early(Reason::CONNECT_ERROR).await,
            (true, false) => self.drain_request(limit).await,
            (false, _) => {}
        }
    }

    /// Resets the stream after pending output: a reset would overtake it, and some clients do not read what arrives with a reset.
    async fn end_early(&mut self, reason: Reason) {
        let written = async {
            self.side.sent().await;
            self.turns.handed_over().written().await;
        };
        let _ = timeout(WRITE_TIMEOUT, written).await;
        self.side.reset(reason);
    }

    /// Discards the rest of the request for a while after the answer. Dropping the last handle sends a reset (RFC 9113
    /// §8.1), and clients lose an answer they have not read; some wait forever for the window to open.
    async fn drain_request(&mut self, limit: Duration) {
        self.side.discard();
        let Some(receiving) = &mut self.side.receiving else { return };
        let rest = async {
            while let Some(Ok(piece)) = receiving.data().await {
                // Fails if the stream has ended.
                let _ = receiving.flow_control().release_capacity(piece.len());
            }
        };
        let _ = timeout(limit, rest).await;
    }
}

impl Client for Http2Client {
    type Side = Http2;

    fn side(&mut self) -> &mut Self::Side {
        &mut self.side
    }

    fn is_received(&self) -> bool {
        self.side.bytes().is_empty() && self.side.is_received()
    }

    fn interim(&mut self, head: &AnswerHead<'_>) {
        // Fails if the stream has ended, which is reported elsewhere.
        let _ = self.respond.send_informational(head.to_http2(&Added::default()));
    }

    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, _: bool) {
        self.begin(head.to_http2(added), matches!(head.framing, Framing::None | Framing::Length(0)));
    }

    fn answer_locally(&mut self, answer: &Answer, _: bool) -> bool {
        let has_body = !self.is_head && !answer.body().is_empty();
        self.begin(answer.head(), !has_body);
        has_body
    }

    fn may_skip_body(&self) -> bool {
        true
    }

    fn grant(&mut self) {
        self.begin(http::Response::new(()), false);
    }

    fn open(&mut self) {
        self.is_open = true;
        self.side.receiving = self.withheld.take().or(self.side.receiving.take());
    }

    fn tell(&mut self, bytes: &'static [u8]) {
        if let Some(sending) = &mut self.side.sending {
            // Fails if the stream has ended, which is reported elsewhere.
            let _ = sending.send_data(Bytes::from_static(bytes), false);
        }
    }

    /// RFC 8441 §5: 200 stands for the 101 of HTTP/1.1.
    fn switch(&mut self, head: &AnswerHead<'_>, added: &Added<'_>) -> u16 {
        let mut head = head.to_http2(added);
        *head.status_mut() = StatusCode::OK;
        head.headers_mut().remove(header::SEC_WEBSOCKET_ACCEPT);
        self.begin(head, false);
        StatusCode::OK.as_u16()
    }

    fn cut(&mut self) {
        self.is_cut = true;
        if !self.answered {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }

    fn is_half_closed(&self) -> bool {
        false
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.side.gather(cx);
        match &mut self.side.sending {
            _ if self.is_gone => Poll::Ready(()),
            Some(sending) => sending.poll_reset(cx).map(drop),
            None if self.answered => Poll::Pending,
            None => self.respond.poll_reset(cx).map(drop),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

/// Longest wait for pending output before a reset.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::duplex;

    /// The client's reset and the answer's head cross on the wire.
    #[tokio::test]
    async fn client_resetting_its_stream_has_gone_even_if_its_answer_began() {
        let (ours, theirs) = duplex(64 * 1024);
        let (asked, answering) = tokio::join!(h2::client::handshake(theirs), h2::server::handshake(ours));
        let ((mut send, connection), mut serving) = (asked.unwrap(), answering.unwrap());
        tokio::spawn(connection);
        let (response, mut stream) = send.send_request(http::Request::new(()), false).unwrap();
        let (request, respond) = serving.accept().await.unwrap().unwrap();
        let receiving = Some(request.into_body());
        let mut client = Http2Client::new(receiving, respond, TaskTurns::default(), false);
        stream.send_reset(Reason::CANCEL);
        drop(response);
        let _ = timeout(Duration::from_millis(100), serving.accept()).await;
        let fields = http::HeaderMap::new();
        let answered = AnswerHead::of_http2(StatusCode::OK, &fields, Framing::Length(5));
        client.answer(&answered, &Added::default(), false);
        assert!(poll_fn(|cx| Poll::Ready(client.poll_gone(cx).is_ready())).await);
    }
}
