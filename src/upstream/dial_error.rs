//! Why a connection failed, in words that a client may read: an upstream proxy is named without its credentials.

use crate::policy::clipped;
use crate::tls_words;
use rustix::io::Errno;
use rustls::AlertDescription;
use std::io;

/// Why a connection to an origin failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DialError {
    pub kind: DialFault,
    /// Whether the wider TLS, by OpenSSL, may succeed.
    pub(super) is_for_wider: bool,
    detail: String,
}

/// Kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialFault {
    Refused,
    Unroutable,
    /// Connecting took too long, or the upstream proxy reports a timeout.
    TimedOut,
    /// The connection was closed, reset or truncated.
    Ended,
    Certificate,
    Alert,
    /// The peer supports none of the protocols offered.
    Alpn,
    Tls,
    /// The answer is not HTTP.
    Malformed,
    /// The upstream proxy requires other credentials.
    Credentials,
    /// The upstream proxy reports a loop.
    Loop,
    /// The upstream proxy refuses to connect there.
    Declined,
    /// This machine has no descriptor, memory or port left.
    OwnLimit,
    /// This proxy could not compute a handshake in time.
    Busy,
}

impl DialFault {
    /// Whether this machine is at fault, so that the failure says nothing about the origin.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::OwnLimit | Self::Busy)
    }

    /// Whether the failure occurs in a TLS handshake.
    pub(super) fn is_of_tls(self) -> bool {
        matches!(self, Self::Certificate | Self::Alert | Self::Alpn | Self::Tls)
    }
}

impl DialError {
    pub(super) fn new(kind: DialFault, detail: impl Into<String>) -> Self {
        DialError { kind, is_for_wider: false, detail: clipped(&detail.into()).into_owned() }
    }

    /// Converts an I/O error. `doing`: the attempted action, such as `connecting to the upstream proxy …`.
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
                // A text with a space is a sentence of ours; webpki's errors are single words.
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
            // No route to the address, for example because this machine has no address of its family (IPv4 or IPv6).
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::AddrNotAvailable => DialFault::Unroutable,
            _ => DialFault::Ended,
        };
        Self::new(kind, format!("{doing}: {}", tls_words::in_plain(error)))
    }

    /// Describes a failed handshake with an origin.
    pub(super) fn of_handshake(error: &io::Error) -> Self {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let mut made = Self::from_io(error, HANDSHAKE);
        match of_tls {
            Some(tls) => {
                made.is_for_wider = is_for_wider(tls);
                made.detail = tls_words::with_cure(made.detail);
            }
            None if is_own_limit(error) => {}
            // OpenSSL may succeed: some servers close the connection if they support none of the parameters offered, and rustls rejects
            // some names.
            None => {
                let detail = match error.kind() {
                    io::ErrorKind::UnexpectedEof => tls_words::in_plain("tls handshake eof"),
                    _ => format!("the connection failed: {error}"),
                };
                made = Self::new(DialFault::Tls, format!("{HANDSHAKE}: {detail}"));
                made.is_for_wider = true;
            }
        }
        made
    }
}

const HANDSHAKE: &str = "TLS handshake failed";

/// Whether OpenSSL may succeed: the server supports none of the parameters offered, or rustls does not support this kind of certificate.
/// False if the certificate was read and rejected.
fn is_for_wider(error: &rustls::Error) -> bool {
    use rustls::{CertificateError as Fault, Error};
    match error {
        Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::HandshakeFailure
                | AlertDescription::InsufficientSecurity
                | AlertDescription::ProtocolVersion
                | AlertDescription::IllegalParameter
                | AlertDescription::DecodeError
                | AlertDescription::InternalError
        ),
        Error::PeerIncompatible(_) | Error::PeerMisbehaved(_) => true,
        Error::InvalidCertificate(fault) => match fault {
            // The certificate has only a CN.
            Fault::NotValidForNameContext { presented, .. } => presented.is_empty(),
            // `Other` contains one of our sentences, or a single word: the name of a webpki error, perhaps for an unsupported kind of
            // certificate.
            Fault::Other(other) => !other.to_string().contains(' '),
            // webpki also reports these for RSA keys of unsupported length, under 2048 or over 8192 bits.
            Fault::BadSignature
            | Fault::BadEncoding
            | Fault::UnhandledCriticalExtension
            | Fault::UnsupportedSignatureAlgorithmContext { .. }
            | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => true,
            _ => false,
        },
        _ => false,
    }
}

/// Whether this machine has reached a limit for connections or files.
pub fn is_own_limit(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::UnixTime;
    use std::time::Duration;

    #[test]
    fn certificate_not_yet_valid_suggests_a_slow_clock() {
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
        let error = io::Error::other(rustls::Error::InvalidCertificate(not_yet()));
        assert_eq!(DialError::of_handshake(&error).kind, DialFault::Certificate);
    }
}
