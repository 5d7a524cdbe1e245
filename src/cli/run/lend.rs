//! Makes browsers trust the authority while a command runs, and warns of failures.

use super::super::trust::loan::{self, Loan};
use super::super::trust::{TrustOutcome, UserMachine, is_browser};
use crate::config;
use crate::tls::Ca;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

/// Makes the browsers that the command may start trust the authority while it runs. Warns of a failure only if the command is a browser:
/// another command may never start one, and certificates that a browser rejects are reported anyway.
pub(super) fn lend(ca: &Ca, program: &OsStr) -> Option<Loan> {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let lent = loan::lend(UserMachine::here(), ca, &config::cache_directory());
    let (loan, failed) = lent.unwrap_or_else(|error| {
        let what = format!("browsers cannot be made to trust the authority: {error}");
        let hint = match error.kind() {
            io::ErrorKind::TimedOut => "end the certutil of that run, or the browser that it waits for",
            _ => "check that `XDG_CACHE_HOME` or `HOME` is a directory that can be written",
        };
        (None, vec![TrustOutcome::failed(what, hint)])
    });
    for outcome in failed.iter().filter(|_| is_browser(&name)) {
        if let TrustOutcome::Failed { what, hint } = outcome {
            let _ = writeln!(io::stderr(), "politely: warning: {what}\nhint: {hint}");
        }
    }
    loan
}
