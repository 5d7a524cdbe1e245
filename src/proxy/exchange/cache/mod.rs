//! How a request uses the cache that all clients share: after it has been decided that it may go, and before its turn at the host.

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
    /// What the origin is asked beside: whether what is stored is current.
    pub(super) conditions: Vec<(&'static str, Vec<u8>)>,
    /// What is stored, and has to be confirmed.
    stale: Option<Box<StoredAnswer>>,
    /// It has been confirmed.
    confirmed: Option<Box<StoredAnswer>>,
    /// Why it goes to the origin, once it has been looked up.
    why: &'static str,
    has_waited: bool,
    /// The answer of the URL that had been stored last when it was looked up.
    seen: Option<EntryId>,
    /// It has been looked up, and goes to the origin. Others may wait for its answer.
    claim: Option<PageClaim>,
    /// The answer is being stored.
    pub(super) storing: Option<StoringAnswer>,
}

/// How it fared, for the log.
pub(in crate::proxy::exchange) struct CacheTrace {
    pub result: &'static str,
    /// What the record of the fetch is known by that the answer goes back to, and when that was, in milliseconds since 1970.
    pub fetch: Option<(String, u64)>,
}

impl CacheUse {
    /// `None`: there is no cache, or nothing in it is for this request. Tells too whether the client wants what is stored, and nothing else
    /// (`only-if-cached`).
    pub(super) fn of(proxy: &Proxy, request: &Request<'_>, peer: &Peer) -> (Option<Box<Self>>, bool) {
        // robots.txt has copies of its own.
        let Some(cache) = proxy.cache.as_ref().filter(|_| !request.reads_robots()) else { return (None, false) };
        let wanted = Wanted::read(|take| request.head.each_passed(take));
        let only_stored = wanted.control.only_if_cached;
        let is_of_page = matches!(request.method, "GET" | "HEAD")
            && !(request.is_upgrade || request.has_body())
            && *request.target != *SiteFile::TdmRep.path().as_bytes();
        // Who is another crawler to sites, or keeps other rules, has answers of their own.
        let has_own_terms =
            peer.user.as_deref().is_some_and(|user| user.hosts.is_some() || !user.product_tokens.is_empty());
        // What would be one client's own is stored nowhere.
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

    /// Whether it has been looked up, and goes to the origin.
    pub(super) fn is_tried(&self) -> bool {
        self.claim.is_some()
    }

    /// What Cache-Status says of it (RFC 9211 §2.2). `found`: what is stored, and does not do. `at_least`: for so long it is fresh.
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

    /// The newest stored answer that may be one to this request.
    async fn find(&self, fields: SentFields<'_>) -> Option<Box<StoredAnswer>> {
        self.cache.latest(self.key)?;
        let (url, mut sent) = (self.url.clone(), Vec::<(Vec<u8>, Vec<u8>)>::new());
        fields.each(&mut |name, value| sent.push((name.to_ascii_lowercase(), value.to_vec())));
        let field = move |name: &[u8]| joined(name, |take| sent.iter().for_each(|(name, value)| take(name, value)));
        let is_wanted = move |head: &StoredHead| head.url == url && head.is_selected_by(&field);
        self.cache.find(self.key, is_wanted).await.map(Box::new)
    }
}

/// As it is stored under: byte for byte.
fn url_of(request: &Request<'_>) -> Vec<u8> {
    [request.authority.url("").as_bytes(), &request.target].concat()
}
