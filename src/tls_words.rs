//! Turns the errors of failed TLS handshakes into sentences for people. Pure. Parses rustls' text, because wrapping an error loses its
//! type. A test makes each error that a peer can cause.

use rustls::AlertDescription;
use std::fmt::Display;
use time::OffsetDateTime;

/// Explains a TLS error, whichever side found it. `said`: the displayed error of rustls, perhaps with text around it. `None`: not a TLS
/// error.
pub fn sentence(said: &str) -> Option<String> {
    let after = |mark: &str| said.find(mark).map(|at| &said[at + mark.len()..]);
    if let Some(why) = after("invalid peer certificate: ") {
        return Some(certificate(why));
    }
    // OpenSSL's text for an alert that was received.
    if let Some(number) = after("SSL alert number ").and_then(|number| number.parse::<u8>().ok()) {
        return Some(alert(number.into()));
    }
    if let Some(name) = after("received fatal alert: ") {
        return Some(alert_named(first_word(name)));
    }
    if let Some(name) = after("peer is incompatible: ") {
        return Some(match first_word(name) {
            "ServerDoesNotSupportTls12Or13" | "ServerTlsVersionIsDisabledByOurConfig" | "Tls12NotOffered" => {
                "the server speaks neither TLS 1.2 nor TLS 1.3".into()
            }
            name => format!("the server's TLS is incompatible: {}", in_words(name)),
        });
    }
    if let Some(name) = after("peer misbehaved: ") {
        return Some(format!("the server breaks the TLS protocol: {}", in_words(first_word(name))));
    }
    if after("received unexpected").is_some_and(|rest| rest.contains("message")) {
        return Some("the server breaks the TLS protocol: an unexpected message".into());
    }
    let (_, sentence) = SENTENCES.iter().find(|(mark, _)| said.contains(mark))?;
    Some((*sentence).to_owned())
}

/// Appends advice to a sentence about an origin: the setting that helps, or that no setting does.
pub fn with_cure(said: String) -> String {
    match CURES.iter().find(|(mark, _)| said.contains(mark)) {
        Some((_, cure)) => format!("{said}; {cure}"),
        None => said,
    }
}

/// The error for a chain longer than [`crate::tls_provider::MAX_CHAIN`].
pub const LONG_CHAIN: &str = "the server's certificate chain is longer than 16 KiB";
pub const NO_TLS: &str = "the server does not speak TLS on this port";
pub const UNTRUSTED: &str = "the certificate's issuer is not trusted";
pub const BAD_SIGNATURE: &str = "a signature in the handshake or in the certificate chain is wrong";
pub const VERIFY_OFF: &str = "`verify: off` for this host in `hosts`, best with `pin`, accepts that";
const NO_CERTIFICATE_OF_OURS: &str = "the server requires a client certificate";
const REJECTS_OURS: &str = "the server rejects our client certificate";
const UNKNOWN_NAME: &str = "the server has no site of this name (unrecognised name)";
const NO_HTTP: &str = "the server does not speak any offered version of HTTP";
const OTHER_END: &str = "the server ended the TLS handshake (";

/// Parts of sentences about origins, each with the advice that [`with_cure`] appends.
const CURES: [(&str, &str); 9] = [
    (NO_CERTIFICATE_OF_OURS, "`client_certificate` for this host in `hosts` sends one"),
    (REJECTS_OURS, "set `client_certificate` for this host in `hosts` to one that the server accepts"),
    (UNTRUSTED, "`egress.ca_file` adds an authority of your own"),
    ("the certificate is a CA certificate", VERIFY_OFF),
    (LONG_CHAIN, "`intercept: tunnel` for this host in `hosts` leaves TLS to the client"),
    (NO_TLS, "if it speaks HTTP there, ask for `http://`"),
    (UNKNOWN_NAME, "no setting helps: request another host name"),
    (NO_HTTP, "no setting offers another version"),
    (OTHER_END, "its alert does not name the cause, and no setting is known to help"),
];

/// Parts of rustls' errors, with the sentence for each.
const SENTENCES: [(&str, &str); 5] = [
    // Only the server's certificate message can be longer than rustls accepts.
    ("PayloadTooLarge", LONG_CHAIN),
    ("received corrupt message", NO_TLS),
    ("peer sent no certificates", "the server sent no certificate"),
    ("keys may not be consistent", "the key does not belong to the certificate"),
    ("handshake eof", "the server closed the connection during the TLS handshake"),
];

/// Explains a TLS error as [`sentence`] does. Other errors keep their text.
pub fn in_plain(error: impl Display) -> String {
    let said = error.to_string();
    sentence(&said).unwrap_or(said)
}

/// Explains the alert by which a server ended a handshake.
pub fn alert(alert: AlertDescription) -> String {
    alert_named(&format!("{alert:?}"))
}

fn certificate(why: &str) -> String {
    let date = |mark: &str| {
        let (_, rest) = why.split_once(mark)?;
        let seconds = rest.split(' ').next()?.parse().ok()?;
        Some(OffsetDateTime::from_unix_timestamp(seconds).ok()?.date())
    };
    if why.starts_with("certificate expired")
        && let Some(date) = date("not valid after ")
    {
        return format!("the certificate expired on {date}");
    }
    if why.starts_with("certificate not valid yet")
        && let Some(date) = date("not valid before ")
    {
        return format!("the certificate is not valid before {date}; perhaps this machine's clock is slow: set it");
    }
    if let Some((name, presented)) =
        why.strip_prefix("certificate not valid for name \"").and_then(|rest| rest.split_once("\"; certificate is "))
    {
        return match presented.strip_prefix("only valid for ") {
            Some(names) => format!("the certificate is not valid for {name}, only for {}", plain(names)),
            None => format!("the certificate is not valid for {name}: it names no host"),
        };
    }
    if let Some((required, _)) =
        why.strip_prefix("certificate does not allow extended key usage for ").and_then(|rest| rest.split_once(','))
    {
        return format!("the certificate is not meant for {required}");
    }
    match why.trim_end_matches(')').rsplit('(').next().map(first_word).unwrap_or_default() {
        "UnknownIssuer" => UNTRUSTED.into(),
        "CaUsedAsEndEntity" => {
            "the certificate is a CA certificate, as self-signed ones often are, and is not trusted".into()
        }
        "Expired" => "the certificate has expired".into(),
        "NotValidYet" => "the certificate is not valid yet; perhaps this machine's clock is slow: set it".into(),
        "NotValidForName" => "the certificate is not valid for this host".into(),
        "Revoked" => "the certificate has been revoked".into(),
        "BadEncoding" => "the certificate cannot be read".into(),
        "BadSignature" => BAD_SIGNATURE.into(),
        "UnhandledCriticalExtension" => "the certificate has an unknown critical extension".into(),
        "InvalidPurpose" => "the certificate is not meant for servers".into(),
        _ if why.starts_with("UnsupportedSignatureAlgorithm") => {
            "the certificate is signed with an algorithm that is not supported".into()
        }
        name => format!("the certificate is not accepted: {}", in_words(name)),
    }
}

/// Extracts the names from `DnsName("a.example"), DnsName("b.example") or IpAddress(192.0.2.1)`, at most the first eight.
fn plain(names: &str) -> String {
    let all = names.replace("DnsName(\"", "").replace("IpAddress(", "").replace("\")", "").replace(')', "");
    match all.match_indices(", ").nth(NAMES) {
        Some((end, _)) => format!("{} and others", &all[..end]),
        None => all,
    }
}

/// Index of the separator at which the list is cut, so that eight names are left.
const NAMES: usize = 7;

/// Explains an alert (RFC 8446 §6.2) by its name in rustls.
fn alert_named(name: &str) -> String {
    match name {
        "CertificateRequired" => NO_CERTIFICATE_OF_OURS.into(),
        "BadCertificate"
        | "UnsupportedCertificate"
        | "CertificateRevoked"
        | "CertificateExpired"
        | "CertificateUnknown"
        | "UnknownCA" => format!("{REJECTS_OURS} ({})", in_words(name)),
        "ProtocolVersion" => "the server speaks neither TLS 1.2 nor TLS 1.3".into(),
        "HandshakeFailure" | "InsufficientSecurity" => {
            let alert = in_words(name);
            format!("the server refuses the TLS parameters, or requires a client certificate ({alert})")
        }
        "UnrecognisedName" => UNKNOWN_NAME.into(),
        "NoApplicationProtocol" => NO_HTTP.into(),
        name => format!("{OTHER_END}{})", in_words(name)),
    }
}

/// Splits a name in camel case into words: `UnknownCA` becomes `unknown ca`.
fn in_words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    let mut was_small = false;
    for c in name.chars() {
        if was_small && c.is_ascii_uppercase() {
            words.push(' ');
        }
        was_small = !c.is_ascii_uppercase();
        words.push(c.to_ascii_lowercase());
    }
    words
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{CertificateError as Fault, Error, OtherError, PeerIncompatible, PeerMisbehaved};
    use std::sync::Arc;
    use std::time::Duration;

    fn sentence_for(error: Error) -> String {
        let alone = sentence(&error.to_string()).unwrap_or_else(|| panic!("no words for {error}"));
        assert!(!alone.contains(|c: char| "{}\"".contains(c)), "{alone}");
        let is_camel =
            |word: &str| word.chars().skip(1).any(|c| c.is_uppercase()) && !["TLS", "HTTP", "KiB"].contains(&word);
        assert!(!alone.split(|c: char| !c.is_alphanumeric()).any(is_camel), "{alone}");
        alone
    }

    fn at(day: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(day * 86_400))
    }

    #[test]
    fn certificate_fault_is_a_sentence() {
        let name = |presented: &[&str]| Fault::NotValidForNameContext {
            expected: ServerName::try_from("a.example").unwrap(),
            presented: presented.iter().map(ToString::to_string).collect(),
        };
        let other = |error: rustls::server::VerifierBuilderError| Fault::Other(OtherError(Arc::new(error)));
        for (fault, wanted) in [
            (
                Fault::ExpiredContext { time: at(20_000), not_after: at(19_000) },
                "the certificate expired on 2022-01-08",
            ),
            (
                Fault::NotValidYetContext { time: at(19_000), not_before: at(20_000) },
                "the certificate is not valid before 2024-10-04; perhaps this machine's clock is slow: set it",
            ),
            (
                name(&["DnsName(\"b.example\")", "DnsName(\"c.example\")", "IpAddress(192.0.2.1)"]),
                "the certificate is not valid for a.example, only for b.example, c.example or 192.0.2.1",
            ),
            (name(&["DnsName(\"b.example\")"]), "the certificate is not valid for a.example, only for b.example"),
            (name(&[]), "the certificate is not valid for a.example: it names no host"),
            (Fault::UnknownIssuer, "the certificate's issuer is not trusted"),
            (Fault::Expired, "the certificate has expired"),
            (Fault::NotValidForName, "the certificate is not valid for this host"),
            (Fault::Revoked, "the certificate has been revoked"),
            (Fault::BadEncoding, "the certificate cannot be read"),
            (Fault::BadSignature, "a signature in the handshake or in the certificate chain is wrong"),
            (Fault::UnhandledCriticalExtension, "the certificate has an unknown critical extension"),
            (Fault::InvalidPurpose, "the certificate is not meant for servers"),
            (
                Fault::InvalidPurposeContext {
                    required: rustls::ExtendedKeyPurpose::ServerAuth,
                    presented: vec![rustls::ExtendedKeyPurpose::ClientAuth],
                },
                "the certificate is not meant for server authentication",
            ),
            (
                Fault::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![1],
                    public_key_algorithm_id: vec![2],
                },
                "the certificate is signed with an algorithm that is not supported",
            ),
            (Fault::UnknownRevocationStatus, "the certificate is not accepted: unknown revocation status"),
            (
                other(rustls::server::VerifierBuilderError::NoRootAnchors),
                "the certificate is not accepted: no root anchors",
            ),
        ] {
            assert_eq!(sentence_for(Error::InvalidCertificate(fault)), wanted);
        }
        let of_authority = "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))";
        assert!(sentence(of_authority).unwrap().contains("self-signed"));
    }

    #[test]
    fn handshake_failure_is_a_sentence() {
        for alert in 0..=u8::MAX {
            sentence_for(Error::AlertReceived(AlertDescription::from(alert)));
        }
        let alert = |alert| sentence_for(Error::AlertReceived(alert));
        assert_eq!(alert(AlertDescription::CertificateRequired), "the server requires a client certificate");
        assert_eq!(alert(AlertDescription::UnknownCA), "the server rejects our client certificate (unknown ca)");
        assert_eq!(alert(AlertDescription::InternalError), "the server ended the TLS handshake (internal error)");
        for (error, wanted) in [
            (
                Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
                "the server speaks neither TLS 1.2 nor TLS 1.3",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "the server's TLS is incompatible: no cipher suites in common",
            ),
            (
                Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments),
                "the server breaks the TLS protocol: too many empty fragments",
            ),
            (
                Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
                "the server does not speak TLS on this port",
            ),
            (
                Error::InvalidMessage(rustls::InvalidMessage::HandshakePayloadTooLarge),
                "the server's certificate chain is longer than 16 KiB",
            ),
            (
                Error::InvalidMessage(rustls::InvalidMessage::CertificatePayloadTooLarge),
                "the server's certificate chain is longer than 16 KiB",
            ),
            (Error::NoCertificatesPresented, "the server sent no certificate"),
            (
                Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch),
                "the key does not belong to the certificate",
            ),
        ] {
            assert_eq!(sentence_for(error), wanted);
        }
        assert_eq!(sentence("connection reset by peer"), None);
    }
}
