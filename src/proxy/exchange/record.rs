//! The record of a request in the evidence: what was decided, by what, and the result. docs/evidence.md has its members.

use super::access_log::millis;
use super::outcome::{About, FinalStep, Outcome};
use super::per_user::{asked, rules};
use super::request::Request;
use crate::evidence::{Draft, Evidence, digest_of};
use crate::gate::Reported;
use crate::policy::{Entry, Refusal};
use crate::proxy::respond::{Member, each_member};
use crate::robots::{ProductToken, Purpose};
use std::time::SystemTime;

impl About<'_> {
    /// All that is known before the answer is chosen.
    pub(super) fn record(&self, evidence: &Evidence, outcome: &Outcome) -> Draft {
        let now = SystemTime::now();
        let mut draft = evidence.draft(now.checked_sub(self.began.elapsed()).unwrap_or(now));
        self.client(&mut draft);
        let refusal = self.outcome(outcome, &mut draft);
        self.verdict(refusal, &mut draft);
        if let Some((robots, tdmrep)) = &self.trip.gate.basis {
            for (name, entry) in [("robots", Some(robots)), ("tdmrep", tdmrep.as_ref())] {
                // Of a file that nobody has looked at there is nothing to say.
                if let Some(entry) = entry.filter(|entry| entry.answer.is_some() || entry.trouble.is_some()) {
                    draft.object(name, |members| rests_on(entry, members));
                }
            }
        }
        draft
    }

    /// The rest, and on its way.
    pub(super) fn put(&self, evidence: &Evidence, mut draft: Draft, last: &FinalStep) {
        let trip = self.trip;
        let (status, bytes_out) = match last {
            FinalStep::Answer(answer) => (answer.status.as_u16(), answer.body().len() as u64),
            FinalStep::AlreadySent | FinalStep::Cut => (trip.status, trip.moved.down),
        };
        draft.number("status", status.into());
        if let Some(noted) = &trip.noted {
            noted.reserved_text().iter().for_each(|signals| draft.text("signals", signals));
            noted.licenses.first().iter().for_each(|license| draft.text("license", license));
            noted.price.iter().for_each(|price| draft.text("price", price));
        }
        draft.number("bytes_in", trip.moved.up);
        draft.number("bytes_out", bytes_out);
        draft.number("held_ms", millis(trip.gate.held()));
        if let Some(origin) = trip.origin {
            draft.number("origin_ms", millis(origin));
        }
        draft.number("ms", millis(self.began.elapsed()));
        let basis = trip.gate.basis.iter();
        evidence.put(
            draft,
            self.settings.kept(),
            basis.flat_map(|(robots, tdmrep)| [robots].into_iter().chain(tdmrep)),
        );
    }

    fn client(&self, draft: &mut Draft) {
        draft.address("client", self.peer.address.ip().to_canonical());
        if let Some(user) = &self.peer.user {
            draft.text("user", user.name.as_ref());
        }
        let Ok(request) = self.request else {
            self.url().iter().for_each(|url| draft.text("url", url));
            return;
        };
        draft.text("method", request.method);
        draft.text("url", &request.url());
        if !request.is_connect() {
            self.asked_for(request, draft);
        }
    }

    fn asked_for(&self, request: &Request<'_>, draft: &mut Draft) {
        let rules = rules(self.settings, request, self.peer);
        let asked = asked(request, self.peer);
        draft.texts("product_tokens", rules.product_tokens(&asked).iter().map(ProductToken::as_str));
        draft.texts("purpose", rules.purposes().iter().map(Purpose::as_str));
    }

    /// How it ended. Tells what was refused.
    fn outcome<'a>(&self, outcome: &'a Outcome, draft: &mut Draft) -> Option<&'a Refusal> {
        let (name, error, detail) = match outcome {
            Outcome::Forwarded => ("forwarded", None, None),
            Outcome::Answered(_) => ("answered", None, None),
            Outcome::Intercepted => ("intercepted", None, None),
            Outcome::Tunnelled => ("tunnelled", None, None),
            Outcome::Refused(refusal) => {
                draft.word("outcome", "refused");
                return Some(refusal);
            }
            Outcome::Failed(failure) => ("failed", Some(failure.error), Some(failure.detail.as_str())),
            Outcome::Cut(why) => ("cut", None, Some(why.as_str())),
            Outcome::Gone => ("client-gone", None, None),
            Outcome::Stopped => ("cut", None, Some("the proxy has stopped")),
        };
        draft.word("outcome", name);
        error.into_iter().for_each(|error| draft.text("error", error));
        detail.into_iter().for_each(|detail| draft.text("detail", detail));
        None
    }

    fn verdict(&self, refused: Option<&Refusal>, draft: &mut Draft) {
        let trip = self.trip;
        let (verdict, refusal) = match (refused, &trip.reported) {
            (Some(refusal), _) => ("refused", refusal),
            (None, Some(Reported::Refused(refusal))) => ("reported", &**refusal),
            (None, Some(held @ Reported::Held(_))) => {
                draft.word("verdict", "reported");
                draft.word("reason", held.slug());
                return;
            }
            (None, None) => {
                let Some(allowance) = trip.gate.allowance else { return };
                draft.word("verdict", "allowed");
                draft.word("reason", allowance.slug());
                if let Some(rule) = &trip.gate.rule {
                    draft.pieces("rule", &[rule.key(), ": ", &rule.pattern]);
                    draft.number("line", rule.line.into());
                }
                return;
            }
        };
        draft.word("verdict", verdict);
        draft.word("reason", refusal.slug());
        let mut is_ruled = false;
        each_member(refusal, &mut |name, value| match (name, value) {
            ("rule" | "matched_path" | "policy", Member::Text(pieces)) => {
                is_ruled = true;
                draft.pieces(name, pieces);
            }
            ("line" | "entry", Member::Number(number)) => draft.number(name, number),
            // It has these already.
            _ => {}
        });
        if !is_ruled {
            draft.text("why", &refusal.to_string());
        }
    }
}

/// What is known of a file of the site's.
fn rests_on(entry: &Entry, members: &mut Draft) {
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
