//! `intercept`: what happens to `CONNECT`, and by which certificate authority.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;

use super::host_table::{HostMap, InterceptMode};
use super::text;
use crate::config::read::sections::Sections;
use crate::policy::Host;

/// What happens to `CONNECT`, for hosts without a word of their own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Intercept {
    pub default: InterceptMode,
    pub ca: CaSource,
    /// Hosts whose certificates are kept ready.
    pub leaf_cache: NonZeroUsize,
    /// By which clients find the certificate, through the proxy.
    #[serde(deserialize_with = "text::one")]
    pub setup_host: Host,
    /// Part of `Settings::hosts`.
    pub(in crate::config) hosts: HostMap<InterceptMode>,
}

/// Where the certificate authority comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "CaFiles")]
#[non_exhaustive]
pub enum CaSource {
    /// Our own, made on first use. `None`: below the state directory.
    Directory(Option<PathBuf>),
    /// The operator's: a PEM file with the certificate, which intermediates may follow, and its key.
    Files { certificate: PathBuf, key: PathBuf },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaFiles {
    #[serde(default, deserialize_with = "text::some")]
    directory: Option<PathBuf>,
    #[serde(default, deserialize_with = "text::some")]
    certificate: Option<PathBuf>,
    #[serde(default, deserialize_with = "text::some")]
    key: Option<PathBuf>,
}

impl From<CaFiles> for CaSource {
    fn from(CaFiles { directory, certificate, key }: CaFiles) -> Self {
        match certificate.zip(key) {
            Some((certificate, key)) => Self::Files { certificate, key },
            None => Self::Directory(directory),
        }
    }
}

/// A certificate of the operator's has a key, and takes the place of a directory.
pub(in crate::config) fn check(check: &mut Sections<'_>) {
    let [directory, certificate, key] =
        ["directory", "certificate", "key"].map(|name| check.is_written(&["intercept", "ca", name]));
    let (at, what, hint) = match (directory, certificate, key) {
        (true, true, true) => (
            "certificate",
            "a certificate of your own and a directory exclude each other",
            "leave out `directory` to use this certificate, or `certificate` and `key` to have one made",
        ),
        (_, true, false) => ("certificate", "this certificate lacks its key", "add `key: …` beside it"),
        (_, false, true) => ("key", "this key lacks its certificate", "add `certificate: …` beside it"),
        (_, false, false) | (false, true, true) => return,
    };
    check.fault(&["intercept", "ca", at], what, hint);
}
