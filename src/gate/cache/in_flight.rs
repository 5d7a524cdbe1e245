//! Requests for pages that are in flight to their sites, by URL. Of several requests for the same page, one fetches it, and the others wait
//! a while for its answer. Each may store its answer, unless the URL is invalidated first (RFC 9111 §4.4).

use crate::gate::shared_rows::{SharedRow, SharedRows};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::watch;

/// The pages in flight, by URL hash.
pub(super) type PagesInFlight = SharedRows<u128, PageInFlight>;

/// The requests for one page since it was last invalidated.
#[derive(Default)]
pub(super) struct PageInFlight {
    /// Closed at the end of the fetch; other requests for the page wait for that.
    fetch: Mutex<Option<watch::Receiver<()>>>,
    is_invalidated: AtomicBool,
}

/// The claim of one request to store its answer.
pub struct PageClaim {
    page: Arc<SharedRow<u128, PageInFlight>>,
    /// Dropping the sender wakes the requests that wait for this request's answer. `None`: no request waits for it.
    _fetch: Option<watch::Sender<()>>,
}

/// Another request's fetch.
pub struct OthersFetch(watch::Receiver<()>);

impl PageClaim {
    /// The claim of a request that others do not wait for.
    pub(super) fn new(all: &PagesInFlight, key: u128) -> Self {
        Self { page: all.row(&key), _fetch: None }
    }

    /// The claim of a request, unless another request fetches the page. `is_fetch`: other requests for the page wait for this request.
    pub(super) fn unless_fetched(all: &PagesInFlight, key: u128, is_fetch: bool) -> Result<Self, OthersFetch> {
        let page = all.row(&key);
        let mut fetch = page.fetch.lock();
        if let Some(others) = fetch.as_ref().filter(|others| others.has_changed().is_ok()) {
            return Err(OthersFetch(others.clone()));
        }
        let ends = is_fetch.then(|| {
            let (ends, others) = watch::channel(());
            *fetch = Some(others);
            ends
        });
        drop(fetch);
        Ok(Self { page, _fetch: ends })
    }

    /// Ends all claims to store answers of this URL. Call this before its stored answers are removed.
    pub(super) fn end_all(all: &PagesInFlight, key: u128) {
        if let Some(page) = all.take(&key) {
            page.is_invalidated.store(true, Relaxed);
        }
    }

    /// Whether the answer may still be stored. Call it under the lock of the index, so that an invalidation comes either before
    /// or after the answer is added there.
    pub fn holds(&self) -> bool {
        !self.page.is_invalidated.load(Relaxed)
    }
}

impl OthersFetch {
    /// Waits until the fetch ends, successful or not.
    pub async fn end(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_requests_wait_for_the_fetch_in_flight() {
        let all = PagesInFlight::default();
        let own = PageClaim::unless_fetched(&all, 1, true).ok().expect("no other request fetches it");
        let beside = PageClaim::new(&all, 1);
        let Err(others) = PageClaim::unless_fetched(&all, 1, true) else { panic!("a second request fetches the page") };
        assert!(PageClaim::unless_fetched(&all, 1, false).is_err(), "another request fetches the page");
        assert!(PageClaim::unless_fetched(&all, 2, false).is_ok() && PageClaim::unless_fetched(&all, 2, true).is_ok());
        let waiting = tokio::spawn(others.end());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(own);
        waiting.await.unwrap();
        assert!(PageClaim::unless_fetched(&all, 1, true).is_ok());
        drop(beside);
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn request_after_an_invalidation_does_not_wait_for_an_earlier_fetch() {
        let all = PagesInFlight::default();
        let own = PageClaim::unless_fetched(&all, 1, true).ok().expect("no other request");
        assert!(PageClaim::unless_fetched(&all, 1, true).is_err());
        PageClaim::end_all(&all, 1);
        let next = PageClaim::unless_fetched(&all, 1, true).ok().expect("the earlier fetch is outdated");
        assert!(!own.holds() && next.holds());
        drop(own);
        assert!(PageClaim::unless_fetched(&all, 1, true).is_err());
    }

    #[test]
    fn invalidation_ends_only_earlier_claims_to_its_url() {
        for many in [100, 100_000] {
            let all = PagesInFlight::default();
            let claims: Vec<_> = (0..many).map(|key| PageClaim::new(&all, key)).collect();
            let same: Vec<_> = (0..many).map(|_| PageClaim::new(&all, 1)).collect();
            (many..3 * many).for_each(|key| PageClaim::end_all(&all, key));
            assert!(claims.iter().chain(&same).all(PageClaim::holds));
            PageClaim::end_all(&all, 1);
            let later = PageClaim::new(&all, 1);
            assert!(later.holds() && !claims[1].holds() && !same.iter().any(PageClaim::holds));
            assert!(claims.iter().enumerate().all(|(key, claim)| claim.holds() == (key != 1)));
            drop((claims, same));
            assert_eq!(all.len(), 1, "the row of the later request stays");
            drop(later);
            assert_eq!(all.len(), 0, "no other row is left");
        }
    }
}
