//! Assembles the parts of the proxy; starts and stops them.

mod authority;
mod check;
mod error;
mod gate_alone;
mod listeners;
mod reload;
mod sockets;

pub use check::check;
pub use error::StartError;
pub use gate_alone::{gate_alone, gate_with_store};

use crate::admin::Admin;
use crate::config::{AdminToken, Changes, Settings, keep_instance_name};
use crate::evidence::Evidence;
use crate::gate::cache::PageCache;
use crate::gate::{Gate, GateFigures, HeldFigures, HeldRequest};
use crate::policy::{Authority, Entry};
use crate::proxy::{self, Counts, Decisions, Distrusted, HostFailures, Proxy};
use crate::tls::{Ca, LeafCache, Roots, roots};
use crate::upstream::{OriginRoots, Upstream};
use arc_swap::ArcSwap;
use listeners::{Listeners, Plan};
use reload::Reloadable;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// A running proxy. Dropping it aborts requests in flight; [`shutdown`](Self::shutdown) lets them finish.
pub struct Running {
    parts: Arc<Reloadable>,
    stop: watch::Sender<bool>,
    /// The tasks of the admin address and of the daily check of the certificate authority.
    beside: JoinSet<()>,
}

/// The totals of a proxy from its start to its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct Totals {
    pub connections: u64,
    pub counts: Counts,
    pub held: HeldFigures,
    /// Failures by host. If many hosts failed, only those that failed most often.
    pub failures: BTreeMap<Box<str>, HostFailures>,
    /// Clients that have rejected our certificates, the latest first.
    pub distrusted: Vec<Arc<Distrusted>>,
    /// Authorities that serve an HTML page instead of robots.txt.
    pub html_robots: Vec<Authority>,
    /// Authorities with usage preferences in robots.txt, which were not applied because no purpose is declared.
    pub without_purpose: Vec<Authority>,
}

/// Starts the proxy within the current tokio runtime. The proxy accepts connections as soon as this returns.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    start_on(settings, Vec::new()).await
}

/// Like [`start`], but uses `sockets`, which listen already, for the first entries of `settings.listen`.
pub async fn start_on(settings: Settings, sockets: Vec<TcpListener>) -> Result<Running, StartError> {
    let now = OffsetDateTime::now_utc();
    if now < OffsetDateTime::UNIX_EPOCH {
        return Err(StartError::Clock(now));
    }
    proxy::descriptors::raise_limit(&settings);
    let plan = Plan::on(&settings, sockets)?;
    survive_full_files()?;
    let admin_socket = match &settings.admin.address {
        // Uses the first socket if systemd passed several.
        Some(address) => sockets::open(address, &[]).map_err(StartError::for_admin)?.into_iter().next(),
        None => None,
    };
    let admin_address = admin_socket.as_ref().map(TcpListener::local_addr).transpose()?;

    if let Err(error) = keep_instance_name(&settings) {
        tracing::debug!(%error, "cannot save the name of this instance: it changes with each start");
    }
    let ca = Ca::configured(&settings)?;
    if let Some(warning) = ca.warning(now) {
        tracing::warn!("{warning}");
    }
    let leaves = LeafCache::new(ca, settings.intercept.leaf_cache.get())?;
    let roots = roots::configured(&settings)?;
    let own: Vec<_> = plan.addresses().chain(admin_address).collect();
    sockets::warn_of_unclaimed(&own, None);
    let settings = Arc::new(settings);
    let configured = settings.clone();
    let upstream = Arc::new(Upstream::new(&settings, roots_of(&roots), own)?);
    let Settings { evidence: kept, .. } = &*settings;
    let open = |directory: &PathBuf| Evidence::open(directory, kept.keep, upstream.name(), &settings.kept().0);
    let evidence = kept.directory.as_ref().map(open).transpose().map_err(|error| error.placed(&settings.places))?;
    let open = |path: &PathBuf| {
        PageCache::open(path, settings.cache.size).map_err(|source| StartError::cache(&settings, path, &source))
    };
    let cache = settings.cache.directory.as_ref().map(open).transpose()?;
    let settings = Arc::new(ArcSwap::new(settings));
    let gate = Arc::new(Gate::open(settings.clone(), upstream.clone()));
    gate.join().await;
    let (stop, shutdown) = watch::channel(false);
    let proxy = Arc::new(Proxy::new(settings, gate, upstream, leaves, evidence, cache, shutdown));

    let mut beside = JoinSet::new();
    let (watched, stopping) = (proxy.clone(), proxy.clone());
    let stopped = async move { stopping.stopped().await };
    let warning = move || watched.leaves.ca().warning(OffsetDateTime::now_utc());
    beside.spawn(authority::watch(stopped, warning, |warning| tracing::warn!("{warning}")));
    let listeners = Listeners::new(proxy.clone());
    let admin = match admin_socket.zip(admin_address) {
        Some((socket, address)) => {
            let admin = Admin::new(proxy.clone())
                .map_err(|source| StartError::token(&configured, &AdminToken::of(&configured).path, &source))?;
            let admin = Arc::new(admin);
            beside.spawn(admin.clone().serve(socket));
            Some((admin, address))
        }
        None => None,
    };
    listeners.apply(plan);
    if let Some((admin, _)) = &admin {
        admin.listeners.store(Arc::new(listeners.addresses()));
    }
    let parts = Arc::new(Reloadable::new(proxy, listeners, admin, roots.pem));
    Ok(Running { parts, stop, beside })
}

impl Running {
    /// The listening addresses in the order of the configuration, with the actual ports in place of 0.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.parts.listeners.addresses().into_iter().map(|(address, _)| address).collect()
    }

    /// The admin address, with the actual port in place of 0.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.parts.admin.as_ref().map(|(_, address)| *address)
    }

    /// The token that admin requests must send. `None`: there is no admin address, or no token could be stored.
    pub fn admin_token(&self) -> Option<&str> {
        self.parts.admin.as_ref()?.0.token()
    }

    /// Sets the source of settings for [`reload_from_file`](Self::reload_from_file) and `POST /api/v1/reload`; an error of `load` says what
    /// is wrong with them.
    pub fn reload_from(&self, load: impl Fn() -> Result<Settings, String> + Send + Sync + 'static) {
        // Fails if a source is already set.
        let _ = self.parts.load.set(Box::new(load));
        if let Some((admin, _)) = &self.parts.admin {
            let parts = Arc::downgrade(&self.parts);
            let _ = admin.reload.set(Box::new(move || parts.upgrade()?.reload_from_file()));
        }
    }

    /// The name of this process in Via.
    pub fn name(&self) -> &str {
        self.parts.proxy.upstream.name()
    }

    /// The file of the certificate that clients have to trust.
    pub fn ca_path(&self) -> PathBuf {
        self.parts.proxy.leaves.ca().path().to_owned()
    }

    /// The counters of requests.
    pub fn counts(&self) -> Counts {
        self.parts.proxy.counters.read()
    }

    /// The request that has been held longest, if it has been held for at least this time.
    pub fn longest_held(&self, at_least: Duration) -> Option<HeldRequest> {
        self.parts.proxy.gate.longest_held(at_least)
    }

    /// Waits until a request is no longer held. Only one caller may wait.
    pub async fn released(&self) {
        self.parts.proxy.gate.released().await;
    }

    /// Recent refusals, and a subscription to further ones.
    pub fn decisions(&self) -> &Decisions {
        &self.parts.proxy.decisions
    }

    /// Current figures of the gate, such as the number of requests that wait.
    pub fn figures(&self) -> GateFigures {
        self.parts.proxy.gate.figures()
    }

    /// Applies changed settings without dropping a request, as far as a running proxy can, and returns what was applied.
    ///
    /// # Errors
    /// A socket cannot be opened, or a file cannot be read; nothing is changed then.
    pub fn reload(&self, settings: Settings) -> Result<Changes, StartError> {
        self.parts.reload(settings)
    }

    /// Reloads from the source set by [`reload_from`](Self::reload_from), and logs the result.
    pub async fn reload_from_file(&self) {
        let parts = self.parts.clone();
        // Fails only when the runtime shuts down.
        let _ = tokio::task::spawn_blocking(move || parts.reload_from_file()).await;
    }

    /// The configured time between [`leave`](Self::leave) and [`shutdown`](Self::shutdown).
    pub fn shutdown_delay(&self) -> Duration {
        self.parts.proxy.settings.load().limits.shutdown_delay
    }

    /// The configured time for active requests to finish.
    pub fn drain_timeout(&self) -> Duration {
        self.parts.proxy.settings.load().limits.drain_timeout
    }

    /// Makes `/readyz` report that the proxy is stopping, and asks clients to reconnect for their next request.
    pub fn leave(&self) {
        self.parts.proxy.leave();
    }

    /// Stops accepting, lets requests in flight and held requests finish within `limits.drain_timeout`, and returns the totals when
    /// everything is closed. The admin address answers until then.
    pub async fn shutdown(self) -> Totals {
        self.shutdown_before(std::future::pending()).await
    }

    /// Like [`shutdown`](Self::shutdown), but aborts the requests still in flight when `cut` completes.
    pub async fn shutdown_before(mut self, cut: impl Future<Output = ()>) -> Totals {
        let proxy = self.parts.proxy.clone();
        let drain = proxy.settings.load().limits.drain_timeout;
        proxy.leave();
        // Refuses waiting requests early enough that the refusals still reach their clients.
        proxy.gate.drain(Instant::now() + drain - (drain / 10).min(LAST_ANSWERS));
        self.stop.send_replace(true);
        let mut listeners = self.parts.listeners.take_tasks();
        tokio::select! {
            () = async { while listeners.join_next().await.is_some() {} } => {}
            () = cut => {}
        }
        listeners.shutdown().await;
        // Waits for all requests, so that aborted ones are also recorded before the evidence is closed.
        proxy.served().await;
        let known = proxy.gate.latest(usize::MAX);
        let those = |is_it: &dyn Fn(&Authority, &Entry) -> bool| {
            let known = known.iter().filter(|(authority, entry)| is_it(authority, entry));
            known.map(|(authority, _)| authority.clone()).collect()
        };
        let html_robots = those(&|_, entry| entry.is_html());
        let without_purpose = those(&|authority, entry| proxy.gate.lacks_purpose(authority, entry));
        proxy.gate.leave_fleet().await;
        let gate = proxy.gate.clone();
        let (closing, (closes, closed)) = (proxy.clone(), oneshot::channel::<()>());
        // Uses a new thread, as the runtime's blocking threads may be busy for long. If the thread cannot start, the store and the evidence
        // close when dropped.
        let closer = thread::Builder::new().name("politely-close".into()).spawn(move || {
            let _closes = closes;
            gate.close();
            closing.evidence.iter().for_each(Evidence::close);
        });
        if closer.is_ok() {
            let _ = closed.await;
        }
        if let Some((admin, _)) = &self.parts.admin {
            admin.end();
            while self.beside.join_next().await.is_some() {}
        }
        Totals {
            counts: proxy.counters.read(),
            held: proxy.gate.figures().held,
            failures: proxy.counters.failures(),
            distrusted: proxy.distrusted.latest(),
            html_robots,
            without_purpose,
            connections: proxy.connections().1,
        }
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) return an error, as on a full disk, instead of ending the process by SIGXFSZ.
/// The handler, which children do not inherit, stays for the life of the process.
fn survive_full_files() -> io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// The roots that origins are verified against.
fn roots_of(roots: &Roots) -> OriginRoots {
    OriginRoots { store: roots.store.clone(), pem: roots.pem.as_str().into() }
}

/// Time before the end of the drain at which waiting requests are refused, so that clients receive the answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
