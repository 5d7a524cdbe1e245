//! Asks for a robots.txt over the network (RFC 9309 §2.3), through the same guard as any request: one request, one answer.
//! The only place here that knows of connections; where redirects lead, and when it is a host's turn, is `refresh`'s.

use crate::config::Settings;
use crate::gate::decode::decode_apart;
use crate::gate::pacer::Permit;
use crate::policy::{Authority, HttpVersion, Refusal, Validators};
use crate::robots::access::{AccessKind, from_status};
use crate::upstream::{ReachError, Route, Upstream, words};
use http::{HeaderMap, Uri, Version, header};
use pingora::http::RequestHeader;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::server::configuration::ServerConf;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Asks over connections of its own: each host is asked rarely.
pub(in crate::gate) struct Fetcher {
    connector: Connector,
    upstream: Arc<Upstream>,
}

/// One request for a robots.txt.
pub(super) struct Request<'a> {
    pub authority: &'a Authority,
    pub url: &'a Url,
    /// Of our copy, to ask whether it still holds.
    pub validators: Option<&'a Validators>,
    /// Over a fresh HTTP/1.1 connection.
    pub http1_only: bool,
}

/// A final answer.
pub(super) struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// Decoded; empty unless the status says that these are rules.
    pub body: Vec<u8>,
    pub version: HttpVersion,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum FetchError {
    /// DNS, TCP, TLS, time, a body cut short: the site's failure.
    Unreachable(String),
    /// Nobody was asked, for reasons of our own: a turn not had, no descriptor left.
    NotAsked(Refusal),
}

impl From<String> for FetchError {
    fn from(why: String) -> Self {
        Self::Unreachable(why)
    }
}

impl Fetcher {
    pub fn new(upstream: Arc<Upstream>, conf: &ServerConf) -> Self {
        Fetcher { connector: Connector::new(Some(ConnectorOptions::from_server_conf(conf))), upstream }
    }

    /// Where a request will go first, if that can be found out.
    pub async fn first_address(&self, authority: &Authority) -> Option<IpAddr> {
        self.upstream.reach(authority).await.ok()?.origin()
    }

    /// The permit's gap is counted from when the head leaves.
    pub(super) async fn get(
        &self,
        request: &Request<'_>,
        settings: &Settings,
        permit: &mut Permit,
    ) -> Result<Reply, FetchError> {
        let (mut session, route) = self.connect(request).await?;
        let mut head = head(request, settings).map_err(|error| error.to_string())?;
        route.address(&mut head).map_err(|error| error.to_string())?;
        let reply = match exchange(&mut session, head, settings.robots.max_size as usize, permit).await {
            Ok(reply) => reply,
            Err(error) => {
                session.shutdown().await;
                return Err(error.into());
            }
        };
        if let Some(parent) = route.asks()
            && (reply.status == 407 || says_a_proxy(&reply.headers))
        {
            session.shutdown().await;
            // It is no word of the site's, so it neither allows nor forbids anything.
            return Err(FetchError::Unreachable(match reply.status {
                407 => parent.wants_credentials().to_string(),
                status => format!("{parent} answers with status {status} of its own"),
            }));
        }
        Ok(reply)
    }

    async fn connect(&self, request: &Request<'_>) -> Result<(HttpSession, Route), FetchError> {
        let route = self.upstream.reach(request.authority).await.map_err(|error: ReachError| error.to_string())?;
        let mut failure = None;
        for attempt in 0..route.len() {
            let mut peer = route.peer(attempt);
            if request.http1_only {
                peer.options.set_http_version(1, 1);
            }
            match self.connector.get_http_session(&peer).await {
                Ok((session, _)) => return Ok((session, route)),
                Err(error) if is_own_limit(&error) => return Err(own_limit(&error)),
                // The first address is the preferred one: its failure says most.
                Err(error) => failure = failure.or(Some(words(&error))),
            }
        }
        Err(FetchError::Unreachable(failure.unwrap_or_else(|| String::from("it has no address"))))
    }
}

/// Whether it is this machine that has nothing left for another connection, which is no fault of the site's.
fn is_own_limit(error: &pingora::Error) -> bool {
    const LIMITS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    let Some(cause) = &error.cause else { return false };
    if let Some(below) = cause.downcast_ref::<Box<pingora::Error>>() {
        return is_own_limit(below);
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(&**cause);
    while let Some(error) = cause {
        let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| LIMITS.contains(&code)) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn own_limit(error: &pingora::Error) -> FetchError {
    FetchError::NotAsked(Refusal::OwnLimit { retry_after: COME_BACK, why: words(error).into() })
}

/// Whether an answer was made on the way (RFC 9209 §2.1.1).
fn says_a_proxy(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all("proxy-status").iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.any(|line| line.replace(' ', "").contains(";error="))
}

fn head(request: &Request<'_>, settings: &Settings) -> pingora::Result<Box<RequestHeader>> {
    let (url, validators) = (request.url, request.validators);
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let mut head = RequestHeader::build("GET", target.as_bytes(), Some(8))?;
    head.insert_header(header::HOST, request.authority.host_header())?;
    head.insert_header(header::USER_AGENT, user_agent(settings))?;
    head.insert_header(header::ACCEPT, "text/plain, */*;q=0.5")?;
    head.insert_header(header::ACCEPT_ENCODING, "gzip, br, zstd")?;
    if let Some(etag) = validators.and_then(|kept| kept.etag()) {
        head.insert_header(header::IF_NONE_MATCH, etag)?;
    }
    if let Some(modified) = validators.and_then(|kept| kept.last_modified()) {
        head.insert_header(header::IF_MODIFIED_SINCE, modified)?;
    }
    Ok(Box::new(head))
}

/// Names the crawler, so that the site's owner knows for whom it is read and whom to ask.
fn user_agent(settings: &Settings) -> String {
    let identity = &settings.identity;
    if let Some(agent) = &identity.user_agent {
        return agent.clone();
    }
    let tokens = identity.product_tokens.iter().map(|token| format!("{} ", token.as_ref())).collect::<String>();
    let contact = match identity.contact.as_str() {
        "" => String::new(),
        contact => format!(" (+{contact})"),
    };
    format!("{tokens}politely/{}{contact}", env!("CARGO_PKG_VERSION"))
}

/// RFC 9113 §8.3.1: `:authority` takes the place of Host. With both of them nginx answers 400, which would read as "no
/// robots.txt".
fn for_http2(head: &mut RequestHeader) -> Result<(), String> {
    let host = head.remove_header(&header::HOST).ok_or("a request without Host")?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("https").authority(host.as_bytes()).path_and_query(path).build();
    head.set_uri(uri.map_err(|error| error.to_string())?);
    head.set_version(Version::HTTP_2);
    Ok(())
}

async fn exchange(
    session: &mut HttpSession,
    mut head: Box<RequestHeader>,
    limit: usize,
    permit: &mut Permit,
) -> Result<Reply, String> {
    let words = |error: Box<pingora::Error>| words(&error);
    let version = match session {
        HttpSession::H2(_) => {
            for_http2(&mut head)?;
            head.set_send_end_stream(true);
            HttpVersion::Http2
        }
        _ => HttpVersion::Http1,
    };
    permit.leaves();
    session.write_request_header(head).await.map_err(words)?;
    session.finish_request_body().await.map_err(words)?;
    permit.has_left();
    let (status, headers) = final_head(session).await?;
    let wanted = from_status(status) == AccessKind::Rules;
    let mut body = Vec::new();
    let mut cut = !wanted;
    while wanted && body.len() <= limit {
        match session.read_response_body().await.map_err(words)? {
            Some(part) => body.extend_from_slice(&part),
            None => break,
        }
    }
    cut |= body.len() > limit;
    if cut || !session.response_done() {
        session.shutdown().await;
    }
    let codings = headers.get_all(header::CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let codings = codings.collect::<Vec<_>>().join(",");
    let body = if wanted {
        decode_apart(body, codings, limit, cut).await.map_err(|error| error.to_string())?
    } else {
        Vec::new()
    };
    Ok(Reply { status, headers, body, version })
}

/// RFC 9110 §15.2: interim answers announce the final one. A site that sends nothing else would keep us busy until the
/// deadline.
async fn final_head(session: &mut HttpSession) -> Result<(u16, HeaderMap), String> {
    for _ in 0..=MAX_INTERIM {
        session.read_response_header().await.map_err(|error| words(&error))?;
        let head = session.response_header().ok_or("no answer")?;
        let status = head.status.as_u16();
        if !(100..200).contains(&status) || status == 101 {
            return Ok((status, head.headers.clone()));
        }
    }
    Err(format!("more than {MAX_INTERIM} interim answers"))
}

const MAX_INTERIM: usize = 32;
/// Descriptors come and go.
const COME_BACK: Duration = Duration::from_secs(1);
