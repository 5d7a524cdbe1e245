//! Keeps the memory of authorities and their files within `store.memory`, even while the store is slow to write.

use super::RobotsCache;
use crate::fair_places::Taker;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

impl RobotsCache {
    /// Evicts the least recently used host entries and files, in the background, if memory exceeds the limit.
    pub fn trim(self: &Arc<Self>) {
        if self.is_within_limit() && !self.files.is_stale() || self.trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = self.clone();
        tokio::spawn(async move {
            loop {
                let pass = inner.clone();
                // Fails only when the runtime shuts down.
                let _ = tokio::task::spawn_blocking(move || pass.evict()).await;
                if inner.is_within_limit() || inner.store.queued_bytes() == 0 {
                    break;
                }
                // Files that wait to be written stay in memory until they are written.
                sleep(AGAIN).await;
            }
            inner.trimming.store(false, Ordering::Relaxed);
        });
    }

    /// Waits while the store is behind, so that new fetches begin a few at a time, in turn by client. Returns whether the store was behind.
    pub(super) async fn wait_for_store(&self, taker: Taker) -> bool {
        if !self.store.is_behind() {
            return false;
        }
        let place = self.unstored.take(taker).await;
        if self.store.is_behind() {
            self.store.room().await;
            // Holds the place for a moment, not until the end of the fetch, as the site may be silent.
            tokio::spawn(async move {
                sleep(BEGINNING).await;
                drop(place);
            });
        }
        true
    }

    fn evict(&self) {
        self.files.sweep();
        if !self.is_within_limit() {
            self.pacer.sweep();
            // Evicts a little more than necessary, so that evictions are rare.
            while self.figures().bytes() > self.limit() / 16 * 15 && self.hosts.shrink() {
                self.files.sweep();
            }
        }
    }

    fn is_within_limit(&self) -> bool {
        self.figures().bytes() <= self.limit()
    }

    fn limit(&self) -> usize {
        usize::try_from(self.settings.load().store.memory).unwrap_or(usize::MAX)
    }
}

/// Time between two passes while files wait to be written.
const AGAIN: Duration = Duration::from_millis(200);
/// Time from when a waiting fetch begins until its place is free for the next one.
const BEGINNING: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::super::refresh::tests::cache_of;
    use crate::config::Settings;
    use crate::fair_places::Taker;
    use crate::gate::store::tests::unwritten;
    use crate::policy::pace::ClientId;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::task::unconstrained;
    use tokio::time::{Instant, sleep};

    /// One client may have half of the places.
    #[tokio::test(start_paused = true)]
    async fn fetches_begin_a_few_at_a_time_while_the_store_is_behind() {
        let (cache, begun) = (cache_of(Settings::default(), unwritten(), None), AtomicUsize::new(0));
        let store = &cache.store;
        let mut all = pin!(unconstrained(join_all((0..3_000).map(|_| async {
            cache.wait_for_store(Taker::of(ClientId(1))).await;
            begun.fetch_add(1, Ordering::Relaxed);
        }))));
        store.fall_behind();
        for round in 1..4 {
            assert!((&mut all).now_or_never().is_none());
            store.catch_up();
            assert!((&mut all).now_or_never().is_none());
            assert_eq!(
                begun.load(Ordering::Relaxed),
                8 * round,
                "each time the store catches up, 8 more fetches begin"
            );
            store.fall_behind();
            sleep(Duration::from_secs(1)).await;
        }
        let began = Instant::now();
        assert!((&mut all).now_or_never().is_none());
        store.catch_up();
        all.await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}
