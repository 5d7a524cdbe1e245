//! The proxy's own answers: the only place that chooses a status. RFC 9457 (problem details), RFC 9209 (Proxy-Status).

mod failure;
mod page;
mod robots_copy;

pub use failure::Failure;
pub use robots_copy::robots_copy;

use crate::config::Settings;
use crate::policy::{EgressReason, Refusal};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::time::Duration;

/// An answer of the proxy's own.
pub struct Answer {
    pub status: StatusCode,
    fields: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

/// The parts of a request that shape an answer to it.
#[derive(Default)]
pub struct Asked<'a> {
    pub url: Option<&'a str>,
    pub accept: Option<&'a [u8]>,
}

impl Answer {
    pub fn refusal(refusal: &Refusal, asked: &Asked<'_>, settings: &Settings) -> Self {
        let (status, error) = status(refusal, settings);
        let mut members = evidence(refusal);
        if let Some(after) = refusal.retry_after() {
            members.insert("retry_after".into(), json!(seconds(after)));
        }
        let mut answer = Self::problem(status, refusal.slug(), error, &refusal.to_string(), members, asked);
        if let Some(after) = refusal.retry_after() {
            answer.field(header::RETRY_AFTER, seconds(after));
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            let challenge = HeaderValue::from_static("Basic realm=\"politely\", charset=\"UTF-8\"");
            answer.field(header::PROXY_AUTHENTICATE, challenge);
        }
        answer
    }

    pub fn failure(failure: &Failure, asked: &Asked<'_>) -> Self {
        let Failure { status, error, detail } = failure;
        Self::problem(*status, error, error, detail, Map::new(), asked)
    }

    /// To OPTIONS or TRACE that may be forwarded no further (RFC 9110 §7.6.2).
    pub fn last_forward(method: &str) -> Self {
        let status = if method == "OPTIONS" { StatusCode::OK } else { StatusCode::METHOD_NOT_ALLOWED };
        Answer { status, fields: Vec::new(), body: Bytes::new() }
    }

    fn problem(
        status: StatusCode,
        slug: &str,
        error: &'static str,
        detail: &str,
        mut members: Map<String, Value>,
        asked: &Asked<'_>,
    ) -> Self {
        let title = title(slug);
        let html = asked.accept.is_some_and(page::prefers_html);
        let body = if html {
            page::page(status, title, detail, asked.url)
        } else {
            members.insert("type".into(), json!(format!("urn:politely:{slug}")));
            members.insert("title".into(), json!(title));
            members.insert("status".into(), json!(status.as_u16()));
            members.insert("detail".into(), json!(detail));
            if let Some(url) = asked.url {
                members.insert("url".into(), json!(url));
            }
            format!("{}\n", Value::Object(members))
        };
        let kind = if html { "text/html; charset=utf-8" } else { "application/problem+json" };
        let told = proxy_status(Some(error), Some(detail));
        let mut answer = Answer { status, fields: Vec::with_capacity(5), body: body.into() };
        answer.field(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        answer.field(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer.field(PROXY_STATUS, told);
        answer
    }

    fn field(&mut self, name: HeaderName, value: impl TryInto<HeaderValue>) {
        // What no field may hold is left out: an answer is better than none.
        if let Ok(value) = value.try_into() {
            self.fields.push((name, value));
        }
    }

    /// The whole of it in HTTP/1.1. `connection`: what is said of the connection. `bodiless`: it answers HEAD.
    pub fn write(&self, out: &mut Vec<u8>, connection: Option<&'static str>, bodiless: bool) {
        let reason = self.status.canonical_reason().unwrap_or_default();
        out.reserve(self.body.len() + 512);
        // Writing to memory does not fail.
        let _ = write!(out, "HTTP/1.1 {} {reason}\r\n", self.status.as_u16());
        for (name, value) in &self.fields {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        if let Some(connection) = connection {
            let _ = write!(out, "connection: {connection}\r\n");
        }
        if self.has_length() {
            let _ = write!(out, "content-length: {}\r\n", self.body.len());
        }
        out.extend_from_slice(b"\r\n");
        if !bodiless {
            out.extend_from_slice(&self.body);
        }
    }

    /// Its head in HTTP/2.
    pub fn head(&self) -> http::Response<()> {
        let mut head = http::Response::new(());
        *head.status_mut() = self.status;
        for (name, value) in &self.fields {
            head.headers_mut().append(name, value.clone());
        }
        if self.has_length() {
            head.headers_mut().insert(header::CONTENT_LENGTH, self.body.len().into());
        }
        head
    }

    /// RFC 9110 §8.6: on 304 a length is that of what has not changed.
    fn has_length(&self) -> bool {
        self.status != StatusCode::NOT_MODIFIED
    }
}

/// A Proxy-Status member of ours (RFC 9209 §2), with what is known.
pub fn proxy_status(error: Option<&'static str>, details: Option<&str>) -> String {
    let mut status = String::from("politely");
    if let Some(error) = error {
        status.push_str("; error=");
        status.push_str(error);
    }
    if let Some(details) = details {
        // RFC 9651 §3.3.3: a string holds printable ASCII only.
        status.push_str("; details=\"");
        for c in details.chars().take(MAX_DETAILS) {
            match c {
                '"' | '\\' => status.extend(['\\', c]),
                ' '..='~' => status.push(c),
                _ => status.push('?'),
            }
        }
        status.push('"');
    }
    status
}

fn status(refusal: &Refusal, settings: &Settings) -> (StatusCode, &'static str) {
    let configured = |status: u16| StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    match refusal {
        Refusal::Disallowed { .. } | Refusal::UsageDisallowed { .. } | Refusal::OperatorDenied { .. } => {
            (configured(settings.robots.deny_status), "http_request_denied")
        }
        Refusal::RobotsUnreachable { .. } => {
            (configured(settings.robots.unreachable_status), "destination_unavailable")
        }
        Refusal::CrawlDelay { .. } => (StatusCode::TOO_MANY_REQUESTS, "http_request_denied"),
        Refusal::QueueFull { .. } | Refusal::ConnectionLimit { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached")
        }
        Refusal::EgressDenied { why: EgressReason::Address { .. } } => {
            (StatusCode::FORBIDDEN, "destination_ip_prohibited")
        }
        Refusal::EgressDenied { why: EgressReason::Port(_) | EgressReason::Host { .. } } => {
            (StatusCode::FORBIDDEN, "http_request_denied")
        }
        Refusal::ClientDenied { credentials: true, .. } => {
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, "http_request_denied")
        }
        Refusal::ClientDenied { credentials: false, .. } => (StatusCode::FORBIDDEN, "http_request_denied"),
        Refusal::AuthorityMismatch { .. } => (StatusCode::MISDIRECTED_REQUEST, "http_request_error"),
        Refusal::BadRequest { .. } | Refusal::NotAProxyRequest => (StatusCode::BAD_REQUEST, "http_request_error"),
        Refusal::HeadTooLarge { .. } => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "http_request_error"),
        Refusal::HeadTimeout { .. } => (StatusCode::REQUEST_TIMEOUT, "http_request_error"),
        Refusal::Loop => (StatusCode::LOOP_DETECTED, "proxy_loop_detected"),
        Refusal::Draining { .. } => (StatusCode::SERVICE_UNAVAILABLE, "destination_unavailable"),
        Refusal::FleetLost { .. } => (StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error"),
        Refusal::OwnLimit { .. } => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
    }
}

pub fn evidence(refusal: &Refusal) -> Map<String, Value> {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| {
        members.insert(name.into(), value);
    };
    match refusal {
        Refusal::Disallowed { robots_url, product_tokens, rule } => {
            put("robots_url", json!(robots_url));
            put("product_token", json!(product_tokens.join(", ")));
            if let Some(rule) = rule {
                let kind = if rule.allow { "Allow" } else { "Disallow" };
                put("rule", json!(format!("{kind}: {}", rule.pattern)));
                put("line", json!(rule.line));
                rule.matched_path.iter().for_each(|path| put("matched_path", json!(path)));
            }
        }
        Refusal::UsageDisallowed { robots_url, product_tokens, purpose, preference } => {
            put("robots_url", json!(robots_url));
            put("product_token", json!(product_tokens.join(", ")));
            put("purpose", json!(purpose));
            put("rule", json!(format!("{}: {}", preference.key, preference.value)));
            put("line", json!(preference.line));
            preference.matched_path.iter().for_each(|path| put("matched_path", json!(path)));
        }
        Refusal::RobotsUnreachable { robots_url, .. } => put("robots_url", json!(robots_url)),
        Refusal::OperatorDenied { host, pattern } => put("rule", json!(format!("hosts.{host}.deny: {pattern}"))),
        Refusal::CrawlDelay { .. }
        | Refusal::QueueFull { .. }
        | Refusal::ConnectionLimit { .. }
        | Refusal::EgressDenied { .. }
        | Refusal::ClientDenied { .. }
        | Refusal::AuthorityMismatch { .. }
        | Refusal::BadRequest { .. }
        | Refusal::NotAProxyRequest
        | Refusal::HeadTooLarge { .. }
        | Refusal::HeadTimeout { .. }
        | Refusal::Loop
        | Refusal::Draining { .. }
        | Refusal::FleetLost { .. }
        | Refusal::OwnLimit { .. } => {}
    }
    members
}

fn title(slug: &str) -> &str {
    match slug {
        "robots-disallowed" => "Disallowed by robots.txt",
        "usage-disallowed" => "Disallowed by a usage preference in robots.txt",
        "robots-unreachable" => "robots.txt is unreachable",
        "crawl-delay" => "Held back by the crawl-delay",
        "queue-full" => "Too many requests are waiting",
        "connection-limit" => "Too many connections",
        "egress-denied" => "Not reachable through this proxy",
        "client-denied" => "Not admitted to this proxy",
        "authority-mismatch" => "The request is for another authority than its connection",
        "bad-request" => "Malformed request",
        "head-too-large" => "Request head too large",
        "head-timeout" => "Request head too slow",
        "loop" => "The request came round to this proxy again",
        "draining" => "The proxy is shutting down",
        "fleet-lost" => "The fleet's server is out of reach",
        "out-of-resources" => "The proxy cannot connect anywhere now",
        "operator-denied" => "Denied by the operator",
        "dns_error" | "dns_timeout" => "The host name cannot be resolved",
        "tls_certificate_error" => "The origin's certificate is not trusted",
        _ => "The origin cannot be reached",
    }
}

/// Whole seconds, rounded up: nobody is told to come too early.
fn seconds(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000_000) as u64
}

const MAX_DETAILS: usize = 300;
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_stay_a_structured_fields_string() {
        let status = proxy_status(Some("http_request_denied"), Some("a \"b\" \\ \u{e9}\r\nX: y"));
        assert_eq!(status, r#"politely; error=http_request_denied; details="a \"b\" \\ ???X: y""#);
        assert!(status.parse::<HeaderValue>().is_ok());
    }

    #[test]
    fn waits_are_rounded_up() {
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_secs(3)), 3);
        assert_eq!(seconds(Duration::from_millis(3001)), 4);
    }
}
