//! One request's way through pingora: decided by the gate, forwarded to a vetted address, its fields kept to their
//! hop. Called by pingora's `HttpProxy`, to which `connection` hands requests.

use super::downstream::{Client, Downstream};
use super::failure::{self, Failure};
use super::respond::{self, Answer, Asked};
use super::{Shared, fields, head, leaving};
use crate::config::InterceptMode;
use crate::gate::{Admitted, Ask, Outcome, Permit, Reported};
use crate::policy::{Authority, Refusal};
use crate::upstream::ReachError;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::HttpPeer;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::ServerSession;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The hooks that pingora calls.
pub(super) struct Forward(pub Arc<Shared>);

/// What is known of the request under way.
pub(super) struct Passage {
    began: Instant,
    authority: Option<Authority>,
    client: Option<IpAddr>,
    permit: Option<Permit>,
    /// In report mode, what would have been.
    reported: Option<Reported>,
    refused: Option<&'static str>,
    addresses: Arc<[SocketAddr]>,
    attempts: usize,
    /// Interim answers (1xx) so far.
    interim: u32,
    /// How the first attempt to connect failed.
    failure: Option<Failure>,
}

#[async_trait]
impl ProxyHttp for Forward {
    type CTX = Passage;

    fn new_ctx(&self) -> Passage {
        Passage {
            began: Instant::now(),
            authority: None,
            client: None,
            permit: None,
            reported: None,
            refused: None,
            addresses: Arc::new([]),
            attempts: 0,
            interim: 0,
            failure: None,
        }
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

    async fn upstream_peer(&self, session: &mut Session, passage: &mut Passage) -> Result<Box<HttpPeer>> {
        let authority = passage.authority.clone().expect("request_filter has set it");
        if passage.addresses.is_empty() {
            passage.addresses = match self.0.upstream.reach(&authority).await {
                Ok(addresses) => addresses,
                Err(ReachError::Resolve(error)) => {
                    return Err(Error::because(ErrorType::Custom(failure::DNS), "resolving", error).into_up());
                }
                // It had no address a moment ago, and now one that is denied.
                Err(error @ ReachError::Denied(_)) => {
                    return Err(Error::because(ErrorType::Custom(failure::PROHIBITED), "screening", error).into_up());
                }
            };
        }
        if passage.attempts > 0
            && let Some(permit) = &mut passage.permit
        {
            // A retry is one more request to the host.
            permit.again().await.map_err(|refusal| Error::explain(ErrorType::Custom(TURN), refusal.to_string()))?;
        }
        let address = passage.addresses[passage.attempts % passage.addresses.len()];
        passage.attempts += 1;
        Ok(Box::new(self.0.upstream.peer(&authority, address, session.is_upgrade_req())))
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        passage: &mut Passage,
        mut error: Box<Error>,
    ) -> Box<Error> {
        error.set_retry(passage.attempts < passage.addresses.len());
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
        fields::strip_request(request);
        if request.version != Version::HTTP_2 {
            request.insert_header(header::HOST, authority.host_header())?;
            fields::join_cookies(request)?;
        }
        if let Some(left) = fields::max_forwards(request) {
            request.insert_header(header::MAX_FORWARDS, left.saturating_sub(1).to_string())?;
        }
        if let Some(agent) = &self.0.settings.load().identity.user_agent {
            request.insert_header(header::USER_AGENT, agent.as_str())?;
        }
        request.append_header(header::VIA, self.0.via.line(session.req_header().version))?;
        if let Some(permit) = &mut passage.permit {
            permit.leaves();
        }
        Ok(())
    }

    /// Called once the head has been written, whether a body follows or not.
    async fn request_body_filter(
        &self,
        _: &mut Session,
        _: &mut Option<Bytes>,
        _: bool,
        passage: &mut Passage,
    ) -> Result<()> {
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
        if response.status == http::StatusCode::SWITCHING_PROTOCOLS && !session.is_upgrade_req() {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "101 to no upgrade request").into_up());
        }
        if response.status == http::StatusCode::SWITCHING_PROTOCOLS {
            // What follows are no requests, and may go on for hours.
            passage.permit.take().into_iter().for_each(|mut permit| permit.outcome = Outcome::Success);
        }
        if response.status.is_informational() {
            passage.interim += 1;
            if passage.interim > MAX_INTERIM {
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, "interim answers without end").into_up());
            }
            return Ok(());
        }
        fields::check_framing(response)?;
        if let (Some(io), Some(date)) = (downstream(session), response.headers.get(header::DATE)) {
            io.keep_date(date.clone());
        }
        if let Some(permit) = &mut passage.permit {
            permit.outcome = Outcome::Success;
        }
        if matches!(response.status.as_u16(), 429 | 503)
            && let Some(mut permit) = passage.permit.take()
        {
            // The host is left alone from now on, not from when the answer has been read.
            permit.outcome = Outcome::Backoff { retry_after: fields::asked_to_wait(response) };
        }
        fields::strip_response(response);
        response.append_header(header::VIA, self.0.via.line(response.version))?;
        if let Some(reported) = &passage.reported {
            response.append_header("Proxy-Status", respond::proxy_status(None, Some(&reported.to_string())))?;
        }
        Ok(())
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
        tracing::info!(
            target: "access",
            client = passage.client.map(tracing::field::display),
            method = %session.req_header().method,
            url = url(session, passage.authority.as_ref()),
            status,
            ms = passage.began.elapsed().as_millis() as u64,
            refusal = passage.refused,
            reported = passage.reported.as_ref().map(tracing::field::display),
            error = error.map(tracing::field::display),
        );
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
        if self.0.via.is_in(&request.headers) {
            return Err(Some(Refusal::Loop));
        }
        if fields::max_forwards(request) == Some(0) {
            return fields::last_forward(request).map(Some).map_err(|_| None);
        }
        if client.tunnel.is_some()
            && self.0.settings.load().hosts.get(authority.host()).intercept == InterceptMode::Deny
        {
            let host = authority.host().to_string().into();
            return Err(Some(Refusal::OperatorDenied { host, pattern: "intercept: deny".into() }));
        }
        match self.0.upstream.reach(authority).await {
            Ok(addresses) => passage.addresses = addresses,
            Err(ReachError::Denied(denied)) => return Err(Some(denied.into())),
            // A host without an address has no readable robots.txt either: the gate says so.
            Err(ReachError::Resolve(_)) => {}
        }
        let request = session.req_header();
        let target = String::from_utf8_lossy(request.raw_path()).into_owned();
        let agent = request.headers.get(header::USER_AGENT).cloned();
        let ask = Ask {
            authority,
            target: &target,
            user_agent: agent.as_ref().map(|agent| agent.as_bytes()),
            client: client.address.ip(),
            address: passage.addresses.first().map(|address| address.ip()),
            is_subresource: fields::is_subresource(&request.headers),
            product_tokens: client.user.as_ref().map_or(&[], |user| &user.product_tokens),
            prefer_wait: fields::prefer_wait(&request.headers),
            reads_robots: fields::reads_robots(request),
        };
        let admitted = tokio::select! {
            biased;
            admitted = self.0.gate.admit(&ask) => admitted.map_err(Some)?,
            () = leaving::left(session) => return Err(None),
            () = self.0.stopped() => return Err(Some(Refusal::Draining { retry_after: DRAINING })),
        };
        match admitted {
            Admitted::Go { permit, reported } => {
                if let Some(reported) = &reported {
                    let url = url(session, Some(authority));
                    self.0.tell_reported(Some(client.address.ip()), &url, reported);
                }
                (passage.permit, passage.reported) = (Some(permit), reported);
                Ok(None)
            }
            Admitted::Robots(copy) => {
                let head = session.req_header();
                Ok(Some(fields::robots_copy(head, &copy).map_err(|error| {
                    tracing::error!(%error, "cannot serve our copy of robots.txt");
                    None
                })?))
            }
        }
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

/// The stream under a request in HTTP/1.
fn downstream(session: &Session) -> Option<&Downstream> {
    match session.downstream_session.as_ref() {
        ServerSession::H1(h1) => h1.stream().as_any().downcast_ref(),
        _ => None,
    }
}

/// What the request is for and who sent it, as `connection` and `connect` found out.
fn arrival(session: &Session) -> std::result::Result<(Authority, Client), Refusal> {
    // All of them would go out, and an origin may go by another one than we do.
    if session.req_header().headers.get_all(header::USER_AGENT).iter().nth(1).is_some() {
        return Err(Refusal::BadRequest { detail: "more than one User-Agent field".into() });
    }
    let (authority, client) = match downstream(session) {
        Some(io) => (io.authority.clone().expect("set when the request was lent"), io.client.clone()),
        None => {
            let digest = session.digest().and_then(|digest| digest.proxy_digest.as_ref());
            let client = digest.and_then(|digest| digest.user_data.as_ref()?.downcast_ref::<Client>());
            let client = client.expect("every h2 connection is tagged").clone();
            let tunnel = client.tunnel.as_ref().expect("h2 is spoken inside tunnels only");
            (h2_authority(session.req_header(), &tunnel.authority)?, client)
        }
    };
    match client.tunnel.as_ref().and_then(|tunnel| tunnel.other_name.as_ref()) {
        Some(name) => Err(Refusal::AuthorityMismatch {
            connection: authority.to_string().into(),
            request: format!("{name} (the name in the TLS handshake)").into(),
        }),
        None => Ok((authority, client)),
    }
}

/// RFC 9113 §8.3.1: `:authority` names the target; it has to be the connection's.
fn h2_authority(request: &RequestHeader, tunnel: &Authority) -> std::result::Result<Authority, Refusal> {
    let bad = |detail: String| Refusal::BadRequest { detail: detail.into() };
    head::asterisk(request.method.as_str(), &String::from_utf8_lossy(request.raw_path()))?;
    if request.method == http::Method::CONNECT {
        return Err(bad("CONNECT inside a CONNECT tunnel".into()));
    }
    let host = request.headers.get(header::HOST).map(|host| host.as_bytes());
    let named = request.uri.authority().map(|authority| authority.as_str().as_bytes()).or(host);
    let named = named.ok_or_else(|| bad("no :authority".into()))?;
    let named = Authority::parse(tunnel.scheme(), named).map_err(|error| bad(error.to_string()))?;
    let scheme = request.uri.scheme_str().unwrap_or(tunnel.scheme().as_str());
    if named != *tunnel || !scheme.eq_ignore_ascii_case(tunnel.scheme().as_str()) {
        let named = format!("{scheme}://{}", named.host_header());
        let (connection, request) = (tunnel.to_string().into(), named.into());
        return Err(Refusal::AuthorityMismatch { connection, request });
    }
    Ok(named)
}

fn url(session: &Session, authority: Option<&Authority>) -> String {
    let path = String::from_utf8_lossy(session.req_header().raw_path());
    authority.map(|authority| format!("{authority}{path}")).unwrap_or_else(|| path.into_owned())
}

/// For the rest of a body that nobody wants.
const DRAIN_BODY: Duration = Duration::from_secs(10);
/// By then another instance may serve.
const DRAINING: Duration = Duration::from_secs(5);
/// Two are common (100 and 103); each starts the wait for the final one anew.
const MAX_INTERIM: u32 = 32;
const TURN: &str = "no turn for a retry";
