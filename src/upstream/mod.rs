//! Connections to origins: resolves names, screens addresses, and connects. robots.txt fetches and all other requests use it,
//! so that one egress guard covers both.

mod addresses;
mod body_stream;
mod connect;
mod dial_error;
mod dialler;
pub mod egress;
mod endpoint;
mod frame_balance;
mod get;
mod hop;
mod http2;
mod identity;
mod origin_settings;
mod outgoing_request;
mod pool;
mod private;
mod race;
mod reach_error;
mod resolve;
mod route;
mod stream;
mod trust;
mod turns;
mod upstream_proxy;
mod via;
mod wide;
mod write_batch;

pub use body_stream::{BodyStream, GetError};
pub use connect::{Http1Link, HttpLink, OriginConnection, Versions, Want};
pub use dial_error::{DialError, DialFault, is_own_limit};
pub use egress::Denied;
pub use get::{Got, Sent, Unanswered};
pub use http2::{
    Http2Link, SentHead, asks_for_calm, check_head, check_trailers, is_broken_off, is_unprocessed, wants_http1,
};
pub use outgoing_request::{NotForHttp2, Outgoing, OutgoingFields};
pub use private::PrivateConnections;
pub use reach_error::ReachError;
pub use resolve::{KEEP as DEAD_NAME_KEPT, ResolveError};
pub use route::Route;
pub use stream::Stream;
pub use trust::OriginRoots;
pub use turns::TaskTurns;
pub use via::Via;
pub use write_batch::Gathered;

use crate::config::{Hosts, OriginTls, Settings, UnusableFile, instance_name};
use crate::histogram::Distribution;
use crate::policy::Authority;
use crate::policy::pace::ClientId;
use crate::signing::Signer;
use arc_swap::ArcSwap;
use dialler::Dialler;
use origin_settings::OriginSettings;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use resolve::Resolver;
use route::RouteInner;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Finds routes to origins: resolves names and screens addresses.
pub struct Upstream {
    resolver: Resolver,
    reach: ArcSwap<OriginSettings>,
    /// The name of this instance.
    instance: Box<str>,
    via: Arc<Via>,
    /// Recently found routes. The key includes a user's TLS terms if they differ from everybody's.
    routes: Cache<(Authority, Option<Arc<OriginTls>>), KnownRoute>,
    /// The lock that is held while a route is stored.
    noting: Mutex<()>,
}

/// The route of a client connection's last request, which usually serves the next request, too.
#[derive(Default, Clone)]
pub struct LastRoute(Option<(Instant, Route)>);

/// A recently found route, and the addresses that its name had.
#[derive(Clone)]
struct KnownRoute {
    at: Instant,
    addresses: Arc<[IpAddr]>,
    route: Route,
}

/// Figures about origin connections and DNS look-ups, for the status and metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamFigures {
    /// Idle connections.
    pub idle: usize,
    /// Connections: opened and failed.
    pub opened: u64,
    pub failed: u64,
    /// TLS handshakes: succeeded and failed.
    pub handshakes: u64,
    pub failed_handshakes: u64,
    /// Durations of DNS look-ups that found addresses, and of those that did not.
    pub found: Distribution,
    pub not_found: Distribution,
}

/// Changed settings, prepared but not in force.
pub struct Prepared(OriginSettings);

impl Upstream {
    /// Creates it from the initial settings. `listeners`: where this proxy listens.
    ///
    /// # Errors
    /// A client certificate or a signing key cannot be read.
    pub fn new(settings: &Arc<Settings>, roots: OriginRoots, listeners: Vec<SocketAddr>) -> Result<Self, UnusableFile> {
        let reach = OriginSettings::new(settings, roots, Arc::<Dialler>::default(), listeners, None)?;
        reach.dialler.pool.keep_for(reach.limits().idle_timeout);
        let reach = ArcSwap::from_pointee(reach);
        let instance = instance_name(settings).into_boxed_str();
        // Unique, so that two instances of one name in a chain are not taken for a loop.
        let via = Arc::new(Via::new(&format!("{instance}-{:08x}", fastrand::u32(..))));
        let routes = Cache::new(KNOWN_ROUTES);
        let noting = Mutex::default();
        Ok(Upstream { resolver: Resolver::new(), reach, instance, via, routes, noting })
    }

    /// The name of this instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The name of this process in Via: the instance's name and eight hex digits.
    pub fn name(&self) -> &str {
        &self.via.name
    }

    /// The values of Via, which detect loops.
    pub fn via(&self) -> &Via {
        &self.via
    }

    /// The signer of requests, if configured.
    pub fn signer(&self) -> Option<Arc<Signer>> {
        self.reach.load().signer.clone()
    }

    /// Figures about connections and look-ups.
    pub fn figures(&self) -> UpstreamFigures {
        let dialler = self.reach.load().dialler.clone();
        let [[opened, failed], [handshakes, failed_handshakes]] = dialler.counts();
        let [found, not_found] = self.resolver.times();
        UpstreamFigures { idle: dialler.pool.idle(), opened, failed, handshakes, failed_handshakes, found, not_found }
    }

    /// Closes the oldest idle connections, for when no descriptor is left. Returns how many.
    pub fn close_idle(&self) -> usize {
        self.reach.load().dialler.close_idle()
    }

    /// Like [`new`](Self::new), for changed settings. `roots`: new roots, if changed.
    ///
    /// # Errors
    /// A client certificate or a signing key cannot be read.
    pub fn prepare(
        &self,
        settings: &Arc<Settings>,
        roots: Option<OriginRoots>,
        listeners: Vec<SocketAddr>,
    ) -> Result<Prepared, UnusableFile> {
        let before = self.reach.load();
        let roots = roots.unwrap_or_else(|| before.roots.clone());
        OriginSettings::new(settings, roots, before.dialler.clone(), listeners, Some(&before)).map(Prepared)
    }

    /// Applies changed settings. Existing connections are not reused.
    pub fn adopt(&self, Prepared(reach): Prepared) {
        reach.dialler.pool.keep_for(reach.limits().idle_timeout);
        self.reach.swap(Arc::new(reach)).dialler.pool.close_all();
        self.routes.clear();
    }

    /// Checks host and port, without resolving the name.
    pub fn screen(&self, authority: &Authority) -> Result<(), Denied> {
        self.reach.load().guard.screen_host(authority.host(), authority.port())
    }

    /// Like [`reach_for`](Self::reach_for), but reuses `last` if it leads to the same authority and is recent. `now`: the approximate time.
    pub async fn reach_again(
        &self,
        by: &Arc<Settings>,
        authority: &Authority,
        client: ClientId,
        own: Option<&Hosts>,
        now: Instant,
        last: &mut LastRoute,
    ) -> Result<Route, ReachError> {
        {
            let reach = self.reach.load();
            if let Some((at, route)) = &last.0
                && reach.is_made_of(by)
                && now < *at + TAKE_AGAIN
                && Arc::ptr_eq(&route.0.by, &reach)
                && route.0.authority == *authority
                && route.0.user_terms == reach.own_terms(own, authority)
            {
                return Ok(Route(route.0.clone(), Some(client)));
            }
        }
        // Boxed, so that this rare path does not enlarge every request's future.
        let route = Box::pin(self.reach_for(authority, Some(client), own, Some(by))).await?;
        last.0 = Some((now, route.clone()));
        Ok(route)
    }

    /// Finds the route to the authority. Denied addresses are left out; if none is left, the authority is denied. `client`: whose
    /// share of look-ups to use, so that names that do not resolve delay no other client. `own`: the hosts of the client's user,
    /// which may have other TLS settings. `by`: the caller's settings; an error if they are no longer in force.
    pub async fn reach_for(
        &self,
        authority: &Authority,
        client: Option<ClientId>,
        own: Option<&Hosts>,
        by: Option<&Arc<Settings>>,
    ) -> Result<Route, ReachError> {
        let reach = self.reach.load_full();
        if by.is_some_and(|by| !reach.is_made_of(by)) {
            return Err(ReachError::Reloaded);
        }
        let key = (authority.clone(), reach.own_terms(own, authority));
        let known = || self.routes.get(&key).filter(|known| Arc::ptr_eq(&known.route.0.by, &reach));
        if let Some(known) = known()
            && known.at.elapsed() < KEEP_ROUTE
            && self.resolver.is_current(known.route.0.resolved(), &known.addresses)
        {
            return Ok(Route(known.route.0, client));
        }
        reach.guard.screen_host(authority.host(), authority.port())?;
        let (found, addresses) = match &reach.upstream_proxy {
            None => self.origin(&reach.guard, authority, client).await?,
            Some(upstream_proxy) => {
                self.screen_what_is_known(&reach.guard, authority, client).await?;
                self.proxy(&reach.guard, upstream_proxy).await?
            }
        };
        let everybodys = reach.made_of.hosts.get(authority.host()).tls.as_ref();
        let terms =
            key.1.as_ref().or(everybodys).filter(|terms| authority.is_https() && ***terms != OriginTls::default());
        // Another task may have found the route meanwhile: all must share one endpoint.
        let _one_at_a_time = self.noting.lock();
        let endpoint = known().map_or_else(|| reach.dialler.pool.endpoint(), |known| known.route.0.endpoint.clone());
        let way = RouteInner {
            by: reach.clone(),
            authority: authority.clone(),
            addresses,
            tls: terms.map_or(&reach.trust.plain, |terms| reach.trust.of(terms)).clone(),
            unverified: terms.is_some_and(|terms| !terms.verify),
            user_terms: key.1.clone(),
            signature: reach.signer.as_ref().map(|signer| signer.requests_to(authority)),
            via: self.via.clone(),
            host: authority.host_header().into(),
            // The endpoint stays the same with the same settings, even if the addresses change.
            endpoint,
        };
        let route = Route(Arc::new(way), client);
        self.routes.insert(key, KnownRoute { at: Instant::now(), addresses: found, route: route.clone() });
        Ok(route)
    }
}

/// Maximum number of cached routes. `KEEP_ROUTE`: how long each is used.
const KNOWN_ROUTES: usize = 10_000;
const KEEP_ROUTE: Duration = Duration::from_secs(30);
/// How long a client connection reuses its last route unchecked.
const TAKE_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(crate) mod tests;
