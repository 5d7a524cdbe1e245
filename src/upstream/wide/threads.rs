//! Threads for OpenSSL's handshakes, as an origin can make one take a second: with a Diffie-Hellman group of 10,000 bits. Requests are
//! served by other threads.

use crate::upstream::dial_error::{DialError, DialFault};
use std::panic::resume_unwind;
use std::thread::available_parallelism;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

/// Does the work on one of half the cores. If this future is dropped, the work ends where it next waits.
pub(super) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, DialError>> + Send + 'static,
) -> Result<T, DialError> {
    let failed = |error: &dyn std::fmt::Display| {
        DialError::new(DialFault::OwnLimit, format!("no threads for the handshake: {error}"))
    };
    let start = async || {
        let half = (available_parallelism().map_or(1, usize::from) / 2).max(1);
        Builder::new_multi_thread().worker_threads(half).thread_name("politely-tls").build()
    };
    let threads = THREADS.get_or_try_init(start).await.map_err(|error| failed(&error))?;
    // Ends the work when it is dropped, as a task of its own would not.
    let mut only = JoinSet::new();
    only.spawn_on(work, threads.handle());
    match only.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => Err(failed(&error)),
        },
        None => Err(failed(&"none was begun")),
    }
}

/// Started when first needed.
static THREADS: OnceCell<Runtime> = OnceCell::const_new();
