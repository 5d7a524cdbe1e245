//! Deadlines. One timer serves all waits of a connection; it is reset only if it fired too early or would fire too
//! late.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that can be moved. Always polled by the same task.
pub struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// Whether the timer will wake the task.
    set: bool,
}

impl Timer {
    pub fn new() -> Self {
        Timer { sleep: Box::pin(sleep_until(Instant::now())), set: false }
    }

    /// Ready when `at` has passed; otherwise the task is woken by then.
    #[inline]
    pub fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        if self.set && self.sleep.deadline() <= at && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        self.poll_anew(cx, at)
    }

    #[cold]
    fn poll_anew(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        loop {
            if self.sleep.is_elapsed() || self.sleep.deadline() > at || !self.set {
                let now = Instant::now();
                if now >= at {
                    return Poll::Ready(());
                }
                // The first deadline is short, so that a connection or stream that soon ends never has to reset the timer.
                self.sleep.as_mut().reset(if self.set { at } else { at.min(now + FIRST) });
            }
            // Without `unconstrained`, a task that has used up its cooperative budget could not set the timer.
            self.set = pin!(unconstrained(self.sleep.as_mut())).poll(cx).is_pending();
            if self.set {
                return Poll::Pending;
            }
        }
    }

    /// Waits for the future's output. `None`: `at` has passed first.
    pub async fn limit<F: Future>(&mut self, at: Instant, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll(cx, at).map(|()| None),
        })
        .await
    }
}

/// The longest first deadline of a timer.
const FIRST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_holds_when_moved_forward_or_back() {
        let mut timer = Timer::new();
        for seconds in [60, 1, 300, 5, 5, 0] {
            let began = Instant::now();
            let at = began + Duration::from_secs(seconds);
            assert!(timer.limit(at, std::future::pending::<()>()).await.is_none());
            assert!(began.elapsed() >= at - began && began.elapsed() < at - began + Duration::from_millis(10));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timer_fires_for_a_task_without_coop_budget() {
        let mut timer = Timer::new();
        let at = Instant::now() + Duration::from_secs(1);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        (0..1000).for_each(|number| sender.send(number).unwrap());
        let busy = poll_fn(|cx| {
            while receiver.poll_recv(cx).is_ready() {}
            Poll::<()>::Pending
        });
        assert!(timer.limit(at, busy).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_ends_in_time_is_not_cut_off() {
        let mut timer = Timer::new();
        for _ in 0..100 {
            let at = Instant::now() + Duration::from_secs(10);
            assert!(timer.limit(at, sleep(Duration::from_secs(9))).await.is_some());
        }
    }
}
