//! `politely check`: validates the configuration. Reads it and opens the files that it names, as `serve` would, but creates nothing.

mod describe;
mod differences;
mod output;
mod user;

pub(super) use user::unknown as unknown_user;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{
    Complaint, ConfigErrors, Settings, SignWhen, UnusableFile, check_lock,
    units::{show_duration, show_size},
};
use crate::evidence::unusable;
use crate::server::{self, StartError};
use crate::signing::Signer;
use crate::telemetry;
use crate::tls::{Ca, ca, roots};

use rustix::fs::{Access, access};
use serde_json::json;
use time::OffsetDateTime;

use super::{CommandError, Format, NO, inert_json, print};
use output::Told;

#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Configuration file, as with `--config`
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    config: super::ConfigArg,
    /// Show only the settings for this user of `access.users`
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Exit with 1 if there is any warning, or a line that begins with `override`, `replaced` or `set`
    #[arg(long)]
    strict: bool,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, CommandError> {
    let config = super::ConfigArg { config: args.file.clone().or(args.config.config.clone()), ..args.config.clone() };
    let path = config.path();
    let is_json = matches!(args.format, Format::Json);
    let (settings, layers) = match config.load_in_layers(Vec::new(), None) {
        Ok(loaded) => loaded,
        Err(errors) if is_json => return at_fault(&faults(&errors)),
        Err(errors) => return Err(errors.into()),
    };
    let places = layers.user_places(&settings);
    if let Some(name) = &args.user {
        let user = user::find_user(&settings, &places, name)?;
        return match args.format {
            Format::Text => print(&format!("{name}{}\n", user.text("\n  "))),
            Format::Json => print(&inert_json(&format!("{}\n", user.json()))),
        };
    }
    let differences = layers.differences(&settings);
    let listed = differences::lines(&differences).into_iter().chain(user::lines(&settings, &places)).collect();
    let told = match describe_all(&settings, listed, path.as_deref()) {
        Err(error) if is_json => {
            let (what, hint) = error.message.split_once("\nhint: ").unwrap_or((&error.message, ""));
            let what = what.strip_prefix("error: ").unwrap_or(what);
            let (what, place) = what.split_once("\n  --> ").map_or((what, None), |(what, place)| (what, Some(place)));
            return at_fault(&[json!({ "place": place, "what": what, "hint": hint })]);
        }
        told => told?,
    };
    match args.format {
        Format::Text => print(&told.text)?,
        Format::Json => {
            let all = json!({
                "faults": [],
                "warnings": told.warnings,
                "users": user::all(&settings, &places).map(|user| user.json()).collect::<Vec<_>>(),
                "overrides": differences.overrides,
                "replaced": differences.replaced,
                "set": differences.set,
            });
            print(&inert_json(&format!("{all}\n")))?
        }
    };
    let is_clean = told.warnings.is_empty() && differences.is_empty();
    Ok(if args.strict && !is_clean { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}

/// Describes the configuration, with its warnings. `listed`: lines on differences and users.
fn describe_all(settings: &Settings, listed: Vec<String>, path: Option<&Path>) -> Result<Told, CommandError> {
    telemetry::check(&settings.log).map_err(|error| StartError::log(settings, error))?;
    let text = match path {
        Some(path) => format!("{} is valid\n", path.display()),
        None => String::from("no configuration file: using the defaults\n"),
    };
    let mut told = Told { text, warnings: Vec::new() };
    describe::describe(settings, listed, &mut told);
    settings.warnings().iter().cloned().for_each(|warning| told.warn(warning));
    identity(settings, &mut told)?;
    told.text += &cache(settings)?;
    told.text += &evidence(settings)?;
    authority(settings, &mut told)?;
    told.text += &trusted_roots(settings)?;
    Ok(told)
}

fn at_fault(faults: &[serde_json::Value]) -> Result<ExitCode, CommandError> {
    print(&inert_json(&format!("{}\n", json!({ "faults": faults }))))?;
    Ok(ExitCode::from(super::command_error::USAGE))
}

fn faults(errors: &ConfigErrors) -> Vec<serde_json::Value> {
    let shown = |(place, it): (Option<String>, &Complaint)| json!({ "place": place, "what": it.what, "hint": it.hint });
    errors.with_places().map(shown).collect()
}

/// Describes the crawler's identity, as sites see it.
fn identity(settings: &Settings, told: &mut Told) -> Result<(), CommandError> {
    if settings.identity.contact.is_empty() && settings.identity.user_agent.is_none() {
        told.warn(Complaint::new(
            "requests for robots.txt do not say how a webmaster can contact you (identity.contact)",
            "write a URL that explains your crawler, or a mail address",
        ));
    }
    if let Some(signer) = Signer::configured(settings, None)? {
        let (directory, when) = (signer.directory(), settings.identity.signature.when);
        let when = if when == SignWhen::Always { "" } else { " where a site asks for it" };
        let ids = directory.ids().collect::<Vec<_>>();
        told.say(&format!("signs requests{when} as {} with the key {}", directory.agent(), ids[0]));
        if let [_, others @ ..] = ids.as_slice()
            && !others.is_empty()
        {
            told.say(&format!("and lists {} in the directory", others.join(", ")));
        }
    }
    Ok(())
}

/// Checks that pages can be cached, and describes the cache.
fn cache(settings: &Settings) -> Result<String, CommandError> {
    let Some(directory) = &settings.cache.directory else { return Ok(String::new()) };
    let shown = directory.display();
    check_writable(settings, directory, "pages cannot be cached", "cache.directory")?;
    check_lock(directory).map_err(|source| StartError::cache(settings, directory, &source))?;
    Ok(format!("  caches pages in {shown}, up to {} (cache)\n", show_size(settings.cache.size)))
}

/// Checks that decisions can be recorded, and describes the evidence.
fn evidence(settings: &Settings) -> Result<String, CommandError> {
    let Some(directory) = &settings.evidence.directory else { return Ok(String::new()) };
    let shown = directory.display();
    check_writable(settings, directory, "evidence cannot be stored", "evidence.directory")?;
    check_lock(directory).map_err(|error| unusable(directory, &error).placed(&settings.places))?;
    let keep = show_duration(settings.evidence.keep);
    Ok(format!("  records each decision in {shown}, and keeps the record for {keep} (evidence)\n"))
}

/// Checks that files can be created in a directory, or in the nearest existing one above it. `what`: the consequence if they cannot, for
/// the error. `key`: the key that names the directory.
fn check_writable(settings: &Settings, directory: &Path, what: &str, key: &str) -> Result<(), UnusableFile> {
    let is_open = |there: PathBuf| {
        let open = access(&there, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
        open.map_err(|error| format!("{}: {error}", there.display()))
    };
    let hint = format!("let the proxy's user write there, run this as that user, or correct `{key}`");
    existing(directory).and_then(is_open).map_err(|error| {
        let what = format!("{what} in {}: {error}", directory.display());
        UnusableFile::new(what, hint).about(directory).placed(&settings.places)
    })
}

/// Returns the directory itself if it exists, or else the nearest existing directory above it. `Err`: something else is in the way.
fn existing(directory: &Path) -> Result<PathBuf, String> {
    let directory = std::path::absolute(directory).map_err(|error| error.to_string())?;
    let there = directory.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    if there.is_dir() { Ok(there.to_owned()) } else { Err(format!("{} is not a directory", there.display())) }
}

/// Checks that the certificate authority can be opened or created, and describes it.
fn authority(settings: &Settings, told: &mut Told) -> Result<(), CommandError> {
    let source = &settings.intercept.ca;
    let directory = ca::directory(source);
    let is_made = [ca::CERTIFICATE, ca::KEY].iter().any(|name| may_exist(&directory.join(name)));
    if source.files().is_none() && !is_made {
        check_writable(settings, &directory, "the certificate authority cannot be created", "intercept.ca")?;
        told.say(&format!("creates its certificate authority in {} on first use", directory.display()));
        return Ok(());
    }
    let ca = Ca::configured(settings)?;
    let until = ca.validity().1.date();
    told.say(&format!("HTTPS clients have to trust {}, valid until {until}", ca.path().display()));
    if let Some(next) = ca.next() {
        let until = next.until.date();
        told.say(&format!(
            "and {}.next, which `politely ca rotate --finish` puts in its place, valid until {until}",
            ca.path().display()
        ));
    }
    if let Some(warning) = ca.warning(OffsetDateTime::now_utc()) {
        told.warn(Complaint::new(warning, ""));
    }
    Ok(())
}

/// Whether the path may exist. A path that we may not inspect counts as existing, so that opening it reports the reason.
fn may_exist(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

fn trusted_roots(settings: &Settings) -> Result<String, CommandError> {
    let roots = roots::configured(settings)?;
    server::check(settings, &roots)?;
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
    fn nearest_existing_parent_of_a_relative_path_is_the_current_directory() {
        assert_eq!(existing(Path::new("not/there")), Ok(std::env::current_dir().unwrap()));
        assert!(existing(Path::new("/dev/null/below")).unwrap_err().ends_with("/dev/null is not a directory"));
    }
}
