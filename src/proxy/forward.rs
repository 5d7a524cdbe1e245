//! One request's way through pingora: decided by the gate, forwarded to a vetted address, its fields kept to their
//! hop. Called by pingora's `HttpProxy`, to which `connection` hands requests.

use super::arrival::{arrival, downstream, url};
use super::decide::Decided;
use super::downstream::Client;
use super::failure::{self, Failure};
use super::meter::{Least, Meter};
use super::passage::Passage;
use super::record::Record;
use super::respond::{Answer, Asked};
use super::{Shared, fields, leaving};
use crate::policy::{Authority, Refusal};
use crate::upstream::{ReachError, Route};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::HttpPeer;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The hooks that pingora calls.
pub(super) struct Forward(pub Arc<Shared>);

#[async_trait]
impl ProxyHttp for Forward {
    type CTX = Passage;

    fn new_ctx(&self) -> Passage {
        Passage::begin()
    }

    /// pingora's own modules (compression) are not wanted.
    fn init_downstream_modules(&self, _: &mut pingora_core::modules::http::HttpModules) {}

    async fn request_filter(&self, session: &mut Session, passage: &mut Passage) -> Result<bool> {
        let settings = self.0.settings.load();
        session.set_write_timeout(Some(settings.limits.read_timeout));
        session.set_read_timeout(Some(settings.limits.read_timeout));
        if let ServerSession::H1(h1) = session.downstream_session.as_mut() {
            // A refusal before the body has come keeps the connection, if the rest comes soon.
            h1.set_close_on_response_before_downstream_finish(false);
            h1.set_total_drain_timeout(Some(DRAIN_BODY));
        }
        if *self.0.shutdown.borrow() {
            session.set_keepalive(None);
        }
        drop(settings);
        let decided = match arrival(session) {
            Ok((authority, client)) => {
                passage.client = Some(client.address.ip());
                passage.authority = Some(authority.clone());
                self.decide(session, passage, &authority, &client).await
            }
            Err(refusal) => Err(Some(refusal)),
        };
        match decided {
            Ok(None) => Ok(false),
            Ok(Some(answer)) => answer.send(session).await.map(|()| true),
            Err(Some(refusal)) => self.refuse(session, passage, &refusal).await.map(|()| true),
            Err(None) => {
                session.set_keepalive(None);
                Err(Error::explain(ErrorType::ConnectionClosed, "the client left while it waited").into_down())
            }
        }
    }

    async fn upstream_peer(&self, _: &mut Session, passage: &mut Passage) -> Result<Box<HttpPeer>> {
        let authority = passage.authority.clone().expect("request_filter has set it");
        let route = match passage.route.take() {
            Some(route) => route,
            None => match self.0.upstream.reach(&authority).await {
                Ok(route) => route,
                Err(ReachError::Resolve(error)) => {
                    return Err(Error::because(ErrorType::Custom(failure::DNS), "resolving", error).into_up());
                }
                // It had no address a moment ago, and now one that is denied.
                Err(error @ ReachError::Denied(_)) => {
                    return Err(Error::because(ErrorType::Custom(failure::PROHIBITED), "screening", error).into_up());
                }
            },
        };
        let route = passage.route.insert(route);
        if passage.attempts > 0
            && let Some(permit) = &mut passage.permit
        {
            // A retry is one more request to the host.
            permit.again().await.map_err(|refusal| Error::explain(ErrorType::Custom(TURN), refusal.to_string()))?;
        }
        let peer = route.peer(passage.attempts);
        passage.attempts += 1;
        Ok(Box::new(peer))
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        passage: &mut Passage,
        mut error: Box<Error>,
    ) -> Box<Error> {
        error.set_retry(passage.attempts < passage.route.as_ref().map_or(0, Route::len));
        // The first address is the preferred one: its failure says most.
        passage.failure = passage.failure.take().or_else(|| Failure::from_pingora(&error));
        error
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        passage: &mut Passage,
    ) -> Result<()> {
        let authority = passage.authority.as_ref().expect("request_filter has set it");
        // There is a connection: what comes now is no failure to connect.
        passage.failure = None;
        self.0.outgoing(request, authority, session.req_header().version)?;
        if let Some(route) = &passage.route {
            route.address(request)?;
        }
        if let Some(permit) = &mut passage.permit {
            permit.leaves();
        }
        Ok(())
    }

    /// Called once the head has been written, whether a body follows or not.
    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        passage: &mut Passage,
    ) -> Result<()> {
        let now = Instant::now();
        let meter = passage.sending.get_or_insert_with(|| Meter::begin(now));
        if !end && !meter.moved(now, body.as_ref().map_or(0, Bytes::len), self.least()) {
            return Err(Error::explain(ErrorType::ReadTimedout, "the body comes too slowly").into_down());
        }
        if let Some(permit) = &mut passage.permit {
            permit.has_left();
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        passage: &mut Passage,
    ) -> Result<()> {
        // Those who ask to switch are `upgrade`'s.
        if response.status == http::StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "101 to no upgrade request").into_up());
        }
        if response.status.is_informational() {
            passage.interim += 1;
            if passage.interim > MAX_INTERIM {
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, "interim answers without end").into_up());
            }
            return Ok(());
        }
        self.0.incoming(response, &mut passage.permit, passage.reported.as_ref(), passage.route.as_ref())?;
        if let (Some(io), Some(date)) = (downstream(session), response.headers.get(header::DATE)) {
            io.keep_date(date.clone());
        }
        Ok(())
    }

    fn upstream_response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        passage: &mut Passage,
    ) -> Result<Option<Duration>> {
        let now = Instant::now();
        let meter = passage.receiving.get_or_insert_with(|| Meter::begin(now));
        if !end && !meter.moved(now, body.as_ref().map_or(0, Bytes::len), self.least()) {
            return Err(Error::explain(ErrorType::ReadTimedout, "the body comes too slowly").into_up());
        }
        Ok(None)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        _: &mut Passage,
    ) -> Result<()> {
        // pingora would send a chunked body to a client that cannot read one: its end is the connection's.
        if session.req_header().version == Version::HTTP_10 {
            response.remove_header(&header::TRANSFER_ENCODING);
        }
        Ok(())
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, passage: &mut Passage) -> FailToProxy {
        let told = passage.failure.take().or_else(|| Failure::from_pingora(error));
        let code = told.as_ref().map_or(0, |failure| failure.status.as_u16());
        if let Some(failure) = told.filter(|_| session.response_written().is_none()) {
            passage.refused = Some(failure.error);
            self.0.counters.failed();
            session.set_keepalive(None);
            let url = url(session, passage.authority.as_ref());
            let accept = session.req_header().headers.get(header::ACCEPT).cloned();
            let asked = Asked { url: Some(&url), accept: accept.as_ref().map(|accept| accept.as_bytes()) };
            let sent = match Answer::failure(&failure, &asked) {
                Ok(answer) => answer.send(session).await,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "could not tell the client of a failure");
            }
        }
        FailToProxy { error_code: code, can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _: &Session, _: &Passage, _: &Error) -> bool {
        // The access log tells it, once.
        true
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, passage: &mut Passage) {
        // Gives the turn back.
        passage.permit = None;
        let status = session.response_written().map_or(0, |response| response.status.as_u16());
        match (passage.refused, error) {
            (Some(_), _) => {}
            (None, Some(_)) => self.0.counters.failed(),
            (None, None) => self.0.counters.forwarded(),
        }
        Record {
            client: passage.client,
            method: session.req_header().method.as_str(),
            url: &url(session, passage.authority.as_ref()),
            status,
            began: passage.began,
            refused: passage.refused,
            reported: passage.reported.as_ref(),
            error: error.map(ToString::to_string),
        }
        .write();
    }
}

impl Forward {
    /// `Ok(None)`: forward it. `Ok(Some)`: answered from here. `Err(None)`: the client left.
    async fn decide(
        &self,
        session: &mut Session,
        passage: &mut Passage,
        authority: &Authority,
        client: &Client,
    ) -> std::result::Result<Option<Answer>, Option<Refusal>> {
        let request = session.req_header();
        if fields::max_forwards(request) == Some(0) && !self.0.via.is_in(&request.headers) {
            return fields::last_forward(request).map(Some).map_err(|_| None);
        }
        let wanted = self.0.wanted(request);
        let decided = tokio::select! {
            biased;
            decided = self.0.decide(&wanted, authority, client) => decided.map_err(Some)?,
            () = leaving::left(session) => return Err(None),
        };
        match decided {
            Decided::Go(go) => {
                (passage.permit, passage.reported, passage.route) = (Some(go.permit), go.reported, go.route);
                Ok(None)
            }
            Decided::Robots(copy) => Ok(Some(fields::robots_copy(session.req_header(), &copy).map_err(|error| {
                tracing::error!(%error, "cannot serve our copy of robots.txt");
                None
            })?)),
        }
    }

    fn least(&self) -> Least {
        let limits = &self.0.settings.load().limits;
        Least { rate: limits.min_rate, over: limits.read_timeout }
    }

    async fn refuse(&self, session: &mut Session, passage: &mut Passage, refusal: &Refusal) -> Result<()> {
        passage.refused = Some(refusal.slug());
        let url = url(session, passage.authority.as_ref());
        self.0.tell_refused(passage.client, Some(&url), refusal);
        let accept = session.req_header().headers.get(header::ACCEPT).cloned();
        let asked = Asked { url: Some(&url), accept: accept.as_ref().map(|accept| accept.as_bytes()) };
        let answer = Answer::refusal(refusal, &asked, &self.0.settings.load())?;
        answer.send(session).await
    }
}

/// For the rest of a body that nobody wants.
const DRAIN_BODY: Duration = Duration::from_secs(10);
/// Two are common (100 and 103); each starts the wait for the final one anew.
const MAX_INTERIM: u32 = 32;
const TURN: &str = "no turn for a retry";
