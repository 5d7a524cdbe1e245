//! OpenSSL's handshake errors as sentences for people, with advice.

use super::bounds::legacy_fault;
use crate::policy::Host;
use crate::tls_words::{self, with_cure};
use crate::upstream::dial_error::{DialError, DialFault};
use openssl::ssl::{self, SslRef};
use openssl::x509::{X509Ref, X509VerifyResult};
use rustls::AlertDescription;

/// The TLS terms of a host that a sentence depends on.
pub(super) struct SentenceTerms {
    pub verify: bool,
    pub legacy: bool,
    pub has_certificate: bool,
}

/// Why TLS with the host failed.
pub(super) fn of(error: &ssl::Error, ssl: &SslRef, host: &Host, terms: &SentenceTerms) -> DialError {
    let verified = ssl.verify_result();
    let (kind, why) = if terms.verify && verified != X509VerifyResult::OK {
        (DialFault::Certificate, certificate(verified, ssl, host, terms.legacy))
    } else if let Some(reason) = error.ssl_error().and_then(|stack| stack.errors().first()) {
        let text = reason.reason().unwrap_or("unknown reason");
        match u8::try_from(reason.reason_code() - ALERTS) {
            Ok(alert) if reason.reason_code() > ALERTS => {
                of_alert(AlertDescription::from(alert), shown(ssl).is_some(), terms)
            }
            Ok(_) | Err(_) => (DialFault::Tls, of_reason(text, terms.legacy)),
        }
    } else {
        let why = match error.io_error() {
            Some(error) => format!("the connection failed: {error}"),
            None => closed(terms.legacy),
        };
        (DialFault::Tls, why)
    };
    DialError::new(kind, format!("TLS handshake failed: {}", with_cure(why)))
}

/// The sentence for an alert from the server. `is_agreed`: the server had chosen the parameters and sent its certificate.
fn of_alert(alert: AlertDescription, is_agreed: bool, terms: &SentenceTerms) -> (DialFault, String) {
    let why = match alert {
        AlertDescription::NoApplicationProtocol => return (DialFault::Alpn, tls_words::alert(alert)),
        AlertDescription::ProtocolVersion => old_version(terms.legacy),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity if is_agreed => {
            tls_words::alert(match terms.has_certificate {
                true => AlertDescription::BadCertificate,
                false => AlertDescription::CertificateRequired,
            })
        }
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => format!(
            "the server accepts none of the TLS parameters offered, or has no site of this name; {}no setting offers more, \
             such as RC4, 3DES, DSA or anonymous suites",
            if terms.legacy {
                ""
            } else {
                "`tls: legacy` for this host in `hosts` offers TLS 1.0, TLS 1.1 and SHA-1; "
            }
        ),
        _ => tls_words::alert(alert),
    };
    (DialFault::Alert, why)
}

/// The sentence for an error that OpenSSL found on this side.
fn of_reason(reason: &str, legacy: bool) -> String {
    let weak = |what: &str| match legacy {
        true => format!("{what}, which no setting accepts"),
        false => format!("{what}; {LEGACY_ACCEPTS}"),
    };
    match reason {
        "unsupported protocol" => old_version(legacy),
        "dh key too small" => weak("the server's Diffie-Hellman key is shorter than 2048 bits"),
        "modulus too large" => {
            "the server's Diffie-Hellman key is longer than 4096 bits, which no setting accepts".into()
        }
        "wrong signature type" | "legacy sigalg disallowed or unsupported" => {
            weak("the server signs with an algorithm that is too weak, such as SHA-1")
        }
        "excessive message size" => tls_words::LONG_CHAIN.into(),
        "wrong cipher returned" | "unknown cipher returned" => {
            "the server chose a cipher suite that was not offered, such as RC4 or 3DES, which no setting allows".into()
        }
        "wrong curve" | "bad ecpoint" | "unsupported elliptic curve" | "bad key share" => {
            "the server chose a key exchange group that was not offered, and that no setting allows".into()
        }
        "bad signature" => tls_words::BAD_SIGNATURE.into(),
        "wrong version number" | "packet length too long" | "http request" => tls_words::NO_TLS.into(),
        "unexpected eof while reading" => closed(legacy),
        reason => format!("unexpected TLS from the server: {reason}; no setting is known to help"),
    }
}

fn old_version(legacy: bool) -> String {
    match legacy {
        true => "the server speaks no version of TLS from 1.0 to 1.3, and no setting allows older ones".into(),
        false => "the server speaks neither TLS 1.2 nor TLS 1.3; `tls: legacy` for this host in `hosts` allows TLS 1.0 and 1.1"
            .into(),
    }
}

fn closed(legacy: bool) -> String {
    let cure = match legacy {
        true => "no setting is known to help",
        false => "`tls: legacy` for this host in `hosts` helps if it speaks only TLS 1.0 or 1.1",
    };
    format!("the server closed the connection during the TLS handshake; {cure}")
}

/// The origin's certificate, even if not accepted.
fn shown(ssl: &SslRef) -> Option<&X509Ref> {
    ssl.peer_cert_chain()?.iter().next()
}

fn certificate(fault: X509VerifyResult, ssl: &SslRef, host: &Host, legacy: bool) -> String {
    let weak = |what: &str| {
        let cure = if !legacy && is_for_legacy(ssl) { LEGACY_ACCEPTS } else { tls_words::VERIFY_OFF };
        format!("{what}; {cure}")
    };
    match fault.as_raw() {
        // X509_V_ERR_…: UNABLE_TO_GET_ISSUER_CERT, …_LOCALLY, UNABLE_TO_VERIFY_LEAF_SIGNATURE, SELF_SIGNED_CERT_IN_CHAIN.
        2 | 19 | 20 | 21 => tls_words::UNTRUSTED.into(),
        // CERT_SIGNATURE_FAILURE
        7 => tls_words::BAD_SIGNATURE.into(),
        // DEPTH_ZERO_SELF_SIGNED_CERT
        18 => format!("the certificate is self-signed, and not trusted; {}", tls_words::VERIFY_OFF),
        // CERT_NOT_YET_VALID
        9 => "the certificate is not valid yet; perhaps this machine's clock is slow: set it".into(),
        // CERT_HAS_EXPIRED
        10 => "the certificate has expired".into(),
        // INVALID_PURPOSE
        26 => "the certificate is not meant for servers".into(),
        // HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH
        62 | 64 => match shown(ssl).map(names).filter(|names| !names.is_empty()) {
            Some(names) => format!("the certificate is not valid for {host}, only for {}", names.join(", ")),
            None => format!("the certificate is not valid for {host}: it names no host"),
        },
        // EE_KEY_TOO_SMALL, CA_KEY_TOO_SMALL
        66 | 67 => weak("a key in the server's certificate chain is too short"),
        // CA_MD_TOO_WEAK
        68 => weak("a certificate in the chain is signed with a broken hash, such as MD5 or SHA-1"),
        _ => format!("the certificate is not accepted: {}", fault.error_string()),
    }
}

/// Whether `tls: legacy` accepts the keys and signatures of the chain as sent.
fn is_for_legacy(ssl: &SslRef) -> bool {
    let is_self_signed = |shown: &X509Ref| shown.issued(shown) == X509VerifyResult::OK;
    let mut chain = ssl.peer_cert_chain().into_iter().flatten().zip(0..);
    chain.all(|(shown, depth)| {
        let is_root = is_self_signed(shown);
        !(is_root && depth == 0) && legacy_fault(shown, depth, is_root).is_none()
    })
}

/// The names that the certificate is valid for.
fn names(certificate: &X509Ref) -> Vec<String> {
    let named = certificate.subject_alt_names().into_iter().flatten();
    let named: Vec<_> = named.filter_map(|name| name.dnsname().map(str::to_owned)).collect();
    if !named.is_empty() {
        return named;
    }
    let common = certificate.subject_name().entries_by_nid(openssl::nid::Nid::COMMONNAME);
    common.filter_map(|entry| entry.data().to_string().ok()).collect()
}

const LEGACY_ACCEPTS: &str = "`tls: legacy` for this host in `hosts` accepts that";
/// OpenSSL's offset for the numbers of received alerts.
const ALERTS: i32 = 1000;
