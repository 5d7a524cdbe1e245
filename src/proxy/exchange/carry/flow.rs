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
    /// All that the source has announced has been written, but its end is missing.
    pub is_complete: bool,
}

/// Why a transfer failed.
#[derive(Debug)]
pub enum FlowError {
    /// The source failed.
    Source(SideError),
    /// The destination failed.
    Destination(SideError),
    /// The source is slower than the minimum rate.
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

    /// `now`: when the task was woken.
    #[inline]
    pub fn poll<A: BodySource, B: Side>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
        min_rate: MinRate,
        now: Instant,
    ) -> Poll<Result<(), FlowError>> {
        let mut pieces = 0;
        loop {
            self.is_held_up = true;
            if !from.bytes().is_empty() {
                let Poll::Ready(sent) = to.poll_send(cx, from) else {
                    from.gather(cx);
                    return Poll::Pending;
                };
                sent.map_err(FlowError::Destination)?;
                // A write also moves the deadline: a client that keeps reading is not cut off.
                if !from.bytes().is_empty() {
                    self.at = now + min_rate.over;
                }
                continue;
            }
            if self.ended || self.fault.is_some() {
                let flushed = ready!(to.poll_flush(cx));
                if let Some(fault) = self.fault.take() {
                    return Poll::Ready(Err(FlowError::Source(fault)));
                }
                flushed.map_err(FlowError::Destination)?;
                self.is_done = true;
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
                    self.moved += from.bytes().len() as u64;
                    self.at = now + min_rate.over;
                    let meter = self.meter.get_or_insert_with(|| Meter::begin(now));
                    if !meter.moved(now, from.bytes().len(), min_rate) {
                        return Poll::Ready(Err(FlowError::TooSlow));
                    }
                }
                Poll::Ready(Ok(false)) => {
                    to.end(from.trailers().map(passed_trailers));
                    self.ended = true;
                }
                Poll::Ready(Err(fault)) => self.fault = Some(fault),
                // The source pauses: received content is flushed.
                Poll::Pending => {
                    ready!(to.poll_flush(cx)).map_err(FlowError::Destination)?;
                    self.is_held_up = false;
                    self.is_complete = from.is_complete();
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Frames or chunks passed in one poll: more than an HTTP/2 connection reads in one, so that they do not pile up.
pub(super) const PIECES: u32 = 256;
