//! Threads for OpenSSL's handshakes, as an origin can make one take a tenth of a second. Requests are served by other threads.

use crate::upstream::dial_error::{DialError, DialFault};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long the handshakes of one dial have waited for a thread.
#[derive(Default, Clone)]
pub struct ThreadWait(Arc<Mutex<WaitSoFar>>);

#[derive(Default)]
struct WaitSoFar {
    before: Duration,
    /// The start of the wait that lasts.
    since: Option<Instant>,
}

impl ThreadWait {
    /// Whether it was long enough that a timeout says nothing of the origin.
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

    /// Does the work. Each time that it can go on, it waits for a thread.
    async fn of<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.end();
            let waker = Waker::from(Arc::new(CountedWaker { waker: cx.waker().clone(), wait: self.clone() }));
            work.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

struct CountedWaker {
    waker: Waker,
    wait: ThreadWait,
}

impl Wake for CountedWaker {
    fn wake(self: Arc<Self>) {
        self.wait.begin();
        self.waker.wake_by_ref();
    }
}

/// Does the work on one of half the cores. If this future is dropped, the work ends where it next waits.
pub(super) async fn apart<T: Send + 'static>(
    wait: &ThreadWait,
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
    wait.begin();
    only.spawn_on(wait.clone().of(work), threads.handle());
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
const LONG_WAIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn only_the_time_that_a_handshake_could_go_on_is_a_wait_of_ours() {
        let (wait, (tell, told)) = (ThreadWait::default(), oneshot::channel());
        let mut work = pin!(wait.clone().of(told));
        wait.begin();
        sleep(LONG_WAIT / 2).await;
        assert!(work.as_mut().now_or_never().is_none() && !wait.is_long());
        // For the origin.
        sleep(LONG_WAIT * 10).await;
        assert!(work.as_mut().now_or_never().is_none() && !wait.is_long());
        tell.send(()).unwrap();
        assert!(!wait.is_long());
        sleep(LONG_WAIT / 2).await;
        assert!(wait.is_long(), "both waits together");
        assert!(work.now_or_never().is_some());
        assert!(wait.is_long());
    }
}
