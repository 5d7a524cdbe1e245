//! Why a command failed, and its exit code.

use crate::config::{ConfigErrors, MORE_PROCESSES, UnusableFile, hint_for};
use crate::policy::{Authority, Refusal};
use crate::server::StartError;
use crate::telemetry::is_colorful;
use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;

/// The failure of a command, ready to be printed.
#[derive(Debug)]
pub(super) struct CommandError {
    pub message: String,
    pub code: ExitCode,
}

impl CommandError {
    /// A mistake in usage or configuration.
    pub fn usage(what: impl std::fmt::Display, hint: impl std::fmt::Display) -> Self {
        let what = what.to_string();
        let hint = hint_for(&what, hint.to_string());
        CommandError { message: format!("error: {what}\nhint: {hint}"), code: ExitCode::from(USAGE) }
    }

    /// The site could not be asked for its robots.txt.
    pub fn not_asked(authority: &Authority, why: &Refusal) -> Self {
        let hint = why.setting().map(|setting| format!("`{setting}` in the configuration, or `--set`, can allow it"));
        let hint = hint.unwrap_or_else(|| "try again later".to_owned());
        Self::usage(format!("cannot read {}: {why}", authority.robots_url()), hint)
    }

    /// The output could not be written. If the reader has closed the pipe, there is no message, as if SIGPIPE had ended this program.
    pub fn not_written(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandError { message: String::new(), code: ExitCode::from(NO_READER) },
            _ => Self::usage(
                format!("cannot write the output: {error}"),
                "check the file or pipe that receives the output",
            ),
        }
    }

    /// The error that temporary files cannot be created.
    pub fn no_temporary_files(error: io::Error) -> Self {
        Self::usage(format!("cannot keep temporary files: {error}"), "check that `TMPDIR` exists and is writable")
    }

    /// The error that the command of `run` cannot be started.
    pub fn not_run(program: &OsStr, error: &io::Error) -> Self {
        let (code, hint) = match error.kind() {
            io::ErrorKind::NotFound => (NOT_FOUND, "check that it is installed and spelled correctly"),
            io::ErrorKind::WouldBlock => (NOT_RUNNABLE, MORE_PROCESSES),
            _ => (NOT_RUNNABLE, "check that it is a program and executable"),
        };
        let hint = hint_for(&error.to_string(), hint);
        let message = format!("error: cannot run `{}`: {error}\nhint: {hint}", program.display());
        CommandError { message, code: ExitCode::from(code) }
    }
}

/// Adds to an error what failed, and a hint.
pub(super) trait Explained<T> {
    /// `what`: precedes the error's own text. `hint`: as in [`CommandError::usage`].
    fn explained(self, what: impl std::fmt::Display, hint: impl std::fmt::Display) -> Result<T, CommandError>;
}

impl<T, E: std::fmt::Display> Explained<T> for Result<T, E> {
    fn explained(self, what: impl std::fmt::Display, hint: impl std::fmt::Display) -> Result<T, CommandError> {
        self.map_err(|error| CommandError::usage(format!("{what}: {error}"), hint))
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

impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        Self::usage(&error, error.hint())
    }
}

impl From<UnusableFile> for CommandError {
    fn from(error: UnusableFile) -> Self {
        StartError::from(error).into()
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let what = error.to_string();
        let hint = hint_for(&what, "");
        let hint = if hint.is_empty() { hint } else { format!("\nhint: {hint}") };
        // A system error is not a defect of this program. It is recognised by its text, as libraries wrap system errors in their own
        // errors.
        let code = if what.contains("(os error ") { USAGE } else { DEFECT };
        CommandError { message: format!("error: {what}{hint}"), code: ExitCode::from(code) }
    }
}

/// Exit code for a negative answer: the URL is disallowed, or there are faults.
pub(super) const NO: u8 = 1;
pub(super) const USAGE: u8 = 2;
pub(super) const DEFECT: u8 = 70;
/// The exit code of an ended process, as shells report it: the process's own, or 128 plus the number of the signal that ended the process.
pub(super) fn exit_code(code: Option<i32>, signal: Option<i32>) -> u8 {
    let code = code.or(signal.map(|signal| i32::from(BY_SIGNAL) + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

pub(super) const BY_SIGNAL: u8 = 128;
pub(super) const INTERRUPTED: u8 = BY_SIGNAL + libc::SIGINT as u8;
const NO_READER: u8 = BY_SIGNAL + libc::SIGPIPE as u8;
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_errors_get_the_hint_of_their_limit() {
        let failed = |number, hint| CommandError::usage(io::Error::from_raw_os_error(number), hint).message;
        for number in [libc::EFBIG, libc::ENOSPC, libc::EDQUOT] {
            assert!(failed(number, "correct the path").contains("\nhint: make room on the disk, "), "{number}");
            assert!(failed(number, "make room, or set it lower").contains("or set it lower"), "{number}");
        }
        let no_process = CommandError::not_run(OsStr::new("curl"), &io::Error::from_raw_os_error(libc::EAGAIN));
        assert!(no_process.message.ends_with(&format!("(os error 11)\nhint: {MORE_PROCESSES}")), "{no_process}");
    }
}
