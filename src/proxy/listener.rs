//! Accepts connections and hands each to `connection`; ends them when the proxy stops. Called by `server`.

use super::downstream::Downstream;
use super::{Proxy, connection};
use pingora_core::apps::HttpServerApp;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Serves one listening socket until the proxy stops. Then requests under way get `drain_timeout` to finish; what is
/// left after it is cut off.
pub(crate) async fn serve(proxy: Arc<Proxy>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let limit = proxy.settings.load().limits.max_connections.get();
        tokio::select! {
            tcp = accept(&listener), if connections.len() < limit => {
                if let Some((tcp, address)) = tcp {
                    let io = Box::new(Downstream::accepted(tcp, address));
                    connections.spawn(connection::serve(proxy.clone(), io));
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
