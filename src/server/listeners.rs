//! The listeners: opened and closed as the configuration says, at the start and on reload.

use super::{StartError, sockets};
use crate::config::{ListenAddress, Listener, Settings, UnusableFile};
use crate::proxy::Proxy;
use crate::proxy::listener::{self, ListenerState, Tls};
use crate::tls::listener_config;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The open listeners.
pub(super) struct Listeners {
    proxy: Arc<Proxy>,
    open: Mutex<Vec<OpenListener>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct OpenListener {
    /// The configured address for which the listener was opened.
    written: ListenAddress,
    address: SocketAddr,
    socket: Arc<TcpListener>,
    state: Arc<ListenerState>,
}

/// The listeners for changed settings: their sockets are open, but new ones do not accept connections yet.
pub(super) struct Plan(Vec<Planned>);

struct Planned {
    listener: OpenListener,
    tls: Option<Arc<Tls>>,
    serves_directory: bool,
}

impl Plan {
    /// Makes a plan that uses the already listening sockets `given` for the first entries of `settings.listen`, and opens sockets for the
    /// other entries.
    pub fn on(settings: &Settings, given: Vec<TcpListener>) -> Result<Self, StartError> {
        let given = settings.listen.iter().zip(given).map(|(wanted, socket)| OpenListener::new(wanted, socket));
        Self::after(settings, given.collect::<io::Result<_>>()?)
    }

    fn after(settings: &Settings, mut free: Vec<OpenListener>) -> Result<Self, StartError> {
        let mut keep = |wanted: &Listener| -> Vec<OpenListener> {
            match &wanted.address {
                address @ ListenAddress::Socket(_) => {
                    let same = free.iter().position(|open| open.written == *address);
                    same.map(|index| free.remove(index)).into_iter().collect()
                }
                address @ ListenAddress::Inherited(_) => free.extract_if(.., |open| open.written == *address).collect(),
            }
        };
        let wanted: Vec<_> = settings.listen.iter().map(|wanted| (wanted, keep(wanted))).collect();
        let closing: Vec<_> = free.into_iter().map(|open| open.socket).collect();
        let mut planned = Vec::new();
        for (wanted, mut listeners) in wanted {
            let tls = tls(settings, wanted)?;
            if listeners.is_empty() {
                let opened = sockets::open(&wanted.address, &closing)?.into_iter();
                listeners = opened.map(|socket| OpenListener::new(wanted, socket)).collect::<io::Result<_>>()?;
            }
            for listener in listeners {
                planned.push(Planned { listener, tls: tls.clone(), serves_directory: wanted.directory });
            }
        }
        Self(planned).judged(settings)
    }

    /// Refuses a listener that is open to everybody. `config` has checked the configured addresses; the address of an inherited socket
    /// is known only here.
    fn judged(self, settings: &Settings) -> Result<Self, StartError> {
        let is_open = |planned: &&Planned| {
            !planned.tls.as_ref().is_some_and(|tls| tls.identifies)
                && !planned.listener.address.ip().to_canonical().is_loopback()
        };
        match self.0.iter().find(is_open).filter(|_| settings.access.is_open_to_all()) {
            Some(open) => Err(StartError::OpenToAll(open.listener.address)),
            None => Ok(self),
        }
    }

    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|planned| planned.listener.address)
    }
}

impl Listeners {
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy, open: Mutex::default(), tasks: Mutex::default() }
    }

    /// Plans the change from the open listeners to those of `settings`.
    pub fn plan(&self, settings: &Settings) -> Result<Plan, StartError> {
        Plan::after(settings, self.open.lock().clone())
    }

    /// Opens new listeners and closes those no longer configured. Must run within a runtime.
    pub fn apply(&self, plan: Plan) {
        let (mut open, mut tasks) = (self.open.lock(), self.tasks.lock());
        // Removes the tasks of listeners closed earlier.
        while tasks.try_join_next().is_some() {}
        let before = std::mem::take(&mut *open);
        for Planned { listener, tls, serves_directory } in plan.0 {
            listener.state.reloaded(tls, serves_directory);
            if !listener.is_among(&before) {
                tasks.spawn(listener::serve(self.proxy.clone(), listener.socket.clone(), listener.state.clone()));
                if !before.is_empty() {
                    tracing::info!("listening on {}", listener.address);
                }
            }
            open.push(listener);
        }
        for closed in before.iter().filter(|old| !old.is_among(&open)) {
            closed.state.close();
            tracing::info!("no longer listening on {}", closed.address);
        }
    }

    /// The addresses in the order of the configuration, and whether each is for TLS.
    pub fn addresses(&self) -> Vec<(SocketAddr, bool)> {
        self.open.lock().iter().map(|open| (open.address, open.state.is_tls())).collect()
    }

    /// The tasks of the listeners; each ends with its last connection. No listener may be opened after this.
    pub fn take_tasks(&self) -> JoinSet<()> {
        self.open.lock().clear();
        std::mem::take(&mut *self.tasks.lock())
    }
}

impl OpenListener {
    fn new(wanted: &Listener, socket: TcpListener) -> io::Result<Self> {
        let (written, address) = (wanted.address.clone(), socket.local_addr()?);
        Ok(Self { written, address, socket: Arc::new(socket), state: ListenerState::new() })
    }

    fn is_among(&self, all: &[Self]) -> bool {
        all.iter().any(|one| Arc::ptr_eq(&one.state, &self.state))
    }
}

/// Reads the TLS configuration of the listener `wanted`, which is one of `settings.listen`.
pub(super) fn tls(settings: &Settings, wanted: &Listener) -> Result<Option<Arc<Tls>>, UnusableFile> {
    let Some(tls) = &wanted.tls else { return Ok(None) };
    let config = listener_config(tls).map_err(|error| error.placed(&settings.places))?;
    Ok(Some(Arc::new(Tls { config, identifies: tls.client_ca.is_some() })))
}
