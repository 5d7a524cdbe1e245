//! A request on its way to its origin, tried again where that is safe.

use super::attempt::Tried;
use super::carry::Client;
use super::head::Head;
use super::request::Request;
use super::state::MAX_TRIES;
use super::{Exchange, Outcome};
use crate::gate::Permit;
use crate::policy::Scheme;
use crate::proxy::io::Timer;
use crate::proxy::respond::Failure;
use crate::upstream::{Http1Link, HttpLink, OriginConnection, Route, Versions, Want};
use std::net::SocketAddr;
use std::pin::pin;

impl Exchange<'_> {
    pub(super) async fn forward<C: Client>(&mut self, client: &mut C, timer: &mut Timer, route: &Route) -> Outcome {
        let place = pin!(self.proxy.streams.place(&self.peer.first_stream));
        let _place = match client.wait(timer, place).await {
            Some(Ok(place)) => place,
            Some(Err(refusal)) => return Outcome::Refused(refusal),
            None => return Outcome::Gone,
        };
        if self.request.is_upgrade {
            // What most requests are not takes no room in them, here and below.
            return Box::pin(self.upgrade(client, timer, route)).await;
        }
        let versions = match self.request.authenticates_connection {
            // HTTP/2 knows no such connections.
            true => Versions::Http1Only,
            false => Versions::of(self.request.version, self.peer.tunnel.is_some()),
        };
        let (once, uploads) = (!self.request.is_idempotent(), self.request.has_body());
        // Some servers end the connection for a head that is too large for them.
        let may_be_http2 = versions == Versions::Http2Known || self.request.authority.scheme() == Scheme::Https;
        let alone = may_be_http2 && has_large_head(self.request);
        let mut want = Want { versions, once, uploads, alone, ..Want::default() };
        let (mut tries, mut untried) = (0, 0);
        loop {
            let connected = {
                let connecting = pin!(route.connect_for(want, Some(&self.peer.private)));
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
            let upstream = (address, reused);
            let tried = match link {
                link if !self.turn_holds(route, address) => {
                    // It may have been closed by the time of the next.
                    link.put_back();
                    Tried::Again(Want { fresh: false, ..want }, Failure::turns_over())
                }
                HttpLink::Http1(link) => {
                    self.is_private |= link.is_private();
                    self.over_http1(client, timer, route, link, Http1Link::keep_private, upstream, want).await
                }
                HttpLink::Http2(link) => self.over_http2(client, timer, route, link, upstream, want).await,
            };
            let is_untried = matches!(tried, Tried::Untried(..));
            let failure;
            (want, failure) = match tried {
                Tried::Over(outcome) => return outcome,
                Tried::Again(again, failure) | Tried::Untried(again, failure) => (again, failure),
            };
            // Each head that the origin sees counts as a try where it has said how often it wants to see one; so does a turn that was lost,
            // and a connection that it ends before it has served anything.
            match is_untried && reused && self.permit.as_ref().is_some_and(|permit| permit.gap().is_zero()) {
                true => untried += 1,
                false => tries += 1,
            }
            // One more request to the host. A client that has stalled has no turn for it.
            if !self.permit.as_ref().is_some_and(Permit::has_turn) || tries >= MAX_TRIES || untried >= MAX_UNTRIED {
                return Outcome::Failed(failure);
            }
            if let Err(outcome) = self.take_turn(client, timer, route, want.first).await {
                return outcome;
            }
        }
    }

    /// Whether the turn is still there, and is one at this address.
    fn turn_holds(&self, route: &Route, address: SocketAddr) -> bool {
        let address = route.paced_at(Some(address));
        self.permit.as_ref().is_none_or(|permit| permit.holds_at(&self.request.authority, address))
    }

    /// Another, unless the first is still there. `first`: the address to try before the others.
    async fn take_turn<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        first: Option<SocketAddr>,
    ) -> Result<(), Outcome> {
        let Some(permit) = &mut self.permit else { return Ok(()) };
        let turn = self.proxy.gate.turn_again(permit, &self.request.authority, route.paced_at(first));
        match client.wait(timer, Box::pin(turn).as_mut()).await {
            Some(turn) => turn.map_err(Outcome::Refused)?,
            None => return Err(Outcome::Gone),
        }
        self.asked_meanwhile().map_err(Outcome::Refused)?.map_or(Ok(()), |answer| Err(Outcome::Answered(answer)))
    }

    /// On a connection of its own, which may become another protocol's.
    async fn upgrade<C: Client>(&mut self, client: &mut C, timer: &mut Timer, route: &Route) -> Outcome {
        let mut first = None;
        for _ in 0..MAX_TRIES {
            if let Err(outcome) = self.take_turn(client, timer, route, first).await {
                return outcome;
            }
            let (stream, address) = match client.wait(timer, pin!(route.open(first))).await {
                Some(Ok(opened)) => opened,
                Some(Err(error)) => return Outcome::Failed(Failure::from_dial(&error)),
                None => return Outcome::Gone,
            };
            first = Some(address);
            if self.turn_holds(route, address) {
                let upstream = (address, false);
                return match self.over_http1(client, timer, route, stream, |_, _| (), upstream, Want::default()).await {
                    Tried::Over(outcome) => outcome,
                    Tried::Again(_, failure) | Tried::Untried(_, failure) => Outcome::Failed(failure),
                };
            }
        }
        Outcome::Failed(Failure::turns_over())
    }
}

/// Origins that end each connection after a few requests: of many at once, the last wait for that many connections.
const MAX_UNTRIED: u32 = 32;

/// Whether its head is larger than some server takes as it is set up by default: nginx takes 4 or 8 KiB of a field.
fn has_large_head(request: &Request<'_>) -> bool {
    let mut all = request.target.len();
    let mut is_large = all > LARGE_FIELD;
    let mut note = |length: usize| {
        all += length;
        is_large |= length > LARGE_FIELD;
    };
    match request.head {
        Head::Http1(head) => head.fields.iter().for_each(|field| note(field.name.len() + field.value.len())),
        Head::Http2(fields) => fields.iter().for_each(|(name, value)| note(name.as_str().len() + value.len())),
    }
    is_large || all > LARGE_HEAD
}

/// Bytes, of a field or of the target, and of all of them.
const LARGE_FIELD: usize = 3072;
const LARGE_HEAD: usize = 12 * 1024;
