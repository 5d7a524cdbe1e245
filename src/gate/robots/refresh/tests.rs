use super::*;
use crate::gate::pacer::Pacer;
use crate::gate::robots::{Fetcher, RobotsCache};
use crate::gate::store::Store;
use arc_swap::ArcSwap;

fn cache() -> RobotsCache {
    let upstream = Arc::new(crate::upstream::tests::upstream(""));
    let store = Arc::new(Store::memory());
    let pacer = Arc::new(Pacer::new(store.clone(), None));
    let settings = Arc::new(ArcSwap::from_pointee(Settings::default()));
    RobotsCache::new(Fetcher::new(upstream), pacer, store, settings, None)
}

#[tokio::test]
async fn a_panic_is_a_failure_that_is_not_repeated_at_once() {
    let cache = cache();
    let host = cache.host(&Authority::from_url("https://a.example").unwrap());
    let apart = async { tokio::task::spawn_blocking(|| panic!("while reading")).await.map_err(rethrown) };
    assert!(cache.0.or_failed(&host, apart).await.is_none());
    let entry = host.load_full();
    let trouble = entry.trouble.as_ref().expect("it is noted");
    assert_eq!((trouble.failures, &*trouble.why), (1, "a fault of the proxy's own"));
    assert!(!entry.may_fetch(SystemTime::now()), "it is left alone for a while");
    assert_eq!(cache.figures().failed, 1);
    assert_eq!(cache.0.or_failed(&host, async { 7 }).await, Some(7));
}
