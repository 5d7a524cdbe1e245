//! A request on its way to its origin, tried again where that is safe.

use super::carry::{
    self, Added, AnswerHead, Broken, Carried, Client, Event, Fault, Http1, Http1Origin, Http2, Http2Origin, Limits,
    Next, Origin, Sending,
};
use super::pages::Pages;
use super::per_user::hosts;
use super::request::Head;
use super::state::Signature;
use super::{Exchange, Outcome, tunnel, websocket};
use crate::gate::{PaceOutcome as Learnt, Permit};
use crate::http1::{FieldKind, Framing, list};
use crate::policy::{retry_after, turns_away};
use crate::proxy::io::{Buffer, Timer};
use crate::proxy::limits::body_rate::Least;
use crate::proxy::respond::{Failure, proxy_status};
use crate::signing::{ACCEPT_SIGNATURE, RequestSigner};
use crate::upstream::{
    Http1Link, Http2Link, HttpLink, MAX_INTERIM, OriginConnection, Outgoing, OutgoingFields, ReachError, Route,
    Versions, Want,
};
use http::header;
use std::pin::pin;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// How one try ended.
enum Tried {
    Over(Outcome),
    /// Another connection may do better.
    Again(Want, Failure),
    /// The same, and the origin has done nothing about the request: this was no try.
    Untried(Want, Failure),
}

impl Exchange<'_> {
    pub(super) async fn forward<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: Option<Route>,
    ) -> Outcome {
        let route = match route {
            Some(route) => route,
            // It had no address a moment ago.
            None => match client.wait(timer, Box::pin(self.reach()).as_mut()).await {
                Some(Ok(route)) => route,
                Some(Err(ReachError::Denied(denied))) => return Outcome::Refused(denied.into()),
                Some(Err(ReachError::Resolve(error))) => return Outcome::Failed(Failure::from_resolve(&error)),
                Some(Err(error @ ReachError::Reloaded)) => return Outcome::Failed(Failure::ended(error)),
                None => return Outcome::Gone,
            },
        };
        if self.request.is_upgrade {
            // What most requests are not takes no room in them, here and below.
            return Box::pin(self.upgrade(client, timer, &route)).await;
        }
        let versions = Versions::of(self.request.version, self.who.tunnel.is_some());
        let mut want = Want { versions, once: !self.request.is_idempotent(), ..Want::default() };
        let (mut tries, mut untried) = (0, 0);
        loop {
            let connected = {
                let connecting = pin!(route.connect(want));
                client.wait(timer, connecting).await
            };
            let connection = match connected {
                Some(Ok(connection)) => connection,
                Some(Err(error)) => return Outcome::Failed(Failure::from_dial(&error)),
                None => return Outcome::Gone,
            };
            let OriginConnection { reused, address, link } = connection;
            // What comes next goes to the same place.
            want.first = Some(address);
            self.trip.upstream = Some((address, reused));
            let tried = match link {
                HttpLink::Http1(link) => {
                    self.over_http1(client, timer, &route, link, Http1Link::keep, reused, want).await
                }
                HttpLink::Http2(link) => self.over_http2(client, timer, &route, link, want).await,
            };
            let failure;
            (want, failure) = match tried {
                Tried::Over(outcome) => return outcome,
                Tried::Untried(again, failure) => {
                    untried += 1;
                    if let Some(permit) = &mut self.permit {
                        permit.take_back();
                    }
                    (again, failure)
                }
                Tried::Again(again, failure) => {
                    tries += 1;
                    (again, failure)
                }
            };
            // One more request to the host. Whoever has stalled has no turn for it.
            let Some(permit) = self.permit.as_mut().filter(|_| tries < MAX_TRIES && untried < MAX_UNTRIED) else {
                return Outcome::Failed(failure);
            };
            match client.wait(timer, Box::pin(permit.again()).as_mut()).await {
                Some(Ok(())) => {}
                Some(Err(refusal)) => return Outcome::Refused(refusal),
                None => return Outcome::Gone,
            }
        }
    }

    /// On a connection of its own, which may become another protocol's.
    async fn upgrade<C: Client>(&mut self, client: &mut C, timer: &mut Timer, route: &Route) -> Outcome {
        let (stream, address) = match client.wait(timer, pin!(route.open())).await {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => return Outcome::Failed(Failure::from_dial(&error)),
            None => return Outcome::Gone,
        };
        self.trip.upstream = Some((address, false));
        match self.over_http1(client, timer, route, stream, drop, false, Want::default()).await {
            Tried::Over(outcome) => outcome,
            Tried::Again(_, failure) | Tried::Untried(_, failure) => Outcome::Failed(failure),
        }
    }

    fn reach(&self) -> impl Future<Output = Result<Route, ReachError>> {
        let own = hosts(self.who.user.as_deref());
        self.proxy.upstream.reach_for(&self.request.authority, Some(self.who.client()), own, Some(&self.settings))
    }

    #[expect(clippy::too_many_arguments, reason = "one call for each kind of connection")]
    async fn over_http1<C: Client, L: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        mut link: L,
        keep: impl FnOnce(L),
        reused: bool,
        want: Want,
    ) -> Tried {
        let mut input = Buffer::new();
        let mut origin = Http1Origin::new(Http1::new(&mut link, &mut input));
        let raw = client.is_http1();
        if !client.begin_body(raw, reused) {
            return Tried::Over(Outcome::Failed(Failure::ended("the request cannot be sent again")));
        }
        self.outgoing(route, |outgoing| origin.side.out.put_with(|out| outgoing.write_http1(route, out)));
        origin.side.send(Sending::of(self.request.framing, raw));
        self.leaves();
        let carried = self.carry(client, &mut origin, timer, route).await;
        match carried {
            Ok(carried) if carried.is_switched => {
                // What follows are no requests, and may go on for hours: the turn is over.
                self.permit = None;
                client.open();
                origin.side.open();
                let idle = self.settings.limits.tunnel_idle_timeout;
                Box::pin(tunnel::run(client.side(), &mut origin.side, idle, timer, &mut self.trip.moved)).await;
                Tried::Over(Outcome::Forwarded)
            }
            Ok(carried) => {
                let is_kept = carried.is_sent && origin.is_kept();
                drop(origin);
                if is_kept {
                    keep(link);
                }
                Tried::Over(Outcome::Forwarded)
            }
            Err(broken) => self.after(broken, reused, false, origin.is_untouched(), want, route),
        }
    }

    async fn over_http2<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        mut link: Http2Link,
        want: Want,
    ) -> Tried {
        if !client.begin_body(false, true) {
            return Tried::Over(Outcome::Failed(Failure::ended("the request cannot be sent again")));
        }
        let Some(Ok(request)) = self.outgoing(route, |outgoing| outgoing.to_http2(route)) else {
            return Tried::Again(
                Want { versions: Versions::Http1Only, ..want },
                Failure::malformed("HTTP/2 cannot carry the request"),
            );
        };
        let ends = self.request.framing == Framing::None || self.request.framing == Framing::Length(0);
        // The connection's own task may write it before this one goes on.
        self.leaves();
        let (response, sending) = match link.send_request(request, ends) {
            Ok(sent) => sent,
            // Nothing has been sent.
            Err(error) => {
                if let Some(permit) = &mut self.permit {
                    permit.take_back();
                }
                // The connection takes no more streams.
                let is_untried = error.is_go_away() || error.is_io();
                let failure = Failure::ended(error);
                return if is_untried { Tried::Untried(want, failure) } else { Tried::Again(want, failure) };
            }
        };
        let mut side = Http2::default();
        side.sending = (!ends).then_some(sending);
        let is_paced = self.permit.as_ref().is_some_and(Permit::is_paced);
        let mut origin = Http2Origin::new(side, response, is_paced.then(|| link.sent_head()));
        match self.carry(client, &mut origin, timer, route).await {
            Ok(carried) => {
                if !carried.is_sent {
                    origin.side.reset(h2::Reason::CANCEL);
                }
                Tried::Over(Outcome::Forwarded)
            }
            Err(broken) => {
                let untouched = origin.is_untouched();
                origin.side.reset(h2::Reason::CANCEL);
                self.after(broken, link.is_shared(), !link.is_alive(), untouched, want, route)
            }
        }
    }

    fn leaves(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.leaves();
        }
    }

    /// The head of the request as it goes out. `None`: it goes nowhere.
    #[inline]
    fn outgoing<R>(&mut self, route: &Route, write: impl FnOnce(&Outgoing<'_>) -> R) -> Option<R> {
        let request = self.request;
        let (fields, upgrade) = match request.head {
            Head::Http1(head) => (OutgoingFields::Http1(head), head.upgrade.filter(|_| request.is_upgrade)),
            Head::Http2(fields) => (OutgoingFields::Http2(fields), request.is_upgrade.then_some(&b"websocket"[..])),
            Head::Connect => return None,
        };
        let outgoing = Outgoing {
            method: request.method,
            target: &request.target,
            fields,
            framing: request.framing,
            received: Some(request.version),
            user_agent: self.settings.identity.user_agent.as_deref(),
            upgrade,
        };
        if let Some(signer) = route.signature() {
            self.signature.is_ours = outgoing.is_signed_by(signer);
            self.signature.is_clients = outgoing.is_signed();
        }
        Some(write(&outgoing))
    }

    async fn carry<C: Client, O: Origin>(
        &mut self,
        client: &mut C,
        origin: &mut O,
        timer: &mut Timer,
        route: &Route,
    ) -> Result<Carried, Broken<Box<Outcome>>> {
        let gap = self.permit.as_ref().map_or(Duration::ZERO, Permit::gap);
        let settings = &*self.settings;
        self.leads = Pages::are_wanted(settings);
        let limits = &settings.limits;
        let limits = Limits {
            least: Least { rate: limits.min_rate, over: limits.read_timeout },
            head: usize::try_from(limits.max_header_size).unwrap_or(usize::MAX),
            // Whoever waits for the host has waited for its gap anyway.
            stall: gap.max(limits.read_timeout / STALL),
        };
        let method = self.request.method;
        let mut interim = 0;
        let on_event = |event: Event<'_>, client: &mut C| match event {
            Event::Moved(moved) => {
                self.trip.moved = moved;
                Ok(Next::Interim)
            }
            Event::Left => {
                self.proxy.counters.sent(self.trip.upstream.is_some_and(|(_, reused)| reused));
                if let Some(permit) = &mut self.permit {
                    permit.has_left();
                }
                Ok(Next::Interim)
            }
            Event::Stalled => {
                // It may go on whenever it likes; the host is others' meanwhile.
                self.permit = None;
                Ok(Next::Interim)
            }
            Event::Head(head, _) if head.is_interim() => {
                interim += 1;
                if interim > MAX_INTERIM {
                    return Err(Failure::malformed("interim answers without end").into());
                }
                client.interim(head);
                Ok(Next::Interim)
            }
            Event::Head(head, after) => {
                self.trip.origin = Some(after);
                self.proxy.counters.answered(after);
                if let Some(permit) = &mut self.permit {
                    permit.answered(after, matches!(head.status, 200..=299 | 304));
                }
                self.on_answer(head, client, route)
            }
        };
        carry::carry(client, origin, method, limits, timer, on_event).await
    }

    /// A final answer begins; the pace learns from it.
    #[inline]
    fn on_answer<C: Client>(
        &mut self,
        head: &AnswerHead<'_>,
        client: &mut C,
        route: &Route,
    ) -> Result<Next, Box<Outcome>> {
        if let Some(parent) = route.asks().filter(|_| head.status == 407) {
            return Err(Failure::from_dial(&parent.wants_credentials()).into());
        }
        let is_switched = head.status == 101;
        if is_switched && !self.request.is_upgrade {
            return Err(Failure::malformed("101 to no upgrade request").into());
        }
        let agrees = || head.upgrade.is_some_and(|to| list(to).any(|to| to.eq_ignore_ascii_case(b"websocket")));
        if is_switched && !agrees() {
            return Err(Failure::malformed("it switches to another protocol than was asked for").into());
        }
        if let (true, Head::Http2(asked)) = (self.request.is_upgrade, self.request.head) {
            // Any 2xx would stand for the 101.
            let declined = !is_switched && !(200..300).contains(&head.status);
            let accept = head.named(header::SEC_WEBSOCKET_ACCEPT.as_str().as_bytes());
            let accepts = is_switched && websocket::is_accepted(asked, accept.as_deref());
            if !declined && !accepts {
                return Err(Failure::malformed("it does not agree to a WebSocket").into());
            }
        }
        if self.request.is_upgrade && head.is_irregular {
            return Err(Failure::malformed("its head is not written as it has to be").into());
        }
        if let Some(signer) = route.signature()
            && self.is_to_be_repeated(head, signer)
        {
            self.signature.is_wanted = true;
            return Err(Failure::ended("it asks for a signature").into());
        }
        self.learn(head);
        if head.status == PAYMENT_REQUIRED || head.has_signals() {
            self.heed(head).map_err(|refusal| Box::new(Outcome::Refused(refusal)))?;
        }
        if self.leads
            && (200..300).contains(&head.status)
            && head.named(b"content-type").is_some_and(|kind| Pages::is_one(&kind))
        {
            self.proxy.pages.hand(self.who.client(), self.request, Instant::now());
        }
        self.note_visit(head);
        self.trip.status = head.status;
        let told = self.told(route);
        let added = Added { via: self.proxy.via.line(head.version), proxy_status: told.as_deref() };
        if is_switched {
            client.switch(head, &added);
            return Ok(Next::Switched);
        }
        let is_last = self.request.is_upgrade || self.proxy.is_leaving();
        Ok(Next::Body { raw: client.answer(head, &added, is_last) })
    }

    /// Whether the origin has asked for a signature of another kind than the request had, if any, and it may be sent again.
    #[cold]
    fn is_to_be_repeated(&mut self, head: &AnswerHead<'_>, signer: &RequestSigner) -> bool {
        if self.signature.is_clients {
            // It is the client that is asked.
            return false;
        }
        let asked = head.joined(ACCEPT_SIGNATURE.as_bytes()).filter(|_| matches!(head.status, 401 | 403));
        let Some(asked) = asked else {
            if self.signature.is_repeated {
                signer.satisfied();
            }
            return false;
        };
        let Signature { is_ours, is_repeated, .. } = self.signature;
        let is_worth_it = signer.challenged(&asked, is_ours, is_repeated);
        let request = self.request;
        let is_safe = matches!(request.method, "GET" | "HEAD" | "OPTIONS" | "TRACE") && !request.is_upgrade;
        let is_bodiless = matches!(request.framing, Framing::None | Framing::Length(0));
        is_worth_it && is_safe && is_bodiless && !is_repeated
    }

    fn learn(&mut self, head: &AnswerHead<'_>) {
        let Some(permit) = &mut self.permit else { return };
        permit.outcome = if matches!(head.status, 429 | 503) {
            let asked = head.value(FieldKind::RetryAfter);
            Learnt::Backoff { retry_after: asked.and_then(|value| retry_after(&value, SystemTime::now())) }
        } else if permit.has_breaker() && turns_away(head.status, |name| head.named(name.as_bytes())) {
            Learnt::TurnedAway
        } else {
            permit.outcome = Learnt::Success;
            return;
        };
        // The host is left alone from now on, not from when the answer has been read.
        self.permit = None;
    }

    /// What the client is told of the way, in Proxy-Status.
    fn told(&self, route: &Route) -> Option<String> {
        let unverified = route.is_unverified().then(|| {
            self.proxy.counters.unverified();
            UNVERIFIED.to_owned()
        });
        let offer = self.trip.noted.as_ref().and_then(|noted| noted.offer_text());
        if unverified.is_none() && self.trip.reported.is_none() && offer.is_none() {
            return None;
        }
        let reported = self.trip.reported.as_ref().map(ToString::to_string);
        let details: Vec<String> = unverified.into_iter().chain(reported).chain(offer).collect();
        Some(proxy_status(None, Some(&details.join("; "))))
    }

    /// What becomes of a try that broke off. `shared`: with requests before or beside it; `over`: the connection is.
    #[cold]
    fn after(
        &mut self,
        broken: Broken<Box<Outcome>>,
        shared: bool,
        over: bool,
        untouched: bool,
        want: Want,
        route: &Route,
    ) -> Tried {
        let limits = &self.settings.limits;
        let limit = limits.read_timeout;
        let over = match broken {
            Broken::Gone => Outcome::Gone,
            Broken::Cut(why) => Outcome::Cut(why),
            Broken::BadRequest(why) => Outcome::Failed(Failure::bad_request(why)),
            Broken::SlowRequest => Outcome::Failed(Failure::slow_request()),
            Broken::NotTaken => Outcome::Failed(Failure::not_taken(limit)),
            Broken::NoAnswer => Outcome::Failed(Failure::no_answer(limit)),
            Broken::Head(outcome) => match *outcome {
                Outcome::Failed(failure) if std::mem::take(&mut self.signature.is_wanted) => {
                    self.signature.is_repeated = true;
                    return Tried::Again(want, failure);
                }
                outcome => outcome,
            },
            Broken::Origin(fault) => {
                let goes_away = fault.goes_away();
                let again = match &fault {
                    _ if !untouched => None,
                    fault if fault.wants_http1() => Some(Want { versions: Versions::Http1Only, ..want }),
                    fault if fault.is_unprocessed() => Some(want),
                    // It was closed while it was kept, or for what somebody else asked.
                    fault if shared && (over || fault.is_end()) && self.request.is_idempotent() => {
                        Some(Want { fresh: true, ..want })
                    }
                    fault
                        if fault.is_end() && self.request.is_idempotent() && route.may_be_only_http2(want.versions) =>
                    {
                        Some(Want { fresh: true, ..want })
                    }
                    _ => None,
                };
                let failure = match fault {
                    Fault::Malformed(why) => Failure::malformed(why),
                    Fault::TooLarge(limit) => Failure::too_large(limit),
                    Fault::Ended => Failure::ended("it closed the connection before its answer was complete"),
                    Fault::Http2(error) if !(error.is_io() || error.is_go_away() || error.is_reset()) => {
                        Failure::malformed(error)
                    }
                    fault @ (Fault::Io(_) | Fault::Http2(_)) => Failure::ended(fault),
                };
                if let Some(want) = again {
                    return if goes_away { Tried::Untried(want, failure) } else { Tried::Again(want, failure) };
                }
                Outcome::Failed(failure)
            }
        };
        Tried::Over(over)
    }
}

/// It may name a price.
const PAYMENT_REQUIRED: u16 = 402;
/// The part of `read_timeout` after which a client that takes nothing of its answer has the host's turn no longer.
const STALL: u32 = 6;
/// A connection that was kept may be dead; one that takes no more streams may be followed by another such.
const MAX_TRIES: u32 = 4;
/// Origins that end each connection after a few requests: of many at once, the last wait for that many connections.
const MAX_UNTRIED: u32 = 32;
const UNVERIFIED: &str = "the origin's certificate was not verified, as configured";
