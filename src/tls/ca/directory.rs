//! The directory of a certificate authority made by this program: created on first use; a successor is prepared beside it and later
//! replaces it. Any number of processes may use the directory at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::pki_types::CertificateDer;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::{Ca, ROTATE, Trusted, has_expired, trusted_in};
use crate::config::UnusableFile;
use crate::tls::certificate::{mark, parse};
use crate::tls::error::fault;
use crate::tls::secret_file;
use crate::tls::serial;

/// File names of the authority.
pub const CERTIFICATE: &str = "ca.pem";
pub const KEY: &str = "ca.key";
/// File name suffixes of the successor, which clients should trust before it signs, and of the predecessor.
pub(super) const NEXT: &str = "next";
pub(super) const OLD: &str = "old";

impl Ca {
    /// Opens the authority in this directory, or creates it: `ca.pem` and `ca.key`. Any number of processes may call this at once; all
    /// get the same authority.
    ///
    /// # Errors
    /// As [`Self::open`], and if the files cannot be created.
    pub fn open_or_create(directory: &Path) -> Result<Self, UnusableFile> {
        Self::open_or_create_at(directory, OffsetDateTime::now_utc())
    }

    pub(super) fn open_or_create_at(directory: &Path, now: OffsetDateTime) -> Result<Self, UnusableFile> {
        let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
        secret_file::directory(directory)?;
        if !is_there(&certificate)? || is_halfway(directory)? {
            let _lock = settled(directory)?;
            if !is_there(&certificate)? {
                create(&certificate, &key, now)?;
            }
        }
        if !is_there(&key)? {
            let (certificate, key) = (certificate.display(), key.display());
            let what = format!("the certificate {certificate} exists, but its key {key} does not");
            let hint = format!("put the key back, or delete {certificate} to create both again");
            return Err(UnusableFile::new(what, hint));
        }
        Self::open_in(directory, now)
    }

    /// Opens the authority in this directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(directory: &Path, now: OffsetDateTime) -> Result<Self, UnusableFile> {
        let open = || Self::open_at(&directory.join(CERTIFICATE), &directory.join(KEY), ROTATE, now);
        // Another process may be putting a successor in place, whose certificate is there before its key.
        open().or_else(|error| match settled(directory) {
            Ok(_lock) => open(),
            Err(_) => Err(error),
        })
    }

    /// Creates the successor of the authority in this directory; clients should trust both from now on. `false`: there is a successor
    /// already.
    ///
    /// # Errors
    /// The files cannot be created.
    pub fn prepare(directory: &Path) -> Result<bool, UnusableFile> {
        let _lock = settled(directory)?;
        make_next(directory)
    }

    /// The prepared successor in this directory.
    pub fn prepared(directory: &Path) -> Option<Trusted> {
        let [certificate, key] = next(directory);
        if key.exists() { Trusted::of(&trusted_in(&certificate)?) } else { None }
    }

    /// Replaces the authority in this directory with this successor. The old files stay beside it as `ca.pem.old` and `ca.key.old`.
    ///
    /// # Errors
    /// As [`Self::open_or_create`]; or `successor` is no longer the prepared successor: another process may have put it in place.
    pub fn finish(directory: &Path, successor: &Trusted) -> Result<Self, UnusableFile> {
        {
            let _lock = settled(directory)?;
            if Self::prepared(directory).as_ref() != Some(successor) {
                let [certificate, _] = next(directory);
                let what =
                    format!("{} has changed: another process has put the successor in place", certificate.display());
                return Err(UnusableFile::new(what, "`politely ca export` prints what clients have to trust now"));
            }
            put_in_place(directory)?;
        }
        Self::open_or_create(directory)
    }

    /// Replaces the authority in this directory, if it is missing or has expired, with the prepared successor or a new authority, as
    /// [`finish`](Self::finish) does. Then opens the authority.
    ///
    /// # Errors
    /// As [`Self::open_or_create`].
    pub fn replace_expired(directory: &Path) -> Result<Self, UnusableFile> {
        {
            let _lock = settled(directory)?;
            let certificate = directory.join(CERTIFICATE);
            if !is_there(&certificate)? || has_expired(&certificate) {
                make_next(directory)?;
                put_in_place(directory)?;
            }
        }
        Self::open_or_create(directory)
    }
}

/// The files of the successor.
pub(super) fn next(directory: &Path) -> [PathBuf; 2] {
    [CERTIFICATE, KEY].map(|name| directory.join(name).with_added_extension(NEXT))
}

/// Whether a rotation was interrupted between its two renames: the new certificate was already renamed from `.next`, but its key was not.
fn is_halfway(directory: &Path) -> Result<bool, UnusableFile> {
    let [certificate, key] = next(directory);
    if !is_there(&key)? || is_there(&certificate)? {
        return Ok(false);
    }
    // If only the successor's certificate was deleted, its key fits no certificate.
    let now = trusted_in(&directory.join(CERTIFICATE));
    Ok(now.is_some_and(|now| secret_file::load_key(&key).is_ok_and(|key| is_pair(&now, &key))))
}

fn is_pair(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    parse(certificate).is_some_and(|x509| x509.public_key().subject_public_key.data == key.der_bytes())
}

/// Completes a rotation that was interrupted. Returns the directory's lock: no other process changes the directory until it is dropped.
fn settled(directory: &Path) -> Result<File, UnusableFile> {
    secret_file::directory(directory)?;
    let lock = secret_file::lock(directory)?;
    settle(directory)?;
    Ok(lock)
}

fn settle(directory: &Path) -> Result<(), UnusableFile> {
    if is_halfway(directory)? {
        let [_, key] = next(directory);
        let place = directory.join(KEY);
        fs::rename(&key, &place).map_err(fault(&place, "written"))?;
    }
    Ok(())
}

/// Creates the successor. `false`: there is already a successor.
fn make_next(directory: &Path) -> Result<bool, UnusableFile> {
    let [certificate, key] = next(directory);
    if is_there(&certificate)? && is_there(&key)? {
        return Ok(false);
    }
    let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let made = parameters(OffsetDateTime::now_utc())?.self_signed(&key_pair)?;
    // The certificate is written first: a key without a certificate means that a rotation was interrupted.
    secret_file::write(&certificate, made.pem(), 0o644)?;
    secret_file::write(&key, key_pair.serialize_pem(), 0o600)?;
    Ok(true)
}

/// Replaces the authority with its successor.
fn put_in_place(directory: &Path) -> Result<(), UnusableFile> {
    for file in [CERTIFICATE, KEY].map(|name| directory.join(name)) {
        if is_there(&file)? {
            let old = file.with_added_extension(OLD);
            fs::remove_file(&old).or_else(only_missing).map_err(fault(&old, "removed"))?;
            // The old file stays in place until it is replaced.
            fs::hard_link(&file, &old).map_err(fault(&old, "created"))?;
        }
    }
    let [certificate, _] = next(directory);
    let place = directory.join(CERTIFICATE);
    fs::rename(&certificate, &place).map_err(fault(&place, "written"))?;
    settle(directory)
}

fn only_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn is_there(path: &Path) -> Result<bool, UnusableFile> {
    path.try_exists().map_err(fault(path, "read"))
}

/// Writes the key first: a certificate without its key would be useless, but if only the key exists, the next call creates its certificate.
fn create(certificate: &Path, key: &Path, now: OffsetDateTime) -> Result<(), UnusableFile> {
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

pub(super) fn parameters(now: OffsetDateTime) -> Result<CertificateParams, UnusableFile> {
    let serial = serial()?;
    // Tells apart authorities made on the same machine and day.
    let mark = mark(&serial.to_bytes());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "politely");
    let name = format!("politely {} {} {mark}", host_name(), now.date());
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(serial);
    // The clock may be wrong: the certificate is also valid from the date when this code was written.
    params.not_before = (now.min(WRITTEN) - Duration::DAY).max(OffsetDateTime::UNIX_EPOCH);
    params.not_after = now.max(WRITTEN) + YEARS;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// This machine's name, without the characters that a certificate cannot contain.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(32).collect();
    if plain.is_empty() { String::from("localhost") } else { plain }
}

pub(super) const YEARS: Duration = Duration::days(3650);
/// When this code was written: a correct clock is later.
const WRITTEN: OffsetDateTime = datetime!(2026-11-01 0:00 UTC);
