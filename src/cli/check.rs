//! `politely check`: validates the configuration. Reads it and opens the files that it names, as `serve` would, but creates nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{
    AccessLog, CaSource, InterceptMode, Mode, Network, OnFleetLoss, Settings, SignWhen,
    units::{show_duration, show_size},
};
use crate::server::StartError;
use crate::signing::Signer;
use crate::telemetry;
use crate::tls::{Ca, ca, roots};

use rustix::fs::{Access, access};
use time::OffsetDateTime;

use super::{CommandError, kept};

#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// The same as `--config FILE`
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    config: super::ConfigArg,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, CommandError> {
    let config = super::ConfigArg { config: args.file.clone().or(args.config.config.clone()), ..args.config.clone() };
    let path = config.path();
    let settings = config.load()?;
    telemetry::check(&settings.log).map_err(|error| StartError::log(&settings.log, error))?;
    let mut told = match &path {
        Some(path) => format!("{} is valid\n", path.display()),
        None => String::from("no configuration file: using the defaults\n"),
    };
    describe(&settings, &mut told);
    for warning in settings.warnings() {
        told += &format!("  warning: {}\n    hint: {}\n", warning.what, warning.hint);
    }
    told += &identity(&settings)?;
    told += &cache(&settings)?;
    told += &evidence(&settings)?;
    told += &authority(&settings)?;
    told += &trusted(&settings)?;
    super::print(&told)
}

fn describe(settings: &Settings, told: &mut String) {
    let mut say = |line: &str| *told += &format!("  {line}\n");
    for listener in &settings.listen {
        let is_open = settings.access.clients.is_empty() && settings.access.users.is_empty();
        let client_ca = listener.tls.as_ref().and_then(|tls| tls.client_ca.as_ref());
        let mut reach = match (listener.address.is_loopback(), client_ca) {
            (Some(true), _) => "this machine only",
            (Some(false), Some(_)) if is_open => "anyone",
            (Some(false), _) => "clients allowed by `access`",
            (None, _) => "anyone who can reach the socket that systemd passes",
        }
        .to_owned();
        if let Some(path) = client_ca {
            reach += &format!(" with a certificate from {} (client_ca)", path.display());
        }
        say(&format!("listens on {}, for {reach}", listener.address));
    }
    if !settings.access.clients.is_empty() {
        let who = if settings.access.users.is_empty() { "anybody" } else { "clients" };
        say(&format!("admits {who} from {} (access.clients)", networks(&settings.access.clients)));
    }
    match settings.mode {
        Mode::Enforce => say("refuses what robots.txt disallows, and paces requests to each host"),
        Mode::Report => say("refuses and delays nothing; only reports what it would have done (mode: report)"),
    }
    let tokens: Vec<&str> = settings.identity.product_tokens.iter().map(AsRef::as_ref).collect();
    match tokens.as_slice() {
        [] => say("matches robots.txt groups by each request's User-Agent"),
        tokens => say(&format!("matches robots.txt groups as {}", tokens.join(", "))),
    }
    let purposes: Vec<&str> = settings.identity.purpose.iter().map(AsRef::as_ref).collect();
    if !purposes.is_empty() {
        say(&format!(
            "fetches for {}: pages that sites reserve from these purposes are refused (identity.purpose)",
            purposes.join(", ")
        ));
    }
    for (key, kept) in kept(&settings.hosts.any().rules.manners) {
        say(&format!("keeps at each host: {kept} (pace.{key})"));
    }
    match settings.intercept.default {
        InterceptMode::Intercept => {}
        InterceptMode::Tunnel => say("tunnels https: robots.txt is not applied to it (intercept.default)"),
        InterceptMode::Deny => say("refuses https (intercept.default)"),
    }
    if let Some(url) = settings.fleet.paces() {
        let loss = match settings.on_fleet_loss {
            OnFleetLoss::Local => match settings.fleet.instances {
                Some(instances) => format!("each instance continues as one of {instances} or more"),
                None => {
                    "each instance continues as one of those it has seen, and one that has seen none refuses".into()
                }
            },
            OnFleetLoss::Refuse => "clients get 503".into(),
        };
        let shared = match settings.fleet.copies_apart() {
            None => format!("paces and copies of robots.txt through {url}"),
            Some(copies) => format!("copies of robots.txt through {copies}, and paces through {url}"),
        };
        say(&format!("shares {shared}; without it {loss} (on_fleet_loss)"));
    }
    let users = &settings.access.users;
    let by_password = users.iter().filter(|user| user.password.is_some()).map(|user| user.name.as_ref().to_owned());
    let by_certificate = users
        .iter()
        .filter_map(|user| Some(format!("{} by {}", user.name.as_ref(), user.certificate.as_ref()?.as_ref())));
    let known: [(&str, Vec<String>); 2] = [
        ("requires a user name and password", by_password.collect()),
        ("knows users by a name in their certificates", by_certificate.collect()),
    ];
    for (how, users) in known.into_iter().filter(|(_, users)| !users.is_empty()) {
        say(&format!("{how}: {} (access.users)", users.join(", ")));
    }
    say(&format!("connects to ports {} (egress.ports)", join(&settings.egress.ports)));
    for (key, listed) in [("hosts", join(&settings.listed.hosts)), ("methods", settings.listed.methods.join(", "))] {
        if !listed.is_empty() {
            say(&format!("refuses all {key} but {listed} (egress.{key})"));
        }
    }
    for (set, place) in settings.overrides() {
        say(&format!("override: {} for {} ({place})", set.setting, set.scope()));
    }
    if !settings.egress.allow.is_empty() {
        say(&format!("may connect to {}, although private (egress.allow)", networks(&settings.egress.allow)));
    }
    match &settings.log.access {
        AccessLog::Off => say("logs no requests (log.access)"),
        AccessLog::Stdout => say("logs requests to standard output (log.access)"),
        AccessLog::Journal => say("logs requests to the journal (log.access)"),
        AccessLog::File(path) => say(&format!("logs requests to {} (log.access)", path.display())),
    }
}

fn networks(all: &[Network]) -> String {
    all.iter().map(|network| network.0.to_string()).collect::<Vec<_>>().join(", ")
}

/// The crawler's identity, as sites see it.
fn identity(settings: &Settings) -> Result<String, CommandError> {
    let mut told = String::new();
    if settings.identity.contact.is_empty() && settings.identity.user_agent.is_none() {
        told += "  warning: requests for robots.txt do not say how a webmaster can contact you (identity.contact)\n    \
                 hint: write a URL that explains your crawler, or a mail address\n";
    }
    if let Some(signer) = Signer::of(&settings.identity.signature, None)? {
        let (directory, when) = (signer.directory(), settings.identity.signature.when);
        let when = if when == SignWhen::Always { "" } else { " where a site asks for it" };
        let ids = directory.ids().collect::<Vec<_>>();
        told += &format!("  signs requests{when} as {} by the key {}\n", directory.agent(), ids[0]);
        if let [_, others @ ..] = ids.as_slice()
            && !others.is_empty()
        {
            told += &format!("  and lists {} in the directory\n", others.join(", "));
        }
    }
    Ok(told)
}

/// Where pages are cached, and whether that can be.
fn cache(settings: &Settings) -> Result<String, CommandError> {
    let Some(directory) = &settings.cache.directory else { return Ok(String::new()) };
    let shown = directory.display();
    let fault = |why: String| {
        let place = format!("{}: ", settings.cache.place);
        let place = if settings.cache.place.is_empty() { "" } else { &place };
        CommandError::usage(
            format!("{place}pages cannot be cached in {shown}: {why}"),
            "let the proxy's user write there, or correct `cache.directory`",
        )
    };
    let there = existing(directory).map_err(fault)?;
    access(&there, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| fault(format!("{}: {error}", there.display())))?;
    Ok(format!("  caches pages in {shown}, up to {} (cache)\n", show_size(settings.cache.size)))
}

/// Where decisions are recorded, and whether that can be.
fn evidence(settings: &Settings) -> Result<String, CommandError> {
    let Some(directory) = &settings.evidence.directory else { return Ok(String::new()) };
    let shown = directory.display();
    existing(directory).map_err(|why| {
        CommandError::usage(format!("evidence cannot be stored in {shown}: {why}"), "correct `evidence.directory`")
    })?;
    let keep = show_duration(settings.evidence.keep);
    Ok(format!("  records each decision in {shown}, and keeps that for {keep} (evidence)\n"))
}

/// The directory itself, or the nearest one above it, below which it will be created. `Err`: something else is there.
fn existing(directory: &Path) -> Result<PathBuf, String> {
    let directory = std::path::absolute(directory).map_err(|error| error.to_string())?;
    let there = directory.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    if there.is_dir() { Ok(there.to_owned()) } else { Err(format!("{} is not a directory", there.display())) }
}

fn join<T: ToString>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether the certificate authority can be opened, if it exists.
fn authority(settings: &Settings) -> Result<String, CommandError> {
    let source = &settings.intercept.ca;
    let made_later = match source {
        CaSource::Directory(_) => {
            let directory = ca::directory(source);
            let there = is_there(&directory.join(ca::CERTIFICATE)) || is_there(&directory.join(ca::KEY));
            (!there).then_some(directory)
        }
        CaSource::Files { .. } => None,
    };
    if let Some(directory) = made_later {
        return Ok(format!("  creates its certificate authority in {} on first use\n", directory.display()));
    }
    let ca = Ca::configured(source)?;
    let until = ca.validity().1.date();
    let mut told = format!("  HTTPS clients have to trust {}, valid until {until}\n", ca.path().display());
    if let Some(next) = ca.next() {
        let until = next.until.date();
        told += &format!("  and {}.next, which replaces it after rotation, valid until {until}\n", ca.path().display());
    }
    if let Some(warning) = ca.warning(OffsetDateTime::now_utc()) {
        told += &format!("  warning: {warning}\n");
    }
    Ok(told)
}

/// A path that may not be inspected counts as existing: opening it then gives the reason.
fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

fn trusted(settings: &Settings) -> Result<String, CommandError> {
    let roots = roots::bundle(settings.egress.ca_file.as_deref())?;
    let source = match (roots.source, &settings.egress.ca_file) {
        (roots::Source::System, None) => String::from("the system's"),
        (roots::Source::System, Some(path)) => format!("the system's and those in {}", path.display()),
        (roots::Source::BuiltIn, None) => String::from("Mozilla's, as the system has none"),
        (roots::Source::BuiltIn, Some(path)) => {
            format!("Mozilla's, as the system has none, and those in {}", path.display())
        }
    };
    Ok(format!(
        "  verifies origins against {}: {source}\n",
        super::counted(roots.store.len() as u64, "root certificate")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_named_from_here_is_below_this_one() {
        assert_eq!(existing(Path::new("not/there")), Ok(std::env::current_dir().unwrap()));
        assert!(existing(Path::new("/dev/null/below")).unwrap_err().ends_with("/dev/null is not a directory"));
    }
}
