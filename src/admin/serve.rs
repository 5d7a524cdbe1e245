//! Connections to the admin address: a limited number, with time limits.

use super::{Admin, router};
use crate::proxy::listener::{accept, send_at_once};
use crate::proxy::{ConnectionPermit, Room};
use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

impl Admin {
    /// Serves connections until [`end`](Self::end) is called.
    pub async fn serve(self: Arc<Self>, socket: TcpListener) {
        send_at_once(&socket);
        let service = TowerToHyperService::new(router(self.clone()));
        let room = Room::new(MAX_CONNECTIONS);
        let mut connections = JoinSet::new();
        let mut logged = None;
        loop {
            let arrived = async {
                let (stream, address) = accept(&self.proxy, &socket, &mut logged).await?;
                Some((stream, room.permit(address.ip(), || MAX_CONNECTIONS).await))
            };
            tokio::select! {
                arrived = arrived => if let Some((stream, permit)) = arrived {
                    let (admin, service) = (self.clone(), service.clone());
                    connections.spawn(permit.serve(|permit| admin.connection(stream, service, permit)));
                },
                () = self.ended() => break,
            }
            while connections.try_join_next().is_some() {}
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
        permit: ConnectionPermit,
    ) {
        let limit = self.proxy.settings.load().limits.header_timeout;
        // If the client does not read for this long, the kernel drops unsent data and the connection.
        let _ = set_tcp_user_timeout(&stream, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
        let (permit, service) = (&permit, &service);
        let service = service_fn(|request| {
            permit.busy();
            let answer = service.call(request);
            async move {
                let answer = answer.await;
                // From now on, this connection waits for its client, which may never read.
                permit.waits(Instant::now());
                answer
            }
        });
        let mut builder = Builder::new();
        // The time limit counts from the end of the previous answer, so it also bounds idle connections.
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

/// Maximum number of connections. A further connection closes the one that has waited longest for its client.
const MAX_CONNECTIONS: usize = 256;
/// Maximum time for requests in flight to finish at shutdown, so that no admin client delays the shutdown.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
