//! Configured identities in TLS: the certificate that we present to an origin, and the key that the origin must have.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, Error};

/// The client certificate for an origin.
pub(super) struct ShownIdentity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// SHA-256 of the SubjectPublicKeyInfo (RFC 7469 §2.4).
pub(super) fn key_digest(certificate: &CertificateDer<'_>) -> Result<[u8; 32], Error> {
    let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| bad())?;
    let digest = ::ring::digest::digest(&::ring::digest::SHA256, parsed.public_key().raw);
    digest.as_ref().try_into().map_err(|_| bad())
}

#[derive(Debug, thiserror::Error)]
#[error("the certificate's key is not pinned for this host")]
pub(super) struct PinMismatch;
