//! Connections that pass unread, for hosts whose policy is `tunnel`: screened and paced as a whole. Called by `connect`.

use super::downstream::{Client, Downstream};
use super::failure::Failure;
use super::{Proxy, decide};
use crate::gate::Permit;
use crate::policy::{Authority, Refusal};
use crate::upstream::{ReachError, Stream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

/// Why there is no way through.
pub(super) enum Closed {
    Refused(Refusal),
    Failed(Failure),
}

/// A connection to the origin, and the turn it takes up while it lasts.
pub(super) struct Way {
    pub origin: Stream,
    pub _permit: Permit,
}

/// Connects first, so that a failure is an answer and not an end. `via`: what the CONNECT says of the way so far.
pub(super) async fn open(
    proxy: &Proxy,
    authority: &Authority,
    client: &Client,
    via: Option<&str>,
) -> Result<Way, Closed> {
    let route = match proxy.upstream.reach(authority).await {
        Ok(route) => route,
        Err(ReachError::Denied(denied)) => return Err(Closed::Refused(denied.into())),
        Err(ReachError::Resolve(error)) => return Err(Closed::Failed(Failure::from_resolve(&error))),
    };
    let hosts = decide::hosts(client.user.as_deref());
    let admitted = proxy.gate.admit_connection(authority, route.origin(), client.address.ip(), hosts).await;
    let mut permit = admitted.map_err(Closed::Refused)?;
    let origin = route.tunnel(via).await.map_err(|error| Closed::Failed(Failure::from_dial(&error)))?;
    permit.leaves();
    permit.has_left();
    Ok(Way { origin, _permit: permit })
}

/// Copies both ways until both are done, or neither has said anything for `limit`. A stop of the proxy ends it with the
/// connection's task.
pub(super) async fn run(client: Box<Downstream>, origin: Stream, limit: Duration) {
    let moved = Arc::new(AtomicBool::new(true));
    let mut client = Watched { io: client, moved: moved.clone() };
    let mut origin = Watched { io: origin, moved: moved.clone() };
    let silent = async {
        // Looked at once in a while: an exact end would cost a timer's change with each piece.
        while moved.swap(false, Ordering::Relaxed) {
            sleep(limit).await;
        }
    };
    tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut client, &mut origin) => {
            if let Err(error) = copied {
                tracing::debug!(%error, "tunnel ended");
            }
        }
        () = silent => tracing::debug!("nothing came through the tunnel for {limit:?}: ended"),
    }
}

/// A stream that tells when something has come or gone.
struct Watched<S> {
    io: S,
    moved: Arc<AtomicBool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.moved.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if written.is_ready() {
            self.moved.store(true, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
