//! Work that takes long to compute, such as decoding a body or compiling a long robots.txt: away from the threads that serve requests,
//! on half of the cores at most. Clients take turns, and so do the sites for which each asks.

use super::fair_places::{FairPlaces, Taker};
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use tokio::task::{JoinError, spawn_blocking};

/// Does the work in its turn. If this future is dropped, work that has begun keeps its place to its end. An error: the runtime is
/// shutting down.
pub(super) async fn compute<T: Send + 'static>(
    taker: Taker,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let place = PLACES.take(taker).await;
    let work = spawn_blocking(move || {
        let _place = place;
        work()
    });
    work.await.map_err(rethrown)
}

/// A panic in the awaited work is raised again here. Otherwise the runtime is shutting down.
pub(super) fn rethrown(error: JoinError) -> JoinError {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => error,
    }
}

static PLACES: LazyLock<FairPlaces> = LazyLock::new(|| FairPlaces::new(half_of_the_cores()));

fn half_of_the_cores() -> usize {
    (available_parallelism().map_or(1, usize::from) / 2).max(1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::gate::fair_places::FairPlace;
    use crate::policy::pace::ClientId;

    /// All places, each taken by a client of its own.
    pub async fn all_places() -> Vec<FairPlace<'static>> {
        let mut places = Vec::new();
        for number in 0..half_of_the_cores() as u64 {
            places.push(PLACES.take(Taker::of(ClientId(1000 + number))).await);
        }
        places
    }
}
