//! Failures, which are not refusals: of the connection, the origin or the client's message. Each has its status and an
//! error type of RFC 9209 §2.3.

use crate::tls_words;
use crate::upstream::{DialError, DialFault, ResolveError};
use http::StatusCode;
use std::fmt::Display;
use std::time::Duration;

/// A failure, with the status and texts of the answer to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    /// A proxy error type of RFC 9209.
    pub error: &'static str,
    pub detail: String,
}

impl Failure {
    fn new(status: StatusCode, error: &'static str, detail: impl ToString) -> Self {
        Failure { status, error, detail: detail.to_string() }
    }

    pub fn from_dial(error: &DialError) -> Self {
        use StatusCode as Status;
        let (status, name) = match error.kind {
            DialFault::Refused => (Status::BAD_GATEWAY, "connection_refused"),
            DialFault::Unroutable => (Status::BAD_GATEWAY, "destination_ip_unroutable"),
            DialFault::TimedOut => (Status::GATEWAY_TIMEOUT, "connection_timeout"),
            DialFault::Ended => (Status::BAD_GATEWAY, "connection_terminated"),
            DialFault::Certificate => (Status::BAD_GATEWAY, "tls_certificate_error"),
            DialFault::Alert | DialFault::Alpn => (Status::BAD_GATEWAY, "tls_alert_received"),
            DialFault::Tls => (Status::BAD_GATEWAY, "tls_protocol_error"),
            DialFault::Malformed => (Status::BAD_GATEWAY, "http_protocol_error"),
            // The operator must correct this: the client has no credentials for the upstream proxy.
            DialFault::Credentials => (Status::BAD_GATEWAY, "proxy_configuration_error"),
            DialFault::Loop => (Status::LOOP_DETECTED, "proxy_loop_detected"),
            DialFault::OwnLimit | DialFault::Busy => (Status::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            DialFault::Declined => (Status::BAD_GATEWAY, "destination_unavailable"),
        };
        Self::new(status, name, error)
    }

    pub fn malformed(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "http_protocol_error", format!("malformed answer: {why}"))
    }

    pub fn too_large(limit: usize) -> Self {
        let detail = format!("the head of the answer is larger than {limit} bytes");
        Self::new(StatusCode::BAD_GATEWAY, "http_response_header_section_size", detail)
    }

    pub fn ended(why: impl Display) -> Self {
        let why = tls_words::with_cure(tls_words::in_plain(why));
        Self::new(StatusCode::BAD_GATEWAY, "connection_terminated", format!("connection closed early: {why}"))
    }

    pub fn slots_expired() -> Self {
        let detail = "every pacing slot expired before a connection was opened";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "connection_timeout", detail)
    }

    pub fn answer_timeout(limit: Duration) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "http_response_timeout", format!("no answer within {limit:?}"))
    }

    pub fn write_timeout(limit: Duration) -> Self {
        let detail = format!("the origin did not read the request for {limit:?}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "connection_write_timeout", detail)
    }

    /// RFC 9110 §15.5.9: the rest of the request did not arrive.
    pub fn slow_request() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "http_request_error",
            "the body of the request is too slow (`limits.min_rate`)",
        )
    }

    pub fn bad_request(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "http_request_error", format!("malformed body of the request: {why}"))
    }

    pub fn from_resolve(error: &ResolveError) -> Self {
        match error {
            ResolveError::TimedOut { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "dns_timeout", error),
            ResolveError::Failed { .. } => Self::new(StatusCode::BAD_GATEWAY, "dns_error", error),
            ResolveError::NoResolver { .. } | ResolveError::OwnLimit { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached", error)
            }
        }
    }
}
