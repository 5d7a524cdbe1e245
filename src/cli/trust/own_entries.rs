//! Recognises our entries in the stores, and removes all of them.

use crate::config::read_file;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Recognises our entries in a store: entries whose name has the form that this program gives them, and entries named [`COMMON`] that
/// contain only certificates of the configured authority.
pub(in crate::cli) struct OwnEntries(Vec<CertificateDer<'static>>);

impl OwnEntries {
    pub fn of(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self(certificates)
    }

    /// Whether the entry is ours. `pem`: reads its certificates.
    pub fn has(&self, name: &str, pem: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        is_ours(name) || name == COMMON && pem().is_some_and(|pem| self.is_own(&pem))
    }

    fn is_own(&self, pem: &[u8]) -> bool {
        let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        !all.is_empty() && all.iter().all(|one| self.0.contains(one))
    }

    /// The files in a directory that are our entries.
    pub fn files(&self, directory: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
        let all = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let is_own = |path: &PathBuf| {
            let name =
                path.file_stem().and_then(OsStr::to_str).filter(|_| path.extension() == Some(extension.as_ref()));
            name.is_some_and(|name| self.has(name, || read_file(path).ok()))
        };
        let mut own: Vec<_> = all.into_iter().filter(is_own).collect();
        own.sort();
        Ok(own)
    }
}

/// Removes each entry, even if others fail. Returns the removed entries, and the others with their errors.
pub(super) fn remove_each<T, E>(all: &[T], remove: impl Fn(&T) -> Result<(), E>) -> (Vec<&T>, Vec<(&T, E)>) {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for entry in all {
        match remove(entry) {
            Ok(()) => removed.push(entry),
            Err(error) => failed.push((entry, error)),
        }
    }
    (removed, failed)
}

/// Whether the name has the form that this program gives to the entry of an authority: the prefix and eight hexadecimal digits. Other names
/// may belong to other programs (`politely-ca`, `politely-feed`).
fn is_ours(name: &str) -> bool {
    let mark = name.strip_prefix(PREFIX).unwrap_or_default();
    mark.len() == 8 && mark.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name that the setup page (at `intercept.setup_host`) recommends for the entry.
const COMMON: &str = "politely";
/// Prefix of the entries' names, before the authority's mark.
pub(super) const PREFIX: &str = "politely-";
