//! The evidence record of a request: decision, basis and result. docs/evidence.md lists the members.

use super::access_log::millis;
use super::outcome::{EndedExchange, Outcome, RequestVerdict};
use super::per_user::{asked, rules};
use crate::evidence::{Draft, Evidence, digest_of};
use crate::gate::Reported;
use crate::policy::Entry;
use crate::policy::refusal::shortened;
use crate::proxy::respond::{Answer, Member, each_member};
use crate::robots::{ProductToken, Purpose};
use std::borrow::Cow;
use std::iter;
use std::time::{Duration, SystemTime};

impl EndedExchange<'_> {
    /// Records the exchange. `answer`: the proxy's own answer, if any.
    pub(super) fn record(&self, evidence: &Evidence, outcome: &Outcome, answer: Option<&Answer>) {
        let (now, trip, basis) = (SystemTime::now(), self.trip, self.trip.gate.basis());
        let mut draft = evidence.draft(now.checked_sub(self.began.elapsed()).unwrap_or(now));
        self.client(outcome, &mut draft);
        let (name, error, detail) = outcome.words(self.trip);
        draft.word("outcome", name);
        error.iter().for_each(|error| draft.text("error", error));
        detail.iter().for_each(|detail| draft.text("detail", detail));
        self.verdict(outcome).iter().for_each(|verdict| verdict.record(&trip.reported, &mut draft));
        for (name, entry) in ["robots", "tdmrep", "license_file"].into_iter().zip(&basis) {
            // A file that was never requested is left out.
            if let Some(entry) = entry.as_ref().filter(|entry| entry.answer.is_some() || entry.trouble.is_some()) {
                draft.object(name, |members| record_policy_file(entry, members));
            }
        }
        let (status, bytes_out) = self.sent(answer);
        draft.number("status", status.into());
        if ![0, status].contains(&trip.origin_status) {
            draft.number("origin_status", trip.origin_status.into());
        }
        if let Some(noted) = &trip.usage_report {
            noted.reserved_text().iter().for_each(|signals| draft.text("signals", signals));
            noted.licenses.first().iter().for_each(|license| draft.text("license", license));
            noted.price.iter().for_each(|price| draft.text("price", price));
            noted.charged.iter().for_each(|charged| draft.text("charged", &charged.to_string()));
            noted.crawler_error.iter().for_each(|error| draft.text("crawler_error", error));
        }
        if let Some(cache) = &trip.cache {
            draft.object("cache", |members| {
                members.word("result", cache.result);
                if let Some((fetch, at)) = &cache.fetch {
                    members.text("fetch", fetch);
                    members.time("fetched", SystemTime::UNIX_EPOCH + Duration::from_millis(*at));
                }
            });
        }
        draft.number("bytes_in", trip.moved.up);
        draft.number("bytes_out", bytes_out);
        draft.number("held_ms", millis(trip.gate.held()));
        if let (Some(sent), Ok(request)) = (trip.sent, self.request) {
            draft.number("sent_ms", millis(sent.saturating_duration_since(self.began)));
            let ours = self.settings.user_agent(self.peer.user.as_deref()).map(Cow::Borrowed);
            let agent = ours.or_else(|| request.user_agent.map(String::from_utf8_lossy));
            agent.iter().for_each(|agent| draft.text("agent", agent));
        }
        if let Some(origin) = trip.origin {
            draft.number("origin_ms", millis(origin));
        }
        draft.number("ms", millis(self.began.elapsed()));
        evidence.put(draft, self.settings.kept(), basis.iter().flatten());
    }

    fn client(&self, outcome: &Outcome, draft: &mut Draft) {
        draft.address("client", self.peer.address.ip().to_canonical());
        if let Some(user) = &self.peer.user {
            draft.text("user", user.name.as_ref());
        }
        if self.is_stranger(outcome) {
            self.request.iter().for_each(|request| draft.text("method", &shortened(request.method)));
            self.url().iter().for_each(|url| draft.text("url", &shortened(url)));
            return;
        }
        let Ok(request) = self.request else { return };
        draft.text("method", request.method);
        request.promised.iter().for_each(|promised| draft.text("promised", &promised.to_string()));
        draft.text("url", &request.url());
        if !request.is_connect() {
            let rules = rules(self.settings, request, self.peer);
            let asked = asked(request, self.peer);
            draft.texts("product_tokens", rules.product_tokens(&asked).iter().map(ProductToken::as_str));
            draft.texts("purpose", rules.purposes().iter().map(Purpose::as_str));
        }
    }
}

impl RequestVerdict<'_> {
    /// Adds the verdict to the record. `all`: decisions that were not enforced.
    fn record(&self, all: &[Reported], draft: &mut Draft) {
        let (verdict, reason, refusal) = match *self {
            RequestVerdict::Refused(refusal) => ("refused", refusal.slug(), Some(refusal)),
            RequestVerdict::Reported(Reported::Refused(refusal)) => ("reported", refusal.slug(), Some(&**refusal)),
            RequestVerdict::Reported(held @ Reported::Held(_)) => ("reported", held.slug(), None),
            RequestVerdict::Allowed(allowance, _) => ("allowed", allowance.slug(), None),
        };
        draft.word("verdict", verdict);
        draft.word("reason", reason);
        let mut others = all.iter().map(Reported::slug).filter(|slug| *slug != reason).peekable();
        if others.peek().is_some() {
            draft.texts("reasons", iter::once(reason).chain(others));
        }
        if let RequestVerdict::Allowed(_, Some(rule)) = self {
            draft.pieces("rule", &[rule.key, ": ", &rule.value]);
            draft.number("line", rule.line.into());
        }
        let Some(refusal) = refusal else { return };
        let mut is_ruled = false;
        each_member(refusal, &mut |name, value| match (name, value) {
            ("rule" | "matched_path" | "policy", Member::Text(pieces)) => {
                is_ruled = true;
                draft.pieces(name, pieces);
            }
            ("line" | "entry", Member::Number(number)) => draft.number(name, number),
            // Other members are recorded elsewhere.
            _ => {}
        });
        if !is_ruled {
            draft.text("why", &refusal.to_string());
        }
    }
}

/// Records the state of one of the site's policy files.
fn record_policy_file(entry: &Entry, members: &mut Draft) {
    if let Some(answer) = &entry.answer {
        members.number("status", answer.status.into());
        if let Some(digest) = digest_of(&answer.access) {
            members.hash("sha256", digest);
        }
        members.time("fetched", answer.freshness.validated_at());
    }
    if let Some(trouble) = &entry.trouble {
        members.text("failure", &trouble.why);
        members.time("failing_since", trouble.since);
    }
}
