//! The requests behind a report's figures.

use super::line::{Kind, Line, ReadError, parse};
use super::past::Found;
use super::read::each_line;
use super::selection::Selection;
use std::io;
use std::path::Path;

/// Hands each record that a report counts to `see`, in the order of the chain.
///
/// # Errors
/// A segment cannot be read, or `see` fails.
pub fn each_counted(
    directory: &Path,
    selection: &Selection,
    mut see: impl FnMut(&Found) -> io::Result<()>,
) -> Result<(), ReadError> {
    each_line(directory, |segment, number, line| {
        let Line { time: came, kind, .. } = parse(line)?;
        match kind {
            Kind::Decision(decision) if selection.counts(&decision, decision.seen(came)) => {
                Ok(see(&Found { segment, line: number, came, decision: *decision })?)
            }
            _ => Ok(()),
        }
    })
}
