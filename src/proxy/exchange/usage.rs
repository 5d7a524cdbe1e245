//! Usage preferences in answers (docs/usage.md). All are recorded. If an answer says no to the declared purpose, its body is
//! not delivered, and repeated requests are refused without asking the site while that answer is fresh.

use super::Exchange;
use super::carry::AnswerHead;
use super::memory::RememberedReservation;
use super::per_user::{asked, rules};
use super::request::Request;
use crate::gate::{Charge, Reported};
use crate::policy::freshness::{CacheFields, FreshnessLimits};
use crate::policy::{
    HostRules, Refusal, Reservation, RobotsOverride, Ruling, Signal, SiteFile, UsageLines, UsageReport, Use, is_for_one,
};
use std::time::{Duration, Instant, SystemTime};

/// Whether usage preferences can refuse the request: only if a purpose is declared, and never for robots.txt itself.
pub fn is_looked_for(rules: &HostRules, request: &Request<'_>) -> bool {
    !rules.purposes().is_empty() && !request.reads_robots()
}

/// Whether pages must be read for their usage preferences.
pub(super) fn looks_into_pages(rules: &HostRules, request: &Request<'_>) -> bool {
    match rules.usage.page {
        RobotsOverride::Enforce => is_looked_for(rules, request),
        RobotsOverride::Report => !request.reads_robots(),
        RobotsOverride::Ignore => false,
    }
}

impl Exchange<'_> {
    /// The page's remembered reservation, if it is still fresh.
    pub(super) fn reserved(&self, rules: &HostRules) -> Option<Box<Reservation>> {
        let Exchange { proxy, request, peer, .. } = *self;
        if !is_looked_for(rules, request) || !matches!(request.method, "GET" | "HEAD") || request.is_on_terms() {
            return None;
        }
        Some(proxy.reservations.get(&asked(request, peer), rules)?.reservation)
    }

    /// Notes the usage preferences in the answer's head. Refuses the answer if they say no.
    #[cold]
    pub(super) fn check_usage(&mut self, head: &AnswerHead<'_>) -> Result<(), Refusal> {
        let request = self.request;
        // Clients must be able to read the files that state the site's preferences.
        if request.reads_robots() || *request.target == *SiteFile::TdmRep.path().as_bytes() {
            return Ok(());
        }
        let mut lines = UsageLines::default();
        head.each(|_, name, value| lines.take(name, value));
        self.check_lines(&lines, head)
    }

    /// The price that was charged, according to the answer's head. `None`: unknown, because the field is malformed.
    pub(super) fn charged(&self) -> Option<Charge> {
        let Some(noted) = &self.trip.usage_report else { return Some(Charge::Nothing) };
        let is_clear = !noted.malformed.contains(&Signal::Charged);
        is_clear.then(|| noted.charged.map_or(Charge::Nothing, Charge::Of))
    }

    /// Like [`check_usage`](Self::check_usage), for preferences that were already read, from the answer's head or the page's.
    pub(super) fn check_lines(&mut self, lines: &UsageLines, head: &AnswerHead<'_>) -> Result<(), Refusal> {
        let Exchange { proxy, request, peer, .. } = *self;
        let (now, settings) = (SystemTime::now(), self.settings.clone());
        let rules = rules(&settings, request, peer);
        let asked = asked(request, peer);
        let product_tokens = rules.product_tokens(&asked);
        let to = Use { purposes: rules.purposes(), product_tokens: &product_tokens, modes: rules.usage, now };
        let (mut noted, reservation) = UsageReport::judged(lines, head.status, &to);
        let reservation = reservation.filter(|_| (200..300).contains(&head.status));
        // TDMRep §5: the answer's own fields take precedence over tdmrep.json.
        let is_mined = |told: &Reported| matches!(told, Reported::Refused(why) if matches!(&**why, Refusal::EntryReserved(entry) if entry.term.is_none()));
        if lines.frees_mining() {
            self.trip.reported.retain(|told| !is_mined(told));
        }
        if !noted.is_empty() {
            proxy.counters.noted(&noted, request.promised);
            proxy.offers.note(&request.authority, &noted);
            let link = noted.rsl.as_deref().filter(|_| !rules.licensed_purposes().is_empty());
            let url = link.and_then(|link| lines.resolved(&request.url(), link));
            let by_license = url.and_then(|url| proxy.gate.judge_linked(&asked, rules, url.as_str()));
            if let Some(before) = self.trip.usage_report.take() {
                noted.join_before(*before);
            }
            self.trip.usage_report = Some(Box::new(noted));
            match by_license.filter(|_| (200..300).contains(&head.status)) {
                Some(Ruling::Refuse(why)) => return Err(*why),
                Some(Ruling::Report(why)) => self.report(*why),
                Some(_) | None => {}
            }
        }
        let Some((reservation, mode)) = reservation else { return Ok(()) };
        let reservation = Box::new(reservation);
        if mode == RobotsOverride::Enforce && !rules.options.report_only {
            if request.method == "GET" && !request.is_on_terms() && self.is_for_all(head) {
                let until = Instant::now() + lifetime(head, now);
                let remembered = RememberedReservation { reservation: reservation.clone(), said: now, until };
                proxy.reservations.put(&asked, rules, remembered);
            }
            return Err(Refusal::AnswerReserved(reservation));
        }
        self.report(Refusal::AnswerReserved(reservation));
        Ok(())
    }

    /// Adds a decision that is not enforced. Each kind is counted once.
    pub(super) fn report(&mut self, reported: impl Into<Reported>) {
        let reported = reported.into();
        if self.trip.reported.iter().all(|before| before.slug() != reported.slug()) {
            self.proxy.log_reported(self.peer, &self.request.url(), &reported);
            self.trip.report(reported);
        }
    }
}

impl Exchange<'_> {
    /// Whether all clients get this answer: shared caches may store it (RFC 9111 §3), and it varies at most by content
    /// coding.
    fn is_for_all(&self, head: &AnswerHead<'_>) -> bool {
        let mut is_for_all = !self.is_for_one();
        head.each(|_, name, value| {
            is_for_all &= !(name.eq_ignore_ascii_case(b"cache-control") && is_for_one(value));
            is_for_all &= !name.eq_ignore_ascii_case(b"vary")
                || value.split(|byte| *byte == b',').all(|it| it.trim_ascii().eq_ignore_ascii_case(b"accept-encoding"));
        });
        is_for_all
    }
}

/// How long a reservation is remembered: the answer's freshness lifetime, or a day if the answer states none.
fn lifetime(head: &AnswerHead<'_>, now: SystemTime) -> Duration {
    let fields = CacheFields::read(|take| head.each(|_, name, value| take(name, value)));
    fields.lifetime(now, None, &FreshnessLimits { min_ttl: Duration::ZERO, ..FreshnessLimits::default() })
}
