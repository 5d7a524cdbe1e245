//! Arguments shared by several subcommands.

use super::{CommandError, Explained};
use crate::config::{ConfigErrors, KeyArgument, Layers, Settings, read_argument, read_whole};
use crate::tls::date_warnings;
use std::io;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// Arguments of every command that reads the configuration.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ConfigArg {
    /// Configuration file [default: $POLITELY_CONFIG, else /etc/politely/politely.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set a key of the configuration, such as `pace.queue=100` or `egress.ports=[80, 8080]`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_set)]
    pub keys: Vec<KeyArgument>,
}

impl ConfigArg {
    /// The file to read; `None`: use the defaults.
    pub fn path(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("POLITELY_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
        let machine = || Some(PathBuf::from(MACHINE_CONFIG)).filter(|path| path.exists());
        self.config.clone().or_else(named).or_else(machine)
    }

    /// Loads the configuration.
    pub fn load(&self) -> Result<Settings, ConfigErrors> {
        self.load_in_layers(Vec::new(), None).map(|(settings, _)| settings)
    }

    /// Loads the configuration, and keeps its layers. The layers above the file and the environment, from the lowest: `arguments`, which
    /// are a command's own options, `--set`, and `last`.
    pub fn load_in_layers(
        &self,
        mut arguments: Vec<KeyArgument>,
        last: Option<KeyArgument>,
    ) -> Result<(Settings, Layers), ConfigErrors> {
        arguments.extend(self.keys.iter().cloned().chain(last));
        let (mut settings, layers) = Settings::load_in_layers(self.path().as_deref(), std::env::vars_os(), &arguments)?;
        settings.warn(date_warnings(&settings.listen, OffsetDateTime::now_utc()));
        Ok((settings, layers))
    }
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// Makes the argument `name` set `key`.
pub(super) fn key_argument(name: &str, key: &str, value: &impl serde::Serialize) -> KeyArgument {
    let value = serde_json::to_string(value).expect("strings and lists of strings");
    KeyArgument { name: name.to_owned(), key: key.to_owned(), value }
}

/// Reads a file, or standard input for `-`; returns name and bytes. `hint`: the forms that the argument accepts, for the error.
pub(super) fn read_or_input(file: &Path, hint: &str) -> Result<(String, Vec<u8>), CommandError> {
    let (name, bytes) = match file.as_os_str() == "-" {
        true => ("standard input".to_owned(), read_whole(io::stdin().lock())),
        false => (file.display().to_string(), read_argument(file)),
    };
    let bytes = bytes.explained(format!("cannot read {name}"), hint)?;
    Ok((name, bytes))
}

fn parse_set(text: &str) -> Result<KeyArgument, String> {
    let (key, value) = text.split_once('=').ok_or("write `KEY=VALUE`, such as `pace.min_delay=2s`")?;
    let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
    Ok(KeyArgument { name: format!("--set {key}"), key, value })
}

pub(super) const MACHINE_CONFIG: &str = "/etc/politely/politely.yaml";
