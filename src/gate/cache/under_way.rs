//! Single flight: requests for a URL that is being fetched wait a while for that answer instead of fetching too.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// All fetches, by URL hash.
#[derive(Default, Clone)]
pub struct PagesUnderWay(Arc<Mutex<HashMap<u128, watch::Receiver<()>>>>);

/// The owner of a fetch.
pub enum PageFetch {
    /// The caller's own fetch, until this is dropped.
    Own(OwnFetch),
    Others(OthersFetch),
}

/// The caller's fetch. Others wait for it.
pub struct OwnFetch {
    all: PagesUnderWay,
    key: u128,
    _ends: watch::Sender<()>,
}

/// Another request's fetch.
pub struct OthersFetch(watch::Receiver<()>);

impl PagesUnderWay {
    pub fn enter(&self, key: u128) -> PageFetch {
        let mut all = self.0.lock();
        if let Some(others) = all.get(&key) {
            return PageFetch::Others(OthersFetch(others.clone()));
        }
        let (ends, others) = watch::channel(());
        all.insert(key, others);
        PageFetch::Own(OwnFetch { all: self.clone(), key, _ends: ends })
    }
}

impl OthersFetch {
    /// Returns when the fetch ends, with any result.
    pub async fn end(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

impl Drop for OwnFetch {
    fn drop(&mut self) {
        // Before the waiting requests are woken: one of them fetches next.
        self.all.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn others_wait_until_it_is_over() {
        let all = PagesUnderWay::default();
        let PageFetch::Own(own) = all.enter(1) else { panic!("nobody else") };
        let PageFetch::Others(others) = all.enter(1) else { panic!("one is enough") };
        assert!(matches!(all.enter(2), PageFetch::Own(_)));
        let waiting = tokio::spawn(others.end());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(own);
        waiting.await.unwrap();
        assert!(matches!(all.enter(1), PageFetch::Own(_)));
        assert!(all.0.lock().is_empty());
    }
}
