//! Carries one request to its origin and the answer back: one task moves both bodies.

mod deadlines;

use super::Exchange;
use super::carry::{AfterHead, AnswerHead, BodySource, Client, Flow, FlowError, Moved, Origin, Side, SideError};
use super::carry_error::{Carried, CarryError};
use crate::gate::Permit;
use crate::http1::MAX_INTERIM;
use crate::proxy::io::Timer;
use crate::proxy::limits::body_rate::MinRate;
use crate::proxy::respond::Failure;
use crate::upstream::Route;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

impl Exchange<'_> {
    /// Resolves when the answer was forwarded, another protocol follows, or the origin has confirmed the stored answer.
    pub(super) async fn carry<C: Client, O: Origin>(
        &mut self,
        client: &mut C,
        origin: &mut O,
        timer: &mut Timer,
        route: &Route,
    ) -> Result<Carried, CarryError> {
        let (limits, expects_continue) = (&self.settings.limits, self.request.expects_continue);
        let min_rate = MinRate { rate: limits.min_rate, over: limits.read_timeout };
        // Stalls within the pacing gap delay nobody: the next start waits for the gap anyway.
        let stall = self.permit.as_deref().map_or(Duration::ZERO, Permit::gap).max(limits.read_timeout / STALL_PART);
        let began = *self.trip.sent.insert(Instant::now());
        let mut up = Flow::new(began + min_rate.over);
        up.moved = self.replay.bytes().len() as u64;
        let mut carry = Carry {
            exchange: self,
            client,
            origin,
            route,
            began,
            now: began,
            up,
            down: Flow::new(began + min_rate.over),
            send_stopped: None,
            answered: false,
            head_written: false,
            awaits_continue: expects_continue,
            window: (began, 0),
            interim: 0,
            min_rate,
            stall,
        };
        let mut woken = Some(began);
        poll_fn(|cx| {
            carry.now = woken.take().unwrap_or_else(Instant::now);
            let polled = carry.poll(cx, timer);
            // The counts are saved after each poll, because the task may be dropped.
            carry.exchange.trip.moved = Moved { up: carry.up.moved, down: carry.down.moved };
            carry.exchange.trip.is_delivered = carry.down.is_complete;
            polled
        })
        .await
    }

    /// Notes that the head of the request has been written.
    fn on_head_written(&mut self) {
        self.proxy.counters.sent(self.trip.upstream.is_some_and(|(_, reused)| reused));
        if let Some(permit) = &mut self.permit {
            permit.note_left();
        }
    }
}

struct Carry<'c, 'e, C, O> {
    exchange: &'c mut Exchange<'e>,
    client: &'c mut C,
    origin: &'c mut O,
    route: &'c Route,
    began: Instant,
    now: Instant,
    up: Flow,
    down: Flow,
    /// Why the rest of the request is not sent; an answer may still come.
    send_stopped: Option<Option<SideError>>,
    answered: bool,
    head_written: bool,
    /// Whether the body waits for the origin's 100, or until the client sends the body anyway (RFC 9110 §10.1.1).
    awaits_continue: bool,
    /// Start of the stall window, and the bytes moved before it.
    window: (Instant, u64),
    /// Interim answers so far.
    interim: u32,
    min_rate: MinRate,
    /// Length of the stall window: a client that moves next to nothing of its request or answer in this time has stalled.
    stall: Duration,
}

impl<C: Client, O: Origin> Carry<'_, '_, C, O> {
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>, timer: &mut Timer) -> Poll<Result<Carried, CarryError>> {
        loop {
            if !self.is_sent() {
                self.poll_up(cx)?;
            }
            if !self.head_written && self.origin.poll_head_written(cx).is_ready() {
                self.head_written = true;
                self.exchange.on_head_written();
            }
            if let Poll::Ready(done) = self.poll_down(cx) {
                if !self.is_still_read() {
                    return Poll::Ready(done);
                }
                // The site has answered, so the slot goes to another request while the client still sends its body.
                if let Some(permit) = self.exchange.permit.as_mut().filter(|permit| permit.has_turn()) {
                    permit.pass_on();
                }
            }
            // Reading the body shows whether the client has gone, but not while the origin accepts none of the body.
            let is_watched = self.is_sent() || self.up.is_held_up;
            if is_watched && self.client.poll_gone(cx).is_ready() {
                if self.down.is_done {
                    self.send_stopped = Some(None);
                    continue;
                }
                return Poll::Ready(Err(CarryError::client_gone()));
            }
            let own = self.client.wake_at().filter(|_| is_watched);
            let up = (!self.is_origins_turn()).then_some(self.up.at);
            let down = self.awaits_answer().then(|| self.down_ends());
            let Some(at) = [own, up, down, self.window_ends()].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            if timer.poll(cx, at).is_pending() {
                return Poll::Pending;
            }
            self.now = Instant::now();
            if self.window_ends().is_some_and(|at| at <= self.now) {
                let has_stalled = self.has_stalled();
                if let Some(permit) = self.exchange.permit.as_mut().filter(|_| has_stalled) {
                    // The exchange continues without its slot, which goes to another request.
                    permit.pass_on();
                }
                self.window = (self.now, self.up.moved + self.down.moved);
            }
            self.on_deadline()?;
        }
    }

    fn is_sent(&self) -> bool {
        self.up.is_done || self.send_stopped.is_some()
    }

    /// Whether the origin must act next: it has the whole request, or must send 100 (Continue) before the client sends the body.
    fn is_origins_turn(&self) -> bool {
        self.is_sent() || self.awaits_continue && !self.up.is_held_up
    }

    /// Whether the answer is complete and the origin still reads the rest of the request.
    fn is_still_read(&self) -> bool {
        self.down.is_done && !self.is_sent() && !self.awaits_continue && self.origin.reads_on()
    }

    /// Starts the body's deadlines.
    fn start_body(&mut self) {
        self.awaits_continue = false;
        self.window = (self.now, 0);
        self.up.at = self.now + self.min_rate.over;
    }

    /// Forwards the request's body.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Result<(), CarryError> {
        let (from, to, replay) = (self.client.side(), self.origin.side(), &mut self.exchange.replay);
        let mut polled = Poll::Ready(Ok(()));
        if !replay.bytes().is_empty() {
            polled = self.up.poll_piece(cx, replay, to, self.min_rate, self.now);
        }
        if matches!(polled, Poll::Ready(Ok(()))) {
            polled = self.up.poll(cx, from, to, self.min_rate, self.now, |from| {
                replay.keep(from.bytes());
                Ok(())
            });
        }
        if self.awaits_continue && self.up.moved > 0 {
            self.start_body();
        }
        let Poll::Ready(ended) = polled else { return Ok(()) };
        // The answer's timeout starts now.
        self.down.at = self.now + self.min_rate.over;
        match ended {
            Ok(()) => Ok(()),
            Err(FlowError::Destination(fault)) => {
                self.send_stopped = Some(Some(fault));
                Ok(())
            }
            Err(FlowError::Source(_) | FlowError::TooSlow) if self.down.is_done => {
                self.send_stopped = Some(None);
                Ok(())
            }
            Err(FlowError::Source(SideError::Malformed(why))) if !self.answered => {
                Err(Failure::bad_request(why).into())
            }
            Err(FlowError::Source(_)) => Err(CarryError::client_gone()),
            Err(FlowError::TooSlow) if self.answered => {
                Err(CarryError::cut("the body of the request is too slow (`limits.min_rate`)"))
            }
            Err(FlowError::TooSlow) => Err(self.slow_request()),
        }
    }

    /// Forwards the answer.
    #[inline]
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<Carried, CarryError>> {
        while !self.answered {
            let (mut continues, method) = (false, self.exchange.request.method);
            let limit = usize::try_from(self.exchange.settings.limits.max_header_size).unwrap_or(usize::MAX);
            let read = |head: &AnswerHead<'_>| {
                if head.is_interim() {
                    self.interim += 1;
                    if self.interim > MAX_INTERIM {
                        return Err(Failure::malformed("too many interim answers").into());
                    }
                    continues |= head.status == 100;
                    // Early hints (103) are dropped if pages are read first, because nothing may be sent before a page
                    // is read.
                    if !self.exchange.reads_pages || self.awaits_continue && head.status == 100 {
                        self.client.interim(head);
                    }
                    return Ok(AfterHead::Interim);
                }
                self.exchange.on_answer(head, self.now - self.began, self.client, self.route)
            };
            match self.origin.poll_head(cx, method, limit, read) {
                Poll::Ready(Ok(Ok(AfterHead::Interim))) => {
                    self.down.at = self.now + self.min_rate.over;
                    if self.awaits_continue && continues {
                        self.start_body();
                    }
                }
                Poll::Ready(Ok(Ok(AfterHead::Body))) => {
                    self.answered = true;
                    self.window = (self.now, self.up.moved);
                    self.down.at = self.now + self.min_rate.over;
                    self.exchange.replay.end();
                    self.origin.begin_body();
                }
                Poll::Ready(Ok(Ok(AfterHead::Confirmed))) => {
                    self.origin.begin_body();
                    return Poll::Ready(Ok(Carried { is_sent: self.up.is_done, is_switched: false }));
                }
                Poll::Ready(Ok(Ok(AfterHead::Switched))) => {
                    return Poll::Ready(Ok(Carried { is_sent: self.up.is_done, is_switched: true }));
                }
                Poll::Ready(Ok(Err(error))) => return Poll::Ready(Err(CarryError::Rejected(error))),
                Poll::Ready(Err(fault)) => {
                    // An error from sending the request explains more than an early end of the answer.
                    let send_stopped = self.send_stopped.take().flatten().filter(|_| matches!(fault, SideError::Ended));
                    return Poll::Ready(Err(CarryError::Origin(send_stopped.unwrap_or(fault))));
                }
                Poll::Pending => {
                    // Interim answers are flushed at once.
                    return match self.client.side().poll_flush(cx) {
                        Poll::Ready(Err(_)) => Poll::Ready(Err(CarryError::client_gone())),
                        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        if let Some(mut held) = self.exchange.held.take() {
            let (client, origin, down) = (&mut *self.client, &mut *self.origin, &mut self.down);
            let polled = self.exchange.poll_held(cx, &mut held, client, origin, self.route, down, self.min_rate);
            if polled.is_pending() {
                self.exchange.held = Some(held);
            }
            ready!(polled)?;
        }
        let (from, to) = (self.origin.side(), self.client.side());
        let polled = self.exchange.poll_content(cx, &mut self.down, from, to, self.min_rate, self.now);
        polled.map(|sent| match sent {
            Ok(()) => Ok(Carried { is_sent: self.up.is_done, is_switched: false }),
            Err(error) => Err(CarryError::of_answer(error, self.down.is_held_up)),
        })
    }
}

/// Divisor: a stalled client loses its slot after `read_timeout` divided by this, or after the pacing gap if that is longer.
const STALL_PART: u32 = 12;
