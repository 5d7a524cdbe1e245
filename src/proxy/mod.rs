//! HTTP in and out. Built and started by `server`; usable from another program through [`Proxy`].

mod access;
mod arrival;
mod chunked;
mod clients;
mod connect;
mod connection;
mod counters;
mod decide;
mod decisions;
pub(crate) mod descriptors;
mod downstream;
mod failure;
mod fields;
mod forward;
#[cfg(fuzzing)]
pub mod fuzzing;
mod head;
mod leaving;
pub(crate) mod listener;
mod meter;
mod mints;
mod origin_head;
mod passage;
mod passing;
mod record;
mod respond;
mod room;
mod tunnel;
mod upgrade;
mod wire;

pub use counters::{Counters, Counts};
pub use decisions::{Decision, Decisions};
pub(crate) use respond::evidence;

use crate::config::Settings;
use crate::gate::{Gate, Reported};
use crate::policy::Refusal;
use crate::tls::LeafCache;
use crate::upstream::{TrustError, Upstream};
use arc_swap::ArcSwap;
use pingora::proxy::HttpProxy;
use pingora_core::apps::HttpServerOptions;
use pingora_core::server::configuration::ServerConf;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::watch;

/// The forward proxy: what connections share, and pingora's engine that requests go through.
pub struct Proxy {
    shared: Arc<Shared>,
    http: Arc<HttpProxy<forward::Forward>>,
}

/// What every request reads.
pub struct Shared {
    pub settings: Arc<ArcSwap<Settings>>,
    pub gate: Arc<Gate>,
    pub upstream: Arc<Upstream>,
    pub leaves: LeafCache,
    pub shutdown: watch::Receiver<bool>,
    pub counters: Counters,
    pub decisions: Decisions,
    /// Connections, by address and by user.
    clients: clients::Clients<IpAddr>,
    users: clients::Clients<String>,
    /// Requests that wait, by user.
    waiting: clients::Clients<String>,
    passwords: access::Passwords,
    mints: mints::Mints,
    room: room::Room,
    via: fields::Via,
}

impl Proxy {
    /// `shutdown` turns true once: then idle connections close and the others after their answer.
    pub fn new(
        settings: Arc<ArcSwap<Settings>>,
        gate: Arc<Gate>,
        upstream: Arc<Upstream>,
        leaves: LeafCache,
        shutdown: watch::Receiver<bool>,
        conf: ServerConf,
    ) -> Self {
        let limits = settings.load().limits.clone();
        let via = fields::Via::new(upstream.name());
        let shared = Arc::new(Shared {
            settings,
            gate,
            upstream,
            leaves,
            shutdown,
            counters: Counters::default(),
            decisions: Decisions::default(),
            clients: clients::Clients::default(),
            users: clients::Clients::default(),
            waiting: clients::Clients::default(),
            passwords: access::Passwords::new(),
            mints: mints::Mints::new(),
            room: room::Room::default(),
            via,
        });
        let mut http = pingora::proxy::http_proxy(&Arc::new(conf), forward::Forward(shared.clone()));
        let mut options = HttpServerOptions::default();
        options.h2_idle_timeout = Some(limits.idle_timeout);
        http.server_options = Some(options);
        let mut h2 = pingora_core::protocols::http::v2::server::default_h2_options();
        h2.max_header_list_size(limits.max_header_size as u32).max_concurrent_streams(MAX_STREAMS);
        http.h2_options = Some(h2);
        Proxy { shared, http: Arc::new(http) }
    }
}

impl Shared {
    /// Resolves when the proxy is told to stop.
    async fn stopped(&self) {
        // A sender that is gone has stopped too.
        let _ = self.shutdown.clone().wait_for(|down| *down).await;
    }
}

impl Shared {
    /// Takes up changed settings without dropping a request.
    ///
    /// # Errors
    /// A client certificate cannot be read: then all stays as it was.
    pub fn reload(&self, settings: Settings) -> Result<(), TrustError> {
        self.upstream.reload(&settings)?;
        let before = self.settings.swap(Arc::new(settings));
        self.gate.reloaded(&before);
        Ok(())
    }

    /// For those who watch: a request is refused.
    fn tell_refused(&self, client: Option<IpAddr>, url: Option<&str>, refusal: &Refusal) {
        self.counters.refused(refusal.slug());
        self.decisions.add(client, url, Reported::from(refusal.clone()), true);
    }

    /// The same for one that report mode lets through.
    fn tell_reported(&self, client: Option<IpAddr>, url: &str, reported: &Reported) {
        self.counters.reported(reported.slug());
        self.decisions.add(client, Some(url), reported.clone(), false);
    }
}

impl Deref for Proxy {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Requests at a time on one h2 connection.
const MAX_STREAMS: u32 = 100;
