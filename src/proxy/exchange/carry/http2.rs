//! An HTTP/2 side of an exchange: one stream.

use super::flow::PIECES;
use super::receive_queue::ReceiveQueue;
use super::side::{BodySource, Side, SideError};
use crate::upstream::check_trailers;
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// The directions of a stream that are open.
#[derive(Default)]
pub struct Http2 {
    pub receiving: Option<RecvStream>,
    pub sending: Option<SendStream<Bytes>>,
    /// Content still to come, if Content-Length was given.
    pub remaining: Option<u64>,
    /// The current piece.
    current: Bytes,
    /// Pieces received after the current one.
    queue: ReceiveQueue,
    trailers: Option<HeaderMap>,
    fault: Option<h2::Error>,
    /// Output has ended.
    ended: bool,
}

impl Http2 {
    pub fn reset(&mut self, reason: Reason) {
        if let Some(sending) = &mut self.sending {
            sending.send_reset(reason);
        }
    }

    /// Resolves when all output has been written, or was discarded because the stream ended.
    pub async fn sent(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        let (mark, gone) = oneshot::channel();
        if sending.send_data(Bytes::from_owner(Mark { _gone: mark }), false).is_ok() {
            let _ = gone.await;
        }
    }

    /// Whether both directions have ended.
    pub fn is_over(&self) -> bool {
        self.ended && self.is_received()
    }

    /// Whether no piece follows the current one.
    pub fn is_received(&self) -> bool {
        self.queue.is_empty() && self.receiving.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    /// Discards received content.
    pub fn discard(&mut self) {
        self.consume(self.current.len());
        while let Some(piece) = self.queue.pop() {
            self.release(piece.len());
        }
    }

    /// Reserves send capacity, up to `wanted` bytes.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, SideError>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(Err(SideError::Ended)) };
        let wanted = wanted.min(MAX_UNWRITTEN);
        sending.reserve_capacity(wanted);
        while sending.capacity() == 0 {
            match ready!(sending.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                None => return Poll::Ready(Err(SideError::Ended)),
            }
        }
        Poll::Ready(Ok(wanted.min(sending.capacity())))
    }

    fn release(&mut self, n: usize) {
        if let Some(receiving) = &mut self.receiving {
            // Fails if the stream has ended, which is reported elsewhere.
            let _ = receiving.flow_control().release_capacity(n);
        }
    }
}

impl BodySource for Http2 {
    fn bytes(&self) -> &[u8] {
        &self.current
    }

    fn consume(&mut self, n: usize) {
        if n > 0 {
            drop(self.take(n));
        }
    }

    fn share(&self) -> Bytes {
        self.current.clone()
    }

    fn take(&mut self, n: usize) -> Bytes {
        let taken = self.current.split_to(n);
        self.release(n);
        taken
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        let Some(receiving) = &mut self.receiving else { return Poll::Ready(Ok(false)) };
        loop {
            let next = match self.queue.pop() {
                Some(next) => Some(Ok(next)),
                None => ready!(receiving.poll_data(cx)),
            };
            match next {
                Some(Ok(next)) if next.is_empty() => {}
                Some(Ok(next)) => {
                    self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(next.len() as u64));
                    self.current = next;
                    return Poll::Ready(Ok(true));
                }
                // All announced content has been received: how the stream ends does not matter.
                Some(Err(_)) if self.remaining == Some(0) => return Poll::Ready(Ok(false)),
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                None => {
                    let trailers = ready!(receiving.poll_trailers(cx))?;
                    let checked = trailers.as_ref().map(check_trailers).transpose();
                    checked.map_err(|error| SideError::Malformed(error.to_string()))?;
                    // On a retry, keeps the trailers that an earlier attempt has read.
                    self.trailers = trailers.or(self.trailers.take());
                    return Poll::Ready(Ok(false));
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.current.is_empty() && self.trailers.is_none() && self.is_received()
    }

    fn is_complete(&self) -> bool {
        let is_empty = self.current.is_empty() && self.queue.is_empty();
        is_empty && (self.remaining == Some(0) || self.is_received())
    }

    fn gather(&mut self, cx: &mut Context<'_>) {
        let Some(receiving) = &mut self.receiving else { return };
        for _ in 0..PIECES {
            // The end or an error is polled again once the queue is empty.
            let Poll::Ready(Some(Ok(piece))) = receiving.poll_data(cx) else { return };
            self.queue.push(piece);
        }
        cx.waker().wake_by_ref();
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.clone()
    }
}

impl Side for Http2 {
    fn poll_send<S: BodySource>(&mut self, cx: &mut Context<'_>, from: &mut S) -> Poll<Result<(), SideError>> {
        let n = ready!(self.poll_room(cx, from.bytes().len()))?;
        let Some(sending) = &mut self.sending else { return Poll::Ready(Err(SideError::Ended)) };
        let piece = from.take(n);
        // The last piece carries the end of the stream: a separate empty frame would cost as much as one with content.
        self.ended = from.has_ended();
        let sent = sending.send_data(piece, self.ended);
        Poll::Ready(sent.map_err(SideError::from))
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        let Some(sending) = self.sending.as_mut().filter(|_| !self.ended) else { return };
        self.ended = true;
        let ended = match trailers {
            Some(trailers) => sending.send_trailers(trailers),
            None => sending.send_data(Bytes::new(), true),
        };
        self.fault = ended.err();
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SideError>> {
        // Nothing to flush here: the connection's own task writes.
        Poll::Ready(self.fault.take().map_or(Ok(()), |error| Err(error.into())))
    }
}

/// An empty payload that is dropped once the content before it has been written.
struct Mark {
    _gone: oneshot::Sender<()>,
}

impl AsRef<[u8]> for Mark {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

/// Maximum number of bytes of one stream that may wait to be written.
const MAX_UNWRITTEN: usize = 32 * 1024;
