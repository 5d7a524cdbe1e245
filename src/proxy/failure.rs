//! What went wrong between us and the origin, in the words of RFC 9209 §2.3. Called by `forward` and `tunnel`.

use crate::upstream::{DialError, DialFault, ResolveError, words};
use http::StatusCode;
use pingora::{Error, ErrorSource, ErrorType};
use std::fmt::Display;
use std::time::Duration;

/// The origin's failure, as the client is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub status: StatusCode,
    /// A proxy error type of RFC 9209.
    pub error: &'static str,
    pub detail: String,
}

impl Failure {
    fn new(status: StatusCode, error: &'static str, detail: impl ToString) -> Self {
        Failure { status, error, detail: detail.to_string() }
    }

    /// `None`: the client is gone, there is nobody to tell.
    pub fn from_pingora(error: &Error) -> Option<Self> {
        if let Some(dial) = DialError::within(error) {
            return Some(Self::from_dial(dial));
        }
        use StatusCode as Status;
        let (status, name) = match (&error.etype, &error.esource) {
            (ErrorType::ReadError | ErrorType::WriteError | ErrorType::ConnectionClosed, ErrorSource::Downstream) => {
                return None;
            }
            (ErrorType::ReadTimedout, ErrorSource::Downstream) => (Status::REQUEST_TIMEOUT, "http_request_error"),
            (_, ErrorSource::Downstream) => (Status::BAD_REQUEST, "http_request_error"),
            (ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout, _) => {
                (Status::GATEWAY_TIMEOUT, "connection_timeout")
            }
            (ErrorType::ReadTimedout, _) => (Status::GATEWAY_TIMEOUT, "http_response_timeout"),
            (ErrorType::WriteTimedout, _) => (Status::GATEWAY_TIMEOUT, "connection_write_timeout"),
            (ErrorType::ConnectRefused, _) => (Status::BAD_GATEWAY, "connection_refused"),
            (ErrorType::ConnectNoRoute, _) => (Status::BAD_GATEWAY, "destination_ip_unroutable"),
            (ErrorType::InvalidCert, _) => (Status::BAD_GATEWAY, "tls_certificate_error"),
            (ErrorType::TLSHandshakeFailure | ErrorType::HandshakeError, _) => (Status::BAD_GATEWAY, tls(error)),
            (ErrorType::InvalidHTTPHeader | ErrorType::H1Error | ErrorType::H2Error | ErrorType::InvalidH2, _) => {
                (Status::BAD_GATEWAY, "http_protocol_error")
            }
            (ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError, _) => {
                (Status::BAD_GATEWAY, "connection_terminated")
            }
            (ErrorType::Custom(DNS), _) => (Status::BAD_GATEWAY, DNS),
            (ErrorType::Custom(PROHIBITED), _) => (Status::FORBIDDEN, PROHIBITED),
            (ErrorType::InternalError | ErrorType::UnknownError, ErrorSource::Internal) => {
                (Status::INTERNAL_SERVER_ERROR, "proxy_internal_error")
            }
            _ => (Status::BAD_GATEWAY, "destination_unavailable"),
        };
        Some(Self::new(status, name, words(error)))
    }

    pub fn from_dial(error: &DialError) -> Self {
        use StatusCode as Status;
        let (status, name) = match error.kind {
            DialFault::Refused => (Status::BAD_GATEWAY, "connection_refused"),
            DialFault::Unroutable => (Status::BAD_GATEWAY, "destination_ip_unroutable"),
            DialFault::TimedOut | DialFault::DeclinedInTime => (Status::GATEWAY_TIMEOUT, "connection_timeout"),
            DialFault::Ended => (Status::BAD_GATEWAY, "connection_terminated"),
            DialFault::Certificate => (Status::BAD_GATEWAY, "tls_certificate_error"),
            DialFault::Alert => (Status::BAD_GATEWAY, "tls_alert_received"),
            DialFault::Tls => (Status::BAD_GATEWAY, "tls_protocol_error"),
            DialFault::Malformed => (Status::BAD_GATEWAY, "http_protocol_error"),
            // It is for the operator to mend; the client cannot show what the upstream proxy wants to see.
            DialFault::Credentials => (Status::BAD_GATEWAY, "proxy_configuration_error"),
            DialFault::Loop => (Status::LOOP_DETECTED, "proxy_loop_detected"),
            DialFault::Declined => (Status::BAD_GATEWAY, "destination_unavailable"),
            DialFault::OwnLimit => (Status::SERVICE_UNAVAILABLE, "connection_limit_reached"),
        };
        Self::new(status, name, error)
    }

    pub fn malformed(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "http_protocol_error", format!("malformed answer: {why}"))
    }

    pub fn too_large(limit: usize) -> Self {
        let detail = format!("the head of the answer is larger than {limit} octets");
        Self::new(StatusCode::BAD_GATEWAY, "http_response_header_section_size", detail)
    }

    pub fn ended(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "connection_terminated", format!("connection closed early: {why}"))
    }

    pub fn no_answer(limit: Duration) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "http_response_timeout", format!("no answer within {limit:?}"))
    }

    pub fn from_resolve(error: &ResolveError) -> Self {
        match error {
            ResolveError::TimedOut { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "dns_timeout", error),
            ResolveError::Failed { .. } => Self::new(StatusCode::BAD_GATEWAY, "dns_error", error),
        }
    }
}

/// Types of RFC 9209 for errors of our own making on pingora's way.
pub(super) const DNS: &str = "dns_error";
pub(super) const PROHIBITED: &str = "destination_ip_prohibited";

fn tls(error: &Error) -> &'static str {
    let words = words(error);
    match () {
        () if words.contains("invalid peer certificate") => "tls_certificate_error",
        () if words.contains("received fatal alert") => "tls_alert_received",
        () => "tls_protocol_error",
    }
}
