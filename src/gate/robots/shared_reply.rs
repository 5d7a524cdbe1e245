//! Shares one request among all fetches that wait for the same URL, as many sites redirect their robots.txt to that of one host.

use super::fetch::{FetchError, Reply};
use crate::gate::shared_rows::SharedRows;
use crate::policy::SiteFile;
use tokio::sync::OnceCell;
use url::Url;

/// The requests in flight.
pub(super) type SharedReplies = SharedRows<SharedKey, SharedReply>;

type SharedKey = (SiteFile, Url);
/// The result of a shared request. An error is the site's failure.
type SharedReply = OnceCell<Result<Reply, String>>;

/// The reply to the request in flight for this URL, or else to `ask`. If the site was not asked, or the fetch that asks is dropped, the
/// next waiting fetch asks.
pub(super) async fn shared_reply(
    all: &SharedReplies,
    key: SharedKey,
    ask: impl Future<Output = Result<Reply, FetchError>>,
) -> Result<Reply, FetchError> {
    let row = all.row(&key);
    let ask = async || match ask.await {
        Ok(reply) => Ok(Ok(reply)),
        Err(FetchError::Unreachable(why)) => Ok(Err(why)),
        Err(error @ FetchError::NotAsked(_)) => Err(error),
    };
    let reply = row.get_or_try_init(ask).await?;
    // Later fetches send another request.
    row.leave();
    reply.clone().map_err(FetchError::Unreachable)
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
        Reply {
            asked: SystemTime::now(),
            status: 200,
            headers,
            body,
            version: HttpVersion::Http1,
            wanted: None,
            through: None,
        }
    }

    /// The number of requests sent for `count` fetches that wait for one URL, and the result of each fetch.
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
        let told = join_all((0..count).map(|_| shared_reply(&all, key("/robots.txt"), ask()))).await;
        assert_eq!(all.len(), 0);
        (asked.get(), told)
    }

    #[tokio::test]
    async fn fetches_of_one_url_share_one_request() {
        let (asked, told) = shared(100, || Ok(reply())).await;
        assert!(asked == 1 && told.iter().all(Result::is_ok));
        let (asked, told) = shared(100, || Err("reset".to_owned().into())).await;
        assert!(asked == 1 && told.iter().all(|told| matches!(told, Err(FetchError::Unreachable(_)))));
    }

    /// Another client may have a free place, or wait longer.
    #[tokio::test]
    async fn refusal_of_a_shared_request_applies_only_to_its_sender() {
        let (asked, told) = shared(3, || Err(FetchError::NotAsked(Refusal::Loop))).await;
        assert!(asked == 3 && told.iter().all(|told| matches!(told, Err(FetchError::NotAsked(_)))));
    }

    #[tokio::test]
    async fn next_fetch_asks_if_the_asking_one_is_dropped() {
        let all = SharedReplies::default();
        let mut first = Box::pin(shared_reply(&all, key("/robots.txt"), pending()));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(shared_reply(&all, key("/robots.txt"), ready(Ok(reply()))));
        assert!((&mut second).now_or_never().is_none(), "the first is asking");
        assert!(shared_reply(&all, key("/robots.txt?a"), ready(Ok(reply()))).now_or_never().is_some());
        drop(first);
        assert!(second.now_or_never().is_some_and(|told| told.is_ok()));
        drop(Box::pin(shared_reply(&all, key("/robots.txt"), pending())).now_or_never());
        assert_eq!(all.len(), 0);
    }
}
