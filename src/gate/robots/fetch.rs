//! Asks for a robots.txt, or another file of its kind, over the network (RFC 9309 §2.3), through the same guard as any request: one request, one answer.
//! The only place here that knows of connections; `refresh` follows redirects and waits for a host's turn.

use crate::config::Settings;
use crate::gate::decode::decode_apart;
use crate::gate::pacer::Permit;
use crate::http1::Framing;
use crate::policy::pace::{ClientId, PaceOutcome};
use crate::policy::{Authority, HttpVersion, Refusal, SiteFile, Validators};
use crate::robots::access::{AccessKind, from_status};
use crate::signing::{ACCEPT_SIGNATURE, ChallengedRequest, SignatureRequest};
use crate::upstream::{
    BodyStream, DialError, DialFault, GetError, Got, Outgoing, OutgoingFields, ReachError, ResolveError, Route, Sent,
    Unanswered, Upstream, Want, asks_for_calm,
};
use http::{HeaderMap, Version, header};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use url::Url;

/// One request for such a file.
pub(super) struct FileRequest<'a> {
    pub authority: &'a Authority,
    pub url: &'a Url,
    pub file: SiteFile,
    /// Of our copy, to ask whether it still holds.
    pub validators: Option<&'a Validators>,
    pub want: Want,
    /// The signature that the answer before asked for.
    pub asked: Option<SignatureRequest>,
}

/// A final answer.
pub(super) struct Reply {
    /// When it was asked for. It says what holds then, however late it is read.
    pub asked: SystemTime,
    pub status: u16,
    pub headers: HeaderMap,
    /// Decoded; empty unless the status says that these are rules.
    pub body: Vec<u8>,
    pub version: HttpVersion,
    /// The origin asks for a signature, and gets this one if it is asked again.
    pub wanted: Option<SignatureRequest>,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum FetchError {
    /// DNS, TCP, TLS, time, a body cut short: the site's failure.
    Unreachable(String),
    /// Nobody was asked, for reasons of our own: a turn not had, no descriptor left.
    NotAsked(Refusal),
}

/// Why one try has none.
pub(super) enum TryError {
    Final(FetchError),
    /// A connection that was kept has turned out to be dead, or a shared one to be closing: worth another try, in its turn. `None`: its
    /// turn had ended before it could be sent.
    Again(Want, Option<String>),
}

impl From<String> for FetchError {
    fn from(why: String) -> Self {
        Self::Unreachable(why)
    }
}

impl<E: Into<FetchError>> From<E> for TryError {
    fn from(error: E) -> Self {
        Self::Final(error.into())
    }
}

/// Whether `egress` lets the authority be asked. That its name leads nowhere is another matter.
/// `looks_up`: the addresses of its name matter too.
pub(super) async fn may_reach(
    upstream: &Upstream,
    authority: &Authority,
    client: ClientId,
    looks_up: bool,
) -> Result<(), Refusal> {
    upstream.screen(authority)?;
    if !looks_up {
        return Ok(());
    }
    match upstream.reach_for(authority, Some(client), None, None).await {
        Err(ReachError::Denied(denied)) => Err(denied.into()),
        Ok(_) | Err(ReachError::Resolve(_) | ReachError::Reloaded) => Ok(()),
    }
}

/// Where a request will go. `client`: on whose account its name is looked up.
pub(super) async fn reach(upstream: &Upstream, authority: &Authority, client: ClientId) -> Result<Route, FetchError> {
    upstream.reach_for(authority, Some(client), None, None).await.map_err(|error| match error {
        ReachError::Resolve(error @ (ResolveError::OwnLimit { .. } | ResolveError::TimedOut { .. })) => {
            own_limit(&error)
        }
        error @ (ReachError::Resolve(ResolveError::Failed { .. }) | ReachError::Denied(_) | ReachError::Reloaded) => {
            FetchError::Unreachable(error.to_string())
        }
    })
}

/// Asks over the connections that pages are asked for over: the first page goes where its robots.txt came from. The permit's
/// gap is counted from when the head leaves.
pub(super) async fn get(
    upstream: &Upstream,
    request: &FileRequest<'_>,
    client: ClientId,
    settings: &Settings,
    permit: &mut Permit,
) -> Result<Reply, TryError> {
    let route = reach(upstream, request.authority, client).await?;
    let (target, agent) = (target(request.url), user_agent(settings));
    let validators = request.validators;
    let accept: &[u8] = match request.file {
        SiteFile::Robots => b"text/plain, */*;q=0.5",
        SiteFile::TdmRep => b"application/json, */*;q=0.5",
        SiteFile::License => b"application/rsl+xml, application/xml;q=0.9, */*;q=0.5",
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
    };
    let is_signed = route.signature().is_some_and(|signer| outgoing.is_signed_by(signer));
    let on_sent = |sent| match sent {
        Sent::Begins(address) => {
            let holds = permit.holds_at(request.authority, address);
            if holds {
                permit.leaves(true);
            }
            holds
        }
        Sent::Withdrawn => {
            permit.has_not_left();
            true
        }
        Sent::Whole => {
            permit.note_left();
            true
        }
    };
    let asked = SystemTime::now();
    let answered = route.ask(request.want, &outgoing, on_sent).await;
    if let Err(Unanswered { error: GetError::Http2(error), .. }) = &answered
        && asks_for_calm(error)
    {
        // Of what has not left either.
        permit.learn(PaceOutcome::Backoff { retry_after: None });
    }
    let Got { status, headers, body, version, .. } =
        answered.map_err(|Unanswered { error, again }| match (again, error) {
            (Some(want), GetError::NotSent) => TryError::Again(want, None),
            (Some(want), error) => TryError::Again(want, Some(error.to_string())),
            (None, error) => error.into(),
        })?;
    if let Some(upstream_proxy) = route.asks()
        && (status == 407 || says_a_proxy(&headers))
    {
        // It is no word of the site's, so it neither allows nor forbids anything.
        return Err(match status {
            407 => upstream_proxy.wants_credentials().to_string().into(),
            508 => FetchError::NotAsked(Refusal::Loop).into(),
            status => format!("{upstream_proxy} answers with status {status} of its own").into(),
        });
    }
    let wanted = route.signature().and_then(|signer| {
        let asked: Vec<_> = headers.get_all(ACCEPT_SIGNATURE).iter().map(|line| line.as_bytes()).collect();
        let asked = Some(asked.join(&b", "[..])).filter(|it| !it.is_empty() && matches!(status, 401 | 403));
        let is_repeated = request.asked.is_some();
        if asked.is_none() && is_repeated {
            signer.satisfied();
        }
        let of = ChallengedRequest { was_signed: is_signed, is_repeated, may_be_repeated: true };
        signer.challenged(&asked?, of)
    });
    let body = match from_status(status) {
        AccessKind::Rules => rules(body, &headers, settings.robots.max_size as usize).await?,
        _ => {
            // So that the connection can be kept, unless this takes too long.
            let _ = timeout(DISCARD_TIME, body.discard(DISCARD)).await;
            Vec::new()
        }
    };
    let version = if version == Version::HTTP_2 { HttpVersion::Http2 } else { HttpVersion::Http1 };
    Ok(Reply { asked, status, headers, body, version, wanted })
}

impl From<GetError> for FetchError {
    fn from(error: GetError) -> Self {
        match error {
            GetError::Dial(error @ DialError { kind: DialFault::OwnLimit, .. }) => own_limit(&error),
            GetError::Dial(DialError { kind: DialFault::Loop, .. }) => Self::NotAsked(Refusal::Loop),
            error => Self::Unreachable(error.to_string()),
        }
    }
}

/// What the rules are read from: no more than it takes to see that there is more than `limit`.
async fn rules(mut body: BodyStream, headers: &HeaderMap, limit: usize) -> Result<Vec<u8>, FetchError> {
    let mut read = Vec::new();
    while read.len() <= limit
        && let Some(piece) = body.chunk().await?
    {
        read.extend_from_slice(&piece);
    }
    let cut = read.len() > limit;
    if body.may_be_cut() {
        // Pages are passed on so; here, whatever rule was cut off would not hold.
        return Err("the answer ends without close_notify, and may be cut short".to_owned().into());
    }
    let codings =
        headers.get_all(header::CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let codings = codings.collect::<Vec<_>>().join(",");
    decode_apart(read, codings, limit, cut).await.map_err(|error| FetchError::Unreachable(error.to_string()))
}

/// The resolver has not answered within the time of the whole fetch.
pub(super) fn no_resolver(authority: &Authority) -> FetchError {
    own_limit(&ResolveError::TimedOut { name: authority.host().to_string().into() })
}

fn own_limit(error: &dyn std::error::Error) -> FetchError {
    FetchError::NotAsked(Refusal::OwnLimit { retry_after: COME_BACK, why: error.to_string().into() })
}

/// Whether an answer was made on the way (RFC 9209 §2.1.1).
fn says_a_proxy(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all("proxy-status").iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.any(|line| line.replace(' ', "").contains(";error="))
}

pub(super) fn target(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
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

/// Of a body that nobody reads.
const DISCARD: usize = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_millis(200);
/// What keeps us from asking comes and goes.
pub(super) const COME_BACK: Duration = Duration::from_secs(1);
