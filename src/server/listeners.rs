//! The listeners: opened and closed as the configuration says, at the start and by a reload.

use super::{StartError, sockets};
use crate::config::{ListenAddress, Listener, Settings};
use crate::proxy::Proxy;
use crate::proxy::listener::{self, Door, Tls};
use crate::tls::listener_config;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Those that are open.
pub(super) struct Listeners {
    proxy: Arc<Proxy>,
    open: Mutex<Vec<OpenListener>>,
    tasks: Mutex<JoinSet<()>>,
}

struct OpenListener {
    socket: Socket,
    door: Arc<Door>,
}

/// A socket, and for what it was opened.
#[derive(Clone)]
struct Socket {
    written: ListenAddress,
    address: SocketAddr,
    listener: Arc<TcpListener>,
}

/// Those that changed settings want: their sockets are open, but nothing is accepted from new ones yet.
pub(super) struct Plan(Vec<Planned>);

struct Planned {
    socket: Socket,
    tls: Option<Arc<Tls>>,
    serves_directory: bool,
    /// `None`: it is new.
    door: Option<Arc<Door>>,
}

impl Plan {
    /// On sockets that listen already, one for each listener.
    pub fn on(settings: &Settings, given: Vec<TcpListener>) -> Result<Self, StartError> {
        let mut planned = Vec::new();
        for (wanted, listener) in settings.listen.iter().zip(given) {
            let socket = Socket::new(wanted, listener)?;
            let serves_directory = wanted.directory;
            planned.push(Planned { socket, tls: tls(wanted)?, serves_directory, door: None });
        }
        Self(planned).judged(settings)
    }

    /// On sockets that are opened for it.
    pub fn new(settings: &Settings) -> Result<Self, StartError> {
        Self::after(settings, &[])
    }

    fn after(settings: &Settings, open: &[OpenListener]) -> Result<Self, StartError> {
        let mut free: Vec<&OpenListener> = open.iter().collect();
        let mut keep = |wanted: &Listener| -> Vec<&OpenListener> {
            match &wanted.address {
                address @ ListenAddress::Socket(_) => {
                    let same = free.iter().position(|open| open.socket.written == *address);
                    same.map(|index| free.remove(index)).into_iter().collect()
                }
                address @ ListenAddress::Inherited(_) => {
                    free.extract_if(.., |open| open.socket.written == *address).collect()
                }
            }
        };
        let wanted: Vec<_> = settings.listen.iter().map(|wanted| (wanted, keep(wanted))).collect();
        let going: Vec<_> = free.iter().map(|open| open.socket.listener.clone()).collect();
        let mut planned = Vec::new();
        for (wanted, kept) in wanted {
            let (tls, serves_directory) = (tls(wanted)?, wanted.directory);
            if kept.is_empty() {
                for listener in sockets::open(&wanted.address, &going)? {
                    let socket = Socket::new(wanted, listener)?;
                    planned.push(Planned { socket, tls: tls.clone(), serves_directory, door: None });
                }
            }
            for OpenListener { socket, door } in kept {
                let (socket, door) = (socket.clone(), Some(door.clone()));
                planned.push(Planned { socket, tls: tls.clone(), serves_directory, door });
            }
        }
        Self(planned).judged(settings)
    }

    /// `config` has judged the addresses that are written; a socket that was handed over is known only here.
    fn judged(self, settings: &Settings) -> Result<Self, StartError> {
        let is_open_to_all = settings.access.clients.is_empty() && settings.access.users.is_empty();
        let is_open = |planned: &&Planned| {
            !planned.tls.as_ref().is_some_and(|tls| tls.identifies)
                && !planned.socket.address.ip().to_canonical().is_loopback()
        };
        match self.0.iter().find(is_open).filter(|_| is_open_to_all) {
            Some(open) => Err(StartError::OpenToAll(open.socket.address)),
            None => Ok(self),
        }
    }

    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|planned| planned.socket.address)
    }
}

impl Listeners {
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy, open: Mutex::default(), tasks: Mutex::default() }
    }

    /// What changed settings make of those that are open.
    pub fn plan(&self, settings: &Settings) -> Result<Plan, StartError> {
        Plan::after(settings, &self.open.lock())
    }

    /// Opens what is new and closes what is not wanted any more. To be called within a runtime.
    pub fn apply(&self, plan: Plan) {
        let (mut open, mut tasks) = (self.open.lock(), self.tasks.lock());
        // Those that have been closed before.
        while tasks.try_join_next().is_some() {}
        let is_first = open.is_empty();
        let before = std::mem::take(&mut *open);
        for Planned { socket, tls, serves_directory, door } in plan.0 {
            let door = match door {
                Some(door) => {
                    door.reloaded(tls, serves_directory);
                    door
                }
                None => {
                    let door = Door::new(tls, serves_directory);
                    tasks.spawn(listener::serve(self.proxy.clone(), socket.listener.clone(), door.clone()));
                    if !is_first {
                        tracing::info!("listening on {}", socket.address);
                    }
                    door
                }
            };
            open.push(OpenListener { socket, door });
        }
        for closed in before.iter().filter(|old| !open.iter().any(|open| Arc::ptr_eq(&open.door, &old.door))) {
            closed.door.close();
            tracing::info!("no longer listening on {}", closed.socket.address);
        }
    }

    /// Where they are, in the order of the configuration, and whether for TLS.
    pub fn addresses(&self) -> Vec<(SocketAddr, bool)> {
        self.open.lock().iter().map(|open| (open.socket.address, open.door.is_tls())).collect()
    }

    /// Each ends when its connections have. Nothing more may be opened.
    pub fn take_tasks(&self) -> JoinSet<()> {
        self.open.lock().clear();
        std::mem::take(&mut *self.tasks.lock())
    }
}

impl Socket {
    fn new(wanted: &Listener, listener: TcpListener) -> io::Result<Self> {
        Ok(Self { written: wanted.address.clone(), address: listener.local_addr()?, listener: Arc::new(listener) })
    }
}

fn tls(wanted: &Listener) -> Result<Option<Arc<Tls>>, StartError> {
    let Some(tls) = &wanted.tls else { return Ok(None) };
    Ok(Some(Arc::new(Tls { config: listener_config(tls)?, identifies: tls.client_ca.is_some() })))
}
