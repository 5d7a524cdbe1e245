//! The API's JSON: the shapes that scripts rely on.

use crate::gate::{BudgetFigures, Gate, HeldFor, HeldRequest, PaceFigures, Reported};
use crate::policy::explain::{self, Explanation, SiteFileState};
use crate::policy::{AskedAgain, Authority, Entry, EntryEvidence, LineEvidence, Manners, Money, Reservation, SiteFile};
use crate::proxy::{Distrusted, RecentDecision, RememberedReservation, UserFigures, Who, evidence};
use crate::rfc3339;
use crate::tls::Ca;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// The verdict on one URL.
pub fn explanation(explanation: &Explanation) -> Value {
    let robots = &explanation.robots;
    json!({
        "url": explanation.url,
        "authority": explanation.authority,
        "product_tokens": explanation.product_tokens,
        "purpose": explanation.purposes,
        "allowed": explanation.allowed,
        "reason": explanation.reason,
        "detail": explanation.detail,
        "rule": rule(explanation),
        "matched_path": explanation.matched_path(),
        "robots": {
            "url": robots.url,
            "status": robots.status,
            "asked_again": robots.asked_again.map(asked_again),
            "access": robots.access,
            "html": robots.is_html,
            "fetched_at": robots.fetched_at.map(rfc3339::seconds),
            "expires_at": robots.expires_at.map(rfc3339::seconds),
        },
        "tdmrep": explanation.tdmrep.as_ref().map(site_file),
        "license": explanation.license.as_ref().map(site_file),
        "crawl_delay": explanation.crawl_delay.map(|delay| delay.as_secs_f64()),
        "manners": manners(&explanation.manners),
        "sitemaps": explanation.sitemaps,
        "licenses": explanation.licenses,
        "preferences": explanation.preferences.iter().map(preference).collect::<Vec<_>>(),
    })
}

/// The configured limits of a host besides its crawl delay.
fn manners(manners: &Manners) -> Value {
    let Manners { adaptive, breaker, budget, min_revisit } = manners;
    json!({
        "adaptive": adaptive.map(|adaptive| json!({
            "factor": adaptive.factor(),
            "min": adaptive.min().as_secs_f64(),
            "max": adaptive.max().as_secs_f64(),
        })),
        "breaker": breaker.map(|breaker| json!({ "after": breaker.after, "pause": breaker.pause.as_secs_f64() })),
        "budget": budget.map(|budget| json!({
            "requests": budget.requests,
            "bytes": budget.bytes,
            "per": budget.per.as_str(),
            "money": budget.money.map(|money| money.to_string()),
        })),
        "min_revisit": min_revisit.map(|after| after.as_secs_f64()),
    })
}

/// The first of two answers, which rejected our request. The second answer, over HTTP/1.1, is the one that counts.
fn asked_again(again: AskedAgain) -> Value {
    json!({ "first_status": again.first_status, "first_version": again.first_version.to_string() })
}

/// The state of a site's tdmrep.json or licence file.
fn site_file(state: &SiteFileState) -> Value {
    json!({
        "url": state.url,
        "status": state.status,
        "access": state.access,
        "fetched_at": state.fetched_at.map(rfc3339::seconds),
        "expires_at": state.expires_at.map(rfc3339::seconds),
        "fault": state.fault,
        "failure": state.failure,
    })
}

/// A page's own reservation that still refuses requests for the page.
pub(super) fn remembered(remembered: RememberedReservation) -> Value {
    let Reservation { field, value, purpose, .. } = &*remembered.reservation;
    json!({ "rule": format!("{}: {value}", field.as_str()), "purpose": purpose, "said": rfc3339::seconds(remembered.said) })
}

/// A line of robots.txt that reserves a use.
fn preference(preference: &(LineEvidence, Box<str>)) -> Value {
    let (LineEvidence { line, key, value, .. }, purpose) = preference;
    json!({ "line": line, "kind": key.to_ascii_lowercase(), "pattern": value, "purpose": purpose })
}

/// The line of robots.txt, or the entry of a site's file, that decided.
fn rule(explanation: &Explanation) -> Option<Value> {
    if let Some(EntryEvidence { url, entry, location, term, policy, .. }) = &explanation.reservation {
        let (kind, policy) = if term.is_some() { ("license", Some(url)) } else { ("tdm-reservation", policy.as_ref()) };
        return Some(json!({ "line": null, "entry": entry, "kind": kind, "pattern": location, "policy": policy }));
    }
    let LineEvidence { line, key, value, .. } = explanation.line.as_ref()?;
    Some(json!({ "line": line, "kind": key.to_ascii_lowercase(), "pattern": value }))
}

/// Validity of the certificate authority.
pub(super) fn ca(ca: &Ca) -> Value {
    json!({ "expires_at": rfc3339::seconds(ca.validity().1.into()), "warning": ca.warning(OffsetDateTime::now_utc()) })
}

/// The entry of an authority and the pace of its host.
pub(super) fn authority(gate: &Gate, authority: &Authority, entry: &Entry) -> Value {
    let now = SystemTime::now();
    let answer = entry.answer.as_ref();
    json!({
        "authority": authority.to_string(),
        "robots_url": authority.robots_url(),
        "access": answer.map_or("unknown", |answer| gate.access(authority, answer)),
        "html": entry.is_html(),
        "usable": entry.usable(now).is_some(),
        "status": answer.map(|answer| answer.status),
        "asked_again": answer.and_then(|answer| answer.asked_again).map(asked_again),
        "age": answer.map(|answer| answer.freshness.age(now)),
        "fetched_at": answer.map(|answer| rfc3339::seconds(answer.freshness.validated_at())),
        "expires_at": answer.map(|answer| rfc3339::seconds(answer.freshness.expires_at())),
        "failures": entry.trouble.as_ref().map_or(0, |trouble| trouble.failures),
        "failing_since": entry.trouble.as_ref().map(|trouble| rfc3339::seconds(trouble.since)),
        "retry_at": entry.trouble.as_ref().map(|trouble| rfc3339::seconds(trouble.retry_at)),
        "failure": entry.trouble.as_ref().map(|trouble| &trouble.why),
        "crawl_delay": gate.crawl_delay(authority, entry).map(|delay| delay.as_secs_f64()),
        "pace": pace(gate.pace(authority).unwrap_or_default()),
    })
}

/// Like [`authority`], with the contents of the authority's files. `others`: the entries of its tdmrep.json and its licence file.
pub(super) fn authority_in_full(gate: &Gate, asked: &Authority, entry: &Entry, others: [Option<&Entry>; 2]) -> Value {
    let mut value = authority(gate, asked, entry);
    let [tdmrep, license] = others;
    let state = |known: &Entry, url: String| site_file(&explain::site_file(known, url, SystemTime::now()));
    value["tdmrep"] = tdmrep.map(|known| state(known, asked.url(SiteFile::TdmRep.path()))).into();
    value["license"] = license.zip(entry.license_url()).map(|(known, url)| state(known, url.to_owned())).into();
    if let Some(robots) = entry.robots_txt() {
        let warnings = robots
            .warnings()
            .map(|found| json!({ "line": found.place.line, "column": found.place.column, "message": found.message }));
        value["robots_txt"] = String::from_utf8_lossy(robots.source()).into();
        value["sitemaps"] = robots.sitemaps().collect();
        value["licenses"] = robots.licenses().collect();
        value["warnings"] = warnings.collect();
    }
    value
}

/// A refusal, with the members that the client receives; or a request that was let through and only reported.
pub(super) fn decision(decision: &RecentDecision) -> Value {
    let (mut members, retry_after) = match &decision.what {
        Reported::Refused(refusal) => (evidence(refusal), refusal.retry_after()),
        Reported::Held(_) => (Map::new(), None),
    };
    let known = json!({
        "number": decision.number,
        "at": rfc3339::millis(decision.at),
        "client": decision.client.to_canonical().to_string(),
        "user": decision.user,
        "url": decision.url,
        "enforced": decision.enforced,
        "reason": decision.what.slug(),
        "detail": decision.what.to_string(),
        "retry_after": retry_after.map(|after| after.as_secs_f64()),
    });
    members.extend(known.as_object().cloned().unwrap_or_default());
    Value::Object(members)
}

/// A held request.
pub(super) fn held(held: &HeldRequest) -> Value {
    let gap = match held.reason {
        HeldFor::Gap(gap) | HeldFor::Backoff(gap) | HeldFor::Adaptive { gap, .. } => Some(gap.as_secs_f64()),
        HeldFor::Robots | HeldFor::InFlight(_) | HeldFor::Paused { .. } => None,
    };
    json!({
        "authority": held.authority.to_string(),
        "url": held.url,
        "client": held.from.map(|from| from.to_canonical().to_string()),
        "user": held.user,
        "for": held.reason.slug(),
        "detail": held.reason.to_string(),
        "gap": gap,
        "since": held.since.as_secs_f64(),
        "left": held.left.map(|left| left.as_secs_f64()),
    })
}

/// A budget and its spending in the current period.
pub(super) fn budget(figures: &BudgetFigures) -> Value {
    let BudgetFigures { of, budget, spent } = figures;
    json!({
        "of": of,
        "per": budget.per.as_str(),
        // A money budget counts millionths of its currency in `requests`.
        "requests": if budget.money.is_some() { 0 } else { spent.requests },
        "max_requests": budget.requests,
        "bytes": spent.bytes,
        "max_bytes": budget.bytes,
        "promised": budget.money.map(|money| Money { micros: spent.requests, ..money.most }.to_string()),
        "max_promised": budget.money.map(|money| money.most.to_string()),
        "ends_at": rfc3339::seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(spent.ends)),
    })
}

/// A user's requests, and budget if there is one.
pub(super) fn user(figures: &UserFigures, budget: Option<&BudgetFigures>) -> Value {
    let (user, client) = match &figures.who {
        Who::User(name) => (Some(&**name), None),
        Who::Address(address) => (None, Some(network(*address))),
    };
    let mut refused = figures.outcomes.clone();
    let [forwarded, failed, gone] =
        ["forwarded", "failed", "client-gone"].map(|slug| refused.remove(slug).unwrap_or_default());
    json!({
        "user": user,
        "client": client,
        "requests": figures.requests,
        "forwarded": forwarded,
        "failed": failed,
        "client_gone": gone,
        "refused": refused,
        "waited": figures.waited.as_secs_f64(),
        "bytes": figures.bytes,
        "budget": budget.map(self::budget),
    })
}

/// The address by which a client is counted: in IPv6, its /64 network.
fn network(address: IpAddr) -> String {
    if address.is_ipv6() { format!("{address}/64") } else { address.to_string() }
}

/// A client that rejects our certificates.
pub(super) fn distrusted(one: &Distrusted) -> Value {
    json!({
        "client": one.client.to_string(),
        "host": one.host,
        "user_agent": one.agent,
        "how": one.how.slug(),
        "times": one.times,
        "at": rfc3339::seconds(one.at),
        "cure": one.cure(),
    })
}

pub(super) fn pace(figures: PaceFigures) -> Value {
    json!({
        "waiting": figures.waiting,
        "in_flight": figures.in_flight,
        "backoff": figures.backoff.as_secs_f64(),
        "owed": figures.owed.as_secs_f64(),
        "latency": (!figures.latency.is_zero()).then_some(figures.latency.as_secs_f64()),
        "refusals": figures.refusals,
        "paused": figures.paused.as_secs_f64(),
    })
}
