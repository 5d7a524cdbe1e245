//! Decides a request: egress first, then the gate.

use super::Exchange;
use super::cache::CacheLookup;
use super::min_revisit::{self, Remembered};
use super::pages::{self, Pages};
use super::per_user::{asked, hosts};
use super::request::Request;
use super::usage::looks_into_pages;
use crate::config::{HostPolicy, InterceptMode, User};
use crate::gate::cache::StoredAnswer;
use crate::gate::{Admitted, LastHost, Reported};
use crate::policy::{self, Again, Refusal};
use crate::proxy::Proxy;
use crate::proxy::limits::per_client::Place;
use crate::proxy::respond::{Answer, not_modified, robots_copy, setup};
use crate::upstream::{Denied, LastRoute, ReachError, ResolveError, Route};
use http::{Version, header};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::yield_now;

/// How a request that is not refused is answered. `reported`: the decision that report mode did not enforce.
pub enum RequestDecision {
    /// The origin answers. `route` is an error if the name cannot be resolved.
    Forward { reported: Option<Reported>, route: Result<Route, ResolveError> },
    /// The cache answers.
    Cached { stored: Box<StoredAnswer>, reported: Option<Reported>, route: Route },
    /// The proxy itself answers.
    Local(Answer),
}

/// Destination of the previous request on a connection: most requests go to the same host.
#[derive(Default, Clone)]
pub struct LastPlace {
    host: LastHost,
    route: LastRoute,
}

impl Exchange<'_> {
    /// Resolves when the request may be forwarded, is refused, or can be answered without the origin.
    pub(super) async fn decide(&mut self, last: &mut LastPlace) -> Result<RequestDecision, Refusal> {
        let Exchange { proxy, request, peer, .. } = *self;
        if request.is_looped {
            return Err(Refusal::Loop);
        }
        let mut admitted = None;
        loop {
            let route = match self.route(&mut last.route).await? {
                Ok(route) => Ok(route),
                // The gate decides first. Unless it has a stored robots.txt, it refuses the request, because robots.txt
                // of a host without an address is unreachable.
                Err(ReachError::Resolve(error)) => Err(error),
                Err(ReachError::Denied(Denied::SetupHost(_))) => {
                    return Ok(RequestDecision::Local(self.setup_page()));
                }
                Err(ReachError::Denied(denied)) => return Err(denied.into()),
                Err(ReachError::Reloaded) => {
                    self.follow_reload().await;
                    continue;
                }
            };
            if self.cached.is_some() && route.as_ref().is_ok_and(|route| route.knows(&peer.private)) {
                self.keep_private();
            }
            if admitted.is_none() {
                let remembered = self.remembered();
                let again = remembered.as_ref().map_or(Again::Go, Remembered::again);
                let is_untried = self.cached.as_ref().is_some_and(|cached| !cached.is_tried());
                let asks_cache = route.is_ok() && (self.only_stored || is_untried);
                let answer = self.admit(route.as_ref().ok(), again, asks_cache, &mut last.host).await;
                if answer.is_err() {
                    // The gate refused under the settings at the end of the wait, so the answer must follow the same
                    // settings.
                    self.settings = proxy.settings.load_full();
                }
                match answer? {
                    Admitted::Go { permit, reported } => (self.permit, admitted) = (Some(permit), Some(reported)),
                    Admitted::Robots(copy) => {
                        let conditions = request.head.fields_named(&[header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]);
                        return Ok(RequestDecision::Local(robots_copy(&copy, &conditions)));
                    }
                    Admitted::NotModified => {
                        let Some(Remembered::Visited(visit, _)) = remembered else {
                            unreachable!("the gate gives this answer only for a known visit")
                        };
                        return Ok(RequestDecision::Local(not_modified(&visit)));
                    }
                    // A reload happened during the wait: decide again.
                    Admitted::Allowed { .. } if !Arc::ptr_eq(&self.settings, &proxy.settings.load()) => {
                        self.settings = proxy.settings.load_full();
                        continue;
                    }
                    Admitted::Allowed { reported } => match (Box::pin(self.look_up()).await, route) {
                        (CacheLookup::Hit(stored), Ok(route)) => {
                            return Ok(RequestDecision::Cached { stored, reported, route });
                        }
                        (CacheLookup::Absent, _) => return Err(Refusal::NotStored),
                        (CacheLookup::Hit(_) | CacheLookup::Again, _) => continue,
                    },
                }
                if route.is_err() {
                    // Resolves the name again after the wait.
                    continue;
                }
            }
            let is_current = Arc::ptr_eq(&self.settings, &proxy.settings.load());
            match admitted {
                Some(reported) if is_current => {
                    if self.cached.is_some()
                        && let Ok(route) = &route
                        && let Some(stored) = Box::pin(self.stored_meanwhile()).await
                    {
                        self.permit = None;
                        return Ok(RequestDecision::Cached { stored, reported, route: route.clone() });
                    }
                    if let Some(answer) = self.recheck_remembered()? {
                        return Ok(RequestDecision::Local(answer));
                    }
                    return Ok(RequestDecision::Forward { reported, route });
                }
                // A reload during the wait applies to this request, too: decide again.
                not_yet => (admitted, self.settings) = (not_yet, proxy.settings.load_full()),
            }
        }
    }

    /// The answer of `intercept.setup_host`.
    fn setup_page(&self) -> Answer {
        let Request { method, target, accept, authority, .. } = self.request;
        setup(&self.proxy.leaves.ca(), method, target, *accept, &authority.host().to_string())
    }

    /// Finds the route, under the settings of this exchange even if a reload has replaced them.
    async fn route(&mut self, last: &mut LastRoute) -> Result<Result<Route, ReachError>, Refusal> {
        let Exchange { proxy, request, peer, client, ref settings, began, .. } = *self;
        let authority = &request.authority;
        let user = peer.user.as_deref();
        let policy @ HostPolicy { rules, intercept, .. } = settings.hosts_of(user).get(authority.host());
        // A denied host gets here if there was no CONNECT, if the TLS name replaced its address, or after a reload.
        if (peer.tunnel.is_some() || authority.is_https()) && *intercept == InterceptMode::Deny {
            return Err(policy.https_denied());
        }
        // Checked before a DNS query, which would reveal the name.
        if *authority.host() != settings.intercept.setup_host {
            settings.check_listed(user, authority.host(), request.method)?;
        }
        let (reads_pages, looks_back) = (looks_into_pages(rules, request), min_revisit::looks_back(rules));
        let route = proxy.upstream.reach_again(settings, authority, client, hosts(user), began, last).await;
        (self.reads_pages, self.looks_back) = (reads_pages, looks_back);
        Ok(route)
    }

    /// Adopts the new settings. Yields first, because a reload replaces the settings right after the routes.
    pub(super) async fn follow_reload(&mut self) {
        yield_now().await;
        self.settings = self.proxy.settings.load_full();
    }

    async fn admit(
        &mut self,
        route: Option<&Route>,
        again: Again<'_>,
        asks_cache: bool,
        last: &mut LastHost,
    ) -> Result<Admitted, Refusal> {
        let Exchange { proxy, request, peer, .. } = *self;
        let authority = &request.authority;
        let user = peer.user.as_deref();
        let (_waiting, may_wait) = proxy.place_in_line(user);
        let wanted = policy::Request {
            speaks_http2: request.version == Version::HTTP_2 && (peer.tunnel.is_some() || authority.is_https()),
            is_subresource: request.is_subresource.unwrap_or_else(|| self.follows_page()),
            is_confined: user.is_some_and(|user| user.hosts.is_some() || !user.listed.hosts.is_empty()),
            again,
            promised: request.promised,
            asks_cache,
            ..self.limited(asked(request, peer), route.and_then(|route| route.paced_at(None)), may_wait)
        };
        proxy.gate.admit_next(&wanted, hosts(user), last, &mut self.trip.gate).await
    }

    fn follows_page(&self) -> bool {
        let Exchange { proxy, request, .. } = *self;
        Pages::are_wanted(&self.settings)
            && pages::is_part(request.accept, &request.target)
            && proxy.pages.lead_to(self.client, request, self.began)
    }
}

impl<'a> Exchange<'a> {
    /// Adds the client and its limits to a request or tunnel. `address`: the address to pace by. `may_wait`: from
    /// [`Proxy::place_in_line`].
    pub(super) fn limited<'r>(
        &self,
        wanted: policy::Request<'r>,
        address: Option<IpAddr>,
        may_wait: bool,
    ) -> policy::Request<'r>
    where
        'a: 'r,
    {
        let Exchange { request, peer, client, .. } = *self;
        let user = peer.user.as_deref();
        policy::Request {
            client,
            user: user.map(|user| user.name.as_ref()),
            budget: user.and_then(|user| user.budget.as_ref()),
            from: Some(peer.address.ip()),
            address,
            may_wait,
            prefer_wait: request.prefer_wait,
            ..wanted
        }
    }
}

impl Proxy {
    /// Takes a place among the user's waiting requests. Also returns whether the request may wait.
    pub(super) fn place_in_line(&self, user: Option<&User>) -> (Option<Place<String>>, bool) {
        let Some((user, limit)) = user.and_then(|user| Some((user, user.max_waiting?))) else { return (None, true) };
        let place = self.waiting.enter(user.name.as_ref().to_owned(), limit);
        let may_wait = place.is_some();
        (place, may_wait)
    }
}
