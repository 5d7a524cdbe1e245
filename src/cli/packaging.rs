//! `politely completions` and `politely man`: for packagers.

use super::{Cli, Failed};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// For this shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions of one shell.
pub(super) fn completions(args: &Args) -> ExitCode {
    clap_complete::generate(args.shell, &mut Cli::command(), "politely", &mut io::stdout().lock());
    ExitCode::SUCCESS
}

/// Prints the manual page.
pub(super) fn man() -> Result<ExitCode, Failed> {
    clap_mangen::Man::new(Cli::command()).render(&mut io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}
