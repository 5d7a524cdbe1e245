//! The certificate authority whose leaves clients are shown: made on first use, or the operator's own.
//! Called by `server` and `cli`; `leaf` signs with it.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::config::{CaSource, state_directory};

use super::error::CaError;
use super::keep::{self, fault};

/// The files of one that we made, in its directory.
pub const CERTIFICATE: &str = "ca.pem";
pub const KEY: &str = "ca.key";

/// A certificate authority, ready to sign.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    /// What servers show beside a leaf; a root is left out, as clients have it.
    chain: Vec<CertificateDer<'static>>,
    anchor: CertificateDer<'static>,
    anchor_pem: String,
    path: PathBuf,
    validity: (OffsetDateTime, OffsetDateTime),
}

impl Ca {
    /// The one that the configuration names; `Directory(None)` is `ca` below the state directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn configured(source: &CaSource) -> Result<Self, CaError> {
        match source {
            CaSource::Directory(directory) => {
                Self::open_or_create(&directory.clone().unwrap_or_else(default_directory))
            }
            CaSource::Files { certificate, key } => Self::open(certificate, key),
        }
    }

    /// Opens the one in this directory, or makes it: `ca.pem` and `ca.key`. Any number of processes may do so at once;
    /// all get the same one.
    ///
    /// # Errors
    /// As [`Self::open`], and when nothing can be made there.
    pub fn open_or_create(directory: &Path) -> Result<Self, CaError> {
        let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
        if !is_there(&certificate)? {
            keep::directory(directory)?;
            let _lock = keep::lock(directory)?;
            if !is_there(&certificate)? {
                create(&certificate, &key)?;
            }
        }
        if !is_there(&key)? {
            return Err(CaError::KeyMissing { certificate, key });
        }
        keep::directory(directory)?;
        Self::open(&certificate, &key)
    }

    /// Opens a certificate, whose intermediates and root may follow it in the file, and its key (PKCS #8), both PEM.
    ///
    /// # Errors
    /// Either cannot be read or used, others can read the key, or they do not belong together.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, CaError> {
        let unusable = |why: &str| CaError::CertificateUnusable { path: certificate.to_owned(), why: why.to_owned() };
        let text = fs::read(certificate).map_err(fault(certificate, "read"))?;
        let mut all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(&format!("it is not PEM: {error}")))?;
        let key_pair = load_key(key)?;
        let parsed = all.iter().map(|der| parse(der)).collect::<Option<Vec<_>>>();
        let parsed = parsed.ok_or_else(|| unusable("a certificate in it is broken"))?;
        if parsed.is_empty() {
            return Err(unusable("there is no certificate in it"));
        }
        let ours = parsed.iter().position(|x509| x509.public_key().subject_public_key.data == key_pair.der_bytes());
        let Some(ours) = ours else {
            return Err(CaError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() });
        };
        may_sign(&parsed[ours]).map_err(unusable)?;
        let validity = &parsed[ours].validity;
        let validity = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
        let is_root: Vec<bool> = parsed.iter().map(|x509| x509.subject() == x509.issuer()).collect();
        drop(parsed);
        let issuer = Issuer::from_ca_cert_der(&all[ours], key_pair);
        let issuer = issuer.map_err(|_| unusable("its name has parts that cannot be repeated in a leaf"))?;
        let root = is_root.iter().position(|root| *root);
        let anchor = all[root.unwrap_or(ours)].clone();
        // The issuer first, then the others in their order, roots left out.
        all[..=ours].rotate_right(1);
        let mut is_root = is_root;
        is_root[..=ours].rotate_right(1);
        let chain = all.into_iter().zip(is_root).filter(|(_, root)| !root).map(|(der, _)| der).collect();
        Ok(Self { issuer, chain, anchor_pem: to_pem(&anchor), anchor, path: certificate.to_owned(), validity })
    }

    /// The certificate that clients have to trust, PEM: the root, if it is known.
    pub fn cert_pem(&self) -> &str {
        &self.anchor_pem
    }

    /// The same, DER.
    pub fn cert_der(&self) -> &CertificateDer<'static> {
        &self.anchor
    }

    /// The certificate's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A few digits that tell this authority from others: the end of the serial of [`Self::cert_der`].
    pub fn mark(&self) -> String {
        parse(&self.anchor).map(|x509| mark(x509.raw_serial())).unwrap_or_default()
    }

    /// When its leaves begin and cease to be valid at the latest.
    pub fn validity(&self) -> (OffsetDateTime, OffsetDateTime) {
        self.validity
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where ours is when the configuration names no place.
pub fn default_directory() -> PathBuf {
    state_directory().join("ca")
}

/// A certificate as PEM.
pub(super) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let block = ::pem::Pem::new("CERTIFICATE", certificate.as_ref());
    ::pem::encode_config(&block, ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF))
}

fn is_there(path: &Path) -> Result<bool, CaError> {
    path.try_exists().map_err(fault(path, "read"))
}

/// The key first: a certificate without it would be of no use, a key without its certificate gets one the next time.
fn create(certificate: &Path, key: &Path) -> Result<(), CaError> {
    let key_pair = if is_there(key)? {
        load_key(key)?
    } else {
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        keep::write(key, &key_pair.serialize_pem(), 0o600)?;
        key_pair
    };
    let made = parameters(OffsetDateTime::now_utc())?.self_signed(&key_pair)?;
    keep::write(certificate, &made.pem(), 0o644)
}

fn parameters(now: OffsetDateTime) -> Result<CertificateParams, CaError> {
    let serial = super::serial()?;
    // Two of one machine and day differ by it.
    let mark = mark(&serial.to_bytes());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "politely");
    let name = format!("politely {} {} {mark}", host_name(), now.date());
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(serial);
    params.not_before = now - Duration::DAY;
    params.not_after = now + YEARS;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn mark(serial: &[u8]) -> String {
    serial.iter().skip(serial.len().saturating_sub(4)).map(|octet| format!("{octet:02x}")).collect()
}

fn load_key(path: &Path) -> Result<KeyPair, CaError> {
    let unusable = |why, hint| CaError::KeyUnusable { path: path.to_owned(), why, hint };
    let text = keep::read_key(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(PrivateKeyDer::Pkcs8(key)) => KeyPair::try_from(&key).map_err(|_| {
            unusable(
                "its kind is not known",
                "take an ECDSA key (P-256, P-384), an Ed25519 key, or an RSA key of 2048 bits up",
            )
        }),
        Ok(_) => Err(unusable(
            "it is not in the form PKCS #8",
            "convert it: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW; chmod 600 NEW",
        )),
        Err(pem::Error::NoItemsFound) if text.windows(9).any(|part| part == b"ENCRYPTED") => Err(unusable(
            "it is encrypted",
            "decrypt it: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW; chmod 600 NEW",
        )),
        Err(_) => Err(unusable("there is no private key in it", "a PEM file: `-----BEGIN PRIVATE KEY-----` …")),
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, x509)| x509)
}

fn may_sign(x509: &X509Certificate<'_>) -> Result<(), &'static str> {
    if !x509.is_ca() {
        return Err("it is no certificate of an authority");
    }
    let usage = x509.key_usage().map_err(|_| "its key usage is broken")?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err("it may not sign certificates");
    }
    let now = OffsetDateTime::now_utc();
    if x509.validity().not_after.to_datetime() <= now {
        return Err("it has expired");
    }
    if x509.validity().not_before.to_datetime() > now {
        return Err("it is not yet valid");
    }
    Ok(())
}

/// This machine's name, as far as it fits into a certificate's.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(32).collect();
    if plain.is_empty() { String::from("localhost") } else { plain }
}

const YEARS: Duration = Duration::days(3650);
