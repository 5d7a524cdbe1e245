//! A client's stream in HTTP/2.

use super::UNWANTED;
use super::answer::{Added, AnswerHead};
use super::client::Client;
use super::http2::Http2;
use super::side::Side;
use crate::http1::Framing;
use crate::proxy::respond::Answer;
use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout};

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

    /// What still comes of the request behind its whole answer, for a while. With the stream's last handle a reset goes out
    /// (RFC 9113 §8.1), and clients lose an answer that they have not read by then; some wait for room to send without end.
    async fn pass_over_rest(&mut self) {
        self.side.consume(self.side.bytes().len());
        let Some(receiving) = &mut self.side.receiving else { return };
        let rest = async {
            while let Some(Ok(piece)) = receiving.data().await {
                // It fails where the stream has ended.
                let _ = receiving.flow_control().release_capacity(piece.len());
            }
        };
        let _ = timeout(UNWANTED, rest).await;
    }
}

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

    fn answer_locally(&mut self, answer: Answer, _: bool) {
        self.answered = true;
        let ends = self.is_head || answer.body().is_empty();
        let sent = self.respond.send_response(answer.head(), ends);
        let body = || Bytes::copy_from_slice(answer.body());
        let sent = sent.and_then(|mut stream| if ends { Ok(()) } else { stream.send_data(body(), true) });
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

/// So long is waited for what is there of an answer to go out before it is cut.
const SENT_TIME: Duration = Duration::from_secs(1);
