//! Connections that pass unread, for hosts whose policy is `tunnel`: screened and paced as a whole. Called by `connect`.

use super::Proxy;
use super::downstream::Downstream;
use super::failure::Failure;
use crate::gate::Permit;
use crate::policy::{Authority, Refusal};
use crate::upstream::ReachError;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Why there is no way through.
pub(super) enum Closed {
    Refused(Refusal),
    Failed(Failure),
}

/// A connection to the origin, and the turn it takes up while it lasts.
pub(super) struct Way {
    origin: TcpStream,
    _permit: Permit,
}

/// Connects first, so that a failure is an answer and not an end.
pub(super) async fn open(proxy: &Proxy, authority: &Authority, client: IpAddr) -> Result<Way, Closed> {
    let addresses = match proxy.upstream.reach(authority).await {
        Ok(addresses) => addresses,
        Err(ReachError::Denied(denied)) => return Err(Closed::Refused(denied.into())),
        Err(ReachError::Resolve(error)) => return Err(Closed::Failed(Failure::from_resolve(&error))),
    };
    let to = addresses.first().map(|address| address.ip());
    let mut permit = proxy.gate.admit_connection(authority, to, client).await.map_err(Closed::Refused)?;
    let limit = proxy.settings.load().limits.connect_timeout;
    let mut failure = std::io::Error::from(std::io::ErrorKind::TimedOut);
    for address in addresses.iter() {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(origin)) => {
                let _ = origin.set_nodelay(true);
                permit.leaves();
                permit.has_left();
                return Ok(Way { origin, _permit: permit });
            }
            Ok(Err(error)) => failure = error,
            Err(_) => {}
        }
    }
    Err(Closed::Failed(Failure::from_io(&failure)))
}

/// Copies both ways until both are done, or neither has said anything for `limit`. A stop of the proxy ends it with the
/// connection's task.
pub(super) async fn run(client: Box<Downstream>, way: Way, limit: Duration) {
    let Way { origin, _permit } = way;
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
