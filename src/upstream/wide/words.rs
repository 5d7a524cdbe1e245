//! OpenSSL's handshake errors as sentences for people, with advice.

use crate::policy::Host;
use crate::tls_words;
use crate::upstream::dial_error::{DialError, DialFault};
use openssl::ssl::{self, SslRef};
use openssl::x509::{X509Ref, X509VerifyResult};
use rustls::AlertDescription;

/// Why TLS with the host failed. `verify`, `legacy`: from its terms.
pub(super) fn of(error: &ssl::Error, ssl: &SslRef, host: &Host, verify: bool, legacy: bool) -> DialError {
    let verified = ssl.verify_result();
    let (kind, why) = if verify && verified != X509VerifyResult::OK {
        (DialFault::Certificate, certificate(verified, shown(ssl), host, legacy))
    } else if let Some(reason) = error.ssl_error().and_then(|stack| stack.errors().first()) {
        let text = reason.reason().unwrap_or("unknown reason");
        match u8::try_from(reason.reason_code() - ALERTS) {
            Ok(alert) if reason.reason_code() > ALERTS => of_alert(AlertDescription::from(alert), legacy),
            Ok(_) | Err(_) => (DialFault::Tls, of_reason(text, legacy)),
        }
    } else {
        let why = match error.io_error() {
            Some(error) => format!("the connection failed: {error}"),
            None => CLOSED.to_owned(),
        };
        (DialFault::Tls, why)
    };
    DialError::new(kind, format!("TLS handshake failed: {why}"))
}

fn of_alert(alert: AlertDescription, legacy: bool) -> (DialFault, String) {
    let why = match alert {
        AlertDescription::NoApplicationProtocol => return (DialFault::Alpn, tls_words::alert(alert)),
        AlertDescription::ProtocolVersion => old_version(legacy),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity if !legacy => format!(
            "{}, even with the wider choice of OpenSSL; in `hosts`, `client_certificate` shows one, and `tls: legacy` \
             offers old parameters",
            tls_words::alert(alert)
        ),
        _ => tls_words::alert(alert),
    };
    (DialFault::Alert, why)
}

/// For what this side did not accept.
fn of_reason(reason: &str, legacy: bool) -> String {
    let weak = |what: &str| match legacy {
        true => what.to_owned(),
        false => format!("{what}; `tls: legacy` for this host in `hosts` accepts that"),
    };
    match reason {
        "unsupported protocol" => old_version(legacy),
        "dh key too small" => weak("the server's Diffie-Hellman key is shorter than 2048 bits"),
        "ee key too small" | "ca key too small" => weak("a key in the server's certificate chain is too short"),
        "ca md too weak" => weak("a certificate in the chain is signed with a broken hash, such as SHA-1"),
        "wrong signature type" => weak("the server signs with an algorithm that is too weak, such as SHA-1"),
        "modulus too large" => "the server's Diffie-Hellman group has 3072 bits or more, which takes too long".into(),
        "excessive message size" => tls_words::LONG_CHAIN.into(),
        "wrong cipher returned" | "unknown cipher returned" => {
            "the server chose a cipher suite that was not offered".into()
        }
        "wrong curve" | "bad ecpoint" | "unsupported elliptic curve" | "bad key share" => {
            "the server chose a group that was not offered".into()
        }
        "wrong version number" | "packet length too long" | "http request" => {
            "the server does not speak TLS on this port".into()
        }
        "unexpected eof while reading" => CLOSED.into(),
        reason => format!("unexpected TLS from the server: {reason}"),
    }
}

fn old_version(legacy: bool) -> String {
    match legacy {
        true => "the server speaks no version of TLS from 1.0 to 1.3".into(),
        false => "the server speaks neither TLS 1.2 nor TLS 1.3; `tls: legacy` for this host in `hosts` allows TLS 1.0 and 1.1"
            .into(),
    }
}

/// The origin's certificate, even if not accepted.
fn shown(ssl: &SslRef) -> Option<&X509Ref> {
    ssl.peer_cert_chain()?.iter().next()
}

fn certificate(fault: X509VerifyResult, shown: Option<&X509Ref>, host: &Host, legacy: bool) -> String {
    let weak = |what: &str| match legacy {
        true => what.to_owned(),
        false => format!("{what}; `tls: legacy` for this host in `hosts` accepts that"),
    };
    match fault.as_raw() {
        // X509_V_ERR_…: UNABLE_TO_GET_ISSUER_CERT, …_LOCALLY, UNABLE_TO_VERIFY_LEAF_SIGNATURE, SELF_SIGNED_CERT_IN_CHAIN.
        2 | 19 | 20 | 21 => "the certificate's issuer is not trusted".into(),
        // DEPTH_ZERO_SELF_SIGNED_CERT
        18 => "the certificate is self-signed, and not trusted".into(),
        // CERT_NOT_YET_VALID
        9 => "the certificate is not valid yet; perhaps this machine's clock is slow: set it".into(),
        // CERT_HAS_EXPIRED
        10 => "the certificate has expired".into(),
        // INVALID_PURPOSE
        26 => "the certificate is not meant for servers".into(),
        // HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH
        62 | 64 => match shown.map(names).filter(|names| !names.is_empty()) {
            Some(names) => format!("the certificate is not valid for {host}, only for {}", names.join(", ")),
            None => format!("the certificate is not valid for {host}: it names no host"),
        },
        // EE_KEY_TOO_SMALL, CA_KEY_TOO_SMALL
        66 | 67 => weak("a key in the server's certificate chain is too short"),
        // CA_MD_TOO_WEAK
        68 => weak("a certificate in the chain is signed with a broken hash, such as SHA-1"),
        _ => format!("the certificate is not accepted: {}", fault.error_string()),
    }
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

const CLOSED: &str = "the server closed the connection during the TLS handshake";
/// OpenSSL's offset for the numbers of received alerts.
const ALERTS: i32 = 1000;
