//! Runs long computations, such as decoding a body or compiling a long robots.txt, on threads that serve no requests, and on at most half
//! of the cores. Clients take turns, and so do the sites for which each client asks.

use crate::fair_places::{FairPlaces, Taker};
use std::panic::resume_unwind;
use std::thread::available_parallelism;
use tokio::task::{JoinError, spawn_blocking};

/// Runs long computations on other threads, a limited number at a time.
#[derive(Clone)]
pub struct Workers(FairPlaces);

impl Workers {
    /// `places`: the number of threads; `None`: half of the cores.
    pub(super) fn new(places: Option<usize>) -> Self {
        let half = || (available_parallelism().map_or(1, usize::from) / 2).max(1);
        Self(FairPlaces::new(places.unwrap_or_else(half)))
    }

    /// Waits for a place, then runs the work on another thread. If this future is dropped, work that has begun keeps its place until it
    /// ends.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        taker: Taker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let place = self.0.take(taker).await;
        let work = spawn_blocking(move || {
            let _place = place;
            work()
        });
        work.await.map_err(rethrown)
    }
}

/// Propagates a panic of the awaited work. Any other error means that the runtime is shutting down.
pub(super) fn rethrown(error: JoinError) -> JoinError {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => error,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fair_places::FairPlace;
    use crate::policy::pace::ClientId;
    use futures_util::FutureExt;

    /// Takes all places, each for a different client.
    pub fn all_places(workers: &Workers) -> Vec<FairPlace> {
        let takers = (1000..).map(|number| Taker::of(ClientId(number)));
        takers.map_while(|taker| workers.0.take(taker).now_or_never()).collect()
    }
}
