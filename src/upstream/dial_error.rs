//! Why there is no connection, in words that a client may read: an upstream proxy is named without its credentials.

use crate::tls_words;
use pingora_core::{Error, ErrorType};
use rustix::io::Errno;
use rustls::AlertDescription;
use std::io;

/// What went wrong on the way to an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DialError {
    pub kind: DialFault,
    detail: String,
}

/// Its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialFault {
    Refused,
    Unroutable,
    TimedOut,
    /// It was closed, reset or cut short.
    Ended,
    Certificate,
    Alert,
    /// It speaks none of the protocols that were offered.
    Alpn,
    Tls,
    /// What came is not HTTP.
    Malformed,
    /// The upstream proxy wants other credentials than it was shown.
    Credentials,
    /// The upstream proxy says that it would come round to itself.
    Loop,
    /// The upstream proxy does not connect there.
    Declined,
    /// The upstream proxy got no answer from there.
    DeclinedInTime,
    /// This machine has no descriptor, memory or port left for it.
    OwnLimit,
}

impl DialError {
    pub(super) fn new(kind: DialFault, detail: impl Into<String>) -> Self {
        DialError { kind, detail: detail.into() }
    }

    /// `doing`: what was being done, `connecting to the upstream proxy …`.
    pub(super) fn from_io(error: &io::Error, doing: &str) -> Self {
        use io::ErrorKind as Kind;
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            let kind = match tls {
                rustls::Error::InvalidCertificate(_) => DialFault::Certificate,
                rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => DialFault::Alpn,
                rustls::Error::AlertReceived(_) => DialFault::Alert,
                _ => DialFault::Tls,
            };
            return match tls {
                // What we say ourselves of a certificate stands in here; webpki has bare names.
                rustls::Error::InvalidCertificate(rustls::CertificateError::Other(why))
                    if why.to_string().contains(' ') =>
                {
                    Self::new(kind, format!("{doing}: {why}"))
                }
                tls => Self::new(kind, format!("{doing}: {}", tls_words::in_plain(tls))),
            };
        }
        let kind = match error.kind() {
            _ if is_own_limit(error) => DialFault::OwnLimit,
            Kind::TimedOut => DialFault::TimedOut,
            Kind::ConnectionRefused => DialFault::Refused,
            // No address of our own in that family.
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::AddrNotAvailable => DialFault::Unroutable,
            _ => DialFault::Ended,
        };
        Self::new(kind, format!("{doing}: {}", tls_words::in_plain(error)))
    }

    /// The one at the bottom of an error of pingora's.
    pub fn within(error: &Error) -> Option<&Self> {
        let cause = error.cause.as_ref()?;
        match cause.downcast_ref::<Box<Error>>() {
            Some(below) => Self::within(below),
            None => cause.downcast_ref(),
        }
    }
}

/// As rustls says it.
const NO_PROTOCOL: &str = "received fatal alert: NoApplicationProtocol";

/// Whether it is this machine that cannot open another connection, or file.
pub fn is_own_limit(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

impl From<&Error> for DialError {
    /// Of what pingora says when it could not connect. What we say to it ourselves comes back as it was.
    fn from(error: &Error) -> Self {
        if let Some(dial) = Self::within(error) {
            return dial.clone();
        }
        let detail = words(error);
        let kind = match &error.etype {
            // It keeps rustls' words alone.
            ErrorType::TLSHandshakeFailure => match () {
                () if tls_words::is_of_certificate(&detail) => DialFault::Certificate,
                () if detail.contains(NO_PROTOCOL) => DialFault::Alpn,
                () if detail.contains("received fatal alert") => DialFault::Alert,
                () => DialFault::Tls,
            },
            _ => DialFault::Ended,
        };
        let detail = tls_words::sentence(&detail).map_or(detail, |why| format!("TLS handshake failed: {why}"));
        Self::new(kind, detail)
    }
}

impl From<DialError> for Box<Error> {
    fn from(error: DialError) -> Self {
        Error::because(ErrorType::ConnectError, "connecting", error).into_up()
    }
}

/// What happened, and the reason at the bottom of it: pingora's own display repeats itself at each level.
fn words(error: &Error) -> String {
    let what = match &error.etype {
        ErrorType::TLSHandshakeFailure => "TLS handshake failed",
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::UnixTime;
    use std::time::Duration;

    #[test]
    fn a_certificate_that_is_not_valid_yet_raises_the_question_of_the_clock() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let not_yet = || rustls::CertificateError::NotValidYetContext { time: at(10), not_before: at(20) };
        let expired = rustls::CertificateError::ExpiredContext { time: at(20), not_after: at(10) };
        let said = |fault: rustls::CertificateError| {
            let error = io::Error::other(rustls::Error::InvalidCertificate(fault));
            DialError::from_io(&error, "connecting to the upstream proxy")
        };
        assert!(said(not_yet()).to_string().ends_with("; perhaps this machine's clock is slow: set it"));
        let expired = said(expired).to_string();
        assert_eq!(expired, "connecting to the upstream proxy: the certificate expired on 1970-01-01");
        // As it comes from pingora.
        let cause = rustls::Error::InvalidCertificate(not_yet());
        let error = Error::because(ErrorType::TLSHandshakeFailure, "handshake", io::Error::other(cause));
        let error = DialError::from(&*error);
        assert_eq!(error.kind, DialFault::Certificate);
        assert!(error.to_string().ends_with("; perhaps this machine's clock is slow: set it"), "{error}");
    }
}
