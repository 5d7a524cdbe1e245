//! Arguments that several subcommands have.

use crate::config::{ConfigErrors, Settings};
use std::ffi::OsString;
use std::path::PathBuf;

/// What every command that reads the configuration takes.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArg {
    /// Configuration file [default: $POLITELY_CONFIG, else /etc/politely/politely.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArg {
    /// The file to read; `None`: the defaults hold.
    pub fn path(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("POLITELY_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
        let machine = || Some(PathBuf::from(MACHINE_CONFIG)).filter(|path| path.exists());
        self.config.clone().or_else(named).or_else(machine)
    }

    /// What is configured.
    pub fn load(&self) -> Result<Settings, ConfigErrors> {
        Settings::load(self.path().as_deref(), std::env::vars_os())
    }
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// What the command line says of a key, in the form of the environment, which overrides the file.
pub(super) fn override_key(key: &str, value: &impl serde::Serialize) -> (OsString, OsString) {
    let value = serde_json::to_string(value).expect("texts and lists of them");
    (format!("POLITELY_{key}").into(), value.into())
}

pub(super) const MACHINE_CONFIG: &str = "/etc/politely/politely.yaml";
