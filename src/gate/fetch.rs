//! Gets a robots.txt over the network (RFC 9309 §2.3), through the same guard as any request. Called by `rulebook`.

use super::decode::decode;
use super::redirect::{DeadEnd, Trail};
use crate::config::Settings;
use crate::policy::{Authority, Validators};
use crate::robots::access::{AccessKind, from_status};
use crate::upstream::{ReachError, Route, Upstream, words};
use http::{HeaderMap, Uri, Version, header};
use pingora::http::RequestHeader;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::server::configuration::ServerConf;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// Fetches over connections of its own: each host is asked rarely.
pub(super) struct Fetcher {
    connector: Connector,
    upstream: Arc<Upstream>,
}

/// How a fetch ended.
#[derive(Debug)]
pub(super) enum Fetched {
    /// Any final answer; 3xx only if it is 304.
    Answer { status: u16, headers: HeaderMap, body: Vec<u8> },
    /// The redirects lead nowhere: unavailable (§2.3.1.2).
    DeadEnd { status: u16, why: DeadEnd },
    /// No answer: DNS, TCP, TLS, time, a body cut short.
    Unreachable(String),
    /// The host's pace left no time for it: nobody was asked.
    NoTurn { retry_after: Option<Duration> },
}

impl Fetcher {
    pub fn new(upstream: Arc<Upstream>, conf: &ServerConf) -> Self {
        Fetcher { connector: Connector::new(Some(ConnectorOptions::from_server_conf(conf))), upstream }
    }

    /// Where a fetch will go first, if that can be found out.
    pub async fn first_address(&self, authority: &Authority) -> Option<IpAddr> {
        self.upstream.reach(authority).await.ok()?.origin()
    }

    /// Within `robots.timeout` in all. `kept`: what came with our copy, to ask whether it still holds.
    pub async fn fetch(&self, authority: &Authority, kept: Option<&Validators>, settings: &Settings) -> Fetched {
        let limit = settings.robots.timeout;
        match timeout(limit, self.follow(authority, kept, settings)).await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(why)) => Fetched::Unreachable(why),
            Err(_) => Fetched::Unreachable(format!("no complete answer within {limit:?}")),
        }
    }

    async fn follow(
        &self,
        authority: &Authority,
        kept: Option<&Validators>,
        settings: &Settings,
    ) -> Result<Fetched, String> {
        let start = Url::parse(&authority.robots_url()).map_err(|error| error.to_string())?;
        let mut trail = Trail::new(start);
        loop {
            let url = trail.current().clone();
            let at = Authority::from_url(url.as_str()).map_err(|error| format!("redirected to {url}: {error}"))?;
            let (mut session, route) = self.connect(&at).await?;
            // The validators are of the file that redirects led to; at its origin alone they would mean nothing.
            let conditional = kept.filter(|_| !trail.is_redirected());
            let mut request = request(&at, &url, conditional, settings).map_err(|error| error.to_string())?;
            route.address(&mut request).map_err(|error| error.to_string())?;
            let exchanged = exchange(&mut session, request, settings.robots.max_size as usize).await;
            let (status, headers, body) = match exchanged {
                Ok(exchanged) => exchanged,
                Err(error) => {
                    session.shutdown().await;
                    return Err(error);
                }
            };
            if let Some(parent) = route.asks()
                && (status == 407 || says_a_proxy(&headers))
            {
                session.shutdown().await;
                // It is no word of the site's, so it neither allows nor forbids anything.
                return Err(match status {
                    407 => parent.wants_credentials().to_string(),
                    _ => format!("{parent} answers with status {status} of its own"),
                });
            }
            let redirect = from_status(status) == AccessKind::Redirect;
            let location = headers.get(header::LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
            if redirect {
                match trail.follow(location) {
                    Ok(()) => continue,
                    Err(dead_end) => return Ok(Fetched::DeadEnd { status, why: dead_end }),
                }
            }
            return Ok(Fetched::Answer { status, headers, body });
        }
    }

    async fn connect(&self, authority: &Authority) -> Result<(HttpSession, Route), String> {
        let route = self.upstream.reach(authority).await.map_err(|error: ReachError| error.to_string())?;
        let mut failure = None;
        for attempt in 0..route.len() {
            match self.connector.get_http_session(&route.peer(attempt)).await {
                Ok((session, _)) => return Ok((session, route)),
                // The first address is the preferred one: its failure says most.
                Err(error) => failure = failure.or(Some(words(&error))),
            }
        }
        Err(failure.unwrap_or_else(|| String::from("it has no address")))
    }
}

/// Whether an answer was made on the way (RFC 9209 §2.1.1).
fn says_a_proxy(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all("proxy-status").iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.any(|line| line.replace(' ', "").contains(";error="))
}

fn request(
    authority: &Authority,
    url: &Url,
    kept: Option<&Validators>,
    settings: &Settings,
) -> pingora::Result<Box<RequestHeader>> {
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let mut request = RequestHeader::build("GET", target.as_bytes(), Some(8))?;
    request.insert_header(header::HOST, authority.host_header())?;
    request.insert_header(header::USER_AGENT, user_agent(settings))?;
    request.insert_header(header::ACCEPT, "text/plain, */*;q=0.5")?;
    request.insert_header(header::ACCEPT_ENCODING, "gzip, br, zstd")?;
    if let Some(etag) = kept.and_then(|kept| kept.etag()) {
        request.insert_header(header::IF_NONE_MATCH, etag)?;
    }
    if let Some(modified) = kept.and_then(|kept| kept.last_modified()) {
        request.insert_header(header::IF_MODIFIED_SINCE, modified)?;
    }
    Ok(Box::new(request))
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
fn for_http2(request: &mut RequestHeader) -> Result<(), String> {
    let host = request.remove_header(&header::HOST).ok_or("a request without Host")?;
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("https").authority(host.as_bytes()).path_and_query(path).build();
    request.set_uri(uri.map_err(|error| error.to_string())?);
    request.set_version(Version::HTTP_2);
    Ok(())
}

async fn exchange(
    session: &mut HttpSession,
    mut request: Box<RequestHeader>,
    limit: usize,
) -> Result<(u16, HeaderMap, Vec<u8>), String> {
    let words = |error: Box<pingora::Error>| words(&error);
    if let HttpSession::H2(_) = session {
        for_http2(&mut request)?;
        request.set_send_end_stream(true);
    }
    session.write_request_header(request).await.map_err(words)?;
    session.finish_request_body().await.map_err(words)?;
    loop {
        session.read_response_header().await.map_err(words)?;
        let status = session.response_header().map_or(0, |head| head.status.as_u16());
        // RFC 9110 §15.2: interim answers announce the final one.
        if !(100..200).contains(&status) || status == 101 {
            break;
        }
    }
    let (status, headers) = match session.response_header() {
        Some(head) => (head.status.as_u16(), head.headers.clone()),
        None => return Err("no answer".into()),
    };
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
    let body = if wanted {
        decode(body, &codings.collect::<Vec<_>>().join(","), limit, cut).map_err(|error| error.to_string())?
    } else {
        Vec::new()
    };
    Ok((status, headers, body))
}
