//! Why there is no connection, in words that a client may read: an upstream proxy is named without its credentials. Made
//! by `hop`; `proxy::failure` gives it a status.

use pingora::{Error, ErrorType};
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
                rustls::Error::AlertReceived(_) => DialFault::Alert,
                _ => DialFault::Tls,
            };
            return match tls {
                // What we say ourselves of a certificate stands in here.
                rustls::Error::InvalidCertificate(rustls::CertificateError::Other(why)) => {
                    Self::new(kind, format!("{doing}: {why}"))
                }
                tls => Self::new(kind, format!("{doing}: {tls}")),
            };
        }
        let kind = match error.kind() {
            Kind::TimedOut => DialFault::TimedOut,
            Kind::ConnectionRefused => DialFault::Refused,
            Kind::HostUnreachable | Kind::NetworkUnreachable => DialFault::Unroutable,
            _ => DialFault::Ended,
        };
        Self::new(kind, format!("{doing}: {error}"))
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

impl From<DialError> for Box<Error> {
    fn from(error: DialError) -> Self {
        let etype = match error.kind {
            DialFault::TimedOut => ErrorType::ConnectTimedout,
            DialFault::Refused => ErrorType::ConnectRefused,
            DialFault::Unroutable => ErrorType::ConnectNoRoute,
            DialFault::Certificate => ErrorType::InvalidCert,
            DialFault::Ended
            | DialFault::Alert
            | DialFault::Tls
            | DialFault::Malformed
            | DialFault::Credentials
            | DialFault::Loop
            | DialFault::Declined
            | DialFault::DeclinedInTime => ErrorType::ConnectError,
        };
        Error::because(etype, "connecting", error).into_up()
    }
}
