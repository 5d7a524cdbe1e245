//! TLS terms for an origin: `pin`, `client_certificate`, `verify` and `tls` of `hosts`.

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use serde::Deserializer;

use super::text::{self, from_text};
use crate::config::read::error::Complaint;

/// TLS terms for an origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OriginTls {
    /// Pinned keys; the certificate must have one of them. Empty: no pinning.
    pub pins: Vec<Pin>,
    pub client_certificate: Option<CertificatePair>,
    /// Whether to verify the certificate.
    pub verify: bool,
    /// Whether to allow TLS 1.0 and 1.1, and equally old parameters.
    pub legacy: bool,
}

impl Default for OriginTls {
    fn default() -> Self {
        Self { pins: Vec::new(), client_certificate: None, verify: true, legacy: false }
    }
}

/// The versions of TLS allowed for an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsVersions {
    /// 1.2 and 1.3.
    Current,
    /// 1.0 and 1.1 as well.
    Legacy,
}

/// A certificate with its chain and its key, PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificatePair {
    #[serde(deserialize_with = "text::one")]
    pub certificate: PathBuf,
    #[serde(deserialize_with = "text::one")]
    pub key: PathBuf,
}

/// The SHA-256 of an expected public key (RFC 7469 §2.4), written `sha256/…` in Base64.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin(pub [u8; 32]);

impl Pin {
    /// # Errors
    /// The text is not `sha256/` followed by 32 bytes in Base64.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        let digest = text.strip_prefix("sha256/").and_then(|coded| BASE64_STANDARD.decode(coded).ok());
        let digest = digest.and_then(|digest| digest.try_into().ok());
        digest.map(Self).ok_or_else(|| Complaint::new(format!("`{text}` is not a pin"), PIN_FORMS))
    }
}

fn parse_switch(text: &str) -> Result<bool, Complaint> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Complaint::new(format!("`{text}` is neither `on` nor `off`"), SWITCH_FORMS)),
    }
}

from_text! {
    Pin, "a pin", PIN_FORMS, Self::parse;
    bool, "`on` or `off`", SWITCH_FORMS, parse_switch;
}

/// Reads one pin or a list of pins, for `#[serde(deserialize_with)]`.
pub(in crate::config) fn some_pins<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Pin>>, D::Error> {
    text::many(deserializer).map(Some)
}

const PIN_FORMS: &str = "write `sha256/…`, the Base64 of the key's SHA-256: `openssl x509 -pubkey -noout | openssl pkey \
    -pubin -outform der | openssl dgst -sha256 -binary | base64`";
const SWITCH_FORMS: &str = "write `on` or `off`";
