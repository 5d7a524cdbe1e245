//! The reasons why the proxy could not start or apply changed settings, and what to do about each.

use crate::config::{AccessLog, MORE_PROCESSES, NO_LOCK, Settings, UnusableFile};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use time::OffsetDateTime;

/// The reason why the proxy could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// TLS has no times before 1970 (RFC 8446 §4.1.2).
    #[error("the clock shows a time before 1970: {0}")]
    Clock(OffsetDateTime),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("systemd passed no socket named `{0}`")]
    NotInherited(String),
    #[error("the socket `{0}` from systemd is not a listening TCP socket")]
    NotListening(String),
    #[error("anybody who can reach `{0}` could use this proxy")]
    OpenToAll(SocketAddr),
    #[error(transparent)]
    File(#[from] UnusableFile),
    #[error("cannot listen on {address} for the admin address: {source}")]
    Admin { address: String, source: io::Error },
    #[error("cannot set up the proxy: {0}")]
    Io(#[from] io::Error),
}

impl StartError {
    pub(super) fn for_admin(error: Self) -> Self {
        match error {
            Self::Listen { address, source } => Self::Admin { address, source },
            other => other,
        }
    }

    /// Makes the error for a log that cannot be written as configured.
    pub(crate) fn log(settings: &Settings, source: io::Error) -> Self {
        let AccessLog::File(path) = &settings.log.access else { return source.into() };
        let hint = match source.kind() {
            io::ErrorKind::NotFound => {
                "create its directory, or correct `log.access`; under systemd `LogsDirectory=` creates it"
            }
            _ => "let the proxy's user write there, or correct `log.access`",
        };
        Self::of_file(settings, path, format!("cannot open the access log {}: {source}", path.display()), hint)
    }

    /// Makes the error for a cache that cannot be used as configured.
    pub(crate) fn cache(settings: &Settings, path: &Path, source: &io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::ResourceBusy => NO_LOCK,
            _ => "let the proxy's user write there, or correct `cache.directory`",
        };
        Self::of_file(settings, path, format!("cannot use the cache {}: {source}", path.display()), hint)
    }

    pub(super) fn token(settings: &Settings, path: &Path, source: &io::Error) -> Self {
        let hint = "`admin.token_file` must name a readable file that contains only the token";
        Self::of_file(settings, path, format!("cannot read the token in {}: {source}", path.display()), hint)
    }

    fn of_file(settings: &Settings, path: &Path, what: String, hint: &str) -> Self {
        Self::File(UnusableFile::new(what, hint).about(path).placed(&settings.places))
    }

    /// What to do about the error.
    pub fn hint(&self) -> String {
        match self {
            Self::Clock(_) => "set the clock of this machine".into(),
            Self::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "another program listens there; stop it, or choose another address with \
                    `--listen` or `listen:`"
                    .into(),
                io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher port".into()
                }
                io::ErrorKind::AddrNotAvailable => {
                    "choose an address that this machine has, with `--listen` or `listen:`".into()
                }
                _ => "choose another address with `--listen` or `listen:`".into(),
            },
            Self::NotInherited(name) => {
                format!("pass it from a systemd socket unit with `FileDescriptorName={name}`")
            }
            Self::NotListening(_) => "the socket unit needs `ListenStream=` with a port, and no `Accept=yes`".into(),
            Self::OpenToAll(_) => "set `access`, such as `clients: [10.0.0.0/8]`".into(),
            Self::Admin { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "perhaps another proxy is running: give this proxy `admin: { address: off }`, \
                    or another port"
                        .into()
                }
                _ => "choose another `admin.address`, or write `off`".into(),
            },
            Self::File(error) => error.hint().into(),
            Self::Io(source) if source.kind() == io::ErrorKind::WouldBlock => MORE_PROCESSES.into(),
            Self::Io(_) => "check free space and permissions for temporary files".into(),
        }
    }
}
