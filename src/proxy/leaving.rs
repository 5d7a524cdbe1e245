//! Notices that a client hangs up while its request waits, without taking a byte from it. Called by `forward`.

use pingora::proxy::Session;
use pingora_core::protocols::http::ServerSession;
use std::os::fd::BorrowedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Resolves when the client has gone. Cancel-safe.
pub(super) async fn left(session: &mut Session) {
    match session.downstream_session.as_mut() {
        ServerSession::H1(h1) => {
            if h1.is_body_done() {
                // Nothing is left of this message, and `Downstream` keeps what belongs to the next.
                let _ = h1.idle().await;
                return;
            }
            let id = h1.stream().id();
            if hung_up(id).await.is_err() {
                std::future::pending().await
            }
        }
        // A reset stream or a lost connection ends the idle wait; no body is read.
        other => drop(other.read_body_or_idle(true).await),
    }
}

/// With a body still unread only the socket can tell. A descriptor of our own is watched: tokio keeps readiness for
/// each, and pingora's must not be disturbed.
async fn hung_up(fd: i32) -> std::io::Result<()> {
    // SAFETY: the session holds the socket, and outlives this call.
    let own = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    // SAFETY: an OwnedFd keeps its descriptor open until it is dropped, after the registration.
    let watched = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?;
    loop {
        let mut ready = watched.ready(Interest::READABLE).await?;
        if ready.ready().is_read_closed() {
            return Ok(());
        }
        ready.clear_ready();
    }
}
