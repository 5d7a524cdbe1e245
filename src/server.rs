//! Puts the parts together, starts and stops them.

use crate::admin::Admin;
use crate::config::{ListenAddress, Settings};
use crate::gate::{Figures, Gate, HeldFigures, HeldRequest};
use crate::proxy::{self, Counts, Decisions, Distrusted, HostFailures, Proxy, listener};
use crate::tls::{Ca, CaError, LeafCache, ListenerTlsError, Roots, RootsError, listener_config, roots};
use crate::upstream::{TrustError, Upstream, connector_conf};
use arc_swap::ArcSwap;
use pingora_core::server::configuration::ServerConf;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A proxy that serves. Dropping it cuts off what is under way; [`shutdown`](Self::shutdown) lets it finish.
pub struct Running {
    proxy: Arc<Proxy>,
    addresses: Vec<SocketAddr>,
    ca_path: PathBuf,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
    admin: Option<(Arc<Admin>, SocketAddr)>,
}

/// What a proxy did from its start to its end.
#[derive(Debug)]
pub struct Totals {
    pub counts: Counts,
    pub held: HeldFigures,
    /// By host: the first hosts that failed.
    pub failures: BTreeMap<Box<str>, HostFailures>,
    /// Clients that have turned our certificates down, the last first.
    pub distrusted: Vec<Arc<Distrusted>>,
}

/// Why it could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("no socket named `{0}` was handed over")]
    NotInherited(String),
    #[error("anybody who reaches `{0}` could use this proxy")]
    OpenToAll(SocketAddr),
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error("cannot listen on {address} for the admin address: {source}")]
    Admin { address: String, source: io::Error },
    #[error("cannot read the token in {path}: {source}")]
    Token { path: PathBuf, source: io::Error },
    #[error(transparent)]
    ListenerTls(#[from] ListenerTlsError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot set up: {0}")]
    Io(#[from] io::Error),
}

impl StartError {
    fn for_admin(error: Self) -> Self {
        match error {
            Self::Listen { address, source } => Self::Admin { address, source },
            other => other,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "another program listens there; stop it, or choose another address with \
                    `--listen` or `listen:`"
                    .into(),
                io::ErrorKind::PermissionDenied => "ports below 1024 are root's; choose a higher one".into(),
                io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
                _ => "choose another address with `--listen` or `listen:`".into(),
            },
            Self::NotInherited(name) => {
                format!("a systemd socket unit with `FileDescriptorName={name}` hands it over")
            }
            Self::OpenToAll(_) => "say in `access` who may, such as `clients: [10.0.0.0/8]`".into(),
            Self::Admin { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "does another politely run? give this one `admin: { address: off }`, or a \
                    port of its own"
                    .into(),
                _ => "choose another `admin.address`, or write `off`".into(),
            },
            Self::Token { .. } => "`admin.token_file` names a file that holds the token and nothing else".into(),
            Self::Ca(error) => error.hint(),
            Self::Roots(error) => error.hint().into(),
            Self::ListenerTls(_) => {
                "correct `listen[].tls`: `certificate` with its chain, `key` and `client_ca` are PEM files".into()
            }
            Self::Trust(_) => {
                "correct `client_certificate` in `hosts`: `certificate` with its chain and `key` are PEM files".into()
            }
            Self::Io(_) => "is there room and permission for temporary files?".into(),
        }
    }
}

/// Starts the proxy within the current tokio runtime. It serves when this returns.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    let mut sockets = Vec::new();
    for listener in &settings.listen {
        sockets.push(bind(&listener.address).await?);
    }
    start_on(settings, sockets).await
}

/// The same on sockets that listen already, one for each of `settings.listen`.
pub async fn start_on(settings: Settings, sockets: Vec<TcpListener>) -> Result<Running, StartError> {
    proxy::descriptors::raise_limit();
    survive_full_files()?;
    let open_to_all = settings.access.clients.is_empty() && settings.access.users.is_empty();
    let tls = settings.listen.iter().map(|listener| listener.tls.as_ref().map(listener_config).transpose());
    let tls = tls.collect::<Result<Vec<_>, _>>()?;
    let identified =
        settings.listen.iter().map(|listener| listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));
    let addresses = sockets.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;

    // `config` has judged the addresses that are written; a socket that was handed over is known only here.
    let mut judged = addresses.iter().zip(identified);
    if let Some((open, _)) = judged.find(|(address, known)| open_to_all && !known && !address.ip().is_loopback()) {
        return Err(StartError::OpenToAll(*open));
    }
    let admin_socket = match &settings.admin.address {
        Some(address) => Some(bind(address).await.map_err(StartError::for_admin)?),
        None => None,
    };
    let admin_address = admin_socket.as_ref().map(TcpListener::local_addr).transpose()?;

    let ca = Ca::configured(&settings.intercept.ca)?;
    if let Some(warning) = ca.warning(OffsetDateTime::now_utc()) {
        tracing::warn!("{warning}");
    }
    let ca_path = ca.path().to_owned();
    let leaves = LeafCache::new(ca, settings.intercept.leaf_cache)?;
    let roots = roots::bundle(settings.egress.ca_file.as_deref())?;
    let file = roots_file(&roots)?;
    let conf = conf(&file);

    let own = addresses.iter().copied().chain(admin_address).collect();
    let upstream = Arc::new(Upstream::new(&settings, roots.store, &conf, own)?);
    let admin_settings = settings.admin.clone();
    let settings = Arc::new(ArcSwap::from_pointee(settings));
    let gate = Arc::new(Gate::open(settings.clone(), upstream.clone()));
    gate.join().await;
    let (stop, shutdown) = watch::channel(false);
    let proxy = Arc::new(Proxy::new(settings, gate, upstream, leaves, shutdown));

    let told = addresses.iter().copied().zip(tls.iter().map(Option::is_some)).collect();
    let mut listeners = JoinSet::new();
    listeners.spawn(watch_expiry(proxy.clone()));
    for (socket, tls) in sockets.into_iter().zip(tls) {
        listeners.spawn(listener::serve(proxy.clone(), socket, tls));
    }
    let admin = match admin_socket.zip(admin_address) {
        Some((socket, address)) => {
            let admin = Admin::new(proxy.clone(), told, &admin_settings).map_err(|source| StartError::Token {
                path: admin_settings.token_file.clone().unwrap_or_default(),
                source,
            })?;
            let admin = Arc::new(admin);
            listeners.spawn(admin.clone().serve(socket));
            Some((admin, address))
        }
        None => None,
    };
    Ok(Running { proxy, addresses, ca_path, stop, listeners, admin })
}

/// Tells each day of an authority that expires soon.
async fn watch_expiry(proxy: Arc<Proxy>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(DAY) => {}
            () = proxy.stopped() => break,
        }
        if let Some(warning) = proxy.leaves.ca().warning(OffsetDateTime::now_utc()) {
            tracing::warn!("{warning}");
        }
    }
}

/// The gate without a proxy: to ask it about URLs.
///
/// # Errors
/// The roots to verify origins against cannot be read.
pub fn gate_alone(settings: Settings) -> Result<Gate, StartError> {
    let roots = roots::bundle(settings.egress.ca_file.as_deref())?;
    let file = roots_file(&roots)?;
    let conf = conf(&file);
    let upstream = Arc::new(Upstream::new(&settings, roots.store, &conf, Vec::new())?);
    Ok(Gate::new(Arc::new(ArcSwap::from_pointee(settings)), upstream))
}

impl Running {
    /// Where it listens, in the order of the configuration, with the ports that were given for 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the admin address is, with the port that was given for 0.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// From where `POST /api/v1/reload` takes changed settings; the error is what is wrong with them.
    pub fn reload_from(&self, load: impl Fn() -> Result<Settings, String> + Send + Sync + 'static) {
        if let Some((admin, _)) = &self.admin {
            let proxy = self.proxy.clone();
            let reload = move || proxy.reload(load()?).map_err(|error| error.to_string());
            // Whoever is first has said where the configuration is.
            let _ = admin.reload.set(Box::new(reload));
        }
    }

    /// The certificate that clients have to trust.
    pub fn ca_path(&self) -> &Path {
        &self.ca_path
    }

    /// What has been answered so far.
    pub fn counts(&self) -> Counts {
        self.proxy.counters.read()
    }

    /// The request that has been held longest, if for so long.
    pub fn longest_held(&self, at_least: Duration) -> Option<HeldRequest> {
        self.proxy.gate.longest_held(at_least)
    }

    /// What was refused recently, and what is from now on.
    pub fn decisions(&self) -> &Decisions {
        &self.proxy.decisions
    }

    /// What there is at the moment: rules held, requests that wait.
    pub fn figures(&self) -> Figures {
        self.proxy.gate.figures()
    }

    /// Takes up changed settings without dropping a request. Listeners, CA and roots stay as they are until a restart.
    ///
    /// # Errors
    /// A client certificate cannot be read: then all stays as it was.
    pub fn reload(&self, settings: Settings) -> Result<(), TrustError> {
        self.proxy.reload(settings)
    }

    /// Stops accepting, lets requests under way finish within `limits.drain_timeout`, and returns when all is closed: what
    /// came of it all.
    pub async fn shutdown(self) -> Totals {
        self.shutdown_before(std::future::pending()).await
    }

    /// The same, but what is under way still at `cut` is cut off then.
    pub async fn shutdown_before(mut self, cut: impl Future<Output = ()>) -> Totals {
        self.stop.send_replace(true);
        tokio::select! {
            () = async { while self.listeners.join_next().await.is_some() {} } => {}
            () = cut => {}
        }
        self.listeners.shutdown().await;
        let gate = self.proxy.gate.clone();
        // It fails only when the runtime is going away itself; then the gate closes when it is dropped.
        let _ = tokio::task::spawn_blocking(move || gate.close()).await;
        let proxy = self.proxy;
        Totals {
            counts: proxy.counters.read(),
            held: proxy.gate.figures().held,
            failures: proxy.counters.failures(),
            distrusted: proxy.distrusted.latest(),
        }
    }
}

/// Who writes beyond a limit on the size of files (`ulimit -f`) is to get an error, as on a full disk, in place of the
/// signal's end. A handler, which children do not inherit, stays for as long as the process runs.
fn survive_full_files() -> io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

async fn bind(address: &ListenAddress) -> Result<TcpListener, StartError> {
    match address {
        ListenAddress::Socket(address) => TcpListener::bind(address)
            .await
            .map_err(|source| StartError::Listen { address: address.to_string(), source }),
        ListenAddress::Inherited(name) => inherited(name),
    }
}

/// A socket that systemd opened (sd_listen_fds(3)).
fn inherited(name: &str) -> Result<TcpListener, StartError> {
    use std::os::fd::FromRawFd;
    let (fd, _) = sd_notify::listen_fds_with_names()?
        .find(|(_, known)| known == name)
        .ok_or_else(|| StartError::NotInherited(name.to_owned()))?;
    // SAFETY: systemd hands the descriptor over to this process alone, and each name is taken once at the start.
    let socket = unsafe { std::net::TcpListener::from_raw_fd(fd) };
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket)?)
}

fn conf(roots: &NamedTempFile) -> ServerConf {
    connector_conf(roots.path(), tokio::runtime::Handle::current().metrics().num_workers())
}

/// The roots that origins are verified against, in a file as pingora wants them. It panics on a bundle with a single
/// bad certificate, so it gets one that has been read already.
fn roots_file(roots: &Roots) -> Result<NamedTempFile, StartError> {
    let mut file = tempfile::Builder::new().prefix("politely-roots-").suffix(".pem").tempfile()?;
    file.write_all(roots.pem.as_bytes())?;
    Ok(file)
}

const DAY: Duration = Duration::from_secs(86_400);
