//! One attempt to have a request answered over one connection. If the attempt breaks off, decides between a retry and a
//! failure.

use super::carry::{BodySource, Client, Http1, Http1Origin, Http2, Http2Origin, Origin, Sending, SideError};
use super::carry_error::CarryError;
use super::{Exchange, Outcome, tunnel};
use crate::gate::{PaceOutcome, Permit};
use crate::http1::HeadError;
use crate::proxy::io::{Buffer, Timer};
use crate::proxy::respond::Failure;
use crate::upstream::{Http2Link, Outgoing, Route, Stream, Versions, Want};
use crate::upstream::{asks_for_calm, is_broken_off, is_unprocessed, wants_http1};
use std::net::SocketAddr;

/// How one attempt ended.
pub(super) enum AttemptResult {
    Done(Outcome),
    /// A retry over another connection may succeed. `is_unprocessed`: the connection accepts no more requests and has not processed this
    /// request.
    Retry {
        want: Want,
        failure: Failure,
        is_unprocessed: bool,
    },
}

impl Exchange<'_> {
    /// Attempts the request over HTTP/1. Also returns whether the connection can carry another request.
    pub(super) async fn over_http1<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        stream: &mut Stream,
        upstream: (SocketAddr, bool),
        want: Want,
    ) -> (AttemptResult, bool) {
        let (_, reused) = upstream;
        let mut input = Buffer::of_answer();
        let mut origin = Http1Origin::new(Http1::new(stream, &mut input), reused);
        if !self.begin_body(client) {
            return (
                AttemptResult::Done(Outcome::Failed(Failure::ended("the request's body cannot be sent again"))),
                false,
            );
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
                let (side, moved) = (client.side(), &mut self.trip.moved);
                Box::pin(tunnel::run(side, &mut origin.side, (idle, |_| ()), timer, moved, |_| Ok(()))).await;
                (AttemptResult::Done(Outcome::Forwarded), false)
            }
            Ok(carried) => (AttemptResult::Done(Outcome::Forwarded), carried.is_sent && origin.is_kept()),
            Err(broken) => (self.after_error(broken, reused, false, origin.is_unanswered(), want, route), false),
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
    ) -> AttemptResult {
        if !self.begin_body(client) {
            return AttemptResult::Done(Outcome::Failed(Failure::ended("the request's body cannot be sent again")));
        }
        let Ok(request) = self.outgoing(route, |outgoing| outgoing.to_http2(route)) else {
            return AttemptResult::Retry {
                want: Want { versions: Versions::Http1Only, ..want },
                failure: Failure::malformed("HTTP/2 cannot carry the request"),
                is_unprocessed: false,
            };
        };
        let ends = !self.request.has_body();
        // Recorded before the request is sent, because the connection's task may write the request at once.
        self.leaves(upstream.1);
        let (response, sending, head) = match link.send_request(request, ends) {
            Ok(sent) => sent,
            Err(error) => {
                if let Some(permit) = &mut self.permit {
                    permit.has_not_left();
                }
                // After these errors, the connection takes no more streams, and has not processed this request.
                let is_unprocessed = error.is_go_away() || error.is_io();
                let failure = Failure::ended(error);
                return AttemptResult::Retry { want, failure, is_unprocessed };
            }
        };
        self.trip.upstream = Some(upstream);
        let mut side = Http2::default();
        side.sending = (!ends).then_some(sending);
        let is_paced = self.permit.as_deref().is_some_and(Permit::is_paced);
        let mut origin = Http2Origin::new(side, response, is_paced.then_some(head));
        match self.carry(client, &mut origin, timer, route).await {
            Ok(carried) => {
                if !carried.is_sent {
                    origin.side.reset(h2::Reason::CANCEL);
                }
                AttemptResult::Done(Outcome::Forwarded)
            }
            Err(broken) => {
                let unanswered = origin.is_unanswered();
                origin.side.reset(h2::Reason::CANCEL);
                self.after_error(broken, link.is_shared(), !link.is_alive(), unanswered, want, route)
            }
        }
    }

    /// Starts the request's body, from its beginning. Returns false if the beginning is no longer available.
    fn begin_body<C: Client>(&mut self, client: &mut C) -> bool {
        client.begin_body();
        // An earlier attempt may have sent only a part of a piece: `replay` has kept the whole piece.
        let side = client.side();
        side.consume(side.bytes().len());
        self.replay.begin()
    }

    /// Records that the request is about to be sent. `reused`: the connection was opened earlier.
    fn leaves(&mut self, reused: bool) {
        if let Some(permit) = &mut self.permit {
            permit.leaves(!reused);
        }
    }

    /// Builds the outgoing head.
    #[inline]
    fn outgoing<R>(&mut self, route: &Route, write: impl FnOnce(&Outgoing<'_>) -> R) -> R {
        let request = self.request;
        let outgoing = Outgoing {
            method: request.method,
            target: &request.target,
            fields: request.head,
            framing: request.framing,
            expects_continue: request.expects_continue,
            received: request.version,
            user_agent: self.settings.user_agent(self.peer.user.as_deref()),
            upgrade: request.is_upgrade.then_some(b"websocket"),
            asked: self.signature.asked.as_ref(),
            conditions: self.cached.as_ref().map_or(&[], |cached| &cached.conditions),
        };
        if let Some(signer) = route.signature() {
            self.signature.is_ours = outgoing.is_signed_by(signer);
            self.signature.is_clients = outgoing.is_signed();
        }
        write(&outgoing)
    }

    /// Decides what follows a failed attempt. `shared`: the connection carried other requests. `over`: the connection is closed.
    #[cold]
    fn after_error(
        &mut self,
        broken: CarryError,
        shared: bool,
        over: bool,
        unanswered: bool,
        want: Want,
        route: &Route,
    ) -> AttemptResult {
        let over = match broken {
            CarryError::Over(outcome) => *outcome,
            CarryError::Rejected(outcome) => match *outcome {
                Outcome::Failed(failure) if self.signature.asked.is_some() && !self.signature.is_repeated => {
                    self.signature.is_repeated = true;
                    return AttemptResult::Retry { want, failure, is_unprocessed: false };
                }
                outcome => outcome,
            },
            CarryError::Origin(fault) => {
                if let Some(permit) = self.permit.as_mut().filter(|_| fault.means(asks_for_calm)) {
                    permit.outcome = PaceOutcome::Backoff { retry_after: None };
                }
                // A GOAWAY from the origin: the connection takes no more requests.
                let goes_away = fault.means(|error| error.is_go_away() && error.is_remote());
                let again = match &fault {
                    _ if !unanswered => None,
                    // Retried over HTTP/1.1, where the server may say what is wrong with the head.
                    SideError::Http2(error) if want.alone && !error.is_reset() && self.request.is_idempotent() => {
                        Some(Want { versions: Versions::Http1Only, alone: false, ..want })
                    }
                    fault if fault.means(wants_http1) => Some(Want { versions: Versions::Http1Only, ..want }),
                    fault if fault.means(is_unprocessed) => Some(want),
                    // The invalid data may belong to another request's answer.
                    fault if fault.means(is_broken_off) && self.request.is_idempotent() && (shared || !want.fresh) => {
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
                    SideError::Malformed(why) => Failure::malformed(why),
                    SideError::Head(HeadError::TooLarge { limit }) => Failure::too_large(limit),
                    SideError::Head(error) => Failure::malformed(error),
                    SideError::Ended => {
                        Failure::ended("the origin closed the connection before its answer was complete")
                    }
                    SideError::Http2(error) if is_broken_off(&error) => {
                        Failure::malformed(format!("HTTP/2 ended the connection because of invalid data: {error}"))
                    }
                    // We reset a stream only because of invalid data from the origin.
                    SideError::Http2(error)
                        if !(error.is_io() || error.is_go_away() || error.is_reset() && error.is_remote()) =>
                    {
                        Failure::malformed(error)
                    }
                    fault @ (SideError::Io(_) | SideError::Http2(_)) => Failure::ended(fault),
                };
                if let Some(want) = again {
                    return AttemptResult::Retry { want, failure, is_unprocessed: goes_away };
                }
                Outcome::Failed(failure)
            }
        };
        AttemptResult::Done(over)
    }
}
