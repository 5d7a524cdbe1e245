//! One attempt to have a request answered over one connection, and the choice between a retry and a failure if it
//! breaks off.

use super::carry::{Client, Fault, Http1, Http1Origin, Http2, Http2Origin, Origin, Sending};
use super::carry_end::Broken;
use super::head::Head;
use super::{Exchange, Outcome, tunnel};
use crate::gate::{PaceOutcome, Permit};
use crate::proxy::io::{Buffer, Timer};
use crate::proxy::respond::Failure;
use crate::upstream::{Http2Link, Outgoing, OutgoingFields, PrivateConnections, Route, Versions, Want, is_broken_off};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// How one try ended.
pub(super) enum Tried {
    Over(Outcome),
    /// Another connection may do better.
    Again(Want, Failure),
    /// The same, and the origin has done nothing about the request.
    Untried(Want, Failure),
}

impl Exchange<'_> {
    #[expect(clippy::too_many_arguments, reason = "one call for each kind of connection")]
    pub(super) async fn over_http1<C: Client, L: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        mut link: L,
        keep: impl FnOnce(L, Option<&Arc<PrivateConnections>>),
        upstream: (SocketAddr, bool),
        want: Want,
    ) -> Tried {
        let (_, reused) = upstream;
        let mut input = Buffer::new();
        let mut origin = Http1Origin::new(Http1::new(&mut link, &mut input));
        if !client.begin_body(reused) {
            return Tried::Over(Outcome::Failed(Failure::ended("the request cannot be sent again")));
        }
        self.outgoing(route, |outgoing| origin.side.out.put_with(|out| outgoing.write_http1(route, out)));
        origin.side.send(Sending::from(self.request.framing));
        self.trip.upstream = Some(upstream);
        self.leaves(reused);
        let carried = self.carry(client, &mut origin, timer, route).await;
        match carried {
            Ok(carried) if carried.is_switched => {
                // The upgraded protocol is not paced and may last for hours: the slot is released.
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
                    keep(link, self.is_private.then_some(&self.peer.private));
                }
                Tried::Over(Outcome::Forwarded)
            }
            Err(broken) => self.after(broken, reused, false, origin.is_untouched(), want, route),
        }
    }

    pub(super) async fn over_http2<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        link: Http2Link,
        upstream: (SocketAddr, bool),
        want: Want,
    ) -> Tried {
        if !client.begin_body(true) {
            return Tried::Over(Outcome::Failed(Failure::ended("the request cannot be sent again")));
        }
        let Ok(request) = self.outgoing(route, |outgoing| outgoing.to_http2(route)) else {
            return Tried::Again(
                Want { versions: Versions::Http1Only, ..want },
                Failure::malformed("HTTP/2 cannot carry the request"),
            );
        };
        let ends = !self.request.has_body();
        // The connection's task may write the request at once.
        self.leaves(upstream.1);
        let (response, sending, head) = match link.send_request(request, ends) {
            Ok(sent) => sent,
            Err(error) => {
                if let Some(permit) = &mut self.permit {
                    permit.has_not_left();
                }
                // The connection takes no more streams.
                let is_untried = error.is_go_away() || error.is_io();
                let failure = Failure::ended(error);
                return if is_untried { Tried::Untried(want, failure) } else { Tried::Again(want, failure) };
            }
        };
        self.trip.upstream = Some(upstream);
        let mut side = Http2::default();
        side.sending = (!ends).then_some(sending);
        let is_paced = self.permit.as_ref().is_some_and(Permit::is_paced);
        let mut origin = Http2Origin::new(side, response, is_paced.then_some(head));
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

    /// `reused`: the connection was opened earlier.
    fn leaves(&mut self, reused: bool) {
        if let Some(permit) = &mut self.permit {
            permit.leaves(!reused);
        }
    }

    /// Builds the outgoing head.
    #[inline]
    fn outgoing<R>(&mut self, route: &Route, write: impl FnOnce(&Outgoing<'_>) -> R) -> R {
        let request = self.request;
        let (fields, upgrade) = match request.head {
            Head::Http1(head) => (OutgoingFields::Http1(head), head.upgrade.filter(|_| request.is_upgrade)),
            Head::Http2(fields) => (OutgoingFields::Http2(fields), request.is_upgrade.then_some(&b"websocket"[..])),
        };
        let outgoing = Outgoing {
            method: request.method,
            target: &request.target,
            fields,
            framing: request.framing,
            expects_continue: request.expects_continue,
            received: request.version,
            user_agent: self.settings.identity.user_agent.as_deref(),
            upgrade,
            asked: self.signature.asked.as_ref(),
            conditions: self.cached.as_ref().map_or(&[], |cached| &cached.conditions),
        };
        if let Some(signer) = route.signature() {
            self.signature.is_ours = outgoing.is_signed_by(signer);
            self.signature.is_clients = outgoing.is_signed();
        }
        write(&outgoing)
    }

    /// Decides what follows a failed attempt. `shared`: the connection carried other requests. `over`: it is closed.
    #[cold]
    fn after(&mut self, broken: Broken, shared: bool, over: bool, untouched: bool, want: Want, route: &Route) -> Tried {
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
                Outcome::Failed(failure) if self.signature.asked.is_some() && !self.signature.is_repeated => {
                    self.signature.is_repeated = true;
                    return Tried::Again(want, failure);
                }
                outcome => outcome,
            },
            Broken::Origin(fault) => {
                if let Some(permit) = self.permit.as_mut().filter(|_| fault.asks_for_calm()) {
                    permit.outcome = PaceOutcome::Backoff { retry_after: None };
                }
                let goes_away = fault.goes_away();
                let again = match &fault {
                    _ if !untouched => None,
                    // Over HTTP/1.1 the server may answer what is wrong with the head.
                    Fault::Http2(error) if want.alone && !error.is_reset() && self.request.is_idempotent() => {
                        Some(Want { versions: Versions::Http1Only, alone: false, ..want })
                    }
                    fault if fault.wants_http1() => Some(Want { versions: Versions::Http1Only, ..want }),
                    fault if fault.is_unprocessed() => Some(want),
                    // The invalid data may belong to another request's answer.
                    fault if fault.is_broken_off() && self.request.is_idempotent() && (shared || !want.fresh) => {
                        Some(Want { fresh: true, versions: route.http1_first(want.versions), ..want })
                    }
                    // The pooled connection was closed, another request broke it, or the server speaks only HTTP/2.
                    fault
                        if self.request.is_idempotent()
                            && (shared && (over || fault.is_end())
                                || fault.is_end() && route.may_be_only_http2(want.versions)) =>
                    {
                        Some(Want { fresh: true, ..want })
                    }
                    _ => None,
                };
                let failure = match fault {
                    Fault::Malformed(why) => Failure::malformed(why),
                    Fault::TooLarge(limit) => Failure::too_large(limit),
                    Fault::Ended => Failure::ended("it closed the connection before its answer was complete"),
                    Fault::Http2(error) if is_broken_off(&error) => {
                        Failure::malformed(format!("HTTP/2 ended the connection for what came on it: {error}"))
                    }
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
