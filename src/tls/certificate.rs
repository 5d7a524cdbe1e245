//! Reads a certificate, writes it as PEM, and formats its mark and dates for people.

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use time::macros::format_description;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

pub(super) fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, x509)| x509)
}

pub(super) fn may_sign(x509: &X509Certificate<'_>) -> Result<(), &'static str> {
    if !x509.is_ca() {
        return Err("it is not a CA certificate");
    }
    let usage = x509.key_usage().map_err(|_| "its key usage is malformed")?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err("it may not sign certificates");
    }
    Ok(())
}

/// The trust anchor in this PEM text of an authority, which its clients have to trust: the root certificate if the text contains it, or
/// else the first certificate.
pub(super) fn anchor_in(pem: &[u8]) -> Option<CertificateDer<'static>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    let is_root = |der: &&CertificateDer<'_>| parse(der).is_some_and(|x509| x509.subject() == x509.issuer());
    all.iter().find(is_root).or(all.first()).cloned()
}

/// A certificate as PEM.
pub(super) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let block = ::pem::Pem::new("CERTIFICATE", certificate.as_ref());
    ::pem::encode_config(&block, ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF))
}

/// Short identifier of a certificate: the end of its serial.
pub(super) fn mark(serial: &[u8]) -> String {
    HEXLOWER.encode(&serial[serial.len().saturating_sub(4)..])
}

/// A date for people, to the minute.
pub(super) fn shown(at: OffsetDateTime) -> String {
    at.format(format_description!("[year]-[month]-[day] [hour]:[minute] UTC")).unwrap_or_else(|_| at.to_string())
}
