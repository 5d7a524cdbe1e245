//! Whether a request may go, and where to: egress, then the gate. Called by `forward` and `upgrade`, so that there is one
//! answer for both.

use super::Shared;
use super::downstream::Client;
use super::fields;
use crate::config::{Hosts, InterceptMode, User};
use crate::gate::{Admitted, Ask, Permit, Reported, RobotsCopy};
use crate::policy::{Authority, Refusal};
use crate::upstream::{ReachError, Route};
use http::{HeaderValue, header};
use pingora::http::RequestHeader;
use std::time::Duration;

/// What of a request decides.
pub(super) struct Wanted {
    looped: bool,
    target: String,
    agent: Option<HeaderValue>,
    subresource: bool,
    prefer_wait: Option<Duration>,
    reads_robots: bool,
}

/// It is not refused.
pub(super) enum Decided {
    Go(Box<Go>),
    /// It is answered with our copy of robots.txt.
    Robots(RobotsCopy),
}

/// It goes now.
pub(super) struct Go {
    pub permit: Permit,
    /// In report mode, what would have been.
    pub reported: Option<Reported>,
    /// `None`: the host has no address.
    pub route: Option<Route>,
}

impl Shared {
    pub(super) fn wanted(&self, request: &RequestHeader) -> Wanted {
        Wanted {
            looped: self.via.is_in(&request.headers),
            target: String::from_utf8_lossy(request.raw_path()).into_owned(),
            agent: request.headers.get(header::USER_AGENT).cloned(),
            subresource: fields::is_subresource(&request.headers),
            prefer_wait: fields::prefer_wait(&request.headers),
            reads_robots: fields::reads_robots(request),
        }
    }

    /// Resolves when it may go, or may not.
    pub(super) async fn decide(
        &self,
        wanted: &Wanted,
        authority: &Authority,
        client: &Client,
    ) -> Result<Decided, Refusal> {
        if wanted.looped {
            return Err(Refusal::Loop);
        }
        let user = client.user.as_deref();
        if client.tunnel.is_some() && self.intercept_mode(authority, client) == InterceptMode::Deny {
            let host = authority.host().to_string().into();
            return Err(Refusal::OperatorDenied { host, pattern: "intercept: deny".into() });
        }
        let route = match self.upstream.reach(authority).await {
            Ok(route) => Some(route),
            Err(ReachError::Denied(denied)) => return Err(denied.into()),
            // A host without an address has no readable robots.txt either: the gate says so.
            Err(ReachError::Resolve(_)) => None,
        };
        let (waiting, may_wait) = self.place_in_line(user);
        let ask = Ask {
            authority,
            target: &wanted.target,
            user_agent: wanted.agent.as_ref().map(|agent| agent.as_bytes()),
            client: client.address.ip(),
            address: route.as_ref().and_then(Route::origin),
            is_subresource: wanted.subresource,
            product_tokens: user.map_or(&[], |user| &user.product_tokens),
            hosts: hosts(user),
            may_wait,
            prefer_wait: wanted.prefer_wait,
            reads_robots: wanted.reads_robots,
        };
        let admitted = tokio::select! {
            biased;
            admitted = self.gate.admit(&ask) => admitted?,
            () = self.stopped() => return Err(Refusal::Draining { retry_after: DRAINING }),
        };
        drop(waiting);
        Ok(match admitted {
            Admitted::Go { permit, reported } => {
                if let Some(reported) = &reported {
                    let url = format!("{authority}{}", wanted.target);
                    self.tell_reported(Some(client.address.ip()), &url, reported);
                }
                Decided::Go(Box::new(Go { permit, reported, route }))
            }
            Admitted::Robots(copy) => Decided::Robots(copy),
        })
    }

    /// What is done with CONNECT to this host.
    pub(super) fn intercept_mode(&self, authority: &Authority, client: &Client) -> InterceptMode {
        let settings = self.settings.load();
        hosts(client.user.as_deref()).unwrap_or(&settings.hosts).get(authority.host()).intercept
    }

    /// A place among the user's that wait, and whether there was one.
    fn place_in_line(&self, user: Option<&User>) -> (Option<super::clients::Place<String>>, bool) {
        let Some((user, limit)) = user.and_then(|user| Some((user, user.max_waiting?))) else { return (None, true) };
        let place = self.waiting.enter(user.name.as_ref().to_owned(), limit);
        let may_wait = place.is_some();
        (place, may_wait)
    }
}

/// The overrides of a user who has some.
pub(super) fn hosts(user: Option<&User>) -> Option<&Hosts> {
    user.and_then(|user| user.hosts.as_ref())
}

/// By then another instance may serve.
const DRAINING: Duration = Duration::from_secs(5);
