//! A request on its way to its origin, tried again where that is safe.

use super::carry::{
    self, Broken, Carried, Client, Event, Http1, Http1Origin, Http2, Http2Origin, Limits, Next, Origin, Sending,
};
use super::pages::Pages;
use super::per_user::hosts;
use super::request::Head;
use super::tried::Tried;
use super::{Exchange, Outcome, tunnel};
use crate::gate::Permit;
use crate::http1::Framing;
use crate::proxy::io::{Buffer, Timer};
use crate::proxy::limits::body_rate::Least;
use crate::proxy::respond::Failure;
use crate::upstream::{
    Http1Link, Http2Link, HttpLink, MAX_INTERIM, OriginConnection, Outgoing, OutgoingFields, ReachError, Route,
    Versions, Want,
};
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

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
            // One more request to the host. A client that has stalled has no turn for it.
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
            // A request that waits for the host has waited for its gap anyway.
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
}

/// The part of `read_timeout` after which a client that takes nothing of its answer has the host's turn no longer.
const STALL: u32 = 6;
/// A connection that was kept may be dead; one that takes no more streams may be followed by another such.
const MAX_TRIES: u32 = 4;
/// Origins that end each connection after a few requests: of many at once, the last wait for that many connections.
const MAX_UNTRIED: u32 = 32;
