//! The evidence of a refusal, as members of the answer and the API.

use crate::policy::{Authority, LineEvidence, Refusal};
use serde_json::{Map, Value};

/// The value of a member.
#[derive(Clone, Copy)]
pub enum Member<'a> {
    /// Pieces to concatenate.
    Text(&'a [&'a str]),
    /// The URL of this authority's robots.txt, which never needs escaping.
    RobotsUrl(&'a Authority),
    Number(u64),
}

/// Calls `put` with the name and value of each member.
pub fn each_member(refusal: &Refusal, put: &mut dyn FnMut(&'static str, Member<'_>)) {
    match refusal {
        Refusal::Disallowed { authority, product_tokens, .. }
        | Refusal::UsageDisallowed { authority, product_tokens, .. } => {
            put("robots_url", Member::RobotsUrl(authority));
            put("product_token", Member::Text(&[product_tokens]));
            if let Refusal::UsageDisallowed { purpose, .. } = refusal {
                put("purpose", Member::Text(&[purpose]));
            }
            if let Some(LineEvidence { line, key, value, matched_path }) = refusal.line() {
                put("rule", Member::Text(&[key, ": ", value]));
                put("line", Member::Number((*line).into()));
                matched_path.iter().for_each(|path| put("matched_path", Member::Text(&[path])));
            }
        }
        Refusal::EntryReserved(evidence) => {
            let location = &evidence.location;
            let (name, rule) = match &evidence.term {
                None => ("tdmrep_url", vec!["location: ", location]),
                Some(term) => ("license_url", vec!["url: ", location, "; ", term]),
            };
            put(name, Member::Text(&[&evidence.url]));
            put("purpose", Member::Text(&[&evidence.purpose]));
            put("rule", Member::Text(&rule));
            put("entry", Member::Number(evidence.entry.into()));
            evidence.policy.iter().for_each(|policy| put("policy", Member::Text(&[policy])));
            evidence.matched_path.iter().for_each(|path| put("matched_path", Member::Text(&[path])));
        }
        Refusal::AnswerReserved(reservation) => {
            put("purpose", Member::Text(&[&reservation.purpose]));
            put("rule", Member::Text(&[reservation.field.as_str(), ": ", &reservation.value]));
        }
        Refusal::RobotsUnreachable { authority, .. } | Refusal::Closed { authority, .. } => {
            put("robots_url", Member::RobotsUrl(authority));
        }
        Refusal::BudgetSpent { of, budget, .. } => {
            put("budget_of", Member::Text(&[of]));
            put("budget", Member::Text(&[&budget.to_string()]));
        }
        Refusal::OperatorDenied { host, pattern, matched_path } => {
            put("rule", Member::Text(&["hosts.", host, ".deny: ", pattern]));
            matched_path.iter().for_each(|path| put("matched_path", Member::Text(&[path])));
        }
        Refusal::InterceptDenied { key } => put("rule", Member::Text(&[key, ": deny"])),
        Refusal::RulesTooComplex { rules } => put("rules", Member::Text(&[rules])),
        Refusal::UsageUnreadable { .. }
        | Refusal::CrawlDelay { .. }
        | Refusal::HostPaused { .. }
        | Refusal::RevisitTooSoon { .. }
        | Refusal::QueueFull { .. }
        | Refusal::ConnectionLimit { .. }
        | Refusal::EgressDenied { .. }
        | Refusal::ClientDenied { .. }
        | Refusal::AuthorityMismatch { .. }
        | Refusal::BadRequest { .. }
        | Refusal::NotAProxyRequest
        | Refusal::HeadTooLarge { .. }
        | Refusal::HeadTimeout { .. }
        | Refusal::ExpectationFailed
        | Refusal::Loop
        | Refusal::Draining { .. }
        | Refusal::FleetLost { .. }
        | Refusal::NotStored
        | Refusal::OwnLimit { .. } => {}
    }
}

/// All members as JSON.
pub fn evidence(refusal: &Refusal) -> Map<String, Value> {
    let mut members = Map::new();
    each_member(refusal, &mut |name, value| {
        let value = match value {
            Member::Text(pieces) => pieces.concat().into(),
            Member::RobotsUrl(authority) => authority.robots_url().into(),
            Member::Number(number) => number.into(),
        };
        members.insert(name.into(), value);
    });
    members
}
