//! One direction of an exchange: content passes from one side to the other.

use super::side::{BodySource, Side, SideError};
use super::trailers::passed_trailers;
use crate::proxy::limits::body_rate::{Meter, MinRate};
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// The state of one body.
pub struct Flow {
    pub is_done: bool,
    /// Deadline for progress.
    pub at: Instant,
    meter: Option<Meter>,
    ended: bool,
    fault: Option<SideError>,
    /// Bytes of content received.
    pub moved: u64,
    /// The destination accepts no more for now.
    pub is_held_up: bool,
    /// All announced content has been written, although the end of the body may be missing.
    pub is_complete: bool,
}

/// Why a transfer failed.
#[derive(Debug)]
pub enum FlowError {
    /// The source failed.
    Source(SideError),
    /// The destination failed.
    Destination(SideError),
    /// Slower than the minimum rate. The destination is at fault if the flow was [held up](Flow::is_held_up).
    TooSlow,
}

impl Flow {
    pub fn new(at: Instant) -> Self {
        Flow {
            is_done: false,
            at,
            meter: None,
            ended: false,
            fault: None,
            moved: 0,
            is_held_up: false,
            is_complete: false,
        }
    }

    /// Passes on the rest of the current piece. The rate is measured at the destination: a slow source also
    /// counts as too slow.
    #[inline]
    pub fn poll_piece<A: BodySource, B: Side>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
        min_rate: MinRate,
        now: Instant,
    ) -> Poll<Result<(), FlowError>> {
        let was_held_up = self.is_held_up;
        while !from.bytes().is_empty() {
            self.is_held_up = true;
            let before = from.bytes().len();
            let Poll::Ready(sent) = to.poll_send(cx, from) else {
                from.gather(cx);
                return Poll::Pending;
            };
            sent.map_err(FlowError::Destination)?;
            let meter = self.meter.get_or_insert_with(|| Meter::begin(now));
            if !meter.moved(now, before - from.bytes().len(), min_rate) {
                self.is_held_up = was_held_up;
                return Poll::Ready(Err(FlowError::TooSlow));
            }
            // A write also moves the deadline: a client that keeps reading is not cut off.
            self.at = now + min_rate.over;
        }
        self.is_held_up = false;
        Poll::Ready(Ok(()))
    }

    /// Passes content on until one side is not ready. `now`: when the task was woken. `look`: receives each new piece
    /// first; its error ends the transfer.
    #[inline]
    pub fn poll<A: BodySource, B: Side>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
        min_rate: MinRate,
        now: Instant,
        mut look: impl FnMut(&A) -> Result<(), FlowError>,
    ) -> Poll<Result<(), FlowError>> {
        let mut pieces = 0;
        loop {
            ready!(self.poll_piece(cx, from, to, min_rate, now))?;
            if self.ended || self.fault.is_some() {
                self.is_held_up = true;
                let flushed = ready!(to.poll_flush(cx));
                if let Some(fault) = self.fault.take() {
                    return Poll::Ready(Err(FlowError::Source(fault)));
                }
                flushed.map_err(FlowError::Destination)?;
                (self.is_done, self.is_complete) = (true, true);
                return Poll::Ready(Ok(()));
            }
            let more = match pieces {
                ..PIECES => from.poll_more(cx),
                // Yields to other tasks after many pieces.
                PIECES.. => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            };
            pieces += 1;
            match more {
                Poll::Ready(Ok(true)) => {
                    look(from)?;
                    self.moved += from.bytes().len() as u64;
                    self.at = now + min_rate.over;
                }
                Poll::Ready(Ok(false)) => {
                    to.end(from.trailers().map(passed_trailers));
                    self.ended = true;
                }
                Poll::Ready(Err(fault)) => self.fault = Some(fault),
                // The source pauses: received content is flushed.
                Poll::Pending => {
                    self.is_held_up = true;
                    ready!(to.poll_flush(cx)).map_err(FlowError::Destination)?;
                    self.is_held_up = false;
                    self.is_complete = from.is_complete();
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Frames or chunks passed on in one poll: more than an HTTP/2 connection reads in one poll, so that frames do not pile up.
pub(super) const PIECES: u32 = 256;

#[cfg(test)]
mod tests {
    use super::super::narrow::Narrow;
    use super::super::{Http1, Sending};
    use super::*;
    use crate::http1::{Body, Framing};
    use crate::proxy::io::Buffer;
    use std::task::Waker;
    use std::time::Duration;

    /// Number of seconds until a destination that takes `bytes` a second counts as too slow.
    fn cut_after(bytes: usize) -> Option<u64> {
        let rate = MinRate { rate: 10, over: Duration::from_secs(60) };
        let (mut nothing, mut input, mut unread) = (tokio::io::empty(), Buffer::new(), Buffer::new());
        input.put(&[b'x'; 5000]);
        let mut from = Http1::new(&mut nothing, &mut input);
        from.receive(Body::of_response(Framing::Length(5000)));
        let (began, mut io) = (Instant::now(), Narrow::new(usize::MAX, 0));
        let mut flow = Flow::new(began + rate.over);
        for second in 0.. {
            io.room = bytes;
            let mut to = Http1::new(&mut io, &mut unread);
            to.send(Sending::Plain);
            let now = began + Duration::from_secs(second);
            match flow.poll(&mut Context::from_waker(Waker::noop()), &mut from, &mut to, rate, now, |_| Ok(())) {
                Poll::Ready(Err(FlowError::TooSlow)) if flow.is_held_up => return Some(second),
                Poll::Ready(done) => return done.map(|()| None).unwrap(),
                Poll::Pending => assert!(flow.at > now, "a flow that is not too slow has a deadline in the future"),
            }
        }
        unreachable!()
    }

    #[test]
    fn receiver_below_the_minimum_rate_is_cut_off() {
        assert_eq!(cut_after(1), Some(60));
        assert_eq!(cut_after(9), Some(60));
        assert_eq!(cut_after(11), None);
    }
}
