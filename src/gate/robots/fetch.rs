//! Sends one request for a robots.txt, tdmrep.json or licence file (RFC 9309 §2.3), under the same egress rules as any request, and reads
//! its answer.
//! Only this file and `long_bodies` use connections; `refresh` follows redirects and waits for slots.

pub(super) use super::fetch_error::{COME_BACK, FetchError, TryError, own_limit};
use super::long_bodies::FetchRoom;
use super::places::FetchLine;
use crate::config::Settings;
use crate::gate::pacer::Permit;
use crate::http1::Framing;
use crate::policy::pace::{ClientId, PaceOutcome};
use crate::policy::{Authority, HttpVersion, Refusal, SiteFile, Validators};
use crate::robots::access::{AccessKind, from_status};
use crate::signing::{ACCEPT_SIGNATURE, ChallengedRequest, SignatureRequest};
use crate::upstream::{
    DEAD_NAME_KEPT, GetError, Got, Outgoing, OutgoingFields, ReachError, ResolveError, Route, Sent, Unanswered,
    Upstream, Want, asks_for_calm,
};
use bytes::Bytes;
use http::{HeaderMap, Version, header};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use url::Url;

/// One request for a robots.txt, tdmrep.json or licence file.
pub(super) struct FileRequest<'a> {
    pub authority: &'a Authority,
    pub url: &'a Url,
    pub file: SiteFile,
    /// The validators of our copy, for a conditional request.
    pub validators: Option<&'a Validators>,
    pub want: Want,
    /// The signature requested by the previous answer.
    pub asked: Option<SignatureRequest>,
    pub line: FetchLine,
}

/// A final answer.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    /// When the request was sent. The answer is valid as of that time, however late it is read.
    pub asked: SystemTime,
    pub status: u16,
    pub headers: HeaderMap,
    /// The decoded body; empty unless the status means that the body has rules. A long body counts against the limit on long bodies until
    /// it is dropped.
    pub body: Bytes,
    pub version: HttpVersion,
    /// The signature that the origin requests; sent if the request is repeated.
    pub wanted: Option<SignatureRequest>,
    /// The upstream proxy, if the request went to it and not through a tunnel: the answer may be the proxy's own.
    pub through: Option<Box<str>>,
}

impl Reply {
    /// The upstream proxy, if the answer may be its own: proxies deny access with 4xx, which says nothing about the site. 404 and 410 are
    /// taken for the site's answer.
    pub fn maybe_of(&self) -> Option<&str> {
        self.through.as_deref().filter(|_| matches!(self.status, 400..=499) && !matches!(self.status, 404 | 410))
    }
}

/// The route for a request. `client`: the client whose share of DNS look-ups is used.
pub(super) async fn reach(upstream: &Upstream, authority: &Authority, client: ClientId) -> Result<Route, FetchError> {
    upstream.reach_for(authority, Some(client), None, None).await.map_err(|error| match error {
        ReachError::Resolve(error @ (ResolveError::NoResolver { .. } | ResolveError::OwnLimit { .. })) => {
            own_limit(&error)
        }
        ReachError::Resolve(error @ ResolveError::TimedOut { is_alone: false, .. }) => {
            let why = error.to_string().into();
            FetchError::NotAsked(Refusal::OwnLimit { retry_after: DEAD_NAME_KEPT, why })
        }
        ReachError::Denied(denied) => FetchError::NotAsked(denied.into()),
        error @ (ReachError::Resolve(_) | ReachError::Reloaded) => FetchError::Unreachable(error.to_string()),
    })
}

/// Sends the request over the connections used for pages, so that the first page can follow on the same connection. The permit's gap starts
/// when the head is sent.
pub(super) async fn get(
    upstream: &Upstream,
    request: &FileRequest<'_>,
    room: &FetchRoom<'_>,
    settings: &Settings,
    permit: &mut Permit,
) -> Result<Reply, TryError> {
    let route = reach(upstream, request.authority, room.2.client).await?;
    let (target, agent) = (target(request.url), settings.own_user_agent(env!("CARGO_PKG_VERSION")));
    let validators = request.validators;
    let accept: &[u8] = match request.file {
        SiteFile::Robots => b"text/plain, */*;q=0.5",
        SiteFile::TdmRep => b"application/json, */*;q=0.5",
        SiteFile::License(_) => b"application/rsl+xml, application/xml;q=0.9, */*;q=0.5",
    };
    let fields = [
        Some((header::USER_AGENT, agent.as_bytes())),
        Some((header::ACCEPT, accept)),
        Some((header::ACCEPT_ENCODING, b"gzip, br, zstd")),
        validators.and_then(|kept| kept.etag()).map(|etag| (header::IF_NONE_MATCH, etag.as_bytes())),
        validators.and_then(|kept| kept.last_modified()).map(|date| (header::IF_MODIFIED_SINCE, date.as_bytes())),
    ];
    let fields: Vec<_> = fields.iter().flatten().map(|(name, value)| (name.as_str(), *value)).collect();
    let outgoing = Outgoing {
        method: "GET",
        target: target.as_bytes(),
        fields: OutgoingFields::Own(&fields),
        framing: Framing::None,
        expects_continue: false,
        received: Version::HTTP_11,
        user_agent: None,
        upgrade: None,
        asked: request.asked.as_ref(),
        conditions: &[],
    };
    let is_signed = route.signature().is_some_and(|signer| outgoing.is_signed_by(signer));
    let on_sent = |sent| {
        match sent {
            Sent::Begins(address) if permit.holds_at(request.authority, address) => permit.leaves(true),
            Sent::Begins(_) => return false,
            Sent::Withdrawn => permit.has_not_left(),
            Sent::Whole => permit.note_left(),
        }
        true
    };
    let asked = SystemTime::now();
    let answered = route.ask(request.want, &outgoing, on_sent).await;
    if let Err(Unanswered { error: GetError::Http2(error), .. }) = &answered
        && asks_for_calm(error)
    {
        // The refusal counts even if this request was not sent.
        permit.learn(PaceOutcome::Backoff { retry_after: None });
    }
    let Got { status, headers, body, version, .. } =
        answered.map_err(|Unanswered { error, again }| match (again, error) {
            (Some(want), GetError::NotSent) => TryError::Again(want, None),
            (Some(want), error) => TryError::Again(want, Some(error.to_string())),
            (None, error) => error.into(),
        })?;
    if let Some(upstream_proxy) = route.asks()
        && (matches!(status, 407 | 511) || says_a_proxy(&headers))
    {
        // The answer is not the site's, so it neither allows nor forbids anything.
        return Err(match status {
            407 => upstream_proxy.wants_credentials().to_string().into(),
            508 => FetchError::NotAsked(Refusal::Loop).into(),
            status => format!("{upstream_proxy} answers with status {status} itself").into(),
        });
    }
    let wanted = route.signature().and_then(|signer| {
        let asked: Vec<_> = headers.get_all(ACCEPT_SIGNATURE).iter().map(|line| line.as_bytes()).collect();
        let asked = Some(asked.join(&b", "[..])).filter(|it| !it.is_empty() && matches!(status, 401 | 403));
        let is_repeated = request.asked.is_some();
        if asked.is_none() && is_repeated {
            signer.satisfied();
        }
        let of = ChallengedRequest { was_signed: is_signed, is_repeated };
        signer.challenged(&asked?, of, || true)
    });
    let body = match from_status(status) {
        AccessKind::Rules => room.0.read(body, &headers, settings.robots.max_size as usize, room).await?,
        _ => {
            // Reads the rest so that the connection can be kept, unless this takes too long.
            let _ = timeout(DISCARD_TIME, body.discard(DISCARD)).await;
            Bytes::new()
        }
    };
    let version = if version == Version::HTTP_2 { HttpVersion::Http2 } else { HttpVersion::Http1 };
    let through = route.asks().map(|upstream_proxy| upstream_proxy.to_string().into());
    Ok(Reply { asked, status, headers, body, version, wanted, through })
}

/// The error if the resolver has not answered within the time for the whole fetch.
pub(super) fn no_resolver(authority: &Authority) -> FetchError {
    own_limit(&ResolveError::TimedOut { name: authority.host().to_string().into(), is_alone: false })
}

/// Whether an intermediary generated the answer: its Proxy-Status says so (RFC 9209 §2.1.1), or the answer has the field that Squid adds to
/// its error pages and to redirects to them.
fn says_a_proxy(headers: &HeaderMap) -> bool {
    if headers.contains_key("x-squid-error") {
        return true;
    }
    let mut lines = headers.get_all("proxy-status").iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.any(|line| line.replace(' ', "").contains(";error="))
}

pub(super) fn target(url: &Url) -> String {
    url[url::Position::BeforePath..url::Position::AfterQuery].to_owned()
}

/// Maximum number of bytes to read and discard.
const DISCARD: usize = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_millis(200);
