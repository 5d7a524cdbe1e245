//! Answers of the proxy itself: the only place that chooses a status. RFC 9457 (problem details), RFC 9209
//! (Proxy-Status).

mod evidence;
mod failure;
mod hint;
mod page;
mod robots_copy;
mod setup;
mod status;
mod text;

pub use evidence::{Member, each_member, evidence};
pub use failure::Failure;
pub use robots_copy::{not_modified, robots_copy};
pub use setup::setup;

use crate::config::Settings;
use crate::http1::{put_field, put_number, put_status_line};
use crate::policy::Refusal;
use crate::proxy::io::Scratch;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use status::status;
use std::ops::Range;
use std::time::Duration;
use text::{Object, put_field_text};

/// An answer of the proxy itself.
pub struct Answer {
    pub status: StatusCode,
    /// The reason phrase of HTTP/1, which is all that many tools show.
    reason: &'static str,
    /// Field lines in HTTP/1.1 form, then the body unless it is shared.
    text: Scratch,
    /// Where the body begins.
    body_at: usize,
    /// A body shared with other answers.
    shared: Bytes,
}

/// A problem in the form of RFC 9457 and RFC 9209.
struct Problem<'a> {
    status: StatusCode,
    slug: &'a str,
    /// A proxy error type of RFC 9209.
    error: &'a str,
    detail: &'a str,
    /// Advice to the client, in one sentence.
    hint: Option<&'a str>,
    /// Seconds until a retry makes sense.
    wait: Option<u64>,
}

impl Answer {
    /// Answers with a refusal. `url`, `accept`: the request's URL and Accept field.
    pub fn refusal(refusal: &Refusal, url: Option<&str>, accept: Option<&[u8]>, settings: &Settings) -> Self {
        let (status, error) = status(refusal, settings);
        let mut detail = Scratch::new();
        // Writing to memory does not fail.
        let _ = refusal.write(&mut detail);
        let detail = str::from_utf8(&detail).unwrap_or_default();
        let wait = refusal.retry_after().map(seconds);
        let hint = hint::hint(refusal, wait, settings);
        let problem = Problem { status, slug: refusal.slug(), error, detail, hint: Some(&hint), wait };
        problem.answer(url, accept, Some(refusal))
    }

    pub fn failure(failure: &Failure, url: Option<&str>, accept: Option<&[u8]>) -> Self {
        let Failure { status, error, detail } = failure;
        Problem { status: *status, slug: error, error, detail, hint: None, wait: None }.answer(url, accept, None)
    }

    /// Answers OPTIONS or TRACE with Max-Forwards 0 (RFC 9110 §7.6.2).
    pub fn last_forward(method: &str) -> Self {
        let (status, error) = match method {
            "OPTIONS" => (StatusCode::OK, None),
            _ => (StatusCode::METHOD_NOT_ALLOWED, Some("http_request_error")),
        };
        let told = proxy_status(error, Some("Max-Forwards is 0"));
        let put_fields = |text: &mut Vec<u8>| {
            put_field(text, b"proxy-status", told.as_bytes());
            put_field(text, b"allow", b"OPTIONS");
        };
        Answer::new(status, put_fields, b"")
    }

    /// Creates an answer with the standard reason phrase. `put_fields`: appends field lines.
    pub fn new(status: StatusCode, put_fields: impl FnOnce(&mut Vec<u8>), body: &[u8]) -> Self {
        let mut text = Scratch::new();
        put_fields(&mut text);
        let body_at = text.len();
        text.extend_from_slice(body);
        let reason = status.canonical_reason().unwrap_or_default();
        Answer { status, reason, text, body_at, shared: Bytes::new() }
    }

    /// Like [`new`](Self::new), with a shared body.
    pub fn shared(status: StatusCode, put_fields: impl FnOnce(&mut Vec<u8>), body: Bytes) -> Self {
        Answer { shared: body, ..Answer::new(status, put_fields, b"") }
    }

    pub fn body(&self) -> &[u8] {
        if self.shared.is_empty() { &self.text[self.body_at..] } else { &self.shared }
    }

    /// Returns a part of the body: copied, unless the body is shared.
    pub fn share(&self, part: Range<usize>) -> Bytes {
        match self.shared.is_empty() {
            true => Bytes::copy_from_slice(&self.body()[part]),
            false => self.shared.slice(part),
        }
    }

    fn fields(&self) -> &[u8] {
        &self.text[..self.body_at]
    }

    /// Writes the head in HTTP/1.1. `connection`: the Connection field.
    pub fn write_head(&self, out: &mut Vec<u8>, connection: Option<&'static str>) {
        out.reserve(self.body_at + 160);
        put_status_line(out, self.status.as_u16(), self.reason.as_bytes());
        out.extend_from_slice(self.fields());
        if let Some(connection) = connection {
            put_field(out, b"connection", connection.as_bytes());
        }
        if self.has_length() {
            out.extend_from_slice(b"content-length: ");
            put_number(out, self.body().len() as u64);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The head in HTTP/2.
    pub fn head(&self) -> http::Response<()> {
        let mut head = http::Response::new(());
        *head.status_mut() = self.status;
        let lines = self.fields().split(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
        for (name, value) in lines.filter_map(|line| line.split_at_checked(memchr::memmem::find(line, b": ")?)) {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(&value[2..])) {
                head.headers_mut().append(name, value);
            }
        }
        if self.has_length() {
            head.headers_mut().insert(header::CONTENT_LENGTH, self.body().len().into());
        }
        head
    }

    /// Whether to send Content-Length. Not on 304, where it would be the length of the content (RFC 9110 §8.6).
    fn has_length(&self) -> bool {
        self.status != StatusCode::NOT_MODIFIED
    }
}

impl Problem<'_> {
    /// Formats the problem as an answer. `refusal`: adds its own members.
    fn answer(&self, url: Option<&str>, accept: Option<&[u8]>, refusal: Option<&Refusal>) -> Answer {
        let Problem { status, slug, error, detail, hint, wait } = *self;
        let title = title(slug);
        let is_html = accept.is_some_and(page::prefers_html);
        let mut text = Scratch::new();
        let kind = if is_html { HTML } else { JSON };
        text.extend_from_slice(kind);
        text.extend_from_slice(b"proxy-status: ");
        put_proxy_status(&mut text, Some(error), Some(detail));
        text.extend_from_slice(b"\r\n");
        if let Some(wait) = wait {
            text.extend_from_slice(b"retry-after: ");
            put_number(&mut text, wait);
            text.extend_from_slice(b"\r\n");
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            text.extend_from_slice(b"proxy-authenticate: Basic realm=\"politely\", charset=\"UTF-8\"\r\n");
        }
        let body_at = text.len();
        if is_html {
            page::page(&mut text, self, url, refusal);
        } else {
            let mut members = Object::begin(&mut text, slug, title, status);
            members.text("detail", [detail]);
            hint.iter().for_each(|&hint| members.text("hint", [hint]));
            url.iter().for_each(|&url| members.text("url", [url]));
            if let Some(refusal) = refusal {
                each_member(refusal, &mut |name, value| match value {
                    Member::Text(pieces) => members.text(name, pieces.iter().copied()),
                    Member::RobotsUrl(authority) => members.robots_url(name, authority),
                    Member::Number(number) => members.number(name, number),
                });
            }
            wait.iter().for_each(|&wait| members.number("retry_after", wait));
            members.end();
        }
        Answer { status, reason: title, text, body_at, shared: Bytes::new() }
    }
}

/// The Proxy-Status member of this proxy (RFC 9209 §2).
pub fn proxy_status(error: Option<&str>, details: Option<&str>) -> String {
    let mut status = Vec::new();
    put_proxy_status(&mut status, error, details);
    String::from_utf8(status).expect("Proxy-Status is ASCII")
}

/// Appends a Proxy-Status member.
fn put_proxy_status(out: &mut Vec<u8>, error: Option<&str>, details: Option<&str>) {
    out.extend_from_slice(b"politely");
    if let Some(error) = error {
        out.extend_from_slice(b"; error=");
        out.extend_from_slice(error.as_bytes());
    }
    if let Some(details) = details {
        out.extend_from_slice(b"; details=\"");
        put_field_text(out, details, MAX_DETAILS);
        out.push(b'"');
    }
}

/// A short title, for the body and the status line.
fn title(slug: &str) -> &'static str {
    match slug {
        "robots-disallowed" => "Disallowed by robots.txt",
        "usage-disallowed" => "Disallowed by a usage preference of the site",
        "usage-unreadable" => "The site's usage preferences cannot be read",
        "robots-unreachable" => "robots.txt is unreachable",
        "crawl-delay" => "Crawl-delay",
        "revisit-too-soon" => "Fetched recently",
        "budget-spent" => "The budget is spent",
        "host-paused" => "The host is paused",
        "queue-full" => "Too many requests are waiting",
        "connection-limit" => "Too many connections",
        "egress-denied" => "Blocked by this proxy",
        "client-denied" => "Not allowed to use this proxy",
        "authority-mismatch" => "The request is for another authority than its connection",
        "bad-request" => "Malformed request",
        "head-too-large" => "Request head too large",
        "head-timeout" => "Request head too slow",
        "expectation-failed" => "The expectation is not supported",
        "loop" | "proxy_loop_detected" => "The request came back to this proxy",
        "draining" => "The proxy is shutting down",
        "fleet-lost" => "The fleet's server is out of reach",
        "out-of-resources" | "connection_limit_reached" => "The proxy's machine cannot send the request now",
        "proxy_configuration_error" => "The upstream proxy requires credentials",
        "operator-denied" => "Denied by the operator",
        "not-stored" => "Nothing usable is stored",
        "rules-too-complex" => "The rules are too complex",
        "dns_error" | "dns_timeout" => "The host name cannot be resolved",
        "tls_certificate_error" => "The origin's certificate is not trusted",
        "http_request_error" => "The request body is invalid or too slow",
        "http_protocol_error" | "http_response_header_section_size" => "The origin's answer cannot be read",
        "http_response_timeout" | "connection_write_timeout" => "The origin does not answer in time",
        "connection_terminated" => "The origin closed the connection",
        _ => "The origin cannot be reached",
    }
}

/// Whole seconds, rounded up, so that nobody retries too early.
fn seconds(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000_000) as u64
}

const MAX_DETAILS: usize = 300;
const HTML: &[u8] = b"content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n";
const JSON: &[u8] = b"content-type: application/problem+json\r\ncache-control: no-store\r\n";
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
