//! The directory of a certificate authority of our own: it is made on first use, another is prepared beside it and put in its
//! place. Any number of processes may do so at once.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::Ca;
use crate::tls::certificate::{mark, parse};
use crate::tls::error::CaError;
use crate::tls::secret_file::{self, fault};
use crate::tls::serial;

/// The files of one that we made, in its directory.
pub const CERTIFICATE: &str = "ca.pem";
pub const KEY: &str = "ca.key";
/// Added to the names of one that clients are to trust before it signs, and of one that has signed.
pub(super) const NEXT: &str = "next";
pub(super) const OLD: &str = "old";

impl Ca {
    /// Opens the one in this directory, or makes it: `ca.pem` and `ca.key`. Any number of processes may do so at once;
    /// all get the same one.
    ///
    /// # Errors
    /// As [`Self::open`], and when nothing can be made there.
    pub fn open_or_create(directory: &Path) -> Result<Self, CaError> {
        Self::open_or_create_at(directory, OffsetDateTime::now_utc())
    }

    pub(super) fn open_or_create_at(directory: &Path, now: OffsetDateTime) -> Result<Self, CaError> {
        let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
        if !is_there(&certificate)? || is_halfway(directory)? {
            secret_file::directory(directory)?;
            let _lock = secret_file::lock(directory)?;
            settle(directory)?;
            if !is_there(&certificate)? {
                create(&certificate, &key, now)?;
            }
        }
        if !is_there(&key)? {
            return Err(CaError::KeyMissing { certificate, key });
        }
        secret_file::directory(directory)?;
        Self::open_at(&certificate, &key, now)
    }

    /// Makes the one that is to follow the one in this directory: clients are to trust both from now on. `false`: there is
    /// one already.
    ///
    /// # Errors
    /// Nothing can be made there.
    pub fn prepare(directory: &Path) -> Result<bool, CaError> {
        secret_file::directory(directory)?;
        let _lock = secret_file::lock(directory)?;
        settle(directory)?;
        let [certificate, key] = next(directory);
        if is_there(&certificate)? && is_there(&key)? {
            return Ok(false);
        }
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let made = parameters(OffsetDateTime::now_utc())?.self_signed(&key_pair)?;
        // In this order: the key alone is what is left of one that is taking its place.
        secret_file::write(&certificate, made.pem(), 0o644)?;
        secret_file::write(&key, key_pair.serialize_pem(), 0o600)?;
        Ok(true)
    }

    /// Puts the one that was prepared, or a new one, in place of the one in this directory, whose files stay beside it as
    /// `ca.pem.old` and `ca.key.old`.
    ///
    /// # Errors
    /// As [`Self::open_or_create`].
    pub fn rotate(directory: &Path) -> Result<Self, CaError> {
        Self::prepare(directory)?;
        {
            let _lock = secret_file::lock(directory)?;
            for file in [CERTIFICATE, KEY].map(|name| directory.join(name)) {
                if is_there(&file)? {
                    let old = file.with_added_extension(OLD);
                    fs::remove_file(&old).or_else(only_missing).map_err(fault(&old, "removed"))?;
                    // It stays in its place until another is put there.
                    fs::hard_link(&file, &old).map_err(fault(&old, "made"))?;
                }
            }
            let [certificate, _] = next(directory);
            let place = directory.join(CERTIFICATE);
            fs::rename(&certificate, &place).map_err(fault(&place, "written"))?;
            settle(directory)?;
        }
        Self::open_or_create(directory)
    }

    /// Whether one has been prepared in this directory.
    pub fn is_prepared(directory: &Path) -> bool {
        next(directory).iter().all(|file| file.exists())
    }
}

/// The files of the one that is to follow.
pub(super) fn next(directory: &Path) -> [PathBuf; 2] {
    [CERTIFICATE, KEY].map(|name| directory.join(name).with_added_extension(NEXT))
}

/// Whether one that was to follow has its certificate in place, and its key not yet.
fn is_halfway(directory: &Path) -> Result<bool, CaError> {
    let [certificate, key] = next(directory);
    if !is_there(&key)? || is_there(&certificate)? {
        return Ok(false);
    }
    // Where somebody has removed the one that was to follow, its key belongs to nothing.
    let now = CertificateDer::from_pem_file(directory.join(CERTIFICATE)).ok();
    Ok(now.is_some_and(|now| secret_file::load_key(&key).is_ok_and(|key| is_pair(&now, &key))))
}

fn is_pair(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    parse(certificate).is_some_and(|x509| x509.public_key().subject_public_key.data == key.der_bytes())
}

/// Finishes what another process has begun.
fn settle(directory: &Path) -> Result<(), CaError> {
    if is_halfway(directory)? {
        let [_, key] = next(directory);
        let place = directory.join(KEY);
        fs::rename(&key, &place).map_err(fault(&place, "written"))?;
    }
    Ok(())
}

fn only_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn is_there(path: &Path) -> Result<bool, CaError> {
    path.try_exists().map_err(fault(path, "read"))
}

/// The key first: a certificate without it would be of no use, a key without its certificate gets one the next time.
fn create(certificate: &Path, key: &Path, now: OffsetDateTime) -> Result<(), CaError> {
    let key_pair = if is_there(key)? {
        secret_file::load_key(key)?
    } else {
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        secret_file::write(key, key_pair.serialize_pem(), 0o600)?;
        key_pair
    };
    let made = parameters(now)?.self_signed(&key_pair)?;
    secret_file::write(certificate, made.pem(), 0o644)
}

pub(super) fn parameters(now: OffsetDateTime) -> Result<CertificateParams, CaError> {
    let serial = serial()?;
    // Two of one machine and day differ by it.
    let mark = mark(&serial.to_bytes());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "politely");
    let name = format!("politely {} {} {mark}", host_name(), now.date());
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(serial);
    // Whatever the clock says, it is later than this was written: one made before the clock was set is good after.
    params.not_before = (now.min(WRITTEN) - Duration::DAY).max(OffsetDateTime::UNIX_EPOCH);
    params.not_after = now.max(WRITTEN) + YEARS;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// This machine's name, as far as it fits into a certificate's.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(32).collect();
    if plain.is_empty() { String::from("localhost") } else { plain }
}

pub(super) const YEARS: Duration = Duration::days(3650);
/// No clock that is right says anything earlier.
const WRITTEN: OffsetDateTime = datetime!(2026-11-01 0:00 UTC);
