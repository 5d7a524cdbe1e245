//! Accepts connections and hands each to `connection`; ends them when the proxy stops. Called by `server`.

use super::clients::{Place, client};
use super::downstream::{Client, Downstream};
use super::{Proxy, connection};
use pingora_core::apps::HttpServerApp;
use rustls::ServerConfig;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Serves one listening socket until the proxy stops. Then requests under way get `drain_timeout` to finish; what is
/// left after it is cut off. `tls`: clients speak TLS to the proxy itself.
pub(crate) async fn serve(proxy: Arc<Proxy>, listener: TcpListener, tls: Option<Arc<ServerConfig>>) {
    let mut connections = JoinSet::new();
    loop {
        let limit = proxy.settings.load().limits.max_connections.get();
        tokio::select! {
            tcp = accept(&listener), if connections.len() < limit => {
                if let Some((tcp, address)) = tcp {
                    admit(&proxy, &mut connections, tcp, address, tls.clone());
                }
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
    proxy.http.http_cleanup().await;
    let drain = proxy.settings.load().limits.drain_timeout;
    let drained = timeout(drain, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(left = connections.len(), "cut off the connections still open after {drain:?}");
    }
}

/// A connection is served unless its client has too many already.
fn admit(
    proxy: &Arc<Proxy>,
    connections: &mut JoinSet<()>,
    tcp: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
) {
    let limit = proxy.settings.load().limits.max_connections_per_client.get();
    let Some(place) = proxy.clients.enter(client(address.ip()), limit) else {
        // An answer would need a reader; a client with so many connections may not be one.
        return tracing::info!(client = %address, limit, "one connection too many of this client: closed");
    };
    connections.spawn(served(proxy.clone(), Box::new(Downstream::accepted(tcp, address)), tls, place));
}

async fn served(proxy: Arc<Proxy>, io: Box<Downstream>, tls: Option<Arc<ServerConfig>>, _place: Place<IpAddr>) {
    let address = io.client.address;
    match tls {
        None => connection::serve(proxy, io).await,
        Some(config) => match decrypt(&proxy, io, config).await {
            Ok(inside) => connection::serve(proxy, inside).await,
            Err(error) => tracing::debug!(client = %address, %error, "no TLS with this client"),
        },
    }
}

async fn decrypt(proxy: &Proxy, mut io: Box<Downstream>, config: Arc<ServerConfig>) -> io::Result<Box<Downstream>> {
    let client = Client::at(io.client.address);
    io.open();
    let limit = proxy.settings.load().limits.header_timeout;
    let tls = timeout(limit, TlsAcceptor::from(config).accept(io)).await;
    let tls = tls.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(Box::new(Downstream::decrypted(tls, client)))
}

/// The next connection. `None`: there was none after all.
async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((tcp, address)) => {
            // Nagle's algorithm would hold back the second small write of an answer.
            let _ = tcp.set_nodelay(true);
            Some((tcp, address))
        }
        Err(error) => {
            if !is_the_clients_fault(&error) {
                tracing::error!(%error, "cannot accept connections; trying again");
                sleep(ACCEPT_RETRY).await;
            }
            None
        }
    }
}

fn is_the_clients_fault(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused)
}

const ACCEPT_RETRY: Duration = Duration::from_millis(100);
