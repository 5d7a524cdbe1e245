//! One request, from its head to its log line: decide, forward, answer. Every exchange ends in `EndedExchange::conclude`, which alone
//! counts, records and logs requests.

mod access_log;
mod attempt;
mod cache;
pub mod carry;
mod carry_error;
mod connection_auth;
pub mod counters;
mod decide;
mod final_answer;
mod forward;
pub mod head;
mod held_page;
pub mod key_directory;
pub mod memory;
mod min_revisit;
mod offered_price;
pub mod offers;
mod outcome;
mod outcome_counts;
mod page_buffer;
pub mod pages;
mod per_user;
pub mod previous_request;
pub mod recent;
mod record;
pub mod request;
mod request_preferences;
mod state;
mod target;
mod transfer;
mod tunnel;
mod tunnel_sni;
mod usage;
pub mod users;
pub mod websocket;

pub use decide::LastPlace;
pub use outcome::Outcome;
pub use state::Exchange;

use super::Proxy;
use super::client::Peer;
use super::io::{Buffer, Timer};
use super::limits::body_rate::MinRate;
use super::limits::total::ConnectionPermit;
use super::respond::{Answer, Failure};
use crate::config::Settings;
use crate::policy::Refusal;
use crate::tls::UNRECOGNIZED_NAME;
use crate::upstream::Stream;
use carry::{BodySource, Client, Flow, FlowError, Http1, LocalBody, Side};
use counters::samples_latency;
use decide::RequestDecision;
use http::Version;
use outcome::{ClientReply, EndedExchange};
use request::Unread;
use state::Trip;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::Instant;
use tunnel_sni::{SniCheck, name_mismatch};

impl Exchange<'_> {
    /// Runs the exchange. `last`: destination of the previous request on the connection.
    pub async fn run<C: Client>(&mut self, client: &mut C, timer: &mut Timer, last: &mut LastPlace) {
        let outcome = self.outcome(client, timer, last).await;
        self.finish(outcome, client, timer).await;
    }

    async fn outcome<C: Client>(&mut self, client: &mut C, timer: &mut Timer, last: &mut LastPlace) -> Outcome {
        if let Err(refusal) = self.check_tunnel_name() {
            return Outcome::Refused(refusal);
        }
        if self.request.max_forwards == Some(0) && !self.request.is_looped {
            return Outcome::Answered(Answer::last_forward(self.request.method));
        }
        let decided = {
            let deciding = pin!(self.decide(last));
            client.wait(timer, deciding).await
        };
        if samples_latency() && self.trip.gate.held().is_zero() {
            self.proxy.counters.decision.observe(self.began.elapsed());
        }
        let decided = match decided {
            Some(Ok(decided)) => decided,
            Some(Err(refusal)) => return Outcome::Refused(refusal),
            None => return Outcome::ClientGone,
        };
        match decided {
            RequestDecision::Forward { reported, route } => {
                reported.into_iter().for_each(|reported| self.report(reported));
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
            RequestDecision::Cached { stored, reported, route } => {
                reported.into_iter().for_each(|reported| self.report(reported));
                Box::pin(self.serve(client, timer, stored, &route, false)).await
            }
            RequestDecision::Local(answer) => Outcome::Answered(answer),
        }
    }

    /// Grants an intercepted CONNECT. Returns false if the client does not receive the grant.
    pub async fn intercepted<C: Client>(&mut self, client: &mut C, timer: &mut Timer) -> bool {
        self.trip.status = 200;
        client.grant();
        self.conclude(Outcome::Intercepted);
        let settings = self.settings.clone();
        flush(&settings, client, timer).await
    }

    /// Grants a tunnel and passes bytes until one side ends it, or until the TLS handshake names another host.
    pub async fn tunnelled<C: Client>(
        &mut self,
        mut origin: Stream,
        client: &mut C,
        timer: &mut Timer,
        permit: &ConnectionPermit,
    ) {
        self.trip.status = 200;
        client.grant();
        if flush(&self.settings, client, timer).await {
            let mut ahead = Buffer::new();
            let mut origin = Http1::new(&mut origin, &mut ahead);
            client.open();
            origin.open();
            let (limits, authority) = (&self.settings.limits, &self.request.authority);
            // Counts as waiting only after `idle_timeout`: in a shorter pause, a request may be in flight inside the
            // tunnel.
            let idle = (limits.tunnel_idle_timeout, |moved| permit.waits(moved + limits.idle_timeout));
            let mut sni = SniCheck::new(authority.host());
            let (side, moved) = (client.side(), &mut self.trip.moved);
            tunnel::run(side, &mut origin, idle, timer, moved, |bytes| sni.check(bytes)).await;
            if let Some(name) = sni.other_name {
                client.tell(UNRECOGNIZED_NAME);
                client.side().end(None);
                flush(&self.settings, client, timer).await;
                self.conclude(Outcome::Refused(name_mismatch(authority, &name)));
                return;
            }
        }
        self.conclude(Outcome::Tunnelled);
    }

    /// Checks that the TLS handshake names the host of the CONNECT.
    fn check_tunnel_name(&self) -> Result<(), Refusal> {
        match self.peer.tunnel.as_ref().and_then(|tunnel| Some((tunnel, tunnel.other_name.as_ref()?))) {
            Some((tunnel, name)) => Err(name_mismatch(&tunnel.authority, name)),
            None => Ok(()),
        }
    }

    /// Ends the exchange. The pacing slot is released before anything is written.
    pub async fn finish<C: Client>(&mut self, outcome: Outcome, client: &mut C, timer: &mut Timer) {
        // After a failure, or a refusal of the origin's answer, closes the client's connection instead of waiting for the rest of a body.
        let is_after_origin = matches!(outcome, Outcome::Failed(_))
            || self.trip.origin.is_some() && matches!(outcome, Outcome::Refused(_));
        let is_last = is_after_origin && !client.is_received();
        match self.conclude(outcome) {
            ClientReply::Send(answer) => {
                // Keeps the connection unless the body cannot be told apart from the next request.
                let is_last = is_last || self.proxy.is_leaving() || !client.may_skip_body();
                answer_locally(&self.settings, client, timer, answer, is_last).await;
            }
            ClientReply::Cut => client.cut(),
            ClientReply::AlreadySent => {}
        }
        self.proxy.evidence_room().await;
    }

    fn conclude(&mut self, outcome: Outcome) -> ClientReply {
        self.is_concluded = true;
        let has_all = matches!(outcome, Outcome::ClientGone | Outcome::ProxyStopped) && self.trip.is_delivered;
        let outcome = if has_all { Outcome::Forwarded } else { outcome };
        // Stored before the slot goes to another request, which may want the same page.
        match outcome {
            Outcome::Forwarded | Outcome::Cached => {
                self.store_visit();
                self.finish_storing();
            }
            Outcome::Refused(_) if self.trip.origin.is_some() => self.end_stored(),
            _ => {}
        }
        self.permit = None;
        let charged = self.trip.origin.and_then(|_| self.charged());
        let bytes = outcome.received(&self.trip);
        self.trip.gate.settle(self.trip.upstream.is_some(), bytes, charged);
        let Exchange { proxy, ref settings, peer, began, request, ref trip, .. } = *self;
        EndedExchange { proxy, settings, peer, began, request: Ok(request), trip }.conclude(outcome)
    }
}

/// Concludes an exchange whose task was dropped, with the client's HTTP/2 connection or at shutdown.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.is_concluded {
            let switched = if self.request.version == Version::HTTP_2 { 200 } else { 101 };
            self.conclude(match self.trip.status {
                // An intercepted CONNECT was concluded earlier.
                200 if self.request.is_connect() => Outcome::Tunnelled,
                status if self.request.is_upgrade && status == switched => Outcome::Forwarded,
                _ if self.proxy.is_stopping() => Outcome::ProxyStopped,
                _ => Outcome::ClientGone,
            });
        }
    }
}

/// Answers a request that could not be read. Over HTTP/1 the connection closes.
pub async fn answer_unread<C: Client>(
    proxy: &Proxy,
    unread: &Unread<'_>,
    outcome: Outcome,
    peer: &Peer,
    began: Instant,
    client: &mut C,
    timer: &mut Timer,
) {
    if let ClientReply::Send(answer) = conclude_unread(proxy, unread, outcome, peer, began) {
        answer_locally(&proxy.settings.load_full(), client, timer, answer, true).await;
    }
}

/// Counts, logs and records the request; the caller sends the answer.
pub fn conclude_unread(
    proxy: &Proxy,
    unread: &Unread<'_>,
    outcome: Outcome,
    peer: &Peer,
    began: Instant,
) -> ClientReply {
    let settings = proxy.settings.load_full();
    EndedExchange { proxy, settings: &settings, peer, began, request: Err(unread), trip: &Trip::default() }
        .conclude(outcome)
}

/// Sends a local answer. A client that reads too slowly loses its connection.
async fn answer_locally<C: Client>(
    settings: &Settings,
    client: &mut C,
    timer: &mut Timer,
    answer: Answer,
    is_last: bool,
) {
    let has_body = client.answer_locally(&answer, is_last);
    let mut body = LocalBody::of(answer, has_body);
    if send_body(settings, client, timer, &mut body, &mut 0).await.is_err() {
        client.cut();
    }
}

/// Sends a body after its head. `moved`: bytes taken from `body`.
async fn send_body<C: Client>(
    settings: &Settings,
    client: &mut C,
    timer: &mut Timer,
    body: &mut impl BodySource,
    moved: &mut u64,
) -> Result<(), FlowError> {
    let min_rate = MinRate { rate: settings.limits.min_rate, over: settings.limits.read_timeout };
    let mut flow = Flow::new(Instant::now() + min_rate.over);
    poll_fn(|cx| {
        let polled = flow.poll(cx, body, client.side(), min_rate, Instant::now(), |_| Ok(()));
        *moved = flow.moved;
        match polled {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => timer.poll(cx, flow.at).map(|()| Err(FlowError::TooSlow)),
        }
    })
    .await
}

/// Flushes output. A client that does not read loses its connection.
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
