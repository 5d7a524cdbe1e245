//! HTTP in and out. Built and started by `server`; usable from another program through [`Proxy`].

mod client;
pub(crate) mod descriptors;
mod exchange;
#[cfg(fuzzing)]
pub mod fuzzing;
mod io;
mod limits;
mod respond;

pub use client::distrusted::{Distrusted, DistrustedClients};
pub(crate) use client::listener;
pub use exchange::counters::{Counters, Counts, Details, HostFailures};
pub use exchange::offers::{Offer, Offers};
pub use exchange::recent::{Decisions, RecentDecision};
pub use exchange::users::{UserFigures, Who};
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
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::sleep;

/// The forward proxy: what all connections and requests share.
pub struct Proxy {
    pub settings: Arc<ArcSwap<Settings>>,
    pub gate: Arc<Gate>,
    pub upstream: Arc<Upstream>,
    pub leaves: LeafCache,
    pub shutdown: watch::Receiver<bool>,
    /// Each task that serves a client holds a receiver of it, so that an end can wait for those that it cuts off.
    under_way: watch::Sender<()>,
    /// It stops soon: each answer is its connection's last.
    is_leaving: AtomicBool,
    pub counters: Counters,
    pub decisions: Decisions,
    pub offers: Offers,
    pub distrusted: DistrustedClients,
    /// What was decided about each request; `None`: none is kept.
    pub evidence: Option<Evidence>,
    /// Answers that all clients share; `None`: none are kept.
    pub cache: Option<Arc<PageCache>>,
    /// Somebody reads the access log.
    is_logging: AtomicBool,
    refusals_logged: limits::log_rate::LogRate,
    /// Connections, by address and by user.
    clients: limits::per_client::Clients<IpAddr>,
    users: limits::per_client::Clients<String>,
    /// Requests that wait, by user.
    waiting: limits::per_client::Clients<String>,
    passwords: client::auth::Passwords,
    mints: limits::leaf_rate::Mints,
    room: limits::total::Room,
    /// For streams of HTTP/2 beside the first of each connection.
    streams: limits::streams::Streams,
    via: exchange::via::Via,
    pages: exchange::pages::Pages,
    reserved: exchange::memory::Reserved,
    visits: exchange::memory::Visits,
}

impl Proxy {
    /// `shutdown` turns true once: then idle connections close and the others after their answer.
    pub fn new(
        settings: Arc<ArcSwap<Settings>>,
        gate: Arc<Gate>,
        upstream: Arc<Upstream>,
        leaves: LeafCache,
        evidence: Option<Evidence>,
        cache: Option<PageCache>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let via = exchange::via::Via::new(upstream.name());
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
            under_way: watch::Sender::new(()),
            is_leaving: AtomicBool::new(false),
            counters,
            decisions: Decisions::default(),
            offers: Offers::default(),
            distrusted: DistrustedClients::default(),
            evidence,
            cache: cache.map(Arc::new),
            is_logging,
            refusals_logged: limits::log_rate::LogRate::default(),
            clients: limits::per_client::Clients::default(),
            users: limits::per_client::Clients::default(),
            waiting: limits::per_client::Clients::default(),
            passwords: client::auth::Passwords::new(),
            mints: limits::leaf_rate::Mints::new(),
            room,
            streams,
            via,
            pages: exchange::pages::Pages::default(),
            reserved: exchange::memory::Reserved::default(),
            visits: exchange::memory::Visits::default(),
        }
    }

    /// Applies changed settings, and what `upstream` has made of them, without dropping a request.
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

    /// To be called before the end, so that clients connect elsewhere for their next requests.
    pub fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    /// Connections of clients: those that are open, and all that ever were.
    pub fn connections(&self) -> (usize, u64) {
        self.room.counts()
    }

    /// Resolves when the proxy is asked to stop.
    pub(crate) async fn stopped(&self) {
        // A sender that is gone has stopped too.
        let _ = self.shutdown.clone().wait_for(|down| *down).await;
    }

    /// Resolves when no task serves a client any more, also of those that were cut off: then all is counted and on record.
    pub(crate) async fn served(&self) {
        self.under_way.closed().await;
    }

    /// The same, but not before clients that have just connected, or been answered, could send what they have to send.
    async fn stopped_for_a_while(&self) {
        self.stopped().await;
        sleep(LAST_REQUEST.min(self.settings.load().limits.drain_timeout)).await;
    }

    fn wanted(&self) -> AccountDetail {
        let basis = self.evidence.is_some();
        AccountDetail { rule: basis || self.is_logging.load(Relaxed), basis }
    }

    /// Returns when there is room for another record.
    async fn evidence_room(&self) {
        if let Some(evidence) = &self.evidence {
            evidence.room().await;
        }
    }

    fn is_stopping(&self) -> bool {
        // It changes once.
        self.shutdown.has_changed().unwrap_or(true)
    }

    /// For the log and the dashboard: a request is refused.
    fn log_refused(&self, peer: &Peer, url: Option<String>, refusal: Refusal) {
        let (at, slug, user) = (SystemTime::now(), refusal.slug(), peer.user.as_deref());
        if let Some(left_out) = self.refusals_logged.allow(at) {
            let (client, url) = (peer.address.ip().to_canonical(), url.as_deref());
            let user = user.map(|user| user.name.as_ref());
            // Those that were refused since the last that was logged, if not all are.
            let others = Some(left_out).filter(|others| *others > 0);
            tracing::info!(%client, user, url, refusal = slug, others, "{refusal}");
        }
        self.decisions.refused(peer.address.ip(), peer.user.as_deref(), url.map(Box::from), refusal, at);
    }

    /// The same for one that report mode lets through.
    fn log_reported(&self, peer: &Peer, url: &str, reported: &Reported) {
        self.counters.reported(reported.slug());
        self.decisions.reported(peer.address.ip(), peer.user.as_deref(), url.into(), reported.clone());
    }
}

fn logs(settings: &Settings) -> bool {
    settings.log.access != AccessLog::Off
}

/// When the proxy stops: a request that is on its way then is answered.
const LAST_REQUEST: Duration = Duration::from_millis(500);
