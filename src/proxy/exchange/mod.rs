//! One request, from its head to the line in the log: decided, carried to its origin, answered. What ends here ends in
//! `finish`, which alone counts, records, logs and answers.

mod access_log;
mod attempt;
mod cached;
pub mod carry;
mod carry_end;
pub mod counters;
mod decide;
mod final_answer;
mod forward;
pub mod head;
mod held;
mod held_page;
mod hints;
pub mod key_directory;
pub mod memory;
pub mod offers;
mod outcome;
mod outcome_counts;
pub mod pages;
mod per_user;
mod private;
mod promise;
pub mod recent;
mod record;
pub mod request;
mod revisit;
mod state;
mod target;
mod transfer;
mod tunnel;
mod tunnel_sni;
mod usage;
pub mod users;
pub mod via;
pub mod websocket;

pub use decide::LastPlace;
pub use outcome::Outcome;
pub use per_user::{denied, intercept_mode};
pub use state::Exchange;

use super::Proxy;
use super::client::Peer;
use super::io::{Buffer, Timer};
use super::limits::body_rate::Least;
use super::respond::{Answer, Failure, robots_copy, setup};
use crate::config::Settings;
use crate::policy::Refusal;
use crate::tls::UNRECOGNIZED_NAME;
use crate::upstream::Stream;
use carry::{BodySource, Client, Flow, Http1, OwnBody, Side, Stopped};
use decide::Decided;
use http::header;
use outcome::{About, FinalStep};
use outcome_counts::FORWARDED;
use request::{Request, Unread};
use state::Trip;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::Instant;
use tunnel_sni::{Introduced, misnamed};
use users::Cost;

impl Exchange<'_> {
    /// From the decision to the end of the answer. `last`: where the request before on its connection went.
    pub async fn run<C: Client>(&mut self, client: &mut C, timer: &mut Timer, last: &mut LastPlace) {
        let outcome = self.outcome(client, timer, last).await;
        self.finish(outcome, client, timer).await;
    }

    async fn outcome<C: Client>(&mut self, client: &mut C, timer: &mut Timer, last: &mut LastPlace) -> Outcome {
        if let Err(refusal) = self.agree() {
            return Outcome::Refused(refusal);
        }
        if self.request.max_forwards == Some(0) && !self.request.is_looped {
            return Outcome::Answered(Answer::last_forward(self.request.method));
        }
        let decided = {
            let deciding = pin!(self.decide(last));
            client.wait(timer, deciding).await
        };
        if is_timed() && self.trip.gate.held().is_zero() {
            self.proxy.counters.decided(self.began.elapsed());
        }
        let decided = match decided {
            Some(Ok(decided)) => decided,
            Some(Err(refusal)) => return Outcome::Refused(refusal),
            None => return Outcome::Gone,
        };
        match decided {
            Decided::Go { reported, route } => {
                self.trip.reported = reported.or(self.trip.reported.take());
                match route {
                    Ok(route) => {
                        let outcome = self.forward(client, timer, &route).await;
                        match self.confirmed() {
                            Some(stored) => Box::pin(self.serve(client, timer, stored, &route, true)).await,
                            None => outcome,
                        }
                    }
                    Err(error) => Outcome::Failed(Failure::from_resolve(&error)),
                }
            }
            Decided::Cached { stored, reported, route } => {
                self.trip.reported = reported.or(self.trip.reported.take());
                Box::pin(self.serve(client, timer, stored, &route, false)).await
            }
            Decided::NotModified(answer) => Outcome::Answered(answer),
            Decided::Robots(copy) => {
                let conditions = self.request.head.fields_named(&[header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]);
                Outcome::Answered(robots_copy(&copy, &conditions))
            }
            Decided::Setup => {
                let Request { method, target, accept, authority, .. } = self.request;
                let host = authority.host().to_string();
                Outcome::Answered(setup(&self.proxy.leaves.ca(), method, target, *accept, &host))
            }
        }
    }

    /// A CONNECT is granted: its inside is served here. `false`: the client does not hear it.
    pub async fn intercepted<C: Client>(&mut self, client: &mut C, timer: &mut Timer) -> bool {
        self.trip.status = 200;
        client.grant();
        self.conclude(Outcome::Intercepted);
        let settings = self.settings.clone();
        flush(&settings, client, timer).await
    }

    /// A CONNECT is granted: what is inside goes through unread, until one side ends it, or a TLS handshake names another host.
    pub async fn tunnelled<C: Client>(&mut self, mut origin: Stream, client: &mut C, timer: &mut Timer) {
        self.trip.status = 200;
        self.proxy.counters.tunnelled();
        self.proxy.counters.ended(Some(FORWARDED), self.peer, Cost::default());
        client.grant();
        if flush(&self.settings, client, timer).await {
            let mut ahead = Buffer::new();
            let mut origin = Http1::new(&mut origin, &mut ahead);
            client.open();
            origin.open();
            let idle = self.settings.limits.tunnel_idle_timeout;
            let authority = &self.request.authority;
            let mut introduced = Introduced::new(client.side(), authority.host());
            tunnel::run(&mut introduced, &mut origin, idle, timer, &mut self.trip.moved).await;
            if let Some(name) = introduced.other {
                client.tell(UNRECOGNIZED_NAME);
                client.side().end(None);
                flush(&self.settings, client, timer).await;
                self.conclude(Outcome::Refused(misnamed(authority, &name)));
                return;
            }
        }
        self.conclude(Outcome::Tunnelled);
    }

    /// The name in the TLS handshake has to be that of the CONNECT around it.
    fn agree(&self) -> Result<(), Refusal> {
        match self.peer.tunnel.as_ref().and_then(|tunnel| Some((tunnel, tunnel.other_name.as_ref()?))) {
            Some((tunnel, name)) => Err(misnamed(&tunnel.authority, name)),
            None => Ok(()),
        }
    }

    /// The only end. The turn is given back before anything is written.
    pub async fn finish<C: Client>(&mut self, outcome: Outcome, client: &mut C, timer: &mut Timer) {
        // Before its turn is another's, who may want the same page.
        match outcome {
            Outcome::Forwarded | Outcome::Cached => {
                self.delivered();
                self.finish_storing();
            }
            Outcome::Refused(Refusal::AnswerReserved(_)) => self.end_stored(),
            _ => {}
        }
        self.permit = None;
        // Where the body has stopped nobody waits for its rest.
        let is_after_origin = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(Refusal::AnswerReserved(_)));
        let is_last = is_after_origin && !client.is_received();
        match self.conclude(outcome) {
            FinalStep::Answer(answer) => {
                // The connection stays usable unless the rest of the request cannot be separated from the next.
                let is_last = is_last || self.proxy.is_leaving() || !client.may_skip_body();
                answer_locally(&self.settings, client, timer, answer, is_last).await;
            }
            FinalStep::Cut => client.cut(),
            FinalStep::AlreadySent => {}
        }
        self.proxy.evidence_room().await;
    }

    fn conclude(&mut self, outcome: Outcome) -> FinalStep {
        self.is_concluded = true;
        let charged = self.trip.origin.map(|_| self.charged());
        // What comes from the cache is nothing that the site has sent.
        let bytes = if matches!(outcome, Outcome::Cached) { 0 } else { self.trip.moved.down };
        self.trip.gate.settle(self.trip.upstream.is_some(), bytes, charged);
        let Exchange { proxy, ref settings, peer, began, request, ref trip, .. } = *self;
        About { proxy, settings, peer, began, request: Ok(request), trip }.conclude(outcome)
    }
}

/// Its task has ended before it: with the client's HTTP/2 connection, or the proxy.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.is_concluded {
            // A CONNECT that was granted: one whose inside is served here has been concluded.
            let is_tunnel = self.request.is_connect() && self.trip.status == 200;
            self.conclude(match (is_tunnel, self.proxy.is_stopping()) {
                (true, _) => Outcome::Tunnelled,
                (false, true) => Outcome::Stopped,
                (false, false) => Outcome::Gone,
            });
        }
    }
}

/// Answers what is no request to carry. In HTTP/1 nothing is kept of the connection.
pub async fn answer_unread<C: Client>(
    proxy: &Proxy,
    unread: &Unread<'_>,
    outcome: Outcome,
    peer: &Peer,
    began: Instant,
    client: &mut C,
    timer: &mut Timer,
) {
    if let FinalStep::Answer(answer) = conclude_unread(proxy, unread, outcome, peer, began) {
        answer_locally(&proxy.settings.load_full(), client, timer, answer, true).await;
    }
}

/// Counts, logs and records it; what it is answered with is for the caller.
pub fn conclude_unread(proxy: &Proxy, unread: &Unread<'_>, outcome: Outcome, peer: &Peer, began: Instant) -> FinalStep {
    let settings = proxy.settings.load_full();
    About { proxy, settings: &settings, peer, began, request: Err(unread), trip: &Trip::default() }.conclude(outcome)
}

/// Whether the time that this decision took is taken: one in so many is enough to know.
fn is_timed() -> bool {
    thread_local!(static COUNT: Cell<u8> = const { Cell::new(0) });
    COUNT.with(|count| count.replace((count.get() + 1) % TIMED)) == 0
}

const TIMED: u8 = 64;

/// Sends an answer of the proxy's own, as the client takes it. One that does not, or too slowly, loses its connection.
async fn answer_locally<C: Client>(
    settings: &Settings,
    client: &mut C,
    timer: &mut Timer,
    answer: Answer,
    is_last: bool,
) {
    let has_body = client.answer_locally(&answer, is_last);
    let mut body = OwnBody::of(answer, has_body);
    if send_body(settings, client, timer, &mut body, &mut 0).await.is_err() {
        client.cut();
    }
}

/// Sends a body whose head has been sent, as the client takes it. `moved`: bytes that have come of it.
async fn send_body<C: Client>(
    settings: &Settings,
    client: &mut C,
    timer: &mut Timer,
    body: &mut impl BodySource,
    moved: &mut u64,
) -> Result<(), Stopped> {
    let least = Least { rate: settings.limits.min_rate, over: settings.limits.read_timeout };
    let mut flow = Flow::new(Instant::now() + least.over);
    poll_fn(|cx| {
        let polled = flow.poll(cx, body, client.side(), least);
        *moved = flow.moved;
        match polled {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => timer.poll(cx, flow.at).map(|()| Err(Stopped::Slow)),
        }
    })
    .await
}

/// A client that does not read loses its connection.
async fn flush<C: Client>(settings: &Settings, client: &mut C, timer: &mut Timer) -> bool {
    let at = Instant::now() + settings.limits.read_timeout;
    let flushed = poll_fn(|cx| match client.side().poll_flush(cx) {
        Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
        Poll::Pending => timer.poll(cx, at).map(|()| false),
    });
    let flushed = flushed.await;
    if !flushed {
        client.cut();
    }
    flushed
}
