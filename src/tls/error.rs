//! What can be wrong with the certificate authority's files and with root bundles, and what to do about it.

use std::io;
use std::path::PathBuf;

use time::OffsetDateTime;

use super::certificate::shown;

/// Why the certificate authority cannot be used. [`hint`](Self::hint) says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("{} cannot be {doing}: {source}", .path.display())]
    File { path: PathBuf, doing: &'static str, source: io::Error },
    #[error("the directory {} can be written by others (mode {mode:04o})", .path.display())]
    DirectoryOpen { path: PathBuf, mode: u32 },
    #[error("the key {} can be read by others (mode {mode:04o})", .path.display())]
    KeyOpen { path: PathBuf, mode: u32 },
    #[error("the certificate {} exists, but its key {} does not", .certificate.display(), .key.display())]
    KeyMissing { certificate: PathBuf, key: PathBuf },
    #[error("{} holds no key that can be used: {why}", .path.display())]
    KeyUnusable { path: PathBuf, why: &'static str, hint: &'static str },
    #[error("the key {} does not belong to the certificate {}", .key.display(), .certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{} cannot be used: {why}", .path.display())]
    CertificateUnusable { path: PathBuf, why: String },
    #[error("{} expired on {}", .path.display(), shown(*.until))]
    Expired { path: PathBuf, until: OffsetDateTime, now: OffsetDateTime },
    #[error("cannot create a certificate: {0}")]
    Minting(#[from] rcgen::Error),
    #[error("TLS cannot be set up: {}", crate::tls_words::in_plain(.0))]
    Tls(#[from] rustls::Error),
}

impl CaError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::File { path, source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!(
                        "run as the owner of {}, or name another directory in `intercept.ca.directory`",
                        path.display()
                    )
                }
                io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge => {
                    String::from("correct the path in `intercept.ca`")
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    format!("make room where {} is", path.display())
                }
                _ => String::from("name another directory in `intercept.ca.directory`"),
            },
            Self::DirectoryOpen { path, .. } => format!("chmod 700 {}", path.display()),
            Self::KeyOpen { path, .. } => {
                format!(
                    "if nobody can have read it, chmod 600 {}; otherwise delete it and its certificate",
                    path.display()
                )
            }
            Self::KeyMissing { certificate, .. } => {
                format!("put the key back, or delete {} to create both again", certificate.display())
            }
            Self::KeyUnusable { hint, .. } => (*hint).to_owned(),
            Self::Mismatch { certificate, key } => {
                format!("restore the matching pair, or delete {} and {}", certificate.display(), key.display())
            }
            Self::CertificateUnusable { .. } => {
                String::from("name a PEM file that begins with a CA certificate; its intermediates may follow")
            }
            Self::Expired { now, .. } => format!(
                "the clock says {}; if that is right, make another with `politely ca rotate` (or replace your own), and \
                 have clients trust it",
                shown(*now)
            ),
            Self::Minting(_) | Self::Tls(_) => String::from("check the system's source of randomness"),
        }
    }
}

/// Why the roots for verifying origins cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("the certificates in {} cannot be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} holds no certificate", .path.display())]
    Empty { path: PathBuf },
    #[error("certificate {number} in {} cannot be used: {why}", .path.display())]
    Unusable { path: PathBuf, number: usize, why: String },
}

impl RootsError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "correct `egress.ca_file`, or make the file readable",
            Self::Empty { .. } => "`egress.ca_file` is a PEM file: `-----BEGIN CERTIFICATE-----` …",
            Self::Unusable { .. } => "remove it from the file, or replace it with a complete one",
        }
    }
}
