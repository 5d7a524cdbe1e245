//! The admin address's connections: a limited number, each with time limits.

use super::{Admin, router};
use crate::proxy::listener::accept;
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
        let service = TowerToHyperService::new(router(self.clone()));
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut logged = None;
        loop {
            let arrived = async {
                let seat = room.clone().acquire_owned().await.expect("it is never closed");
                accept(&self.proxy, &socket, &mut logged).await.map(|(stream, _)| (stream, seat))
            };
            tokio::select! {
                arrived = arrived => if let Some((stream, seat)) = arrived {
                    connections.spawn(self.clone().connection(stream, service.clone(), seat));
                },
                Some(_) = connections.join_next() => {}
                () = self.ended() => break,
            }
        }
        drop(socket);
        let _ = timeout(LAST_WORDS, async { while connections.join_next().await.is_some() {} }).await;
    }

    pub(super) async fn ended(&self) {
        // The sender lives as long as we do.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        service: TowerToHyperService<Router>,
        _seat: OwnedSemaphorePermit,
    ) {
        let limit = self.proxy.settings.load().limits.header_timeout;
        // For a client that does not read its answer: the kernel gives up what cannot be sent.
        #[cfg(target_os = "linux")]
        let _ = set_tcp_user_timeout(&stream, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
        let mut builder = Builder::new();
        // From the end of the answer before: it is the bound on idle connections as well.
        builder.timer(TokioTimer::new()).header_read_timeout(limit);
        let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = serving.as_mut() => Some(ended),
            () = self.ended() => {
                serving.as_mut().graceful_shutdown();
                timeout(LAST_WORDS, serving).await.ok()
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "a connection to the admin address ended");
        }
    }
}

/// At a time; the next one waits until one has ended.
const CONNECTIONS: usize = 256;
/// What is under way at the end gets this long, so that no client of the admin address delays it.
const LAST_WORDS: Duration = Duration::from_millis(500);
