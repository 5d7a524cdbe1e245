//! The command line: one file per subcommand.

#![deny(clippy::print_stdout)]

mod admin_client;
mod async_runtime;
mod ca;
mod check;
mod command_error;
mod config_arg;
mod demo;
mod evidence;
mod explain;
mod hand_over;
mod hash_password;
mod http_client;
mod identity;
mod last_run;
mod lint;
mod orphans;
mod output;
mod packaging;
mod refresh;
mod reload;
mod remote_proxy;
mod report;
mod run;
mod running_file;
mod serve;
mod signal_set;
mod status;
mod supervise;
mod tcp_table;
mod trust;

use crate::telemetry;
use async_runtime::block_on;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use command_error::{CommandError, Explained, INTERRUPTED, NO};
use config_arg::{ConfigArg, Format, MACHINE_CONFIG, key_argument, read_or_input};
use output::{REFUSED_AFTER_ANSWER, about, counted, inert, inert_json, pace_limits, print, print_bytes};
use std::io::{self, Write};
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
    /// Run a command behind a proxy started for it
    Run(run::RunArgs),
    /// Validate the configuration, and show each section's first mistake with its place and a hint
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
    Status(status::StatusArgs),
    /// Hash a password for `access.users`: asks for it, or reads standard input
    HashPassword,
    /// Make a running proxy fetch a robots.txt again, now
    Refresh(refresh::RefreshArgs),
    /// Make a running proxy reload its configuration
    Reload(admin_client::AdminArgs),
    /// Verify the stored chain of decisions, get a time stamp of its head, or print a stored file
    Evidence(evidence::EvidenceArgs),
    /// Report what was requested from which site, and what was refused, from the stored evidence
    Report(report::ReportArgs),
    /// Crawl a sample site on loopback and explain each answer
    Demo,
    /// Print a document: the default configuration, the API's description, alerting rules or a dashboard
    Print(packaging::Print),
    /// Print shell completions
    Completions(packaging::Completions),
    /// Print the manual page, or write all manual pages to a directory
    Man(packaging::Man),
    #[command(hide = true)]
    Supervise(hand_over::SuperviseArgs),
}

/// Parses the command line, runs the command, and returns the exit code.
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| misused(&error));
    if !matches!(cli.command, Command::Serve(_) | Command::Run(_) | Command::Demo | Command::Supervise(_)) {
        end_with_reader();
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
        Command::HashPassword => hash_password::run(),
        Command::Refresh(args) => refresh::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Evidence(args) => evidence::run(args),
        Command::Report(args) => report::run(args),
        Command::Demo => demo::run(),
        Command::Print(args) => packaging::print(args),
        Command::Completions(args) => packaging::completions(args, Cli::command()),
        Command::Man(args) => packaging::man(args, Cli::command()),
        Command::Supervise(args) => supervise::run(args),
    };
    telemetry::flush();
    done.unwrap_or_else(|failed| {
        if !failed.message.is_empty() {
            // If standard error cannot be written, the exit code still reports the failure.
            let _ = writeln!(io::stderr(), "{failed}");
        }
        failed.code
    })
}

/// Prints a usage error; for an unknown subcommand, as in `politely wget …`, also a hint at `run`.
fn misused(error: &clap::Error) -> ! {
    let _ = error.print();
    if error.kind() == ErrorKind::InvalidSubcommand {
        eprintln!("hint: `politely run COMMAND` runs a program behind a proxy of its own");
    }
    std::process::exit(error.exit_code())
}

/// Lets `politely … | head` end silently, as other commands do. Commands that serve sockets handle the error instead.
fn end_with_reader() {
    // SAFETY: no thread has been started yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
