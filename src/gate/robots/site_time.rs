//! The time that a site has for its answer. It stands still while a fetch waits for the proxy's own resources, as that is not the site's
//! fault.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

pub(super) struct SiteTime {
    end: Mutex<Instant>,
    /// Time until which the fetch may wait for the proxy's own resources.
    until: Instant,
}

impl SiteTime {
    /// `left`: the site's time. `own`: how much longer the fetch may take because it waits for the proxy's own resources.
    pub fn new(left: Duration, own: Duration) -> Self {
        let end = Instant::now() + left;
        Self { end: Mutex::new(end), until: end + own }
    }

    pub fn left(&self) -> Duration {
        self.end.lock().saturating_duration_since(Instant::now())
    }

    /// The result of `work`, which waits for the site. `None`: the site's time has ended first.
    pub async fn limit<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let mut end = pin!(sleep_until(*self.end.lock()));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => {
                let now = *self.end.lock();
                if end.deadline() != now {
                    end.as_mut().reset(now);
                }
                end.as_mut().poll(cx).map(|()| None)
            }
        })
        .await
    }

    /// Waits for the proxy's own resources, while the site's time stands still. `None`: the wait took too long.
    pub async fn stopped<T>(&self, wait: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let left = self.left();
        *self.end.lock() = self.until.max(Instant::now()) + left + MOMENT;
        let done = timeout_at(self.until, wait).await;
        *self.end.lock() = Instant::now() + left;
        done.ok()
    }
}

/// Margin, so that a wait for the proxy's own resources times out before the site's time does.
const MOMENT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn sites_time_stands_still_while_a_fetch_waits_for_the_proxy() {
        for (last, done, after) in [(5, Some(()), 34), (7, None, 35)] {
            let (time, began) = (SiteTime::new(seconds(10), seconds(30)), Instant::now());
            let fetch = async {
                sleep(seconds(4)).await;
                assert_eq!(time.stopped(pin!(sleep(seconds(25)))).await, Some(()));
                sleep(seconds(last)).await;
            };
            assert_eq!((time.limit(pin!(fetch)).await, began.elapsed().as_secs()), (done, after));
            assert_eq!(time.left().as_millis().div_ceil(1000), if done.is_some() { 1 } else { 0 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_proxy_times_out_before_the_sites_time() {
        let (time, began) = (SiteTime::new(seconds(10), seconds(30)), Instant::now());
        assert_eq!(time.limit(pin!(time.stopped(pin!(sleep(seconds(100)))))).await, Some(None));
        assert_eq!(began.elapsed().as_secs(), 40);
        assert_eq!(time.limit(pin!(time.stopped(pin!(async { 7 })))).await, Some(Some(7)), "no wait was needed");
    }
}
