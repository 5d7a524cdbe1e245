//! Carries one request to its origin and the answer back: both bodies at once, in both directions, by one task. HTTP/1 on both
//! sides is handed on as it is framed; between the versions content goes in pieces.

mod answer;
mod client;
mod flow;
mod http1;
mod http1_client;
mod http2;
mod http2_client;
mod http2_io;
mod origin;
mod side;

pub use answer::{Added, AnswerHead};
pub use client::Client;
pub use flow::{Flow, Stopped};
pub use http1::{Http1, Sending};
pub use http1_client::Http1Client;
pub use http2::Http2;
pub use http2_client::Http2Client;
pub use origin::{Http1Origin, Http2Origin, Origin};
pub use side::{Fault, Side};

use crate::proxy::io::Timer;
use crate::proxy::limits::body_rate::Least;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// What a request and its answer may take.
#[derive(Clone, Copy)]
pub struct Limits {
    pub least: Least,
    /// Of an answer's head.
    pub head: usize,
    /// A client that has sent nothing of its request, or taken nothing of its answer, for so long has stalled.
    pub stall: Duration,
}

/// What happens on the way.
pub enum Event<'a> {
    /// So much has come by now. Said last of all before the task may end.
    Moved(Moved),
    /// The head of the request has been written.
    Left,
    /// With how long it was waited for.
    Head(&'a AnswerHead<'a>, Duration),
    /// The client neither sends its request nor takes its answer, and has not for a while.
    Stalled,
}

/// What is to be done about a head of an answer.
pub enum Next {
    /// It was passed on, another follows.
    Interim,
    /// Its body follows. `raw`: with its framing.
    Body { raw: bool },
    /// Another protocol follows.
    Switched,
}

/// Bytes of bodies that have come, with what framing is left as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moved {
    /// From the client.
    pub up: u64,
    /// From the origin.
    pub down: u64,
}

/// How it ended, as far as it was no fault.
pub struct Carried {
    /// The origin has taken all of the request.
    pub is_sent: bool,
    pub is_switched: bool,
}

/// Why it broke off.
pub enum Broken<E> {
    /// The client has gone.
    Gone,
    /// The body of the request is not what its framing says.
    BadRequest(String),
    /// It comes too slowly, or not at all.
    SlowRequest,
    /// The origin takes nothing of the request.
    NotTaken,
    /// The origin has not answered in time.
    NoAnswer,
    /// The origin's end, before its answer began.
    Origin(Fault),
    /// What `on_event` said.
    Head(E),
    /// The answer had begun.
    Cut(String),
}

/// `on_event` decides about each head of an answer and passes it on.
pub async fn carry<C: Client, O: Origin, E>(
    client: &mut C,
    origin: &mut O,
    method: &str,
    limits: Limits,
    timer: &mut Timer,
    mut on_event: impl FnMut(Event<'_>, &mut C) -> Result<Next, E>,
) -> Result<Carried, Broken<E>> {
    let began = Instant::now();
    let at = began + limits.least.over;
    let mut carry = Carry {
        client,
        origin,
        began,
        up: Flow::new(at),
        down: Flow::new(at),
        unsent: None,
        answered: false,
        left: false,
        stalled: false,
        limits,
    };
    poll_fn(|cx| {
        let polled = carry.poll(cx, method, timer, &mut on_event);
        let moved = Moved { up: carry.up.moved, down: carry.down.moved };
        match on_event(Event::Moved(moved), carry.client) {
            Ok(_) => polled,
            Err(error) => Poll::Ready(Err(Broken::Head(error))),
        }
    })
    .await
}

struct Carry<'a, C, O> {
    client: &'a mut C,
    origin: &'a mut O,
    began: Instant,
    up: Flow,
    down: Flow,
    /// Why the rest of the request is not sent any more; the answer may come all the same.
    unsent: Option<Option<Fault>>,
    answered: bool,
    left: bool,
    stalled: bool,
    limits: Limits,
}

impl<C: Client, O: Origin> Carry<'_, C, O> {
    #[inline]
    fn poll<E>(
        &mut self,
        cx: &mut Context<'_>,
        method: &str,
        timer: &mut Timer,
        on_event: &mut impl FnMut(Event<'_>, &mut C) -> Result<Next, E>,
    ) -> Poll<Result<Carried, Broken<E>>> {
        loop {
            if !self.is_sent() {
                self.poll_up(cx)?;
            }
            if !self.left && self.origin.poll_left(cx).is_ready() {
                self.left = true;
                on_event(Event::Left, self.client).map_err(Broken::Head)?;
            }
            if let Poll::Ready(done) = self.poll_down(cx, method, on_event) {
                return Poll::Ready(done);
            }
            if self.is_sent() && self.client.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Broken::Gone));
            }
            let own = self.client.wake_at().filter(|_| self.is_sent());
            let up = (!self.is_sent()).then_some(self.up.at);
            let down = (self.is_sent() || self.answered).then_some(self.down.at);
            let Some(at) = [own, up, down, self.stalls_at()].into_iter().flatten().min() else { return Poll::Pending };
            if timer.poll(cx, at).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if self.stalls_at().is_some_and(|at| at <= now) {
                self.stalled = true;
                on_event(Event::Stalled, self.client).map_err(Broken::Head)?;
            }
            self.late(now)?;
        }
    }

    /// When the client will have stalled, if nothing moves until then. `None`: nothing waits for it now, or it has already.
    fn stalls_at(&self) -> Option<Instant> {
        let Limits { least, stall, .. } = self.limits;
        let (flow, waits) = match self.answered {
            true => (&self.down, self.down.is_held_up),
            false => (&self.up, !self.is_sent() && !self.up.is_held_up),
        };
        (waits && self.left && !self.stalled && stall < least.over).then(|| flow.at - (least.over - stall))
    }

    fn is_sent(&self) -> bool {
        self.up.is_done || self.unsent.is_some()
    }

    /// The request.
    fn poll_up<E>(&mut self, cx: &mut Context<'_>) -> Result<(), Broken<E>> {
        let Poll::Ready(ended) = self.up.poll(cx, self.client.side(), self.origin.side(), self.limits.least) else {
            return Ok(());
        };
        // The answer has its time from now on.
        self.down.at = Instant::now() + self.limits.least.over;
        match ended {
            Ok(()) => Ok(()),
            Err(Stopped::To(fault)) => {
                self.unsent = Some(Some(fault));
                Ok(())
            }
            Err(Stopped::From(Fault::Malformed(why))) if !self.answered => Err(Broken::BadRequest(why)),
            Err(Stopped::From(_)) => Err(Broken::Gone),
            Err(Stopped::Slow) if !self.answered => Err(Broken::SlowRequest),
            Err(Stopped::Slow) => Err(Broken::Cut("the body of the request is too slow (`limits.min_rate`)".into())),
        }
    }

    /// The answer.
    #[inline]
    fn poll_down<E>(
        &mut self,
        cx: &mut Context<'_>,
        method: &str,
        on_event: &mut impl FnMut(Event<'_>, &mut C) -> Result<Next, E>,
    ) -> Poll<Result<Carried, Broken<E>>> {
        while !self.answered {
            let (client, mut now, began) = (&mut *self.client, self.began, self.began);
            let read = |head: &AnswerHead<'_>| {
                now = Instant::now();
                on_event(Event::Head(head, now - began), client)
            };
            match self.origin.poll_head(cx, method, self.limits.head, read) {
                Poll::Ready(Ok(Ok(Next::Interim))) => self.down.at = now + self.limits.least.over,
                Poll::Ready(Ok(Ok(Next::Body { raw }))) => {
                    self.answered = true;
                    self.down.at = now + self.limits.least.over;
                    self.client.side().keep_no_more();
                    self.origin.begin_body(raw);
                }
                Poll::Ready(Ok(Ok(Next::Switched))) => {
                    return Poll::Ready(Ok(Carried { is_sent: self.up.is_done, is_switched: true }));
                }
                Poll::Ready(Ok(Err(error))) => return Poll::Ready(Err(Broken::Head(error))),
                Poll::Ready(Err(fault)) => {
                    // What was not taken says more than that nothing came.
                    let unsent = self.unsent.take().flatten().filter(|_| matches!(fault, Fault::Ended));
                    return Poll::Ready(Err(Broken::Origin(unsent.unwrap_or(fault))));
                }
                Poll::Pending => {
                    // Interim answers go out as they come.
                    return match self.client.side().poll_flush(cx) {
                        Poll::Ready(Err(_)) => Poll::Ready(Err(Broken::Gone)),
                        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        match self.down.poll(cx, self.origin.side(), self.client.side(), self.limits.least) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(Ok(Carried { is_sent: self.up.is_done, is_switched: false })),
            Poll::Ready(Err(Stopped::From(fault))) => Poll::Ready(Err(Broken::Cut(format!("the origin: {fault}")))),
            Poll::Ready(Err(Stopped::To(_))) => Poll::Ready(Err(Broken::Gone)),
            Poll::Ready(Err(Stopped::Slow)) => {
                Poll::Ready(Err(Broken::Cut("the answer is too slow (`limits.min_rate`)".into())))
            }
        }
    }

    /// A deadline has passed.
    #[cold]
    fn late<E>(&mut self, now: Instant) -> Result<(), Broken<E>> {
        if !self.is_sent() && now >= self.up.at {
            if self.answered {
                self.unsent = Some(None);
                return Ok(());
            }
            return Err(if self.up.is_held_up { Broken::NotTaken } else { Broken::SlowRequest });
        }
        if (self.is_sent() || self.answered) && now >= self.down.at {
            return Err(match (self.answered, self.down.is_held_up) {
                (false, _) => Broken::NoAnswer,
                (true, true) => Broken::Cut("the client stopped reading".into()),
                (true, false) => Broken::Cut("the origin stopped in the middle of its answer".into()),
            });
        }
        Ok(())
    }
}

/// What is left of a request that has its answer is passed over for so long: many a client reads nothing before it has sent all.
pub const UNWANTED: Duration = Duration::from_secs(30);
