//! The access log: one line for each request that was answered, and each that was not for its client had left. What its
//! fields mean is in docs/logs.md; they are written by `telemetry`.

use super::outcome::{About, FinalStep, Outcome};
use super::per_user::{asked, rules};
use super::request::Request;
use crate::gate::Reported;
use crate::policy::Refusal;
use crate::proxy::evidence;
use crate::proxy::respond::Answer;
use crate::robots::ProductToken;
use http::{HeaderName, Version};
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a request ended, in the log's words.
#[derive(Default)]
pub struct Line {
    outcome: &'static str,
    /// The slug of what was decided. `None`: nothing was.
    decision: Option<&'static str>,
    /// `false`: in report mode.
    is_enforced: bool,
    /// What the decision is based on.
    evidence: Map<String, Value>,
    error: Option<&'static str>,
    detail: Option<String>,
}

impl Line {
    fn refused(refusal: &Refusal) -> Self {
        Line {
            outcome: "refused",
            decision: Some(refusal.slug()),
            is_enforced: true,
            evidence: evidence(refusal),
            error: None,
            detail: Some(refusal.to_string()),
        }
    }

    fn of(outcome: &'static str) -> Self {
        Line { outcome, is_enforced: true, ..Line::default() }
    }

    fn failed(outcome: &'static str, error: Option<&'static str>, why: &str) -> Self {
        Line { error, detail: Some(why.to_owned()), ..Line::of(outcome) }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.evidence.get(name).and_then(Value::as_str)
    }
}

impl About<'_> {
    pub(super) fn line(&self, outcome: &Outcome) -> Line {
        let mut line = match outcome {
            Outcome::Refused(refusal) => return Line::refused(refusal),
            Outcome::Forwarded => Line::of("forwarded"),
            Outcome::Answered(_) => Line::of("answered"),
            Outcome::Intercepted => Line { decision: Some("intercept"), ..Line::of("intercepted") },
            Outcome::Tunnelled => Line { decision: Some("tunnel"), ..Line::of("tunnelled") },
            Outcome::Failed(failure) => Line::failed("failed", Some(failure.error), &failure.detail),
            Outcome::Cut(why) => Line::failed("cut", None, why),
            Outcome::Gone => Line::failed("client-gone", None, "the client has left"),
            Outcome::Stopped => Line::failed("cut", None, "the proxy has stopped"),
        };
        let trip = self.trip;
        if let Some(reported) = &trip.reported {
            (line.decision, line.is_enforced) = (Some(reported.slug()), false);
            if let Reported::Refused(refusal) = reported {
                line.evidence = evidence(refusal);
            }
            line.detail = line.detail.or_else(|| Some(reported.to_string()));
        } else if let Some(allowance) = trip.gate.allowance {
            line.decision = Some(allowance.slug());
            if let Some(rule) = &trip.gate.rule {
                line.evidence.insert("rule".into(), format!("{}: {}", rule.key(), rule.pattern).into());
                line.evidence.insert("line".into(), rule.line.into());
            }
        }
        line
    }

    /// For whom robots.txt is read.
    fn tokens(&self, request: &Request<'_>) -> Option<String> {
        let asked = asked(request, self.peer);
        let tokens = rules(self.settings, request, self.peer).product_tokens(&asked);
        let names = tokens.iter().map(ProductToken::as_str).collect::<Vec<_>>().join(",");
        Some(names).filter(|names| !names.is_empty())
    }
}

impl Line {
    pub(super) fn write(self, about: &About<'_>, last: &FinalStep) {
        let (trip, request) = (about.trip, about.request.ok());
        let answer: Option<&Answer> = match last {
            FinalStep::Answer(answer) => Some(answer),
            FinalStep::AlreadySent | FinalStep::Cut => None,
        };
        let agent = request.and_then(|request| request.user_agent).map(String::from_utf8_lossy);
        let is_rule = request.is_some_and(|request| !request.is_connect());
        let token = request.filter(|_| is_rule).and_then(|request| about.tokens(request));
        let upstream = trip.upstream.map(|(address, _)| address);
        let number = self.evidence.get("line").and_then(|line| line.as_u64());
        tracing::info!(
            target: "access",
            id = next_id(about.proxy.upstream.name()),
            client = %about.peer.address.ip().to_canonical(),
            user = about.peer.user.as_ref().map(|user| user.name.as_ref()),
            method = request.map(|request| request.method),
            url = about.url(),
            authority = request.map(|request| tracing::field::display(&request.authority)),
            http = request.map(|request| version(request.version)),
            agent = agent.as_deref(),
            token = token.as_deref(),
            traceparent = request.and_then(traceparent),
            outcome = self.outcome,
            decision = self.decision,
            enforced = (!self.is_enforced).then_some(false),
            rule = self.text("rule"),
            line = number,
            signals = trip.noted.as_ref().and_then(|noted| noted.reserved_text()),
            license = trip.noted.as_ref().and_then(|noted| noted.licenses.first().map(AsRef::as_ref)),
            price = trip.noted.as_ref().and_then(|noted| noted.price.as_deref()),
            status = answer.map_or(trip.status, |answer| answer.status.as_u16()),
            held_ms = millis(trip.gate.held()),
            origin_ms = trip.origin.map(millis),
            ms = millis(about.began.elapsed()),
            bytes_in = trip.moved.up,
            bytes_out = answer.map_or(trip.moved.down, |answer| answer.body().len() as u64),
            upstream = upstream.map(tracing::field::display),
            reused = trip.upstream.map(|(_, reused)| reused),
            error = self.error,
            detail = self.detail,
        );
    }
}

/// One that no other line has, of this process or another.
fn next_id(instance: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let instance = instance.rsplit('-').next().unwrap_or_default();
    format!("{instance}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// As the client sent it (W3C Trace Context §3.2), if it is one: origins have it too.
fn traceparent(request: &Request<'_>) -> Option<String> {
    let name = HeaderName::from_static("traceparent");
    let fields = request.head.fields_named(std::slice::from_ref(&name));
    let value = fields.get(&name)?.to_str().ok()?;
    let lengths = [2, 32, 16, 2];
    let mut parts = value.split('-');
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_one = lengths.iter().all(|&length| parts.next().is_some_and(|part| part.len() == length && is_hex(part)));
    is_one.then(|| value.to_owned())
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
