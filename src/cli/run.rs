//! `politely run -- COMMAND`: a command behind a proxy of its own, with its environment set and our CA trusted. Called
//! by `cli`.

use super::Failed;
use super::trust::{BUNDLE, variables};
use crate::config::{self, AccessLog, LogLevel, Settings};
use crate::proxy::Counts;
use crate::server::{self, Running};
use crate::telemetry;
use crate::tls::{Ca, roots};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use tempfile::{NamedTempFile, TempDir};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Read robots.txt for this crawler, whatever its User-Agent says; may be given several times
    #[arg(long = "product-token", value_name = "T")]
    product_tokens: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failed> {
    let mut overrides = vec![super::override_key("LISTEN", &[json!({ "address": "127.0.0.1:0" })])];
    if !args.product_tokens.is_empty() {
        overrides.push(super::override_key("IDENTITY__PRODUCT_TOKENS", &args.product_tokens));
    }
    let path = args.config.path();
    let mut settings = Settings::load(path.as_deref(), std::env::vars_os().chain(overrides))?;
    // The proxy of one command has nobody to watch it, and keeps its copies where other programs keep theirs.
    settings.admin.address = None;
    settings.store.directory.get_or_insert_with(config::cache_directory);
    // The terminal is the command's; faults are told all the same.
    if matches!(settings.log.level, LogLevel::Info) {
        settings.log.level = LogLevel::Warn;
    }
    if settings.log.access == AccessLog::Stdout {
        settings.log.access = AccessLog::Off;
    }
    telemetry::init(&settings.log).map_err(|error| Failed::log(&settings.log, &error))?;
    super::runtime()?.block_on(behind(settings, &args.command))
}

async fn behind(settings: Settings, command: &[OsString]) -> Result<ExitCode, Failed> {
    let (directory, trust) = trust(&settings)?;
    let wgetrc = wgetrc(&directory.path().join(BUNDLE))?;
    let running = server::start(settings).await?;
    let url = format!("http://{}", running.addresses()[0]);
    let (program, arguments) = command.split_first().expect("clap requires one");
    let mut child = Command::new(program);
    child.args(arguments).envs(environment(&url)).envs(trust).env("WGETRC", wgetrc.path());
    let status = match child.spawn() {
        Ok(mut child) => {
            // A Ctrl-C goes to the command too, as it is in our process group; it decides, and we tell its end.
            let mut interrupts = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            loop {
                tokio::select! {
                    status = child.wait() => break status?,
                    _ = interrupts.recv() => {}
                    _ = terminate.recv() => pass_on(&child, Signal::TERM),
                }
            }
        }
        Err(error) => {
            let name = program.display();
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
            running.shutdown().await;
            let message = format!("error: cannot run `{name}`: {error}\nhint: is it installed, and spelled so?");
            return Err(Failed { message, code: ExitCode::from(code) });
        }
    };
    let counts = finish(running).await;
    summarize(&counts);
    Ok(exit_code(status))
}

async fn finish(running: Running) -> Counts {
    let counts = running.counts();
    running.shutdown().await;
    counts
}

/// For the command's environment.
type Variables = Vec<(&'static str, OsString)>;

/// The system's roots and our CA, and the variables that make clients behind us trust them.
fn trust(settings: &Settings) -> Result<(TempDir, Variables), Failed> {
    let ca = Ca::configured(&settings.intercept.ca).map_err(server::StartError::from)?;
    let roots = roots::bundle(settings.egress.ca_file.as_deref()).map_err(server::StartError::from)?;
    let directory = tempfile::Builder::new().prefix("politely-trust-").tempdir()?;
    let all = variables(directory.path(), &roots, &ca, |name| std::env::var_os(name));
    Ok((directory, all.map_err(server::StartError::from)?))
}

/// wget built on GnuTLS takes its roots from no variable: what the user has set up for it, and our bundle.
fn wgetrc(bundle: &Path) -> io::Result<NamedTempFile> {
    let own = std::env::var_os("WGETRC").map(PathBuf::from);
    let own = own.or_else(|| std::env::home_dir().map(|home| home.join(".wgetrc")));
    let mut settings = own.and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    settings.extend_from_slice(b"\nca_certificate = ");
    settings.extend_from_slice(bundle.as_os_str().as_bytes());
    settings.push(b'\n');
    let mut file = tempfile::Builder::new().prefix("politely-wgetrc-").tempfile()?;
    file.write_all(&settings)?;
    Ok(file)
}

/// What makes common clients use the proxy.
fn environment(url: &str) -> Variables {
    const PROXY: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let proxy = PROXY.iter().map(|name| (*name, OsString::from(url)));
    let rest = [("NO_PROXY", ""), ("no_proxy", ""), ("NODE_USE_ENV_PROXY", "1"), ("PERL_LWP_ENV_PROXY", "1")];
    proxy.chain(rest.map(|(name, value)| (name, value.into()))).collect()
}

fn summarize(counts: &Counts) {
    let refused: u64 = counts.refused.values().sum();
    let total = counts.forwarded + counts.failed + refused;
    let mut line = format!("politely: {total} requests, {} forwarded", counts.forwarded);
    if counts.failed > 0 {
        line += &format!(", {} failed", counts.failed);
    }
    for (slug, count) in &counts.refused {
        line += &format!(", {count} {slug}");
    }
    // The command may have closed the terminal.
    let _ = writeln!(io::stderr(), "{line}");
}

fn pass_on(child: &tokio::process::Child, signal: Signal) {
    // Our own child, not waited for yet, so the number is still its; it may have ended.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}

/// As a shell tells it: 128 and the signal's number for a command that a signal ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
