//! One request for all fetches that wait for the same URL: many sites redirect their robots.txt to that of one host.

use super::fetch::{FetchError, Reply};
use crate::policy::SiteFile;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OnceCell;
use url::Url;

/// The requests in flight.
#[derive(Default)]
pub(super) struct SharedReplies(Mutex<HashMap<SharedKey, Arc<SharedReply>>>);

type SharedKey = (SiteFile, Url);
/// An error is the site's failure.
type SharedReply = OnceCell<Result<Reply, String>>;

impl SharedReplies {
    /// The reply to the request in flight for this URL, or that of `ask`. If the site was not asked, or the fetch that asks is dropped,
    /// the next one asks.
    pub async fn get(
        &self,
        key: SharedKey,
        ask: impl Future<Output = Result<Reply, FetchError>>,
    ) -> Result<Reply, FetchError> {
        let reply = self.0.lock().entry(key.clone()).or_default().clone();
        let row = SharedRow { all: self, key, reply };
        let ask = async || match ask.await {
            Ok(reply) => Ok(Ok(reply)),
            Err(FetchError::Unreachable(why)) => Ok(Err(why)),
            Err(error @ FetchError::NotAsked(_)) => Err(error),
        };
        row.reply.get_or_try_init(ask).await?.clone().map_err(FetchError::Unreachable)
    }
}

/// A fetch's hold on a row of the table. The row goes with its last holder, or once there is a reply: who comes then asks again.
struct SharedRow<'a> {
    all: &'a SharedReplies,
    key: SharedKey,
    reply: Arc<SharedReply>,
}

impl Drop for SharedRow<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        // Released under the lock, so that the count is exact.
        let reply = std::mem::take(&mut self.reply);
        let is_over = reply.initialized() || Arc::strong_count(&reply) == 2;
        if is_over && all.get(&self.key).is_some_and(|held| Arc::ptr_eq(held, &reply)) {
            all.remove(&self.key);
        }
        drop(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{HttpVersion, Refusal};
    use futures_util::FutureExt;
    use futures_util::future::{join_all, pending, ready};
    use std::cell::Cell;
    use std::time::SystemTime;
    use tokio::task::yield_now;

    fn key(path: &str) -> SharedKey {
        (SiteFile::Robots, Url::parse("http://a.example").unwrap().join(path).unwrap())
    }

    fn reply() -> Reply {
        let (headers, body) = Default::default();
        Reply { asked: SystemTime::now(), status: 200, headers, body, version: HttpVersion::Http1, wanted: None }
    }

    /// How many are asked of so many that wait for it, and what each of them is told.
    async fn shared(
        count: usize,
        answer: impl Fn() -> Result<Reply, FetchError>,
    ) -> (usize, Vec<Result<Reply, FetchError>>) {
        let (all, asked) = (SharedReplies::default(), Cell::new(0));
        let ask = || async {
            asked.set(asked.get() + 1);
            yield_now().await;
            answer()
        };
        let told = join_all((0..count).map(|_| all.get(key("/robots.txt"), ask()))).await;
        assert!(all.0.lock().is_empty());
        (asked.get(), told)
    }

    #[tokio::test]
    async fn a_hundred_that_wait_for_one_url_ask_once() {
        let (asked, told) = shared(100, || Ok(reply())).await;
        assert!(asked == 1 && told.iter().all(Result::is_ok));
        let (asked, told) = shared(100, || Err("reset".to_owned().into())).await;
        assert!(asked == 1 && told.iter().all(|told| matches!(told, Err(FetchError::Unreachable(_)))));
    }

    /// Another client may have the place or the patience that it did not have.
    #[tokio::test]
    async fn a_refusal_is_for_the_one_that_asked() {
        let (asked, told) = shared(3, || Err(FetchError::NotAsked(Refusal::Loop))).await;
        assert!(asked == 3 && told.iter().all(|told| matches!(told, Err(FetchError::NotAsked(_)))));
    }

    #[tokio::test]
    async fn the_next_one_asks_if_the_one_that_asks_is_dropped_and_other_urls_are_others() {
        let all = SharedReplies::default();
        let mut first = Box::pin(all.get(key("/robots.txt"), pending()));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(all.get(key("/robots.txt"), ready(Ok(reply()))));
        assert!((&mut second).now_or_never().is_none(), "the first is asking");
        assert!(all.get(key("/robots.txt?a"), ready(Ok(reply()))).now_or_never().is_some());
        drop(first);
        assert!(second.now_or_never().is_some_and(|told| told.is_ok()));
        drop(Box::pin(all.get(key("/robots.txt"), pending())).now_or_never());
        assert!(all.0.lock().is_empty());
    }
}
