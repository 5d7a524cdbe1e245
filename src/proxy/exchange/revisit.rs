//! Pages that are fetched again sooner than they may be (`min_revisit`): answered without the site, 304 where the client has what
//! was delivered then, else 429.

use super::Exchange;
use super::carry::AnswerHead;
use super::per_user::rules;
use crate::gate::Reported;
use crate::policy::{Again, Conditions, Refusal, Visit};
use crate::proxy::respond::{Answer, not_modified};
use http::header;
use std::time::Instant;

impl Exchange<'_> {
    /// The answer to a page that is fetched again too soon. `None`: it may go.
    #[inline]
    pub(super) fn revisited(&mut self) -> Result<Option<Answer>, Refusal> {
        match rules(&self.settings, self.request, self.peer).manners.min_revisit {
            Some(_) => self.revisited_within(),
            None => Ok(None),
        }
    }

    #[cold]
    fn revisited_within(&mut self) -> Result<Option<Answer>, Refusal> {
        let Exchange { proxy, request, peer, ref settings, .. } = *self;
        let rules = rules(settings, request, peer);
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
        proxy.log_reported(peer, &request.url(), &reported);
        self.trip.reported = Some(reported);
        Ok(None)
    }

    /// The answer is one that counts once it has been delivered.
    #[inline]
    pub(super) fn note_visit(&mut self, head: &AnswerHead<'_>) {
        if rules(&self.settings, self.request, self.peer).manners.min_revisit.is_some()
            && matches!(head.status, 200..=205 | 207..=299 | 304)
            && self.is_visit()
        {
            let visits = &self.proxy.visits;
            let (key, mut visit) = (visits.key(self.request), Visit::new(Instant::now()));
            if !self.request.head.fields_named(&[header::AUTHORIZATION, header::COOKIE]).is_empty() {
                visit.keep_private();
            }
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
