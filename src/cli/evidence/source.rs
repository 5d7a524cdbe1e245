//! The directory of a command's evidence, and the authorities that its time stamps must come from.

use crate::cli::{CommandError, ConfigArg, Explained, inert};
use crate::evidence::{ReadError, foreign};
use openssl::x509::X509;
use std::path::{Path, PathBuf};

/// Arguments of a command that reads only the evidence.
#[derive(Debug, clap::Args)]
pub struct EvidenceArg {
    /// The directory [default: evidence.directory of the configuration]
    directory: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
}

impl EvidenceArg {
    pub fn directory(&self) -> Result<PathBuf, CommandError> {
        directory(self.directory.as_deref(), &self.config)
    }
}

/// The directory given, or else the configured one.
pub fn directory(named: Option<&Path>, config: &ConfigArg) -> Result<PathBuf, CommandError> {
    let directory = named.map_or_else(|| configured(config), |named| Ok(named.to_owned()))?;
    for file in foreign(&directory).unwrap_or_default() {
        eprintln!("warning: {} belongs to another user, so it is not read as evidence", inert(&file.to_string_lossy()));
    }
    Ok(directory)
}

fn configured(config: &ConfigArg) -> Result<PathBuf, CommandError> {
    let settings = config.load()?;
    let hint = "name the directory of the evidence, such as DIR of `politely run --evidence DIR`, or the proxy's configuration by \
                `--config FILE`; a proxy keeps evidence only if its configuration sets `evidence.directory`";
    settings.evidence.directory.ok_or_else(|| CommandError::usage("no evidence is configured", hint))
}

pub fn unreadable(directory: &Path, error: &ReadError) -> CommandError {
    let what = match error {
        ReadError::Empty => format!("there is no evidence in {}", directory.display()),
        error => format!("cannot read the evidence in {}: {error}", directory.display()),
    };
    CommandError::usage(
        what,
        "name a directory with files such as 00000001-20261122T183000Z.jsonl, and run this as root or the proxy's user, as no other \
         user can read them",
    )
}

/// Reads the certificates in a PEM file.
pub fn authorities(path: &Path) -> Result<Vec<X509>, CommandError> {
    let hint = "name a PEM file with certificates of time-stamping authorities, or of their issuers";
    let bytes = std::fs::read(path).explained(format!("cannot read {}", path.display()), hint)?;
    let all = X509::stack_from_pem(&bytes).unwrap_or_default();
    if all.is_empty() {
        return Err(CommandError::usage(format!("{} has no certificate that can be read", path.display()), hint));
    }
    Ok(all)
}
