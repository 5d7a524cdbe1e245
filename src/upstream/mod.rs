//! The way to an origin: its addresses, vetted; how it is connected to. robots.txt and everything else go by it, so that
//! one guard covers both.

mod connect;
mod dial_error;
mod dialler;
pub mod egress;
mod endpoint;
mod gathered;
mod get;
mod hop;
mod http2;
mod outgoing;
mod parent;
mod pool;
mod race;
mod resolve;
mod route;
mod stream;
mod trust;
mod turns;
mod window;
mod words;

pub use connect::{Http1Link, HttpLink, OriginConnection, Versions, Want};
pub use dial_error::{DialError, DialFault, is_own_limit};
pub use dialler::connector_conf;
pub use gathered::Gathered;
pub use get::{BodyStream, GetError, Got, MAX_INTERIM, Sent, Unanswered};
pub use http2::{Http2Link, is_unprocessed, wants_http1};
pub use outgoing::{NotForHttp2, Outgoing, OutgoingFields};
pub use resolve::ResolveError;
pub use route::Route;
pub use stream::Stream;
pub use trust::TrustError;
pub use turns::{HandedOver, TaskTurns};

use crate::config::{Closed, Hosts, OriginTls, PortRange, Settings, instance_name};
use crate::histogram::Distribution;
use crate::policy::pace::ClientId;
use crate::policy::{Authority, HostPattern};
use crate::signing::{KeyError, Signer};
use arc_swap::ArcSwap;
use dialler::Dialler;
pub use egress::Denied;
use egress::Guard;
use ipnet::IpNet;
use parent::Parent;
use parking_lot::Mutex;
use pingora_core::server::configuration::ServerConf;
use pool::Keep;
use quick_cache::sync::Cache;
use resolve::Resolver;
use route::RouteInner;
use rustls::RootCertStore;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use trust::Trust;

/// Resolves, screens and describes origins.
pub struct Upstream {
    resolver: Resolver,
    reach: ArcSwap<OriginSettings>,
    /// What this instance is called, at each start.
    instance: Box<str>,
    /// The same in Via, where each process has a name of its own.
    name: Arc<str>,
    /// The line with it for what we ask ourselves.
    via: Arc<str>,
    /// By the terms of a user's own, where they are not everybody's.
    routes: Cache<(Authority, Option<Arc<OriginTls>>), KnownRoute>,
    /// Held while a route is noted.
    noting: Mutex<()>,
}

/// The route of one request of a connection: the next mostly goes the same way.
#[derive(Default)]
pub struct LastRoute(Option<(Instant, u64, Route)>);

/// A route that was found lately, and what it was made of.
#[derive(Clone)]
struct KnownRoute {
    at: Instant,
    generation: u64,
    addresses: Arc<[IpAddr]>,
    route: Route,
}

/// What the settings say of it, swapped whole on reload.
struct OriginSettings {
    /// Which settings these are.
    generation: u64,
    made_of: Arc<Settings>,
    roots: Arc<RootCertStore>,
    dialler: Arc<Dialler>,
    guard: Guard,
    limit: Duration,
    parent: Option<Arc<Parent>>,
    hosts: Hosts,
    trust: Trust,
    keep: Keep,
    head_size: u32,
    /// Who signs requests, if somebody does.
    signer: Option<Arc<Signer>>,
}

/// Why settings cannot be put in force: a file that they name is not what it has to be.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What is made of changed settings, before they are in force.
pub struct Prepared(OriginSettings);

/// What there is of connections to origins, and of look-ups of their names.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamFigures {
    /// Connections that are kept for the next request.
    pub idle: usize,
    /// Connections that were opened, and those that could not be.
    pub opened: u64,
    pub failed: u64,
    /// TLS handshakes that were good, and those that were not.
    pub shaken: u64,
    pub unshaken: u64,
    /// How long the system's resolver took to find addresses, and to find none.
    pub found: Distribution,
    pub not_found: Distribution,
}

/// Why an authority cannot be dialled.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Other settings are in force than those that the caller goes by: it has to ask again by these.
    #[error("the configuration has just been reloaded")]
    Reloaded,
}

impl Upstream {
    /// `roots`: whom to believe about origins. `conf`: the same for pingora, made by [`connector_conf`]. `listeners`: where
    /// this proxy itself listens.
    ///
    /// # Errors
    /// A client certificate or a signing key cannot be read.
    pub fn new(
        settings: &Arc<Settings>,
        roots: Arc<RootCertStore>,
        conf: &ServerConf,
        listeners: Vec<SocketAddr>,
    ) -> Result<Self, SetupError> {
        let reach = OriginSettings::new(settings, roots, Arc::new(Dialler::new(conf, None)), listeners, None)?;
        reach.dialler.pool.keep_for(reach.keep.time);
        let reach = ArcSwap::from_pointee(reach);
        let instance = instance_name(settings).into_boxed_str();
        // Two instances of one name in a row are no loop.
        let name: Arc<str> = format!("{instance}-{:08x}", fastrand::u32(..)).into();
        let via = format!("1.1 {name}").into();
        let routes = Cache::new(KNOWN_ROUTES);
        let noting = Mutex::default();
        Ok(Upstream { resolver: Resolver::new(), reach, instance, name, via, routes, noting })
    }

    /// What this instance is called, at each start.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What this process is called in Via: the instance's name, and eight hex digits.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Who signs requests, if somebody does.
    pub fn signer(&self) -> Option<Arc<Signer>> {
        self.reach.load().signer.clone()
    }

    /// What there is of connections and look-ups.
    pub fn figures(&self) -> UpstreamFigures {
        let dialler = self.reach.load().dialler.clone();
        let [[opened, failed], [shaken, unshaken]] = dialler.counts();
        let [found, not_found] = self.resolver.times();
        UpstreamFigures { idle: dialler.pool.idle(), opened, failed, shaken, unshaken, found, not_found }
    }

    /// Closes the oldest of the idle connections, where there are no descriptors left. How many.
    pub fn close_idle(&self) -> usize {
        self.reach.load().dialler.close_idle()
    }

    /// Prepares for changed settings, and takes them up.
    ///
    /// # Errors
    /// A client certificate or a signing key cannot be read: then all stays as it was.
    pub fn reload(&self, settings: &Arc<Settings>) -> Result<(), SetupError> {
        let listeners = self.reach.load().guard.listeners.clone();
        self.adopt(self.prepare(settings, None, listeners)?);
        Ok(())
    }

    /// As [`new`](Self::new), for changed settings. `roots`: others than so far.
    ///
    /// # Errors
    /// A client certificate or a signing key cannot be read.
    pub fn prepare(
        &self,
        settings: &Arc<Settings>,
        roots: Option<(Arc<RootCertStore>, &ServerConf)>,
        listeners: Vec<SocketAddr>,
    ) -> Result<Prepared, SetupError> {
        let before = self.reach.load();
        let (roots, dialler) = match roots {
            Some((roots, conf)) => (roots, Arc::new(Dialler::new(conf, Some(&before.dialler)))),
            None => (before.roots.clone(), before.dialler.clone()),
        };
        OriginSettings::new(settings, roots, dialler, listeners, Some(&before)).map(Prepared)
    }

    /// Applies changed settings. Connections that were opened by others are not used again.
    pub fn adopt(&self, Prepared(reach): Prepared) {
        reach.dialler.pool.keep_for(reach.keep.time);
        self.reach.swap(Arc::new(reach)).dialler.pool.close_all();
    }

    /// A connection for one request by this route; see [`Route::connect`].
    pub async fn connect(&self, route: &Route, want: Want) -> Result<OriginConnection, DialError> {
        route.connect(want).await
    }

    /// What can be said of the authority without looking its name up.
    pub fn screen(&self, authority: &Authority) -> Result<(), Denied> {
        self.reach.load().guard.screen_host(authority.host(), authority.port())
    }

    /// The way to the authority. A denied address is left out; if none is left, the authority is denied.
    pub async fn reach(&self, authority: &Authority) -> Result<Route, ReachError> {
        self.reach_for(authority, None, None, None).await
    }

    /// The same as [`reach_for`](Self::reach_for), unless the request before has just gone there. `now`: the time, about.
    pub async fn reach_again(
        &self,
        by: &Arc<Settings>,
        authority: &Authority,
        client: ClientId,
        own: Option<&Hosts>,
        now: Instant,
        last: &mut LastRoute,
    ) -> Result<Route, ReachError> {
        let (generation, terms) = {
            let reach = self.reach.load();
            reach.is_made_of(by)?;
            (reach.generation, reach.own_terms(own, authority))
        };
        if let Some((at, found, route)) = &last.0
            && now < *at + TAKE_AGAIN
            && *found == generation
            && route.0.authority == *authority
            && route.0.user_terms == terms
        {
            return Ok(route.clone());
        }
        // So that what most requests need not do takes no room in them.
        let route = Box::pin(self.reach_for(authority, Some(client), own, Some(by))).await?;
        last.0 = Some((now, generation, route.clone()));
        Ok(route)
    }

    /// The same for a client: names of one that do not answer hold up nobody else. `own`: the hosts of its user, who may have
    /// TLS spoken on other terms. `by`: the settings that the caller goes by, where that matters.
    pub async fn reach_for(
        &self,
        authority: &Authority,
        client: Option<ClientId>,
        own: Option<&Hosts>,
        by: Option<&Arc<Settings>>,
    ) -> Result<Route, ReachError> {
        let reach = self.reach.load_full();
        by.map_or(Ok(()), |by| reach.is_made_of(by))?;
        let key = (authority.clone(), reach.own_terms(own, authority));
        let known = self.routes.get(&key).filter(|known| known.generation == reach.generation);
        if let Some(known) = &known
            && known.at.elapsed() < KEEP_ROUTE
            && self.resolver.is_current(known.route.0.resolved(), &known.addresses)
        {
            return Ok(known.route.clone());
        }
        reach.guard.screen_host(authority.host(), authority.port())?;
        let (found, addresses) = match &reach.parent {
            None => self.origin(&reach.guard, authority, client).await?,
            Some(parent) => {
                self.screen_what_is_known(&reach.guard, authority, client).await?;
                self.proxy(&reach.guard, parent).await?
            }
        };
        let everybodys = reach.hosts.get(authority.host()).tls.as_ref();
        let terms =
            key.1.as_ref().or(everybodys).filter(|terms| hop::is_tls(authority) && ***terms != OriginTls::default());
        // Somebody may have found it while we looked: there is one endpoint for all of them.
        let _one_at_a_time = self.noting.lock();
        let known = self.routes.get(&key).filter(|known| known.generation == reach.generation);
        let way = RouteInner {
            authority: authority.clone(),
            addresses,
            parent: reach.parent.clone(),
            own_tls: terms.map(|terms| reach.trust.of(terms).clone()),
            unverified: terms.is_some_and(|terms| !terms.verify),
            user_terms: key.1.clone(),
            plain_tls: reach.trust.plain.clone(),
            limit: reach.limit,
            keep: reach.keep,
            head_size: reach.head_size,
            signature: reach.signer.as_ref().map(|signer| signer.requests_to(authority)),
            name: self.name.clone(),
            via: self.via.clone(),
            host: authority.host_header().into(),
            // The same settings: whatever its addresses, it is the same place.
            endpoint: known.map_or_else(|| reach.dialler.pool.endpoint(), |known| known.route.0.endpoint.clone()),
            dialler: reach.dialler.clone(),
        };
        let route = Route(Arc::new(way));
        let known =
            KnownRoute { at: Instant::now(), generation: reach.generation, addresses: found, route: route.clone() };
        self.routes.insert(key, known);
        Ok(route)
    }

    /// The addresses of the origin that may be dialled, best first.
    async fn origin(
        &self,
        guard: &Guard,
        authority: &Authority,
        client: Option<ClientId>,
    ) -> Result<(Arc<[IpAddr]>, Arc<[SocketAddr]>), ReachError> {
        let found = self.resolver.lookup(authority.host(), client).await?;
        let sockets = found.iter().map(|&address| SocketAddr::new(address, authority.port()));
        let mut denied = None;
        let mut vetted = Vec::with_capacity(found.len());
        for socket in sockets {
            match screen(guard, socket) {
                Ok(()) => vetted.push(socket),
                // Another address of the name may be open, but never one where we listen.
                Err(own @ Denied::OwnListener(_)) => return Err(own.into()),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        match denied {
            Some(why) if vetted.is_empty() => Err(why.into()),
            Some(_) | None => Ok((found, vetted.into())),
        }
    }

    /// The upstream proxy resolves names by itself, and may know ones that cannot be resolved here. Those that can be
    /// must have open addresses only, for it may take any of them.
    async fn screen_what_is_known(
        &self,
        guard: &Guard,
        authority: &Authority,
        client: Option<ClientId>,
    ) -> Result<(), ReachError> {
        let Ok(found) = self.resolver.lookup_within(authority.host(), client, LOOK).await else { return Ok(()) };
        let mut sockets = found.iter().map(|&address| SocketAddr::new(address, authority.port()));
        sockets.try_for_each(|socket| screen(guard, socket)).map_err(ReachError::from)
    }

    /// Where the upstream proxy is. It is the operator's own, and may be on any address but ours.
    async fn proxy(&self, guard: &Guard, parent: &Parent) -> Result<(Arc<[IpAddr]>, Arc<[SocketAddr]>), ReachError> {
        let found = self.resolver.lookup(parent.host(), None).await?;
        let sockets: Arc<[SocketAddr]> = found.iter().map(|&it| SocketAddr::new(it, parent.port())).collect();
        match sockets.iter().find(|&&socket| is_own(guard, socket)) {
            Some(&own) => Err(Denied::OwnListener(own).into()),
            None => Ok((found, sockets)),
        }
    }
}

impl OriginSettings {
    /// `listeners`: where this proxy itself listens. `before`: what earlier settings were made into.
    fn new(
        settings: &Arc<Settings>,
        roots: Arc<RootCertStore>,
        dialler: Arc<Dialler>,
        listeners: Vec<SocketAddr>,
        before: Option<&Self>,
    ) -> Result<Self, SetupError> {
        let egress = &settings.egress;
        let guard = Guard {
            allow: egress.allow.iter().map(|network| network.0).collect(),
            deny: egress.deny.iter().filter_map(network).collect(),
            deny_hosts: egress.deny.iter().filter_map(host).collect(),
            listed: settings.listed.clone(),
            ports: egress.ports.iter().map(|&PortRange { first, last }| first..=last).collect(),
            listeners,
            setup_host: Some(settings.intercept.setup_host.clone()),
        };
        let parent = egress.upstream_proxy.as_ref().and_then(|url| Parent::new(url).ok()).map(Arc::new);
        let hosts = settings.hosts.clone();
        let users = settings.access.users.iter().filter_map(|user| Some((user.name.as_ref(), user.hosts.as_ref()?)));
        let all = users.clone().map(|(_, hosts)| hosts).chain([&hosts]).flat_map(Hosts::all);
        let trust = Trust::new(&roots, all.filter_map(|host| host.tls.as_ref()), before.map(|before| &before.trust))?;
        let signer = Signer::of(&settings.identity.signature, before.and_then(|before| before.signer.as_ref()))?;
        let everybodys = hosts.unverified();
        for host in &everybodys {
            tracing::warn!(host, "any certificate is accepted (`verify: off`)");
        }
        for (user, hosts) in users {
            for host in hosts.unverified().iter().filter(|host| !everybodys.contains(host)) {
                tracing::warn!(host, user, "any certificate is accepted for this user (`verify: off`)");
            }
        }
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let limits = &settings.limits;
        let (limit, keep) = (limits.connect_timeout, Keep::new(limits));
        let head_size = u32::try_from(limits.max_header_size).unwrap_or(u32::MAX);
        let made_of = settings.clone();
        Ok(OriginSettings {
            generation,
            made_of,
            roots,
            dialler,
            guard,
            limit,
            parent,
            hosts,
            trust,
            keep,
            head_size,
            signer,
        })
    }

    /// What is decided by some settings is not routed by others: what both of them forbid might go otherwise.
    fn is_made_of(&self, settings: &Arc<Settings>) -> Result<(), ReachError> {
        if Arc::ptr_eq(&self.made_of, settings) { Ok(()) } else { Err(ReachError::Reloaded) }
    }

    /// The terms of a user's own for this authority, where they are not everybody's.
    fn own_terms(&self, own: Option<&Hosts>, authority: &Authority) -> Option<Arc<OriginTls>> {
        let terms = &own?.get(authority.host()).tls;
        let differ = hop::is_tls(authority) && *terms != self.hosts.get(authority.host()).tls;
        differ.then(|| terms.clone().unwrap_or_default())
    }
}

fn screen(guard: &Guard, socket: SocketAddr) -> Result<(), Denied> {
    if is_own(guard, socket) { Err(Denied::OwnListener(socket)) } else { guard.screen_socket(socket) }
}

fn is_own(guard: &Guard, socket: SocketAddr) -> bool {
    let reached = |own: &SocketAddr| {
        // Listening on the unspecified address is listening on every address of this machine.
        let everywhere = own.ip().is_unspecified() && own.port() == socket.port();
        egress::is_reached_by(own, socket) || everywhere && is_local(socket.ip())
    };
    guard.listeners.iter().any(reached)
}

fn network(closed: &Closed) -> Option<IpNet> {
    match closed {
        Closed::Network(network) => Some(network.0),
        Closed::Host(_) => None,
    }
}

fn host(closed: &Closed) -> Option<HostPattern> {
    match closed {
        Closed::Host(pattern) => Some(pattern.clone()),
        Closed::Network(_) => None,
    }
}

/// An address of this machine: only there can a socket be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Routes that are found in one look-up, and how long one is taken as it is.
const KNOWN_ROUTES: usize = 10_000;
const KEEP_ROUTE: Duration = Duration::from_secs(30);
/// How long it is not even asked whether one still holds.
const TAKE_AGAIN: Duration = Duration::from_secs(1);

/// For a look at what a name means here, where an upstream proxy will look for itself.
const LOOK: Duration = Duration::from_secs(2);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::Scheme;

    const PUBLIC: &str = "198.41.0.4";

    pub fn upstream(yaml: &str) -> Upstream {
        let settings = Arc::new(Settings::parse("test.yaml", yaml).unwrap());
        let root = &webpki_root_certs::TLS_SERVER_ROOT_CERTS[0];
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem::encode(&pem::Pem::new("CERTIFICATE", root.to_vec()))).unwrap();
        let conf = connector_conf(file.path(), 1);
        Upstream::new(&settings, Arc::new(roots), &conf, vec!["127.0.0.1:80".parse().unwrap()]).unwrap()
    }

    async fn reached(upstream: &Upstream, addresses: &[&str]) -> Result<Vec<String>, String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        upstream.resolver.remember("rebind.example", &addresses);
        let authority = Authority::new(Scheme::Https, "rebind.example", None).unwrap();
        let reached = upstream.reach(&authority).await.map_err(|error| error.to_string())?;
        Ok(reached.0.addresses.iter().map(ToString::to_string).collect())
    }

    /// Public at first, loopback the next time: each answer is screened, and what is dialled is what was screened.
    #[tokio::test]
    async fn a_name_that_changes_its_address_is_screened_anew() {
        let upstream = upstream("");
        assert_eq!(reached(&upstream, &[PUBLIC]).await.unwrap(), ["198.41.0.4:443"]);
        for private in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            assert!(reached(&upstream, &[private]).await.is_err(), "{private}");
        }
        assert!(reached(&upstream, &[PUBLIC]).await.is_ok());
    }

    /// Or a request could go that is forbidden before and after a reload.
    #[tokio::test]
    async fn routes_are_for_those_who_go_by_the_settings_that_they_were_made_of() {
        let upstream = upstream("");
        let authority = Authority::new(Scheme::Https, PUBLIC, None).unwrap();
        let (mut last, now) = (LastRoute::default(), Instant::now());
        let before = upstream.reach.load().made_of.clone();
        let after = Arc::new(Settings::default());
        for (in_force, other) in [(&before, &after), (&after, &before)] {
            upstream.reload(in_force).unwrap();
            assert!(upstream.reach_again(in_force, &authority, ClientId(1), None, now, &mut last).await.is_ok());
            let late = upstream.reach_again(other, &authority, ClientId(1), None, now, &mut last).await;
            assert!(matches!(late, Err(ReachError::Reloaded)));
        }
    }

    /// Or the connections that one of them opens are of no use to the others.
    #[tokio::test]
    async fn those_who_reach_a_place_at_once_share_its_connections() {
        let upstream = Arc::new(upstream("egress: { ports: ['1-65535'] }"));
        let together = Arc::new(std::sync::Barrier::new(2));
        for port in 1..=2000 {
            let authority = Authority::new(Scheme::Https, PUBLIC, Some(port)).unwrap();
            let reach = |upstream: Arc<Upstream>, together: Arc<std::sync::Barrier>| {
                let authority = authority.clone();
                std::thread::spawn(move || {
                    together.wait();
                    futures_util::FutureExt::now_or_never(upstream.reach(&authority)).unwrap().unwrap()
                })
            };
            let both = [reach(upstream.clone(), together.clone()), reach(upstream.clone(), together.clone())];
            let [one, other] = both.map(|reached| reached.join().unwrap());
            assert!(Arc::ptr_eq(&one.0.endpoint, &other.0.endpoint), "{authority}");
        }
    }

    #[tokio::test]
    async fn of_several_addresses_only_the_open_ones_are_dialled() {
        let upstream = upstream("");
        let mixed = ["10.0.0.1", PUBLIC, "::1", "169.254.169.254"];
        assert_eq!(reached(&upstream, &mixed).await.unwrap(), ["198.41.0.4:443"]);
    }

    #[tokio::test]
    async fn an_address_of_our_own_closes_the_name() {
        let upstream = upstream("egress: { allow: [127.0.0.0/8], ports: [80] }");
        upstream.resolver.remember("rebind.example", &[PUBLIC.parse().unwrap(), "127.0.0.1".parse().unwrap()]);
        let authority = Authority::new(Scheme::Http, "rebind.example", None).unwrap();
        let denied = upstream.reach(&authority).await.err().unwrap();
        assert!(matches!(denied, ReachError::Denied(Denied::OwnListener(_))), "{denied}");
    }
}
