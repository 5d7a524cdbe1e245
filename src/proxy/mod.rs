//! The HTTP proxy. `server` builds and starts it; other programs use [`Proxy`].

mod client;
pub(crate) mod descriptors;
mod exchange;
#[cfg(feature = "_fuzzing")]
pub mod fuzzing;
mod io;
mod limits;
mod respond;

pub use client::distrust::{Distrusted, DistrustedClients};
pub(crate) use client::listener;
pub use exchange::counters::{Counters, Counts, Details, HostFailures};
pub use exchange::memory::{RememberedReservation, Reservations};
pub use exchange::offers::{Offer, Offers};
pub use exchange::recent::{Decisions, RecentDecision};
pub use exchange::users::{UserFigures, Who};
pub(crate) use limits::total::{ConnectionPermit, Room};
pub(crate) use respond::evidence;

use crate::config::{AccessLog, Settings};
use crate::evidence::Evidence;
use crate::gate::cache::PageCache;
use crate::gate::{AccountDetail, Gate, Reported};
use crate::policy::Refusal;
use crate::tls::LeafCache;
use crate::upstream::{Prepared, Upstream};
use arc_swap::ArcSwap;
use client::Peer;
use limits::per_client::Place;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::sleep;

/// The forward proxy: state shared by all connections and requests.
pub struct Proxy {
    pub settings: Arc<ArcSwap<Settings>>,
    pub gate: Arc<Gate>,
    pub upstream: Arc<Upstream>,
    pub leaves: LeafCache,
    pub shutdown: watch::Receiver<bool>,
    /// Each task that serves a client holds a receiver, so that shutdown can wait for all of them.
    in_flight: watch::Sender<()>,
    /// Whether shutdown comes soon, so that each answer closes its connection.
    is_leaving: AtomicBool,
    pub counters: Counters,
    pub decisions: Decisions,
    pub offers: Offers,
    pub distrusted: DistrustedClients,
    /// The evidence log of decisions; `None`: off.
    pub evidence: Option<Evidence>,
    /// The shared cache; `None`: off.
    pub cache: Option<Arc<PageCache>>,
    /// Whether the access log is on.
    is_logging: AtomicBool,
    refusals_logged: limits::log_rate::LogRate,
    /// Connection counts by client address. `users`: the same by user.
    clients: limits::per_client::Clients<IpAddr>,
    users: limits::per_client::Clients<String>,
    /// Counts of waiting requests by user.
    waiting: limits::per_client::Clients<String>,
    passwords: client::auth::Passwords,
    leaf_rate: limits::leaf_rate::LeafRate,
    room: limits::total::Room,
    /// HTTP/2 streams in addition to the first of each connection.
    streams: limits::streams::Streams,
    pages: exchange::pages::Pages,
    /// Pages that reserve their content against the operator's declared purpose.
    pub reservations: Reservations,
    visits: exchange::memory::Visits,
}

impl Proxy {
    /// Creates the proxy. When `shutdown` turns true, idle connections close soon, and others after their answer.
    pub fn new(
        settings: Arc<ArcSwap<Settings>>,
        gate: Arc<Gate>,
        upstream: Arc<Upstream>,
        leaves: LeafCache,
        evidence: Option<Evidence>,
        cache: Option<Arc<PageCache>>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let is_logging = AtomicBool::new(logs(&settings.load()));
        let room = limits::total::Room::new(descriptors::room_for_clients(&settings.load()));
        let streams = limits::streams::Streams::new(descriptors::room_for_streams(&settings.load()));
        let counters = Counters::default();
        counters.configure(&settings.load().access.users);
        Proxy {
            settings,
            gate,
            upstream,
            leaves,
            shutdown,
            in_flight: watch::Sender::new(()),
            is_leaving: AtomicBool::new(false),
            counters,
            decisions: Decisions::default(),
            offers: Offers::default(),
            distrusted: DistrustedClients::default(),
            evidence,
            cache,
            is_logging,
            refusals_logged: limits::log_rate::LogRate::default(),
            clients: limits::per_client::Clients::default(),
            users: limits::per_client::Clients::default(),
            waiting: limits::per_client::Clients::default(),
            passwords: client::auth::Passwords::new(),
            leaf_rate: limits::leaf_rate::LeafRate::new(),
            room,
            streams,
            pages: exchange::pages::Pages::default(),
            reservations: Reservations::default(),
            visits: exchange::memory::Visits::default(),
        }
    }

    /// Applies changed settings and the prepared `upstream` without dropping a request.
    pub fn reload(&self, settings: Arc<Settings>, prepared: Prepared) {
        self.leaves.resize(settings.intercept.leaf_cache.get());
        self.upstream.adopt(prepared);
        self.is_logging.store(logs(&settings), Relaxed);
        if let Some(evidence) = &self.evidence {
            evidence.keep_for(settings.evidence.keep);
        }
        self.counters.configure(&settings.access.users);
        if let Some(cache) = &self.cache {
            cache.resize(settings.cache.size);
        }
        let before = self.settings.swap(settings);
        self.gate.reloaded(&before);
    }

    /// Makes each answer close its connection, so that clients connect elsewhere before shutdown.
    pub fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    /// The number of open client connections, and of all since the start.
    pub fn connections(&self) -> (usize, u64) {
        self.room.counts()
    }

    /// Resolves when the proxy is asked to stop.
    pub(crate) async fn stopped(&self) {
        // A dropped sender also means stop.
        let _ = self.shutdown.clone().wait_for(|down| *down).await;
    }

    /// Resolves when no task serves a client any more, so that every request is counted and recorded. Tasks that were cut
    /// off have ended too.
    pub(crate) async fn served(&self) {
        self.in_flight.closed().await;
    }

    /// Takes a place among the connections of one address. Error: the limit (`limits.max_connections_per_client`).
    fn client_place(&self, client: IpAddr) -> Result<Place<IpAddr>, usize> {
        let limit = self.settings.load().limits.max_connections_per_client.get();
        self.clients.enter_or(client, limit, || self.room.close_idle_of(client)).ok_or(limit)
    }

    /// Like `stopped`, but later by `STOP_GRACE`, so that requests already sent arrive.
    async fn stopped_after_grace(&self) {
        self.stopped().await;
        sleep(STOP_GRACE.min(self.settings.load().limits.drain_timeout)).await;
    }

    /// When the proxy stops, closes idle connections after `STOP_GRACE`. Resolves when `ended` does.
    async fn close_until(&self, ended: impl Future<Output = ()>) {
        let close = async {
            self.stopped_after_grace().await;
            self.room.close();
            std::future::pending().await
        };
        tokio::select! {
            () = ended => {}
            () = close => {}
        }
    }

    fn account_detail(&self) -> AccountDetail {
        let basis = self.evidence.is_some();
        AccountDetail { rule: basis || self.is_logging.load(Relaxed), basis }
    }

    /// Waits until the evidence log has room for another record.
    async fn evidence_room(&self) {
        if let Some(evidence) = &self.evidence {
            evidence.room().await;
        }
    }

    fn is_stopping(&self) -> bool {
        // The value changes only once, to true.
        self.shutdown.has_changed().unwrap_or(true)
    }

    /// Adds a refusal to the log and to the dashboard.
    fn log_refused(&self, peer: &Peer, url: Option<String>, refusal: Refusal) {
        let (at, slug, user) = (SystemTime::now(), refusal.slug(), peer.user.as_deref());
        if let Some(left_out) = self.refusals_logged.allow(at) {
            let (client, url) = (peer.address.ip().to_canonical(), url.as_deref());
            let user = user.map(|user| user.name.as_ref());
            // Refusals since the last logged one.
            let others = Some(left_out).filter(|others| *others > 0);
            tracing::info!(target: "politely::refusals", %client, user, url, refusal = slug, others, "{refusal}");
        }
        self.decisions.refused(peer.address.ip(), peer.user.as_deref(), url.map(Box::from), refusal, at);
    }

    /// Counts a refusal that report mode does not enforce, and adds it to the dashboard.
    fn log_reported(&self, peer: &Peer, url: &str, reported: &Reported) {
        self.counters.reported(reported.slug());
        self.decisions.reported(peer.address.ip(), peer.user.as_deref(), url.into(), reported.clone());
    }
}

fn logs(settings: &Settings) -> bool {
    settings.log.access != AccessLog::Off
}

/// Time at shutdown for the arrival of requests that clients have just sent.
const STOP_GRACE: Duration = Duration::from_millis(500);
