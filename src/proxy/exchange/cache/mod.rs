//! How a request uses the cache that all clients share: after the request was allowed, and before it waits for a slot.

mod answer;
mod keep;
mod lookup;
mod tee;

pub(super) use lookup::CacheLookup;

use super::head::{SentFields, joined};
use super::request::Request;
use crate::gate::cache::{EntryId, PageCache, PageClaim, StoredAnswer, StoringAnswer};
use crate::policy::SiteFile;
use crate::policy::cache::{CacheControl, StoredHead, Wanted};
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// One request's use of the cache.
pub(super) struct CacheUse {
    cache: Arc<PageCache>,
    url: Vec<u8>,
    key: u128,
    wanted: Wanted,
    /// Conditions added to the request, so that the origin revalidates `stale`.
    pub(super) conditions: Vec<(&'static str, Vec<u8>)>,
    /// The stored answer that the origin must revalidate.
    stale: Option<Box<StoredAnswer>>,
    /// The stored answer, once the origin has confirmed it.
    confirmed: Option<Box<StoredAnswer>>,
    /// Why the request goes to the origin, as in Cache-Status.
    why: &'static str,
    has_waited: bool,
    /// The URL's newest stored answer at the time of the lookup.
    seen: Option<EntryId>,
    /// Set if the request goes to the origin. Other requests may wait for its answer.
    claim: Option<PageClaim>,
    /// The answer, while it is being stored.
    pub(super) storing: Option<StoringAnswer>,
}

/// How the cache was involved in the answer, for the log.
pub(in crate::proxy::exchange) struct CacheTrace {
    pub result: &'static str,
    /// Id of the fetch that the answer comes from, and its time in milliseconds since 1970.
    pub fetch: Option<(String, u64)>,
}

impl CacheUse {
    /// Creates the state; `None`: there is no cache, or it does not apply to this request. Also returns whether the client
    /// accepts only a stored answer (`only-if-cached`).
    pub(super) fn of(proxy: &Proxy, request: &Request<'_>, peer: &Peer) -> (Option<Box<Self>>, bool) {
        // The gate stores robots.txt itself.
        let Some(cache) = proxy.cache.as_ref().filter(|_| !request.reads_robots()) else { return (None, false) };
        let wanted = Wanted::read(|take| request.head.each_passed(take));
        let only_stored = wanted.control.only_if_cached;
        let is_of_page = matches!(request.method, "GET" | "HEAD")
            && !(request.is_upgrade || request.has_body())
            && *request.target != *SiteFile::TdmRep.path().as_bytes();
        // A user with other product tokens or rules is another crawler to sites, and does not share answers.
        let has_own_terms =
            peer.user.as_deref().is_some_and(|user| user.hosts.is_some() || !user.product_tokens.is_empty());
        // An answer for one client alone is never stored.
        if !is_of_page || wanted.is_past_caches || has_own_terms || request.is_for_one() {
            return (None, only_stored);
        }
        let url = url_of(request);
        let cached = CacheUse {
            cache: cache.clone(),
            key: PageCache::key(&url),
            url,
            wanted,
            conditions: Vec::new(),
            stale: None,
            confirmed: None,
            why: "uri-miss",
            has_waited: false,
            seen: None,
            claim: None,
            storing: None,
        };
        (Some(Box::new(cached)), only_stored)
    }

    /// Whether the lookup found nothing usable, so that the request goes to the origin.
    pub(super) fn is_tried(&self) -> bool {
        self.claim.is_some()
    }

    /// The reason for Cache-Status (RFC 9211 §2.2). `found`: the stored answer that cannot be used as it is.
    /// `at_least`: minimum time for which a stored answer counts as fresh.
    fn why_forwarded(&self, found: Option<&StoredAnswer>, at_least: Duration) -> &'static str {
        let is_fresh =
            |found: &StoredAnswer| found.head.is_fresh_for(&CacheControl::default(), at_least, SystemTime::now());
        match found {
            Some(found) if is_fresh(found) => "request",
            Some(_) => "stale",
            None if self.seen.is_some() => "vary-miss",
            None => "uri-miss",
        }
    }

    /// Finds the newest stored answer for the request's URL and the fields in Vary.
    async fn find(&self, fields: SentFields<'_>) -> Option<Box<StoredAnswer>> {
        self.cache.latest(self.key)?;
        let (url, mut sent) = (self.url.clone(), Vec::<(Vec<u8>, Vec<u8>)>::new());
        fields.each(&mut |name, value| sent.push((name.to_ascii_lowercase(), value.to_vec())));
        let field = move |name: &[u8]| joined(name, |take| sent.iter().for_each(|(name, value)| take(name, value)));
        let is_wanted = move |head: &StoredHead| head.url == url && head.is_selected_by(&field);
        self.cache.find(self.key, is_wanted).await.map(Box::new)
    }
}

/// The URL as the cache stores it, byte for byte as the client sent it.
fn url_of(request: &Request<'_>) -> Vec<u8> {
    [request.authority.url("").as_bytes(), &request.target].concat()
}
