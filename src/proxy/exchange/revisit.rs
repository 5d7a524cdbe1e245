//! Pages that are fetched again sooner than they may be (`min_revisit`): answered without the site, 304 where the client has what
//! was delivered then, else 429.

use super::request::Request;
use super::reserved::rules;
use super::{Exchange, carry::AnswerHead};
use crate::gate::Reported;
use crate::policy::{self, Again, Conditions, Refusal, Visit};
use crate::proxy::respond::{Answer, not_modified};
use http::header;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The pages that were delivered last: hashes of their URLs, and when.
#[derive(Default)]
pub struct Visits {
    hasher: RandomState,
    /// Once any host has a `min_revisit`.
    visits: OnceLock<Cache<u64, Arc<Visit>, VisitBytes>>,
}

#[derive(Clone)]
struct VisitBytes;

impl Weighter<u64, Arc<Visit>> for VisitBytes {
    fn weight(&self, _: &u64, visit: &Arc<Visit>) -> u64 {
        (visit.bytes() + ROW) as u64
    }
}

impl Visits {
    /// However its path is escaped: that makes no other page of it (RFC 9110 §4.2.3).
    fn key(&self, request: &Request<'_>) -> u64 {
        self.hasher.hash_one((&request.authority, policy::unescaped(&request.target)))
    }

    fn get(&self, key: u64) -> Option<Arc<Visit>> {
        self.visits.get()?.get(&key)
    }

    fn put(&self, key: u64, visit: Visit) {
        let visits = self.visits.get_or_init(|| Cache::with_weighter(ABOUT, MOST_BYTES, VisitBytes));
        visits.insert(key, Arc::new(visit));
    }
}

impl Exchange<'_> {
    /// The answer to a page that is fetched again too soon. `None`: it may go.
    #[inline]
    pub(super) fn revisited(&mut self) -> Result<Option<Answer>, Refusal> {
        match rules(&self.settings, self.request, self.who).manners.min_revisit {
            Some(_) => self.revisited_within(),
            None => Ok(None),
        }
    }

    #[cold]
    fn revisited_within(&mut self) -> Result<Option<Answer>, Refusal> {
        let Exchange { proxy, request, who, ref settings, .. } = *self;
        let rules = rules(settings, request, who);
        let (Some(after), true) = (rules.manners.min_revisit, self.is_visit()) else { return Ok(None) };
        let Some(visit) = proxy.visits.get(proxy.visits.key(request)) else { return Ok(None) };
        let fields = request.head.fields_named(&[header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]);
        let none_match: Vec<&[u8]> =
            fields.get_all(header::IF_NONE_MATCH).iter().map(|value| value.as_bytes()).collect();
        let modified_since = fields.get(header::IF_MODIFIED_SINCE).map(|value| value.as_bytes());
        let conditions = Conditions { none_match: &none_match, modified_since };
        let retry_after = match visit.again(after, &conditions, Instant::now()) {
            Again::Go => return Ok(None),
            Again::NotModified if rules.options.report_only => return Ok(None),
            Again::NotModified => return Ok(Some(not_modified(&visit))),
            Again::TooSoon { retry_after } => retry_after,
        };
        let refusal = Refusal::RevisitTooSoon { retry_after };
        if !rules.options.report_only {
            return Err(refusal);
        }
        let reported = Reported::from(refusal);
        proxy.tell_reported(who, &request.url(), &reported);
        self.trip.reported = Some(reported);
        Ok(None)
    }

    /// The answer is one that counts once it has been delivered.
    #[inline]
    pub(super) fn note_visit(&mut self, head: &AnswerHead<'_>) {
        if rules(&self.settings, self.request, self.who).manners.min_revisit.is_some()
            && matches!(head.status, 200..=205 | 207..=299 | 304)
            && self.is_visit()
        {
            let visits = &self.proxy.visits;
            let (key, mut visit) = (visits.key(self.request), Visit::new(Instant::now()));
            head.each(|_, name, value| visit.field(name, value));
            let visit = if head.status == 304 { visit.confirmed(visits.get(key).as_deref()) } else { visit };
            self.trip.visit = Some(Box::new((key, visit)));
        }
    }

    /// It has been delivered.
    #[inline]
    pub(super) fn delivered(&mut self) {
        if let Some(visit) = self.trip.visit.take() {
            self.proxy.visits.put(visit.0, visit.1);
        }
    }

    /// Whole pages, that is: the parts of a download are not the same again.
    fn is_visit(&self) -> bool {
        let request = self.request;
        request.method == "GET"
            && !request.is_upgrade
            && !request.reads_robots()
            && request.head.fields_named(&[header::RANGE]).is_empty()
    }
}

/// What URLs that are remembered take together, and how many that is about.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
const ABOUT: usize = 200_000;
/// What one takes beside its fields.
const ROW: usize = 64;
