//! `intercept`: how to treat `CONNECT`, and with which certificate authority.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::host_table::{HostMap, InterceptMode};
use super::text;
use crate::config::read::sections::Sections;
use crate::policy::Host;

/// How to treat `CONNECT`, for hosts without an override.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Intercept {
    pub default: InterceptMode,
    pub ca: CaSource,
    /// Maximum number of hosts whose certificates are cached.
    pub leaf_cache: NonZeroUsize,
    /// The host name under which clients get the certificate through the proxy.
    #[serde(deserialize_with = "text::one")]
    pub setup_host: Host,
    /// Merged into `Settings::hosts`.
    pub(in crate::config) hosts: HostMap<InterceptMode>,
}

/// The source of the certificate authority: our own, created on first use, unless the operator's is configured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CaSource {
    /// The directory of our own authority. `None`: in the state directory.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    /// The operator's authority: a PEM file with the certificate, which intermediates may follow.
    #[serde(default, deserialize_with = "text::some")]
    pub certificate: Option<PathBuf>,
    /// The PEM file with the certificate's key.
    #[serde(default, deserialize_with = "text::some")]
    pub key: Option<PathBuf>,
}

impl CaSource {
    /// The files of the operator's certificate and its key.
    pub fn files(&self) -> Option<(&Path, &Path)> {
        self.certificate.as_deref().zip(self.key.as_deref())
    }
}

/// Checks that an operator's certificate comes with its key, and without a directory.
pub(in crate::config) fn check(check: &mut Sections<'_>) {
    let [directory, certificate, key] =
        ["directory", "certificate", "key"].map(|name| check.is_written(&["intercept", "ca", name]));
    let (at, what, hint) = match (directory, certificate, key) {
        (true, true, true) => (
            "certificate",
            "`certificate` and `directory` exclude each other",
            "leave out `directory` to use this certificate, or `certificate` and `key` to let the proxy create an authority",
        ),
        (_, true, false) => ("certificate", "this certificate lacks its key", "add `key: …` beside it"),
        (_, false, true) => ("key", "this key lacks its certificate", "add `certificate: …` beside it"),
        (_, false, false) | (false, true, true) => return,
    };
    check.fault(&["intercept", "ca", at], what, hint);
}
