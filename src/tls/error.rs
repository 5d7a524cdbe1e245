//! Errors of the certificate authority's files, and what to do about them.

use std::io;
use std::path::Path;

use crate::config::{NO_LOCK, UnusableFile};
use crate::tls_words;

/// Makes the error for a file of the authority that cannot be read or written.
pub(super) fn fault(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> UnusableFile {
    move |source| {
        let (file, path) = (path, path.display());
        let hint = match source.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("run as the owner of {path}, or name another directory in `intercept.ca.directory`")
            }
            io::ErrorKind::ResourceBusy => NO_LOCK.into(),
            io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge => "correct the path in `intercept.ca`".into(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("make room where {path} is"),
            _ => "name another directory in `intercept.ca.directory`".into(),
        };
        UnusableFile::new(format!("{path} cannot be {doing}: {source}"), hint).about(file)
    }
}

impl From<rcgen::Error> for UnusableFile {
    fn from(error: rcgen::Error) -> Self {
        Self::new(format!("cannot create a certificate: {error}"), RANDOMNESS)
    }
}

impl From<rustls::Error> for UnusableFile {
    fn from(error: rustls::Error) -> Self {
        Self::new(format!("TLS cannot be set up: {}", tls_words::in_plain(error)), RANDOMNESS)
    }
}

const RANDOMNESS: &str = "check the system's source of randomness";
