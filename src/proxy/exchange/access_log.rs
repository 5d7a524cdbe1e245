//! The access log: one line for each request, including requests whose client left. docs/logs.md defines the fields;
//! `telemetry` writes them.

use super::outcome::{EndedExchange, Outcome, RequestVerdict};
use super::per_user::{asked, rules};
use super::request::Request;
use crate::gate::Reported;
use crate::policy::Refusal;
use crate::policy::refusal::shortened;
use crate::proxy::respond::{Answer, Member, each_member};
use crate::robots::ProductToken;
use http::{HeaderName, Version};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

impl EndedExchange<'_> {
    /// Writes the line. `answer`: the proxy's own answer, if any.
    pub(super) fn log(&self, outcome: &Outcome, answer: Option<&Answer>) {
        let (trip, request) = (self.trip, self.request.ok());
        let (name, error, why) = outcome.words(self.trip);
        let mut detail = why.map(Cow::Borrowed);
        let (mut rule, mut line) = (None, None);
        let mut rests_on = |refusal: &Refusal| {
            each_member(refusal, &mut |name, value| match (name, value) {
                ("rule", Member::Text(pieces)) => rule = Some(pieces.concat()),
                ("line", Member::Number(number)) => line = Some(number),
                _ => {}
            });
        };
        let verdict = self.verdict(outcome);
        let decision = match verdict {
            Some(RequestVerdict::Refused(refusal)) => {
                rests_on(refusal);
                detail = Some(refusal.to_string().into());
                Some(refusal.slug())
            }
            Some(RequestVerdict::Reported(reported)) => {
                if let Reported::Refused(refusal) = reported {
                    rests_on(refusal);
                }
                detail = detail.or_else(|| Some(reported.to_string().into()));
                Some(reported.slug())
            }
            Some(RequestVerdict::Allowed(allowance, by)) => {
                rule = by.map(|rule| format!("{}: {}", rule.key, rule.value));
                line = by.map(|rule| rule.line.into());
                Some(allowance.slug())
            }
            None => match outcome {
                Outcome::Intercepted => Some("intercept"),
                Outcome::Tunnelled => Some("tunnel"),
                _ => None,
            },
        };
        if matches!(outcome, Outcome::ClientGone) {
            detail = Some("the client has left".into());
        }
        let (mut url, mut method) = (self.url(), request.map(|request| Cow::Borrowed(request.method)));
        let mut agent = request.and_then(|request| request.user_agent).map(String::from_utf8_lossy);
        let mut token = request.filter(|request| !request.is_connect()).and_then(|request| self.tokens(request));
        if self.is_stranger(outcome) {
            let short = |text: &mut String| *text = shortened(text).into_owned();
            url.iter_mut().chain(&mut token).for_each(short);
            method.iter_mut().chain(&mut agent).for_each(|text| short(text.to_mut()));
        }
        let (status, bytes_out) = self.sent(answer);
        tracing::info!(
            target: "access",
            id = next_id(self.proxy.upstream.name()),
            client = %self.peer.address.ip().to_canonical(),
            user = self.peer.user.as_ref().map(|user| user.name.as_ref()),
            method = method.as_deref(),
            url = url,
            authority = request.map(|request| tracing::field::display(&request.authority)),
            http = request.map(|request| version(request.version)),
            agent = agent.as_deref(),
            token = token.as_deref(),
            traceparent = request.and_then(traceparent),
            outcome = name,
            decision = decision,
            enforced = matches!(verdict, Some(RequestVerdict::Reported(_))).then_some(false),
            rule = rule,
            line = line,
            signals = trip.usage_report.as_ref().and_then(|noted| noted.reserved_text()),
            license = trip.usage_report.as_ref().and_then(|noted| noted.licenses.first().map(AsRef::as_ref)),
            price = trip.usage_report.as_ref().and_then(|noted| noted.price.as_deref()),
            promised = request.and_then(|request| request.promised).map(tracing::field::display),
            charged = trip.usage_report.as_ref().and_then(|noted| noted.charged).map(tracing::field::display),
            crawler_error = trip.usage_report.as_ref().and_then(|noted| noted.crawler_error.as_deref()),
            cache = trip.cache.as_ref().map(|cache| cache.result),
            fetch = trip.cache.as_ref().and_then(|cache| Some(cache.fetch.as_ref()?.0.as_str())),
            status = status,
            held_ms = millis(trip.gate.held()),
            origin_ms = trip.origin.map(millis),
            ms = millis(self.began.elapsed()),
            bytes_in = trip.moved.up,
            bytes_out = bytes_out,
            upstream = trip.upstream.map(|(address, _)| tracing::field::display(address)),
            reused = trip.upstream.map(|(_, reused)| reused),
            error = error,
            detail = detail.as_deref(),
        );
    }

    /// The product tokens whose robots.txt rules applied.
    fn tokens(&self, request: &Request<'_>) -> Option<String> {
        let asked = asked(request, self.peer);
        let tokens = rules(self.settings, request, self.peer).product_tokens(&asked);
        let names = tokens.iter().map(ProductToken::as_str).collect::<Vec<_>>().join(",");
        Some(names).filter(|names| !names.is_empty())
    }
}

/// An id that is unique among all processes.
fn next_id(instance: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let instance = instance.rsplit('-').next().unwrap_or_default();
    format!("{instance}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The client's traceparent (W3C Trace Context §3.2) if it is valid. Origins receive it too.
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
