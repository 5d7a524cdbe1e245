//! Who each side of TLS says it is, where that has been configured: what an origin is shown, and the key that it has to show.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, Error};

/// What an origin is shown.
pub(super) struct ShownIdentity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// Of the SubjectPublicKeyInfo (RFC 7469 §2.4).
pub(super) fn key_digest(certificate: &CertificateDer<'_>) -> Result<[u8; 32], Error> {
    let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| bad())?;
    let digest = ::ring::digest::digest(&::ring::digest::SHA256, parsed.public_key().raw);
    digest.as_ref().try_into().map_err(|_| bad())
}

#[derive(Debug, thiserror::Error)]
#[error("its key is none of those that are pinned for this host")]
pub(super) struct PinMismatch;
