//! `politely ca`: the certificate authority that clients of https have to trust.

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use time::OffsetDateTime;

use crate::config::{CaSource, ListenAddress, Settings, state_directory};
use crate::tls::{Ca, ca, keep, roots};

use super::Failed;
use super::admin_client;
use super::trust::{Kind, Machine, Outcome, Step, Told, direct};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make the authority, if there is none, and say what to do with it
    Init(super::ConfigArg),
    /// Print the certificate's path
    Path(super::ConfigArg),
    /// Print the certificate that clients have to trust, PEM
    Export(super::ConfigArg),
    /// Print shell exports that make common programs trust it and use the proxy: eval "$(politely ca env)"
    Env(Env),
    /// Make another in its place; the old one stays beside it as ca.pem.old and ca.key.old
    Rotate(super::ConfigArg),
    /// Make this machine's programs trust it
    Install(Places),
    /// Make this machine's programs forget it
    Uninstall(Places),
}

#[derive(Debug, clap::Args)]
struct Env {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Take certificate and proxy from one that runs elsewhere: its admin address, http://proxy:3129
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// What that proxy's admin address asks for: its `admin.token_file`, or a copy; ours does not go there
    #[arg(long, value_name = "FILE", requires = "from")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Places {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Only there; may be given several times
    #[arg(long, value_name = "PLACE")]
    only: Vec<Kind>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failed> {
    match &args.action {
        Action::Init(config) => init(config),
        Action::Path(config) => super::print(&format!("{}\n", open(config)?.1.path().display())),
        Action::Export(config) => super::print(open(config)?.1.cert_pem()),
        Action::Env(args) => env(args),
        Action::Rotate(config) => rotate(config),
        Action::Install(places) => change(places, Machine::install),
        Action::Uninstall(places) => change(places, Machine::uninstall),
    }
}

/// The authority that the configuration names, made if need be.
fn open(config: &super::ConfigArg) -> Result<(Settings, Ca), Failed> {
    let settings = Settings::load(config.path().as_deref(), std::env::vars_os())?;
    let ca = warned(Ca::configured(&settings.intercept.ca)?);
    Ok((settings, ca))
}

/// Tells what is wrong with its dates.
fn warned(ca: Ca) -> Ca {
    if let Some(warning) = ca.warning(OffsetDateTime::now_utc()) {
        eprintln!("warning: {warning}");
    }
    ca
}

fn init(config: &super::ConfigArg) -> Result<ExitCode, Failed> {
    let settings = Settings::load(config.path().as_deref(), std::env::vars_os())?;
    let directory = directory(&settings);
    let was_there = directory.join(ca::CERTIFICATE).exists();
    let ca = warned(Ca::configured(&settings.intercept.ca)?);
    let what = match (&settings.intercept.ca, was_there) {
        (CaSource::Directory(_), false) => "made",
        (CaSource::Directory(_), true) => "there already:",
        (CaSource::Files { .. }, _) => "your own:",
    };
    tell(what, &ca)
}

fn rotate(config: &super::ConfigArg) -> Result<ExitCode, Failed> {
    let settings = Settings::load(config.path().as_deref(), std::env::vars_os())?;
    if let CaSource::Files { certificate, .. } = &settings.intercept.ca {
        let what = format!("{} is your own", certificate.display());
        return Err(Failed::usage(&what, "replace it and its key, which `intercept.ca` names"));
    }
    let ca = Ca::rotate(&directory(&settings))?;
    tell("made", &ca)?;
    super::print("a proxy that runs takes it with its next start\n")
}

/// Where it is, and what to do with it.
fn tell(what: &str, ca: &Ca) -> Result<ExitCode, Failed> {
    super::print(&format!(
        "{what} {}\n  \
         trust it on this machine:  politely ca install\n  \
         trust it in one shell:     eval \"$(politely ca env)\"\n  \
         trust it elsewhere:        politely ca export\n",
        ca.path().display()
    ))
}

fn env(args: &Env) -> Result<ExitCode, Failed> {
    let settings = Settings::load(args.config.path().as_deref(), std::env::vars_os())?;
    let (directory, ca_pem, proxy) = match &args.from {
        None => {
            let ca = warned(Ca::configured(&settings.intercept.ca)?);
            let proxy = settings.listen.iter().find_map(|listener| match &listener.address {
                // TLS to the proxy itself takes another scheme, which few programs know; port 0 is known when it serves.
                ListenAddress::Socket(address) if listener.tls.is_none() && address.port() != 0 => {
                    let address = admin_client::reachable(*address);
                    Some((in_url(address.ip()), address.port()))
                }
                ListenAddress::Socket(_) | ListenAddress::Inherited(_) => None,
            });
            (directory(&settings), ca.cert_pem().to_owned(), proxy)
        }
        Some(url) => {
            let elsewhere = admin_client::elsewhere(url, args.token_file.as_deref())?;
            let name: String = elsewhere.name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
            (state_directory().join("from").join(name), elsewhere.ca_pem, elsewhere.proxy)
        }
    };
    keep::directory(&directory)?;
    let roots = roots::bundle(settings.egress.ca_file.as_deref())?;
    let told = Told { directory: &directory, roots: &roots, ca_pem: &ca_pem, proxy, direct: direct(&settings) };
    let all = told.variables(|name| std::env::var_os(name))?;
    let exports: String = all.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect();
    super::print(&exports)
}

fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Where files beside the authority go.
fn directory(settings: &Settings) -> PathBuf {
    match &settings.intercept.ca {
        CaSource::Directory(Some(directory)) => directory.clone(),
        CaSource::Directory(None) | CaSource::Files { .. } => ca::default_directory(),
    }
}

fn change(places: &Places, act: fn(&Machine, &Ca, &[Kind]) -> io::Result<Vec<Step>>) -> Result<ExitCode, Failed> {
    let (_, ca) = open(&places.config)?;
    let steps = act(&Machine::here(), &ca, &places.only)?;
    let mut told = String::new();
    for Step { place, outcome } in &steps {
        match outcome {
            Outcome::Done(what) | Outcome::Nothing(what) => told += &format!("{place}: {what}\n"),
            Outcome::Failed { what, hint } => eprintln!("error: {place}: {what}\nhint: {hint}"),
        }
    }
    super::print(&told)?;
    let failed = steps.iter().any(|step| matches!(step.outcome, Outcome::Failed { .. }));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// For a POSIX shell.
fn quote(value: &OsStr) -> String {
    format!("'{}'", value.display().to_string().replace('\'', r"'\''"))
}
