//! Connections to the admin address: a limited number, with time limits.

use super::{Admin, router};
use crate::proxy::listener::{accept, send_at_once};
use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
#[cfg(target_os = "linux")]
use rustix::net::sockopt::set_tcp_user_timeout;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

impl Admin {
    /// Serves until [`end`](Self::end).
    pub async fn serve(self: Arc<Self>, socket: TcpListener) {
        send_at_once(&socket);
        let service = TowerToHyperService::new(router(self.clone()));
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut logged = None;
        loop {
            let arrived = async {
                let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
                accept(&self.proxy, &socket, &mut logged).await.map(|(stream, _)| (stream, permit))
            };
            tokio::select! {
                arrived = arrived => if let Some((stream, permit)) = arrived {
                    connections.spawn(self.clone().connection(stream, service.clone(), permit));
                },
                Some(_) = connections.join_next() => {}
                () = self.ended() => break,
            }
        }
        drop(socket);
        let _ = timeout(STOP_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    }

    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        service: TowerToHyperService<Router>,
        _permit: OwnedSemaphorePermit,
    ) {
        let limit = self.proxy.settings.load().limits.header_timeout;
        // For a client that does not read: the kernel gives up unsent data.
        #[cfg(target_os = "linux")]
        let _ = set_tcp_user_timeout(&stream, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
        let mut builder = Builder::new();
        // Counts from the end of the previous answer, so it also bounds idle connections.
        builder.timer(TokioTimer::new()).header_read_timeout(limit);
        let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = serving.as_mut() => Some(ended),
            () = self.ended() => {
                serving.as_mut().graceful_shutdown();
                timeout(STOP_TIMEOUT, serving).await.ok()
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "a connection to the admin address ended");
        }
    }
}

/// Concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 256;
/// Requests in flight at the end get this long, so that no admin client delays the end.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
