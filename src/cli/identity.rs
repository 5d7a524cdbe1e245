//! `politely identity`: the keys that sign requests (Web Bot Auth), and their directory.

use super::{CommandError, Format};
use crate::config::{Settings, SignWhen, state_directory};
use crate::signing::{Signer, SigningKey, card};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

#[derive(Debug, clap::Args)]
pub(super) struct IdentityArgs {
    #[command(subcommand)]
    action: IdentityAction,
}

#[derive(Debug, clap::Subcommand)]
enum IdentityAction {
    /// Create a key to sign requests; never replaces an existing file
    Keygen(Keygen),
    /// Print the directory of keys, to be published where `identity.signature.agent` says
    Directory(super::ConfigArg),
    /// Print the Signature Agent Card: who the crawler is, for verifiers
    Card(super::ConfigArg),
    /// Print the list of addresses that requests come from
    Addresses(super::ConfigArg),
    /// Print the agent that signs requests, and its keys
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct Keygen {
    #[command(flatten)]
    config: super::ConfigArg,
    /// File to create [default: identity.signature.key, else signing-key.pem in the state directory]
    file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    config: super::ConfigArg,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &IdentityArgs) -> Result<ExitCode, CommandError> {
    match &args.action {
        IdentityAction::Keygen(keygen) => make(keygen),
        IdentityAction::Directory(config) => {
            let directory = signer(&config.load()?)?.directory().publish(SystemTime::now());
            super::print(&format!("{}\n", directory.body))
        }
        IdentityAction::Card(config) => {
            let hint = "add `identity: { signature: { key: …, agent: https://bot.example } }`";
            let card = card::card(&config.load()?);
            let card = card.ok_or_else(|| CommandError::usage("no card: the configuration names no agent", hint))?;
            super::print(&format!("{card:#}\n"))
        }
        IdentityAction::Addresses(config) => {
            let hint = "add `identity: { addresses: [192.0.2.0/24] }`";
            let ranges = card::ranges(&config.load()?.identity, SystemTime::now());
            let ranges = ranges.ok_or_else(|| CommandError::usage("the configuration names no addresses", hint))?;
            super::print(&format!("{ranges:#}\n"))
        }
        IdentityAction::Show(show) => print_identity(show),
    }
}

fn make(keygen: &Keygen) -> Result<ExitCode, CommandError> {
    let settings = keygen.config.load()?;
    let configured = settings.identity.signature.key.clone();
    let is_configured = configured.is_some() && keygen.file.is_none();
    let path = keygen.file.clone().or(configured).unwrap_or_else(|| state_directory().join("signing-key.pem"));
    let key = SigningKey::make(&path)?;
    let path = std::path::absolute(&path)?;
    let mut told = format!("made the key {} in {}\n", key.id(), path.display());
    if !is_configured {
        told += &format!("\nidentity:\n  signature:\n    key: {}\n    agent: https://bot.example\n", path.display());
    }
    super::print(&told)
}

fn print_identity(show: &Show) -> Result<ExitCode, CommandError> {
    let settings = show.config.load()?;
    let signer = signer(&settings)?;
    let (agent, ids) = (signer.directory().agent(), signer.directory().ids().collect::<Vec<_>>());
    let when = match settings.identity.signature.when {
        SignWhen::Always => "always",
        SignWhen::OnChallenge => "on-challenge",
    };
    if let Format::Json = show.format {
        let shown = json!({ "agent": agent.as_str(), "when": when, "key": ids[0], "listed": ids });
        return super::print(&super::inert_json(&format!("{shown:#}\n")));
    }
    let mut told = format!("signs as {agent}, {when}, with the key {}\n", ids[0]);
    for id in &ids[1..] {
        told += &format!("lists the key {id}\n");
    }
    told += &format!("verifiers look for the directory at {}\n", card::directory_url(agent));
    told += &format!("the card is at {}\n", card::document_url(agent, card::CARD_PATH));
    if !settings.identity.addresses.is_empty() {
        let ranges = card::document_url(agent, card::RANGES_PATH);
        told += &format!("the page about the crawler needs <link rel=\"client-ranges\" href=\"{ranges}\">\n");
    }
    super::print(&told)
}

fn signer(settings: &Settings) -> Result<Arc<Signer>, CommandError> {
    Signer::configured(settings, None)?.ok_or_else(|| {
        let hint = "add `identity: { signature: { key: …, agent: … } }`; `politely identity keygen` makes a key";
        CommandError::usage("nothing is signed: the configuration names no key", hint)
    })
}
