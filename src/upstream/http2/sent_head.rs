//! Tells when the head of a request was written: the h2 crate holds it back while the origin accepts no more streams, and the
//! connection's task writes it when scheduled.

use crate::upstream::turns::{HandedOver, TaskTurns};
use bytes::Bytes;
use h2::client::SendRequest;
use std::task::{Context, Poll, ready};

/// The head of a request on its way to the origin.
pub struct SentHead {
    /// Pending while the connection has no room for the stream.
    send: SendRequest<Bytes>,
    turns: TaskTurns,
    /// `None`: when last polled, the head was waiting for a stream.
    handed_over: Option<HandedOver>,
}

impl SentHead {
    /// For a head that was just handed to the connection.
    pub(super) fn new(send: SendRequest<Bytes>, turns: &TaskTurns) -> Self {
        SentHead { send, turns: turns.clone(), handed_over: Some(turns.handed_over()) }
    }

    /// Ready when the head was written, or never will be.
    pub fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(handed_over) = &self.handed_over {
                ready!(handed_over.poll_written(cx));
                if !matches!(self.send.poll_ready(cx), Poll::Pending) {
                    return Poll::Ready(());
                }
                self.handed_over = None;
            }
            if ready!(self.send.poll_ready(cx)).is_err() {
                return Poll::Ready(());
            }
            self.handed_over = Some(self.turns.handed_over());
        }
    }
}
