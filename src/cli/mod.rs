//! The command line: one file a subcommand.

mod admin_client;
mod ca;
mod check;
mod demo;
mod evidence;
mod explain;
mod identity;
mod isolate;
mod lint;
mod packaging;
mod refresh;
mod reload;
mod report;
mod run;
mod running_file;
mod serve;
mod status;
mod trust;

use crate::config::{AccessLog, ConfigErrors, LogSettings};
use crate::server::StartError;
use crate::telemetry;
use crate::tls::{CaError, RootsError};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// A forward proxy that makes any crawler obey robots.txt
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve as a proxy until SIGTERM
    Serve(serve::ServeArgs),
    /// Run a command behind a proxy of its own
    Run(run::RunArgs),
    /// Validate the configuration: every mistake with its place and a hint
    Check(check::CheckArgs),
    /// Manage the certificate authority that HTTPS clients have to trust
    Ca(ca::CaArgs),
    /// Manage the keys that sign requests (Web Bot Auth), and their directory
    Identity(identity::IdentityArgs),
    /// Test a URL: may it be fetched, and which line of robots.txt decides
    Explain(explain::ExplainArgs),
    /// Check a robots.txt for mistakes
    Lint(lint::LintArgs),
    /// Show a running proxy's hosts, waiting requests and refusals
    Status(admin_client::AdminArgs),
    /// Make a running proxy fetch a robots.txt again, now
    Refresh(refresh::RefreshArgs),
    /// Make a running proxy reload its configuration
    Reload(admin_client::AdminArgs),
    /// Verify the chain of decisions that was kept
    Evidence(evidence::EvidenceArgs),
    /// Report what was requested from whom, and what was refused, from the evidence kept
    Report(report::ReportArgs),
    /// Crawl a sample site on loopback and explain each answer
    Demo,
    /// Print shell completions
    Completions(packaging::Completions),
    /// Print the manual page, or write all manual pages to a directory
    Man(packaging::Man),
    #[command(hide = true)]
    Isolated(isolate::IsolateArgs),
}

/// What every command that reads the configuration takes.
#[derive(Debug, clap::Args)]
struct ConfigArg {
    /// Configuration file [default: $POLITELY_CONFIG, else /etc/politely/politely.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArg {
    /// The file to read; `None`: the defaults hold.
    fn path(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("POLITELY_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
        let machine = || Some(PathBuf::from(MACHINE_CONFIG)).filter(|path| path.exists());
        self.config.clone().or_else(named).or_else(machine)
    }
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

/// Parses the command line, does what it says, and returns the exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.command {
        Command::Serve(_) | Command::Run(_) | Command::Demo | Command::Isolated(_) => {}
        Command::Check(_) | Command::Ca(_) | Command::Explain(_) | Command::Lint(_) => end_with_reader(),
        Command::Completions(_) | Command::Man(_) | Command::Status(_) | Command::Identity(_) => end_with_reader(),
        Command::Refresh(_) | Command::Reload(_) | Command::Evidence(_) | Command::Report(_) => end_with_reader(),
    }
    let done = match &cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(args),
        Command::Ca(args) => ca::run(args),
        Command::Identity(args) => identity::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Lint(args) => lint::run(args),
        Command::Status(args) => status::run(args),
        Command::Refresh(args) => refresh::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Evidence(args) => evidence::run(args),
        Command::Report(args) => report::run(args),
        Command::Demo => demo::run(),
        Command::Completions(args) => Ok(packaging::completions(args)),
        Command::Man(args) => packaging::man(args),
        Command::Isolated(args) => isolate::run(args),
    };
    telemetry::flush();
    done.unwrap_or_else(|failed| {
        eprintln!("{failed}");
        failed.code
    })
}

/// Why a command could not do its work, ready to be printed.
#[derive(Debug)]
struct CommandError {
    message: String,
    code: ExitCode,
}

impl CommandError {
    /// Wrong usage or configuration.
    fn usage(what: impl std::fmt::Display, hint: impl std::fmt::Display) -> Self {
        CommandError { message: format!("error: {what}\nhint: {hint}"), code: ExitCode::from(USAGE) }
    }

    fn log(log: &LogSettings, source: io::Error) -> Self {
        match &log.access {
            AccessLog::File(path) => StartError::Log { path: path.clone(), source }.into(),
            AccessLog::Off | AccessLog::Stdout | AccessLog::Journal => source.into(),
        }
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.trim_end())
    }
}

impl From<ConfigErrors> for CommandError {
    fn from(errors: ConfigErrors) -> Self {
        CommandError { message: errors.render(is_colorful(&io::stderr())), code: ExitCode::from(USAGE) }
    }
}

impl From<CaError> for CommandError {
    fn from(error: CaError) -> Self {
        Self::usage(&error, error.hint())
    }
}

impl From<RootsError> for CommandError {
    fn from(error: RootsError) -> Self {
        Self::usage(&error, error.hint())
    }
}

impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        Self::usage(&error, error.hint())
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        CommandError { message: format!("error: {error}"), code: ExitCode::from(DEFECT) }
    }
}

/// Lets `politely … | head` end as quietly as other commands do. Where sockets are served a lost reader is an error to
/// handle.
fn end_with_reader() {
    // SAFETY: no thread has been started yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// Prints an answer. A reader that has gone away, such as `head`, has read what it wanted.
fn print(text: &str) -> Result<ExitCode, CommandError> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// `1 request`, `2 requests`.
fn counted(count: impl Into<u64>, one: &str) -> String {
    let count = count.into();
    let plural = match one.strip_suffix('y') {
        Some(stem) if count != 1 => format!("{stem}ies"),
        _ if count != 1 => format!("{one}s"),
        _ => one.to_owned(),
    };
    format!("{count} {plural}")
}

/// With what others have written in it, which is not to steer the terminal.
fn inert(text: &str) -> String {
    let mut inert = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && c != '\n' {
            true => inert.extend(c.escape_unicode()),
            false => inert.push(c),
        }
    }
    inert
}

/// Colour is for terminals, and for those who want it (no-color.org).
fn is_colorful(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What the command line says of a key, in the form of the environment, which overrides the file.
fn override_key(key: &str, value: &impl serde::Serialize) -> (OsString, OsString) {
    let value = serde_json::to_string(value).expect("texts and lists of them");
    (format!("POLITELY_{key}").into(), value.into())
}

const MACHINE_CONFIG: &str = "/etc/politely/politely.yaml";
/// The answer is no: disallowed, or faults found.
const NO: u8 = 1;
const USAGE: u8 = 2;
const DEFECT: u8 = 70;
