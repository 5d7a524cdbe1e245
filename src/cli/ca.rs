//! `politely ca`: the certificate authority that HTTPS clients have to trust.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use time::OffsetDateTime;

use crate::config::{ListenAddress, Settings, refuse_foreign, state_directory};
use crate::policy::Host;
use crate::tls::{Ca, ca, roots, secret_file};

use super::admin_client;
use super::remote_proxy;
use super::trust::{OwnEntries, StoreKind, TrustFiles, TrustOutcome, TrustStep, UserMachine, direct};
use super::{CommandError, Explained, NO};

#[derive(Debug, clap::Args)]
pub(super) struct CaArgs {
    #[command(subcommand)]
    action: CaAction,
}

#[derive(Debug, clap::Subcommand)]
enum CaAction {
    /// Create the authority if there is none, and show how to trust it
    Init(super::ConfigArg),
    /// Print the certificate's path
    Path(super::ConfigArg),
    /// Print the certificate that clients have to trust, PEM
    Export(super::ConfigArg),
    /// Print shell exports that make common programs trust the authority and use the proxy: eval "$(politely ca env)"
    Env(Env),
    /// Create the next authority; clients have to trust both before `--finish` puts it in place
    Rotate(Rotate),
    /// Make this machine's programs trust the authority
    Install(CaPaths),
    /// Remove all authorities made by `politely` from this machine's programs
    Uninstall(CaPaths),
}

#[derive(Debug, clap::Args)]
struct Rotate {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Put the next authority in place: it signs from now on; the old files are kept as ca.pem.old and ca.key.old
    #[arg(long)]
    finish: bool,
    /// Do not ask for confirmation before `--finish`
    #[arg(long, requires = "finish")]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct Env {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Get the certificate from a proxy on another machine: http://proxy:3128, or its admin address, http://proxy:3129
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// File with the token of that proxy's admin address; this machine's own token is never sent there
    #[arg(long, value_name = "FILE", requires = "from")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct CaPaths {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Only this trust store; may be given several times
    #[arg(long, value_name = "PLACE")]
    only: Vec<StoreKind>,
}

pub(super) fn run(args: &CaArgs) -> Result<ExitCode, CommandError> {
    match &args.action {
        CaAction::Init(config) => init(config),
        CaAction::Path(config) => super::print(&format!("{}\n", open(config)?.1.path().display())),
        CaAction::Export(config) => super::print(&open(config)?.1.trusted_pem()),
        CaAction::Env(args) => env(args),
        CaAction::Rotate(args) => rotate(args),
        CaAction::Install(places) => {
            let (_, ca) = open(&places.config)?;
            print_trust(UserMachine::here().install(&ca, &places.only).map_err(CommandError::no_temporary_files)?)
        }
        CaAction::Uninstall(places) => {
            let own = OwnEntries::of(Ca::present(&places.config.load()?.intercept.ca));
            print_trust(UserMachine::here().uninstall(&own, &places.only))
        }
    }
}

/// Opens the configured authority; creates it if necessary.
fn open(config: &super::ConfigArg) -> Result<(Settings, Ca), CommandError> {
    let settings = config.load()?;
    let ca = warned(Ca::configured(&settings)?);
    Ok((settings, ca))
}

/// Prints the warning about the authority's validity, if there is one.
fn warned(ca: Ca) -> Ca {
    if let Some(warning) = ca.warning(OffsetDateTime::now_utc()) {
        eprintln!("warning: {warning}");
    }
    ca
}

fn init(config: &super::ConfigArg) -> Result<ExitCode, CommandError> {
    let settings = config.load()?;
    let directory = ca::directory(&settings.intercept.ca);
    let was_there = directory.join(ca::CERTIFICATE).exists();
    let ca = warned(Ca::configured(&settings)?);
    let what = match was_there {
        _ if settings.intercept.ca.files().is_some() => "your own:",
        true => "exists already:",
        false => "made",
    };
    print_steps(what, &ca)
}

fn rotate(args: &Rotate) -> Result<ExitCode, CommandError> {
    let settings = args.config.load()?;
    if let Some((certificate, _)) = settings.intercept.ca.files() {
        let what = format!("{} is your own authority, which this command does not replace", certificate.display());
        return Err(CommandError::usage(&what, "replace it and its key, which `intercept.ca` names"));
    }
    let directory = ca::directory(&settings.intercept.ca);
    let certificate = directory.join(ca::CERTIFICATE);
    if args.finish {
        let none = || CommandError::usage("no rotation has begun", "`politely ca rotate` begins one");
        let next = Ca::prepared(&directory).ok_or_else(none)?;
        if !args.yes && !is_confirmed(&directory)? {
            return Ok(ExitCode::from(NO));
        }
        return print_replaced("signs from now on:", &Ca::finish(&directory, &next)?);
    }
    let now = match Ca::open_in(&directory, OffsetDateTime::now_utc()) {
        Ok(now) => now,
        // Clients still trust this authority, so it is not replaced: the operator may be able to repair it.
        Err(error) if certificate.exists() && !ca::has_expired(&certificate) => return Err(error.into()),
        // There is no authority, or it has expired, so no client trusts it: replaces it at once.
        Err(_) => return print_replaced("made", &Ca::replace_expired(&directory)?),
    };
    let what = if Ca::prepare(&directory)? { "made" } else { "exists already:" };
    let (path, until) = (now.path().display(), now.validity().1.date());
    super::print(&format!(
        "{what} {path}.next\n{path} continues to sign, until {until} at the latest\n  \
         have clients trust both:   politely ca install, politely ca env, politely ca export, http://{}/\n  \
         when they do:              politely ca rotate --finish\n",
        settings.intercept.setup_host
    ))
}

/// Asks for confirmation, as this program cannot know which clients trust the next authority.
///
/// # Errors
/// Standard input is not a terminal.
fn is_confirmed(directory: &Path) -> Result<bool, CommandError> {
    let next = directory.join(ca::CERTIFICATE);
    let lost =
        format!("clients that do not trust {}.next yet lose HTTPS with the next `politely reload`", next.display());
    if !io::stdin().is_terminal() {
        return Err(CommandError::usage(lost, "if all of them trust both, `politely ca rotate --finish --yes`"));
    }
    eprint!("{lost}; put it in place? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.explained("cannot read the answer", "type `y` or `n`")?;
    let is_yes = ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str());
    if !is_yes {
        eprintln!("nothing was changed");
    }
    Ok(is_yes)
}

fn print_replaced(what: &str, ca: &Ca) -> Result<ExitCode, CommandError> {
    print_steps(what, ca)?;
    super::print("a running proxy signs with it after `politely reload`\n")
}

/// Prints the certificate's path and the commands that make clients trust it.
fn print_steps(what: &str, ca: &Ca) -> Result<ExitCode, CommandError> {
    super::print(&format!(
        "{what} {}\n  \
         trust it on this machine:  politely ca install\n  \
         trust it in one shell:     eval \"$(politely ca env)\"\n  \
         trust it elsewhere:        politely ca export\n",
        ca.path().display()
    ))
}

fn env(args: &Env) -> Result<ExitCode, CommandError> {
    let settings = args.config.load()?;
    let mut credentials = String::new();
    let (directory, ca_pem, proxy) = match &args.from {
        None => {
            let ca = warned(Ca::configured(&settings)?);
            let proxy = settings.listen.iter().find_map(|listener| match &listener.address {
                // A listener with TLS needs a scheme that few programs support; the actual port for port 0 is known only while serving.
                ListenAddress::Socket(address) if listener.tls.is_none() && address.port() != 0 => {
                    let address = admin_client::reachable(*address);
                    Some((Host::Ip(address.ip()).to_string(), address.port()))
                }
                ListenAddress::Socket(_) | ListenAddress::Inherited(_) => None,
            });
            (ca::directory(&settings.intercept.ca), ca.trusted_pem(), proxy)
        }
        Some(url) => {
            let remote = remote_proxy::fetch(url, args.token_file.as_deref(), &settings.intercept.setup_host)?;
            credentials = remote.credentials;
            (state_directory().join("from").join(folder(&remote.name)), remote.ca_pem, remote.proxy)
        }
    };
    refuse_foreign(&directory)
        .map_err(|error| CommandError::usage(error.to_string(), "`politely ca export` prints the certificate"))?;
    secret_file::directory(&directory)?;
    let roots = roots::configured(&settings)?;
    let told = TrustFiles {
        directory: &directory,
        roots: &roots,
        ca_pem: &ca_pem,
        proxy,
        credentials: &credentials,
        direct: direct(&settings),
    };
    let all = told.variables(|name| std::env::var_os(name))?;
    let export = |(name, value): &(&str, OsString)| [b"export ", name.as_bytes(), b"=", &*quote(value), b"\n"].concat();
    super::print_bytes(&all.iter().flat_map(export).collect::<Vec<_>>())
}

/// Converts a proxy's name to the name of a directory, without characters that separate the entries of a search path.
fn folder(proxy: &str) -> String {
    proxy.replace([':', '[', ']'], "+")
}

fn print_trust(steps: Vec<TrustStep>) -> Result<ExitCode, CommandError> {
    let mut told = String::new();
    for TrustStep { place, outcome } in &steps {
        match outcome {
            TrustOutcome::Done(what) | TrustOutcome::Nothing(what) => told += &format!("{place}: {what}\n"),
            TrustOutcome::Failed { what, hint } => eprintln!("error: {place}: {what}\nhint: {hint}"),
        }
    }
    super::print(&told)?;
    let failed = steps.iter().any(|step| matches!(step.outcome, TrustOutcome::Failed { .. }));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Quotes for a POSIX shell.
fn quote(value: &OsStr) -> Vec<u8> {
    let parts: Vec<_> = value.as_bytes().split(|byte| *byte == b'\'').collect();
    [b"'", &*parts.join(&br"'\''"[..]), b"'"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_remote_proxy_has_its_own_directory() {
        let names = ["a-b:3128", "a_b:3128", "a.b:3128", "a-b:31", "[::1]:3128", "[::11]:3128"];
        let folders = names.map(folder);
        assert_eq!(std::collections::BTreeSet::from(folders.clone()).len(), names.len(), "{folders:?}");
        assert!(!folders.concat().contains(':'), "{folders:?}");
    }

    #[test]
    fn shell_quoting_keeps_bytes_that_are_not_utf8() {
        assert_eq!(
            quote(OsStr::from_bytes(b"it's\xff")),
            br"'it'\''s".iter().chain(b"\xff'").copied().collect::<Vec<_>>()
        );
    }
}
