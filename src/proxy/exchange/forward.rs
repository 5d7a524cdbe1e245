//! Forwards a request to its origin, with retries where they are safe.

use super::attempt::AttemptResult;
use super::carry::Client;
use super::request::Request;
use super::state::MAX_TRIES;
use super::{Exchange, Outcome};
use crate::gate::Permit;
use crate::http1::{FieldKind, Framing};
use crate::policy;
use crate::proxy::io::Timer;
use crate::proxy::respond::Failure;
use crate::upstream::{DialFault, HttpLink, OriginConnection, Route, Versions, Want};
use std::net::SocketAddr;
use std::pin::pin;

impl Exchange<'_> {
    pub(super) async fn forward<C: Client>(&mut self, client: &mut C, timer: &mut Timer, route: &Route) -> Outcome {
        let place = pin!(self.proxy.streams.place(&self.peer.shared.first_stream, self.client));
        let _place = match client.wait(timer, place).await {
            Some(Ok(place)) => place,
            Some(Err(refusal)) => return Outcome::Refused(refusal),
            None => return Outcome::ClientGone,
        };
        let upgrade = self.request.is_upgrade;
        let versions = match self.request.authenticates_connection {
            // HTTP/2 has no connection authentication.
            true => {
                self.peer.private.let_in();
                Versions::Http1Only
            }
            false if upgrade => Versions::Http1Only,
            false => Versions::of(self.request.version, self.peer.tunnel.is_some()),
        };
        let (once, uploads) = (!self.request.is_idempotent(), self.request.has_body());
        // Some HTTP/2 servers end the whole connection because of one large head. A request with such a head uses HTTP/1.1 if that cannot
        // fail, or else a connection of its own. HTTP/1.1 may fail for a body of unknown length, as gRPC has: some servers refuse it.
        let may_be_http2 = versions == Versions::Http2Known || self.request.authority.is_https();
        let large = may_be_http2.then(|| HeadLengths::of(self.request)).filter(HeadLengths::is_large);
        let fits_http1 =
            large.as_ref().is_some_and(HeadLengths::fits_http1) && self.request.framing != Framing::Chunked;
        let (alone, versions) = (large.is_some(), if fits_http1 { route.http1_first(versions) } else { versions });
        let shared = self.cached.is_some();
        let mut want = Want { fresh: upgrade, versions, once, uploads, alone, shared, upgrade, first: None };
        let (mut tries, mut unprocessed, mut cause) = (0, 0, None);
        loop {
            let connected = {
                let connecting = pin!(route.connect(want, Some(&self.peer.private)));
                client.wait(timer, connecting).await
            };
            let connection = match connected {
                Some(Ok(connection)) => connection,
                // If the origin does not speak the version of a retry, the failure before it is the cause.
                Some(Err(error)) => {
                    let cause = cause.filter(|_| error.kind == DialFault::Alpn);
                    return Outcome::Failed(cause.unwrap_or_else(|| Failure::from_dial(&error)));
                }
                None => return Outcome::ClientGone,
            };
            let OriginConnection { reused, address, link } = connection;
            // A further attempt goes to the same address.
            want.first = Some(address);
            let upstream = (address, reused);
            let result = match link {
                link if !self.holds_slot(route, address) => {
                    // Returns the connection to the pool, because it may be closed before the next attempt gets its slot.
                    if let (HttpLink::Http1(link), false) = (link, upgrade) {
                        link.keep();
                    }
                    AttemptResult::Retry {
                        want: Want { fresh: upgrade, ..want },
                        failure: Failure::slots_expired(),
                        is_unprocessed: false,
                    }
                }
                HttpLink::Http1(mut link) => {
                    if link.is_private() {
                        self.keep_private();
                    }
                    let (result, may_be_kept) =
                        self.over_http1(client, timer, route, &mut link.stream, upstream, want).await;
                    if may_be_kept && !upgrade {
                        link.keep_private(self.is_private.then_some(&self.peer.private));
                    }
                    result
                }
                HttpLink::Http2(link) => self.over_http2(client, timer, route, link, upstream, want).await,
            };
            let (failure, is_unprocessed);
            (want, failure, is_unprocessed) = match result {
                AttemptResult::Done(outcome) => return outcome,
                AttemptResult::Retry { want, failure, is_unprocessed } => (want, failure, is_unprocessed),
            };
            // The higher limit is for pooled connections that ended without processing the request, at a host without a
            // pacing gap. All other retries count against the lower limit.
            match is_unprocessed && reused && self.permit.as_ref().is_some_and(|permit| permit.gap().is_zero()) {
                true => unprocessed += 1,
                false => tries += 1,
            }
            // A retry is another request to the host. A client that stalled has lost its slot and gets no retry.
            if !self.permit.as_deref().is_some_and(Permit::has_turn)
                || tries >= MAX_TRIES
                || unprocessed >= MAX_UNPROCESSED
            {
                return Outcome::Failed(failure);
            }
            cause = Some(failure);
            if let Err(outcome) = self.take_slot(client, timer, route, want.first).await {
                return outcome;
            }
        }
    }

    /// Whether the slot is still held and valid for this address.
    fn holds_slot(&self, route: &Route, address: SocketAddr) -> bool {
        let address = route.paced_at(Some(address));
        self.permit.as_ref().is_none_or(|permit| permit.holds_at(&self.request.authority, address))
    }

    /// Takes another slot, unless the current one is unused and still valid. `first`: the address to try first.
    async fn take_slot<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        route: &Route,
        first: Option<SocketAddr>,
    ) -> Result<(), Outcome> {
        let Some(permit) = self.permit.take() else { return Ok(()) };
        let (_waiting, _) = self.proxy.place_in_line(self.peer.user.as_deref());
        let request = policy::Request::new(&self.request.authority, &self.request.target);
        let request = self.limited(request, route.paced_at(first), true);
        let turn = self.proxy.gate.turn_again(permit, &request, &mut self.trip.gate);
        let turn = client.wait(timer, Box::pin(turn).as_mut()).await.ok_or(Outcome::ClientGone)?;
        let (permit, reported) = turn.map_err(Outcome::Refused)?;
        self.permit = Some(permit);
        reported.into_iter().for_each(|reported| self.report(reported));
        self.recheck_remembered().map_err(Outcome::Refused)?.map_or(Ok(()), |answer| Err(Outcome::Answered(answer)))
    }
}

/// Maximum number of retries after pooled connections ended: some origins close each connection after a few requests.
const MAX_UNPROCESSED: u32 = 32;

/// Lengths in a request's head, in bytes.
#[derive(Default)]
struct HeadLengths {
    all: usize,
    /// The longest field, or the target.
    longest: usize,
    /// All cookies, which are one field over HTTP/1.1.
    cookies: usize,
}

impl HeadLengths {
    fn of(request: &Request<'_>) -> Self {
        let target = request.target.len();
        let mut found = Self { all: target, longest: target, cookies: 0 };
        request.head.each(|field, _| {
            let length = field.name.len() + field.value.len();
            found.all += length;
            found.longest = found.longest.max(length);
            found.cookies += if field.kind == FieldKind::Cookie { length } else { 0 };
        });
        found
    }

    /// Whether the head exceeds what some servers accept by default: nginx accepts 4 or 8 KiB a field.
    fn is_large(&self) -> bool {
        self.longest > LARGE_FIELD || self.all > LARGE_HEAD
    }

    /// Whether a server that accepts the head over HTTP/2 also accepts it over HTTP/1.1: Node.js accepts 16 KiB in all, nginx 8 KiB a line.
    fn fits_http1(&self) -> bool {
        self.all <= LARGE_HEAD && self.cookies <= LONG_LINE
    }
}

/// Number of bytes above which a field or target is large. `LARGE_HEAD`: the same for the whole head.
const LARGE_FIELD: usize = 3072;
const LARGE_HEAD: usize = 12 * 1024;
/// Number of bytes of cookies above which their line may be too long for a server.
const LONG_LINE: usize = 7 * 1024;
