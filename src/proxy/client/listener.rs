//! Accepts connections and serves each; ends them when the proxy stops.

use super::super::Proxy;
use super::super::io::{Buffer, Timer};
use super::super::limits::per_client::{Place, client};
use super::super::limits::total::Seat;
use super::Who;
use super::connection::Connection;
use super::wire::{Ahead, Wire};
use crate::tls::Distrust;
use rustls::ServerConfig;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Serves one listening socket until the proxy stops. Then requests under way get `drain_timeout` to finish; what is
/// left after it is cut off. `tls`: clients speak TLS to the proxy itself.
pub async fn serve(proxy: Arc<Proxy>, listener: TcpListener, tls: Option<Arc<ServerConfig>>) {
    let mut connections = JoinSet::new();
    // A connection that is accepted, but for which there is no room yet.
    let mut arrived = None;
    let mut told = None;
    loop {
        let limit = proxy.settings.load().limits.max_connections.get();
        tokio::select! {
            tcp = accept(&proxy, &listener, &mut told), if arrived.is_none() => {
                arrived = tcp.and_then(|(tcp, address)| admit(&proxy, tcp, address));
            }
            seat = proxy.room.seat(limit), if arrived.is_some() => {
                let (tcp, address, place) = arrived.take().expect("looked at one line above");
                connections.spawn(served(proxy.clone(), tcp, address, tls.clone(), place, seat));
            }
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task failed");
                }
            }
            () = proxy.stopped() => break,
        }
    }
    drop(listener);
    let drain = proxy.settings.load().limits.drain_timeout;
    let drained = timeout(drain, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(left = connections.len(), "cut off the connections still open after {drain:?}");
    }
}

/// A connection is served unless its client has too many already.
fn admit(proxy: &Proxy, tcp: TcpStream, address: SocketAddr) -> Option<(TcpStream, SocketAddr, Place<IpAddr>)> {
    let limit = proxy.settings.load().limits.max_connections_per_client.get();
    match proxy.clients.enter(client(address.ip()), limit) {
        Some(place) => Some((tcp, address, place)),
        None => {
            // An answer would need a reader; a client with so many connections may not be one.
            tracing::info!(client = %address, limit, "one connection too many of this client: closed");
            None
        }
    }
}

async fn served(
    proxy: Arc<Proxy>,
    tcp: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    _place: Place<IpAddr>,
    seat: Seat,
) {
    let who = Who { address, tunnel: None, user: None };
    let wire = match tls {
        None => Wire::Tcp(tcp),
        Some(config) => {
            let wire = tokio::select! {
                wire = Box::pin(decrypt(&proxy, tcp, address, config)) => wire,
                () = proxy.stopped() => return,
            };
            match wire {
                Ok(wire) => wire,
                Err(error) => return tracing::debug!(client = %address, %error, "no TLS with this client"),
            }
        }
    };
    Connection::new(wire, Buffer::new(), who, Timer::new(), seat, None).serve(&proxy).await;
}

async fn decrypt(proxy: &Proxy, tcp: TcpStream, address: SocketAddr, config: Arc<ServerConfig>) -> io::Result<Wire> {
    let limit = proxy.settings.load().limits.header_timeout;
    let here = tcp.local_addr();
    let mut first = [0];
    let is_plain = timeout(limit, tcp.peek(&mut first)).await?? == 1 && first[0].is_ascii_alphabetic();
    let mut ahead = Ahead { wire: Wire::Tcp(tcp), input: Buffer::new() };
    if is_plain {
        timeout(limit, ahead.write_all(NOT_TLS)).await??;
        ahead.say_goodbye().await;
        tracing::info!(client = %address, "HTTP on a listener with `tls`: write https:// in the client's proxy URL");
        return Err(io::ErrorKind::InvalidData.into());
    }
    match timeout(limit, TlsAcceptor::from(config).accept(ahead).into_fallible()).await? {
        Ok(tls) => Ok(Wire::Tls(Box::new(tls))),
        Err((error, io)) => {
            // Who knocks and leaves has seen none.
            if let Some(how) = Distrust::of(&error).filter(|how| *how != Distrust::Closed) {
                proxy.tell_distrust(address, &here?.to_string(), None, how);
            }
            io.say_goodbye().await;
            Err(error)
        }
    }
}

/// The next connection. `None`: there was none after all. `told`: when the log was last told why.
pub(crate) async fn accept(
    proxy: &Proxy,
    listener: &TcpListener,
    told: &mut Option<Instant>,
) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((tcp, address)) => {
            // Nagle's algorithm would hold back the second small write of an answer.
            let _ = tcp.set_nodelay(true);
            Some((tcp, address))
        }
        Err(error) => {
            if is_the_clients_fault(&error) {
                return None;
            }
            let closed = if is_full(&error) { proxy.room.close_idle(MAKE_ROOM) } else { 0 };
            if told.is_none_or(|told| told.elapsed() >= TELL_AGAIN) {
                *told = Some(Instant::now());
                tracing::error!(%error, closed, "cannot accept connections; closed idle ones, and trying again");
            }
            sleep(if closed > 0 { ACCEPT_AGAIN } else { ACCEPT_RETRY }).await;
            None
        }
    }
}

/// This machine has no room for more connections.
fn is_full(error: &io::Error) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].map(Some).contains(&error.raw_os_error())
}

fn is_the_clients_fault(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused)
}

const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 TLS Wanted\r\nContent-Type: text/plain\r\nContent-Length: 75\r\nConnection: close\r\n\r\n\
    politely speaks TLS on this port: write https:// in the client's proxy URL\n";
/// Idle connections that are closed at least where there is no descriptor left.
const MAKE_ROOM: usize = 16;
/// The log is told once in this time, and not at each try.
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// Until those that were told to go have gone.
const ACCEPT_AGAIN: Duration = Duration::from_millis(5);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
