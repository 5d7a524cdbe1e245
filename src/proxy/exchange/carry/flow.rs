//! One direction of an exchange: content goes from one side to the other as it comes.

use super::answer::passed_trailers;
use super::side::{BodySource, Fault, Side};
use crate::proxy::limits::body_rate::{Least, Meter};
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// How far one body has got.
pub struct Flow {
    pub is_done: bool,
    /// Until then something has to move.
    pub at: Instant,
    meter: Option<Meter>,
    ended: bool,
    fault: Option<Fault>,
    /// Bytes of content that have come.
    pub moved: u64,
    /// It waits for the side that it goes to.
    pub is_held_up: bool,
}

/// Why it goes no further.
#[derive(Debug)]
pub enum Stopped {
    /// What it comes from.
    From(Fault),
    /// What it goes to.
    To(Fault),
    /// It comes too slowly.
    Slow,
}

impl Flow {
    pub fn new(at: Instant) -> Self {
        Flow { is_done: false, at, meter: None, ended: false, fault: None, moved: 0, is_held_up: false }
    }

    #[inline]
    pub fn poll<A: BodySource, B: Side>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
        least: Least,
    ) -> Poll<Result<(), Stopped>> {
        let mut pieces = 0;
        loop {
            self.is_held_up = true;
            if !from.bytes().is_empty() {
                let Poll::Ready(sent) = to.poll_send(cx, from) else {
                    from.gather(cx);
                    return Poll::Pending;
                };
                sent.map_err(Stopped::To)?;
                // Timed where it comes, too: a reader that goes on reading is not cut.
                if !from.bytes().is_empty() {
                    self.at = Instant::now() + least.over;
                }
                continue;
            }
            if self.ended || self.fault.is_some() {
                let flushed = ready!(to.poll_flush(cx));
                if let Some(fault) = self.fault.take() {
                    return Poll::Ready(Err(Stopped::From(fault)));
                }
                flushed.map_err(Stopped::To)?;
                self.is_done = true;
                return Poll::Ready(Ok(()));
            }
            let more = match pieces {
                ..PIECES => from.poll_more(cx),
                // However short they are, others have their turns between them.
                PIECES.. => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            };
            pieces += 1;
            match more {
                Poll::Ready(Ok(true)) => {
                    let now = Instant::now();
                    self.moved += from.bytes().len() as u64;
                    self.at = now + least.over;
                    let meter = self.meter.get_or_insert_with(|| Meter::begin(now));
                    if !meter.moved(now, from.bytes().len(), least) {
                        return Poll::Ready(Err(Stopped::Slow));
                    }
                }
                Poll::Ready(Ok(false)) => {
                    to.end(from.trailers().map(passed_trailers));
                    self.ended = true;
                }
                Poll::Ready(Err(fault)) => self.fault = Some(fault),
                // The other end pauses: what has come is passed on.
                Poll::Pending => {
                    ready!(to.poll_flush(cx)).map_err(Stopped::To)?;
                    self.is_held_up = false;
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Pieces of content, frames or chunks, that are passed on in one turn of a task.
/// More than an HTTP/2 connection reads in one, or they would pile up.
pub(super) const PIECES: u32 = 256;
