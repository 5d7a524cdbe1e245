//! Pages requested again before `min_revisit`: answered 304 if the client has the delivered version, otherwise 429.
//! The gate checks all other refusals first.

use super::Exchange;
use super::carry::AnswerHead;
use super::per_user::rules;
use crate::config::Mode;
use crate::policy::{self, Again, Conditions, HostRules, Refusal, Reservation, Visit};
use crate::proxy::respond::{Answer, not_modified};
use http::header;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the proxy remembers about a page.
pub(super) enum Remembered {
    /// The page reserves the declared use.
    Reserved(Box<Reservation>),
    /// The last delivery, and the answer that follows from it.
    Visited(Arc<Visit>, Again<'static>),
}

impl Remembered {
    /// How to answer a repeated request.
    pub(super) fn again(&self) -> Again<'_> {
        match self {
            Self::Reserved(reservation) => Again::Reserved(reservation),
            Self::Visited(_, again) => *again,
        }
    }
}

/// Whether the rules use what the proxy remembers about pages.
pub(super) fn looks_back(rules: &HostRules) -> bool {
    rules.manners.min_revisit.is_some() || !rules.purposes().is_empty()
}

impl Exchange<'_> {
    /// Looks up what the proxy remembers about the requested page, if the rules use it.
    #[inline]
    pub(super) fn remembered(&self) -> Option<Remembered> {
        if self.looks_back { self.looked_up() } else { None }
    }

    #[cold]
    fn looked_up(&self) -> Option<Remembered> {
        let rules = rules(&self.settings, self.request, self.peer);
        self.reserved(rules).map(Remembered::Reserved).or_else(|| self.visited_within(rules.manners.min_revisit?))
    }

    /// Applies what another request learned about the page during the wait for a slot. If that decides this request,
    /// the slot is released unused.
    #[inline]
    pub(super) fn recheck_remembered(&self) -> Result<Option<Answer>, Refusal> {
        match self.remembered().filter(|_| self.settings.mode != Mode::Report) {
            Some(Remembered::Visited(visit, Again::NotModified)) => Ok(Some(not_modified(&visit))),
            Some(remembered) => remembered.again().refusal().map_or(Ok(None), Err),
            None => Ok(None),
        }
    }

    #[cold]
    fn visited_within(&self, after: Duration) -> Option<Remembered> {
        let Exchange { proxy, request, .. } = *self;
        let visit = proxy.visits.get(proxy.visits.key(request)).filter(|_| self.is_of_page())?;
        if !self.wants_whole() && !visit.is_whole_anyway() {
            return None;
        }
        // If the answer may be for this client alone, the request's conditions do not refer to the answer that others received, and are
        // ignored.
        let asked = if self.is_for_one() { &[][..] } else { &[header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE] };
        let fields = request.head.fields_named(asked);
        let none_match: Vec<&[u8]> =
            fields.get_all(header::IF_NONE_MATCH).iter().map(|value| value.as_bytes()).collect();
        let modified_since = fields.get(header::IF_MODIFIED_SINCE).map(|value| value.as_bytes());
        let again = visit.again(after, &Conditions { none_match: &none_match, modified_since }, Instant::now());
        Some(Remembered::Visited(visit, again))
    }

    /// Prepares a visit, which is stored once the answer has been delivered.
    #[inline]
    pub(super) fn note_visit(&mut self, head: &AnswerHead<'_>) {
        if self.looks_back
            && rules(&self.settings, self.request, self.peer).manners.min_revisit.is_some()
            && self.request.promised.is_none()
            && self.is_of_page()
            && match head.status {
                200 => true,
                206 => is_whole(head),
                201..=299 | 304 => self.wants_whole(),
                _ => false,
            }
        {
            let visits = &self.proxy.visits;
            let (key, mut visit) = (visits.key(self.request), Visit::new(Instant::now()));
            if self.is_for_one() {
                visit.keep_private();
            }
            head.each(|_, name, value| visit.field(name, value));
            if !self.wants_whole() {
                visit.set_whole_anyway();
            }
            let visit = if head.status == 304 { visit.confirmed(visits.get(key).as_deref()) } else { visit };
            self.trip.visit = Some(Box::new((key, visit)));
        }
    }

    /// Stores the visit of a delivered page.
    #[inline]
    pub(super) fn store_visit(&mut self) {
        if let Some(visit) = self.trip.visit.take() {
            self.proxy.visits.put(visit.0, visit.1);
        }
    }

    fn is_of_page(&self) -> bool {
        self.request.method == "GET" && !self.request.reads_robots()
    }

    /// Whether the request is for the whole page: parts of a download differ from each other. A Range in an unknown unit is
    /// ignored (RFC 9110 §14.2).
    fn wants_whole(&self) -> bool {
        let ranges = self.request.head.fields_named(&[header::RANGE]);
        let is_in_bytes = |range: &http::HeaderValue| {
            range.as_bytes().get(..BYTES.len()).is_some_and(|unit| unit.eq_ignore_ascii_case(BYTES))
        };
        !self.request.is_upgrade && !ranges.get_all(header::RANGE).iter().any(is_in_bytes)
    }
}

/// Whether a 206 has the whole content: `bytes 0-41/42` (RFC 9110 §14.4).
fn is_whole(head: &AnswerHead<'_>) -> bool {
    head.status == 206 && head.joined(b"content-range").is_some_and(|range| policy::whole_range(&range).is_some())
}

const BYTES: &[u8] = b"bytes=";
