//! Status and Proxy-Status error type (RFC 9209 §2.3) of each refusal.

use crate::config::Settings;
use crate::policy::{EgressReason, Refusal};
use http::StatusCode;

pub(super) fn status(refusal: &Refusal, settings: &Settings) -> (StatusCode, &'static str) {
    let configured = |status: u16| StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    match refusal {
        Refusal::Disallowed { .. }
        | Refusal::UsageDisallowed { .. }
        | Refusal::EntryReserved(_)
        | Refusal::AnswerReserved(_)
        | Refusal::UsageUnreadable { .. }
        | Refusal::OperatorDenied { .. }
        | Refusal::InterceptDenied { .. }
        | Refusal::RulesTooComplex { .. } => (configured(settings.robots.deny_status), "http_request_denied"),
        Refusal::RobotsUnreachable { .. } => {
            (configured(settings.robots.unreachable_status), "destination_unavailable")
        }
        Refusal::CrawlDelay { .. }
        | Refusal::RevisitTooSoon { .. }
        | Refusal::BudgetSpent { .. }
        | Refusal::Closed { .. } => (StatusCode::TOO_MANY_REQUESTS, "http_request_denied"),
        Refusal::HostPaused { .. } => (StatusCode::SERVICE_UNAVAILABLE, "destination_unavailable"),
        Refusal::QueueFull { .. } | Refusal::ConnectionLimit { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached")
        }
        Refusal::EgressDenied { why: EgressReason::Address { .. } } => {
            (StatusCode::FORBIDDEN, "destination_ip_prohibited")
        }
        Refusal::EgressDenied {
            why:
                EgressReason::Port(_)
                | EgressReason::Host { .. }
                | EgressReason::UnlistedHost { .. }
                | EgressReason::UnlistedMethod { .. },
        } => (StatusCode::FORBIDDEN, "http_request_denied"),
        Refusal::ClientDenied { credentials: true, .. } => {
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, "http_request_denied")
        }
        Refusal::ClientDenied { credentials: false, .. } => (StatusCode::FORBIDDEN, "http_request_denied"),
        Refusal::AuthorityMismatch { .. } => (StatusCode::MISDIRECTED_REQUEST, "http_request_error"),
        Refusal::BadRequest { .. } | Refusal::NotAProxyRequest => (StatusCode::BAD_REQUEST, "http_request_error"),
        Refusal::HeadTooLarge { .. } => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "http_request_error"),
        Refusal::HeadTimeout { .. } => (StatusCode::REQUEST_TIMEOUT, "http_request_error"),
        Refusal::ExpectationFailed => (StatusCode::EXPECTATION_FAILED, "http_request_error"),
        Refusal::Loop => (StatusCode::LOOP_DETECTED, "proxy_loop_detected"),
        Refusal::Draining { .. } => (StatusCode::SERVICE_UNAVAILABLE, "destination_unavailable"),
        Refusal::FleetLost { .. } => (StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error"),
        Refusal::OwnLimit { .. } => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
        // RFC 9111 §5.2.1.7 requires 504 for `only-if-cached`.
        Refusal::NotStored => (StatusCode::GATEWAY_TIMEOUT, "http_request_denied"),
    }
}
