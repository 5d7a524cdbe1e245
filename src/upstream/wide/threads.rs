//! Threads for OpenSSL's handshakes, separate from the threads that serve requests, because an origin can make a handshake take a tenth of
//! a second. Clients take turns, and so do their sites.

use crate::fair_places::{FairPlaces, Taker};
use crate::upstream::dial_error::{DialError, DialFault};
use parking_lot::Mutex;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long the handshakes of one dial have waited for a thread.
#[derive(Default, Clone)]
pub struct ThreadWait(Arc<Mutex<WaitSoFar>>);

#[derive(Default)]
struct WaitSoFar {
    before: Duration,
    /// Start of the current wait.
    since: Option<Instant>,
}

impl ThreadWait {
    /// Whether the wait was so long that a timeout says nothing about the origin.
    pub fn is_long(&self) -> bool {
        let wait = self.0.lock();
        wait.before + wait.since.map_or(Duration::ZERO, |since| since.elapsed()) >= LONG_WAIT
    }

    fn begin(&self) {
        self.0.lock().since.get_or_insert_with(Instant::now);
    }

    fn end(&self) {
        let mut wait = self.0.lock();
        if let Some(since) = wait.since.take() {
            wait.before += since.elapsed();
        }
    }

    /// Runs `work`. Each time that it can continue, it waits for a place and for a thread.
    async fn of<F: Future>(self, places: FairPlaces, taker: Taker, work: F) -> F::Output {
        let mut work = pin!(work);
        let can_go_on = Arc::new(CanGoOn { told: Notify::new(), wait: self.clone() });
        let waker = Waker::from(can_go_on.clone());
        loop {
            let place = places.take(taker).await;
            self.end();
            let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
            drop(place);
            if let Poll::Ready(done) = polled {
                return done;
            }
            can_go_on.told.notified().await;
        }
    }
}

struct CanGoOn {
    told: Notify,
    wait: ThreadWait,
}

impl Wake for CanGoOn {
    fn wake(self: Arc<Self>) {
        self.wait.begin();
        self.told.notify_one();
    }
}

/// Runs `work` on these threads, one for every two cores. If this future is dropped, the work stops at its next await point.
pub(super) async fn apart<T: Send + 'static>(
    wait: &ThreadWait,
    taker: Taker,
    work: impl Future<Output = Result<T, DialError>> + Send + 'static,
) -> Result<T, DialError> {
    let failed = |error: &dyn std::fmt::Display| {
        DialError::new(DialFault::OwnLimit, format!("no threads for the handshake: {error}"))
    };
    let start = async || {
        let half = (available_parallelism().map_or(1, usize::from) / 2).max(1);
        let threads = Builder::new_multi_thread().worker_threads(half).thread_name("politely-tls").build();
        // A single client gets at most `half` of these places, which is one for each thread. Another client's handshake then waits only
        // until a thread is free.
        threads.map(|threads| (threads, FairPlaces::new(2 * half - 1)))
    };
    let (threads, places) = THREADS.get_or_try_init(start).await.map_err(|error| failed(&error))?;
    // A set, because dropping it ends the work; dropping a task's handle would not.
    let mut only = JoinSet::new();
    wait.begin();
    only.spawn_on(wait.clone().of(places.clone(), taker, work), threads.handle());
    match only.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => Err(failed(&error)),
        },
        None => Err(failed(&"the task was not started")),
    }
}

/// The threads and the places on them, started when first needed.
static THREADS: OnceCell<(Runtime, FairPlaces)> = OnceCell::const_new();
const LONG_WAIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::ClientId;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use std::future::poll_fn;
    use tokio::sync::oneshot;
    use tokio::time::sleep;

    #[tokio::test]
    async fn client_with_many_handshakes_does_not_delay_another() {
        let (places, order) = (FairPlaces::new(1), Mutex::new(Vec::new()));
        let client = |number| Taker::of(ClientId(number));
        let busy = places.take(client(1)).await;
        let works = [1; 100].into_iter().chain([2]).map(|number| {
            let order = &order;
            let work = async move {
                order.lock().push(number);
                // Wakes the work once more, as the origin's answer would.
                let mut has_come = false;
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::replace(&mut has_come, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                order.lock().push(number);
            };
            ThreadWait::default().of(places.clone(), client(number), work)
        });
        let mut works = Box::pin(join_all(works));
        assert!((&mut works).now_or_never().is_none() && order.lock().is_empty(), "all wait");
        drop(busy);
        works.await;
        let last = order.lock().iter().rposition(|number| *number == 2);
        assert!(last.is_some_and(|last| last < 8), "{last:?} of {}", order.lock().len());
    }

    #[tokio::test(start_paused = true)]
    async fn time_waiting_for_the_origin_does_not_count_as_waiting_for_a_thread() {
        let (wait, (tell, told)) = (ThreadWait::default(), oneshot::channel());
        let mut work = pin!(wait.clone().of(FairPlaces::new(1), Taker::of(ClientId(1)), told));
        wait.begin();
        sleep(LONG_WAIT / 2).await;
        assert!(work.as_mut().now_or_never().is_none() && !wait.is_long());
        // The work waits for the origin.
        sleep(LONG_WAIT * 10).await;
        assert!(work.as_mut().now_or_never().is_none() && !wait.is_long());
        tell.send(()).unwrap();
        assert!(!wait.is_long());
        sleep(LONG_WAIT / 2).await;
        assert!(wait.is_long(), "both waits count together");
        assert!(work.now_or_never().is_some());
        assert!(wait.is_long());
    }
}
