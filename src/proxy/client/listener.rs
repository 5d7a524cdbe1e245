//! The listener: accepts and serves connections, and drains them when the proxy stops.

use super::super::Proxy;
use super::super::io::{Buffer, Timer};
use super::super::limits::per_client::{Place, client};
use super::super::limits::total::ConnectionPermit;
use super::Peer;
use super::connection::Connection;
pub use super::tls::Tls;
use super::tls::decrypted;
use super::wire::Wire;
use crate::upstream::is_own_limit;
use futures_util::FutureExt;
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// State shared by the connections of one listener.
pub struct ListenerState {
    number: u64,
    /// The current settings. Each change wakes the listener.
    settings: watch::Sender<ListenerSettings>,
}

/// The part of a listener that can change while it is open.
#[derive(Clone)]
struct ListenerSettings {
    tls: Option<Arc<Tls>>,
    serves_directory: bool,
    is_closed: bool,
}

impl ListenerState {
    /// Creates the state of a listener without TLS.
    pub fn new() -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let settings = ListenerSettings { tls: None, serves_directory: false, is_closed: false };
        Arc::new(Self { number, settings: watch::Sender::new(settings) })
    }

    /// Applies changed settings to new connections. `tls`: `None` for plain text. `serves_directory`: whether to serve the
    /// directory of signing keys.
    pub fn reloaded(&self, tls: Option<Arc<Tls>>, serves_directory: bool) {
        self.settings.send_modify(|settings| (settings.tls, settings.serves_directory) = (tls, serves_directory));
    }

    pub fn is_tls(&self) -> bool {
        self.settings.borrow().tls.is_some()
    }

    /// Stops accepting; each connection closes once it is idle.
    pub fn close(&self) {
        self.settings.send_modify(|settings| settings.is_closed = true);
    }
}

/// Serves a listening socket until it is closed or the proxy stops. When the proxy stops, requests in flight have
/// `drain_timeout` to finish; then their connections are cut off.
pub async fn serve(proxy: Arc<Proxy>, listener: Arc<TcpListener>, state: Arc<ListenerState>) {
    send_at_once(&listener);
    let mut connections = JoinSet::new();
    let mut changes = state.settings.subscribe();
    let closed = async {
        while changes.changed().await.is_ok() {
            let settings = changes.borrow_and_update();
            if settings.is_closed {
                return;
            }
            // A client certificate that was valid before the reload may not be valid now.
            if settings.tls.as_ref().is_some_and(|tls| tls.identifies) {
                proxy.room.retire(state.number);
            }
        }
    };
    let mut ended = pin!(async {
        tokio::select! {
            () = closed => {}
            () = proxy.stopped() => {}
        }
    });
    let limit = || proxy.settings.load().limits.max_connections.get();
    // An accepted connection that waits for a place among all connections.
    let mut arrived = None;
    let mut last_logged = None;
    loop {
        let waiting = arrived.as_ref().map_or(Ipv4Addr::UNSPECIFIED.into(), |(.., place): &Arrived| *place.client());
        let permit = tokio::select! {
            tcp = accept(&proxy, &listener, &mut last_logged), if arrived.is_none() => {
                arrived = tcp.and_then(|(tcp, address)| admit(&proxy, tcp, address));
                arrived.as_ref().and_then(|(.., place)| proxy.room.take(*place.client(), limit()))
            }
            permit = proxy.room.permit(waiting, limit), if arrived.is_some() => Some(permit),
            () = &mut ended => break,
        };
        if let Some(permit) = permit
            && let Some(arrived) = arrived.take()
        {
            // Ended tasks are joined here, because awaiting them would wake the listener once more for each connection.
            while let Some(ended) = connections.try_join_next() {
                log_failed(ended);
            }
            let (proxy, state) = (proxy.clone(), state.clone());
            // The box is allocated before the future is made: otherwise spawning would copy the future.
            let room = Box::new_uninit();
            let served = permit.serve(|permit| served(proxy, arrived, state, permit));
            connections.spawn(Box::into_pin(Box::write(room, served)));
        }
    }
    // Serves connections that have already arrived: closing the socket would reset them.
    tokio::task::yield_now().await;
    let mut left: Vec<_> = arrived.into_iter().collect();
    while let Some(tcp) = accept(&proxy, &listener, &mut last_logged).now_or_never().filter(|_| left.len() < BACKLOG) {
        left.extend(tcp.and_then(|(tcp, address)| admit(&proxy, tcp, address)));
    }
    drop(listener);
    for arrived in left {
        let (proxy, state) = (proxy.clone(), state.clone());
        connections.spawn(Box::pin(async move {
            let limit = || proxy.settings.load().limits.max_connections.get();
            let permit = proxy.room.permit(*arrived.2.client(), limit).await;
            permit.serve(|permit| served(proxy, arrived, state, permit)).await;
        }));
    }
    if !proxy.is_stopping() {
        proxy.room.retire(state.number);
        tokio::select! {
            () = async { while let Some(ended) = connections.join_next().await { log_failed(ended) } } => return,
            () = proxy.stopped() => {}
        }
    }
    let drain = proxy.settings.load().limits.drain_timeout;
    let ended = async { while connections.join_next().await.is_some() {} };
    let drained = timeout(drain, proxy.close_until(ended)).await;
    if drained.is_err() {
        tracing::warn!(left = connections.len(), "cut off the connections still open after {drain:?}");
    }
}

fn log_failed(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed");
    }
}

/// An accepted connection, with its place among the connections of its client.
type Arrived = (TcpStream, SocketAddr, Place<IpAddr>);

/// Takes a place among the client's connections, or closes the connection if the client has too many.
fn admit(proxy: &Proxy, tcp: TcpStream, address: SocketAddr) -> Option<Arrived> {
    match proxy.client_place(client(address.ip())) {
        Ok(place) => Some((tcp, address, place)),
        Err(limit) => {
            // Closed without an answer, as a client with so many connections may not read one.
            tracing::info!(client = %address, limit, "this client has too many connections: closed");
            None
        }
    }
}

async fn served(
    proxy: Arc<Proxy>,
    (tcp, address, _place): Arrived,
    state: Arc<ListenerState>,
    permit: ConnectionPermit,
) {
    let _in_flight = proxy.in_flight.subscribe();
    permit.set_listener(state.number);
    let ListenerSettings { tls, serves_directory: gets_directory, .. } = state.settings.borrow().clone();
    drop(state);
    let peer = Peer::new(address, gets_directory);
    let connection = match tls {
        None => Some(Connection::new(Wire::Tcp(tcp), Buffer::new(), peer, Timer::new(), permit, None)),
        // Boxed, so that the connection does not hold the state of the handshake later.
        Some(tls) => Box::pin(decrypted(&proxy, tcp, peer, permit, &tls)).await,
    };
    if let Some(connection) = connection {
        connection.serve(&proxy).await;
    }
}

/// Sets TCP_NODELAY, which the listener's connections inherit. Nagle's algorithm would delay an answer's second small write.
pub(crate) fn send_at_once(listener: &TcpListener) {
    let _ = SockRef::from(listener).set_tcp_nodelay(true);
}

/// Accepts the next connection. Returns `None` after an error, which it logs. `last_logged`: time of the last log line.
pub(crate) async fn accept(
    proxy: &Proxy,
    listener: &TcpListener,
    last_logged: &mut Option<Instant>,
) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((tcp, address)) => Some((tcp, address)),
        Err(error) => {
            if is_the_clients_fault(&error) {
                return None;
            }
            let closed = if is_own_limit(&error) { make_room(proxy) } else { 0 };
            if last_logged.is_none_or(|last_logged| last_logged.elapsed() >= LOG_INTERVAL) {
                *last_logged = Some(Instant::now());
                tracing::error!(%error, closed, "cannot accept connections, retrying; idle ones are closed if that makes room");
            }
            sleep(if closed > 0 { ACCEPT_AGAIN } else { ACCEPT_RETRY }).await;
            None
        }
    }
}

/// Closes idle client and origin connections, because a new client needs one of each. Returns how many it closes.
fn make_room(proxy: &Proxy) -> usize {
    proxy.upstream.close_idle() + proxy.room.close_idle(MAKE_ROOM)
}

fn is_the_clients_fault(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused)
}

/// Maximum number of connections taken from the socket's backlog before the socket closes.
const BACKLOG: usize = 1024;
/// Minimum number of idle connections to close when descriptors run out.
const MAKE_ROOM: usize = 16;
/// Minimum time between log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before accepting again after idle connections were asked to close. `ACCEPT_RETRY`: the delay after any other error.
const ACCEPT_AGAIN: Duration = Duration::from_millis(5);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
