//! When the head of a request has left: the h2 crate keeps it back while the origin takes no more streams, and the connection's task
//! writes it whenever that is scheduled.

use crate::upstream::turns::{HandedOver, TaskTurns};
use bytes::Bytes;
use h2::client::SendRequest;
use std::task::{Context, Poll, ready};

/// The head of a request, on its way to the origin.
pub struct SentHead {
    /// Not ready while the connection has no room for the stream.
    send: SendRequest<Bytes>,
    turns: TaskTurns,
    /// `None`: it has found the head to be waiting for its stream.
    handed_over: Option<HandedOver>,
}

impl SentHead {
    /// It has just been sent.
    pub(super) fn new(send: SendRequest<Bytes>, turns: &TaskTurns) -> Self {
        SentHead { send, turns: turns.clone(), handed_over: Some(turns.handed_over()) }
    }

    /// Ready when it has been written, or never will be.
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
