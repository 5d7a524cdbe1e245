//! An error of pingora's in a few words: its own display repeats itself at each level.

use pingora_core::{Error, ErrorType};

/// What happened, and the reason at the bottom of it.
pub(super) fn words(error: &Error) -> String {
    let what = match &error.etype {
        ErrorType::ConnectRefused => "connection refused",
        ErrorType::ConnectTimedout => "connecting took too long",
        ErrorType::ConnectNoRoute => "no route to the host",
        ErrorType::TLSHandshakeFailure => "TLS handshake failed",
        ErrorType::TLSHandshakeTimedout => "TLS handshake took too long",
        ErrorType::InvalidCert => "certificate not accepted",
        ErrorType::ReadTimedout => "no answer in time",
        ErrorType::WriteTimedout => "sending took too long",
        ErrorType::ConnectionClosed => "connection closed early",
        ErrorType::InvalidHTTPHeader => "malformed answer head",
        other => other.as_str(),
    };
    let reason = deepest(error);
    if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
}

/// The cause at the bottom that is not pingora's own; else the context at the bottom that says more than an address.
fn deepest(error: &Error) -> String {
    let below = match &error.cause {
        None => String::new(),
        Some(cause) => match cause.downcast_ref::<Box<Error>>() {
            Some(below) => deepest(below),
            None => cause.to_string(),
        },
    };
    let context = error.context.as_ref().map(|context| context.as_str()).unwrap_or_default();
    if below.is_empty() || below.starts_with("local address") { context.to_owned() } else { below }
}
