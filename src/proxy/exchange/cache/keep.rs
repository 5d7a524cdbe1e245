//! Applies an origin's answer to the cache: stores it, or confirms or removes the stored answer.

use super::super::carry::AnswerHead;
use super::super::head::{SentFields, joined};
use super::super::state::Exchange;
use super::{CacheTrace, CacheUse, url_of};
use crate::gate::cache::{CacheResult, PageCache, StoreOrder, StoredAnswer};
use crate::http1::Framing;
use crate::policy::cache::{Received, StoredHead};
use crate::policy::{Authority, resolved};
use crate::upstream::Route;
use http::Version;
use std::time::{Duration, SystemTime};

impl CacheUse {
    /// Converts the claim to an order to store the answer. `None`: the request has no claim, or has used it already.
    fn order(&mut self) -> Option<StoreOrder> {
        let replaces = self.stale.as_ref().map(|stale| stale.id);
        Some(StoreOrder { key: self.key, replaces, claim: self.claim.take()? })
    }
}

impl Exchange<'_> {
    pub(super) fn trace(&mut self, result: CacheResult, head: Option<&StoredHead>) {
        if let Some(cached) = &self.cached {
            cached.cache.count(result);
        }
        let fetch = head.map(|head| head.fetch.clone());
        self.trip.cache = Some(Box::new(CacheTrace { result: result.as_str(), fetch }));
    }

    /// Whether a 304 answers the proxy's own conditions, not the client's. If it does, it confirms the stored answer.
    /// `after`: the time since the request was sent.
    #[cold]
    pub(in crate::proxy::exchange) fn is_confirmed(&mut self, head: &AnswerHead<'_>, after: Duration) -> bool {
        let sent = SentFields::of(self.request.head, &self.settings, self.peer.user.as_deref());
        let Some(cached) = self.cached.as_mut().filter(|cached| !cached.conditions.is_empty()) else { return false };
        let Some(mut stored) = cached.stale.take() else { return false };
        let (etag, modified) = (head.named(b"etag"), head.named(b"last-modified"));
        let is_it = stored.head.is_confirmed_by(etag.as_deref(), modified.as_deref());
        let each = |take: &mut dyn FnMut(&[u8], &[u8])| head.each(|_, name, value| take(name, value));
        let field = |name: &[u8]| joined(name, |take| sent.each(take));
        let confirmed = is_it.then(|| stored.head.confirmed(SystemTime::now(), after, each, field));
        match confirmed.filter(|confirmed| confirmed.size() <= self.settings.limits.max_header_size) {
            Some(confirmed) => stored.head = confirmed,
            // The 304 names other validators, or the updated head is too large: the stored answer is served once more, then removed.
            None => cached.cache.invalidate(cached.key),
        }
        cached.confirmed = Some(stored);
        true
    }

    /// Stores a confirmed answer with its updated head, or removes it if it must not be stored any more.
    pub(super) fn keep_confirmed(&mut self, stored: &StoredAnswer) {
        let is_reserved = self.is_reserved();
        let Some(cached) = &mut self.cached else { return };
        if is_reserved || !stored.head.is_storable() {
            cached.cache.invalidate(cached.key);
            cached.claim = None;
            return;
        }
        if let Some(order) = cached.order() {
            cached.cache.confirm(stored, stored.head.clone(), order);
        }
    }

    /// Stores an answer that is forwarded to the client, or confirms or removes the stored one.
    #[cold]
    pub(in crate::proxy::exchange) fn note_for_cache(&mut self, head: &AnswerHead<'_>, route: &Route) {
        let request = self.request;
        if self.cached.is_none() {
            return;
        }
        self.trace(CacheResult::Miss, None);
        let may_be_shared = !(self.is_for_one() || route.is_unverified() || self.is_reserved());
        let may_be_stored = may_be_shared && !head.is_irregular && request.method == "GET";
        let sent = SentFields::of(request.head, &self.settings, self.peer.user.as_deref());
        let after = self.trip.origin.unwrap_or_default();
        let Some(cached) = &mut self.cached else { return };
        let may_fit = match head.framing {
            Framing::UntilClose => false,
            Framing::Length(length) => length <= cached.cache.most_of_one(),
            Framing::None | Framing::Chunked => true,
        };
        // An answer to a range request is stored only with status 200: others, such as 416, may concern only the range.
        let may_be_stored = may_be_stored && may_fit && (head.status == 200 || cached.wanted.range.is_none());
        let each = |take: &mut dyn FnMut(&[u8], &[u8])| head.each(|_, name, value| take(name, value));
        let field = |name: &[u8]| joined(name, |take| sent.each(take));
        let now = SystemTime::now();
        if head.status == 304 {
            let etag = head.named(b"etag");
            let is_same = |stored: &StoredHead| etag.is_some() && stored.is_confirmed_by(etag.as_deref(), None);
            if let Some(stale) = cached.stale.take_if(|stale| may_be_stored && is_same(&stale.head))
                && let Some(order) = cached.order()
            {
                let confirmed = stale.head.confirmed(now, after, each, field);
                match confirmed.is_storable() && confirmed.size() <= self.settings.limits.max_header_size {
                    true => cached.cache.confirm(&stale, confirmed, order),
                    false => cached.cache.invalidate(cached.key),
                }
            }
            cached.claim = None;
            return;
        }
        let fetch = format!("{:016x}", fastrand::u64(..));
        let version = match head.version {
            Version::HTTP_10 => 10,
            Version::HTTP_2 => 20,
            _ => 11,
        };
        let received =
            Received { url: &cached.url, status: head.status, version, at: now, delay: after, fetch: &fetch };
        let stored = may_be_stored.then(|| StoredHead::new(&received, each, field));
        let Some(stored) = stored.filter(StoredHead::is_storable) else {
            // Removes the stale answer, except after a 5xx (RFC 9111 §4.3.3). A HEAD removes it only if its answer is a 200 with other
            // validators (§4.3.5).
            let is_other = |stale: &StoredAnswer| {
                let shown = [head.named(b"etag"), head.named(b"last-modified")];
                let [etag, modified] = shown.each_ref().map(Option::as_deref);
                request.method == "GET" || head.status == 200 && !stale.head.is_confirmed_by(etag, modified)
            };
            if head.status < 500 && cached.stale.as_deref().is_some_and(is_other) {
                cached.cache.invalidate(cached.key);
            }
            cached.claim = None;
            return;
        };
        let fetch = stored.fetch.clone();
        cached.storing = cached.order().and_then(|order| cached.cache.store(stored, order));
        if cached.storing.is_some()
            && let Some(trace) = &mut self.trip.cache
        {
            (trace.result, trace.fetch) = ("stored", Some(fetch));
        }
    }

    /// After a successful unsafe request, removes what is stored for its URL, and for URLs of the same site that the answer
    /// names (RFC 9111 §4.4), even if the client does not receive the answer.
    pub(in crate::proxy::exchange) fn note_unsafe(&self, head: &AnswerHead<'_>) {
        let (request, is_success) = (self.request, (200..400).contains(&head.status));
        if !is_success || matches!(request.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "CONNECT") {
            return;
        }
        let Some(cache) = &self.proxy.cache else { return };
        let url = url_of(request);
        cache.invalidate(PageCache::key(&url));
        for name in [&b"location"[..], b"content-location"] {
            let named = head.named(name).and_then(|value| same_site(&request.authority, &url, &value));
            if let Some(named) = named {
                cache.invalidate(PageCache::key(&named));
            }
        }
    }

    /// Completes storing once the answer has been delivered in full.
    pub(in crate::proxy::exchange) fn finish_storing(&mut self) {
        if let Some(storing) = self.cached.as_mut().and_then(|cached| cached.storing.take()) {
            storing.finish();
        }
    }

    /// Removes the stored answer after the origin's new answer was refused: the site no longer permits this use.
    pub(in crate::proxy::exchange) fn end_stored(&mut self) {
        if let Some(cached) = self.cached.as_ref().filter(|_| self.trip.upstream.is_some()) {
            cached.cache.invalidate(cached.key);
        }
    }

    /// Whether the answer says no to some use, or demands payment.
    fn is_reserved(&self) -> bool {
        self.trip.usage_report.as_ref().is_some_and(|noted| !noted.reserved.is_empty() || noted.payment_required)
    }
}

/// Resolves a reference, if it is on the same site.
fn same_site(authority: &Authority, url: &[u8], reference: &[u8]) -> Option<Vec<u8>> {
    let base = url::Url::parse(str::from_utf8(url).ok()?).ok()?;
    let named = resolved(&base, str::from_utf8(reference).ok()?)?;
    let is_same = named.origin() == base.origin();
    let end = named.fragment().map_or(named.as_str().len(), |fragment| named.as_str().len() - fragment.len() - 1);
    let path = named.as_str()[..end].get(named[..url::Position::BeforePath].len()..)?;
    is_same.then(|| [&*authority.url(""), path].concat().into_bytes())
}
