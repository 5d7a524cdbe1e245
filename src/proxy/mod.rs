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
pub use exchange::counters::{Counters, Counts, HostFailures};
pub use exchange::recent::{Decisions, RecentDecision};
pub(crate) use respond::evidence;

use crate::config::{AccessLog, Settings};
use crate::gate::{Gate, Reported};
use crate::policy::Refusal;
use crate::tls::LeafCache;
use crate::upstream::{TrustError, Upstream};
use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// The forward proxy: what all connections and requests share.
pub struct Proxy {
    pub settings: Arc<ArcSwap<Settings>>,
    pub gate: Arc<Gate>,
    pub upstream: Arc<Upstream>,
    pub leaves: LeafCache,
    pub shutdown: watch::Receiver<bool>,
    pub counters: Counters,
    pub decisions: Decisions,
    pub distrusted: DistrustedClients,
    /// Somebody reads the access log.
    is_logging: AtomicBool,
    /// Connections, by address and by user.
    clients: limits::per_client::Clients<IpAddr>,
    users: limits::per_client::Clients<String>,
    /// Requests that wait, by user.
    waiting: limits::per_client::Clients<String>,
    passwords: client::auth::Passwords,
    mints: limits::leaf_rate::Mints,
    room: limits::total::Room,
    via: exchange::via::Via,
    pages: exchange::pages::Pages,
}

impl Proxy {
    /// `shutdown` turns true once: then idle connections close and the others after their answer.
    pub fn new(
        settings: Arc<ArcSwap<Settings>>,
        gate: Arc<Gate>,
        upstream: Arc<Upstream>,
        leaves: LeafCache,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let via = exchange::via::Via::new(upstream.name());
        let is_logging = AtomicBool::new(logs(&settings.load()));
        Proxy {
            settings,
            gate,
            upstream,
            leaves,
            shutdown,
            counters: Counters::default(),
            decisions: Decisions::default(),
            distrusted: DistrustedClients::default(),
            is_logging,
            clients: limits::per_client::Clients::default(),
            users: limits::per_client::Clients::default(),
            waiting: limits::per_client::Clients::default(),
            passwords: client::auth::Passwords::new(),
            mints: limits::leaf_rate::Mints::new(),
            room: limits::total::Room::default(),
            via,
            pages: exchange::pages::Pages::default(),
        }
    }

    /// Takes up changed settings without dropping a request.
    ///
    /// # Errors
    /// A client certificate cannot be read: then all stays as it was.
    pub fn reload(&self, settings: Settings) -> Result<(), TrustError> {
        self.upstream.reload(&settings)?;
        self.is_logging.store(logs(&settings), Ordering::Relaxed);
        let before = self.settings.swap(Arc::new(settings));
        self.gate.reloaded(&before);
        Ok(())
    }

    /// Resolves when the proxy is told to stop.
    pub(crate) async fn stopped(&self) {
        // A sender that is gone has stopped too.
        let _ = self.shutdown.clone().wait_for(|down| *down).await;
    }

    fn is_stopping(&self) -> bool {
        // It changes once.
        self.shutdown.has_changed().unwrap_or(true)
    }

    /// For those who watch: a request is refused.
    fn tell_refused(&self, client: IpAddr, url: Option<String>, refusal: Refusal) {
        self.counters.refused(refusal.slug());
        self.decisions.refused(client, url.map(Box::from), refusal);
    }

    /// The same for one that report mode lets through.
    fn tell_reported(&self, client: Option<IpAddr>, url: &str, reported: &Reported) {
        self.counters.reported(reported.slug());
        self.decisions.reported(client, url.into(), reported.clone());
    }
}

fn logs(settings: &Settings) -> bool {
    settings.log.access != AccessLog::Off
}
