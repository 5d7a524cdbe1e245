//! Refusals and failures as HTTP answers: the only place that chooses a status. RFC 9457 (problem details),
//! RFC 9209 (Proxy-Status). Called by `forward` and `connection`.

mod page;

use super::failure::Failure;
use super::wire::{send, to_wire};
use crate::config::Settings;
use crate::policy::{EgressReason, Refusal};
use bytes::{BufMut, Bytes};
use http::{HeaderValue, Method, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// An answer of the proxy's own.
pub(super) struct Answer {
    head: ResponseHeader,
    body: Bytes,
}

/// The parts of a request that shape an answer to it.
#[derive(Default)]
pub(super) struct Asked<'a> {
    pub url: Option<&'a str>,
    pub accept: Option<&'a [u8]>,
}

impl Answer {
    pub fn refusal(refusal: &Refusal, asked: &Asked<'_>, settings: &Settings) -> pingora::Result<Self> {
        let (status, error) = status(refusal, settings);
        let detail = refusal.to_string();
        let mut members = evidence(refusal);
        if let Some(after) = refusal.retry_after() {
            members.insert("retry_after".into(), json!(seconds(after)));
        }
        let mut answer = Self::problem(status, refusal.slug(), error, &detail, members, asked)?;
        if let Some(after) = refusal.retry_after() {
            answer.head.insert_header(header::RETRY_AFTER, seconds(after))?;
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            answer.head.insert_header(header::PROXY_AUTHENTICATE, "Basic realm=\"politely\", charset=\"UTF-8\"")?;
        }
        Ok(answer)
    }

    pub fn failure(failure: &Failure, asked: &Asked<'_>) -> pingora::Result<Self> {
        Self::problem(failure.status, failure.error, failure.error, &failure.detail, Map::new(), asked)
    }

    /// Something served from here, such as our copy of a robots.txt.
    pub fn content(mut head: ResponseHeader, body: Bytes) -> pingora::Result<Self> {
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
        Ok(Answer { head, body })
    }

    fn problem(
        status: StatusCode,
        slug: &str,
        error: &'static str,
        detail: &str,
        mut members: Map<String, Value>,
        asked: &Asked<'_>,
    ) -> pingora::Result<Self> {
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
        let mut head = ResponseHeader::build(status, Some(8))?;
        let kind = if html { "text/html; charset=utf-8" } else { "application/problem+json" };
        head.insert_header(header::CONTENT_TYPE, kind)?;
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
        head.insert_header(header::CACHE_CONTROL, "no-store")?;
        head.insert_header("Proxy-Status", proxy_status(Some(error), Some(detail)))?;
        Ok(Answer { head, body: body.into() })
    }

    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Answers pingora's session. The connection stays usable.
    pub async fn send(self, session: &mut Session) -> pingora::Result<()> {
        let bodiless = session.req_header().method == Method::HEAD || self.body.is_empty();
        session.write_response_header(Box::new(self.head), bodiless).await?;
        if !bodiless {
            session.write_response_body(Some(self.body), true).await?;
        }
        Ok(())
    }

    /// Answers where there is no session: a CONNECT, or a head that pingora is not to see. `last`: the connection
    /// is closed after it. `limit`: for a client that does not read.
    pub async fn write(
        mut self,
        io: &mut super::downstream::Downstream,
        last: bool,
        limit: Duration,
    ) -> std::io::Result<()> {
        let connection = HeaderValue::from_static(if last { "close" } else { "keep-alive" });
        self.head.insert_header(header::CONNECTION, connection).map_err(std::io::Error::other)?;
        let mut out = to_wire(&self.head);
        out.put_slice(&self.body);
        send(io, &out, limit).await
    }
}

/// A Proxy-Status member of ours (RFC 9209 §2), with what is known.
pub(super) fn proxy_status(error: Option<&'static str>, details: Option<&str>) -> String {
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

pub(crate) fn evidence(refusal: &Refusal) -> Map<String, Value> {
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
        "out-of-resources" => "The proxy has nothing left to connect with",
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
