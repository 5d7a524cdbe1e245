//! Reads a file's text, and explains why a text is not YAML.

use std::io;
use std::path::Path;

use super::error::{Complaint, ConfigPlace};
use super::visitor::OURS;
use crate::config::{hint_for, read_argument, read_file};

/// Reads the text of the first file, which may be named on the command line, or of an included file.
pub(in crate::config) fn read_text(path: &Path, is_included: bool) -> Result<String, Complaint> {
    let read = if is_included { read_file(path) } else { read_argument(path) };
    let bytes = read.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::FileTooLarge => "check that it is the right file",
            io::ErrorKind::PermissionDenied => {
                "the systemd service has a user of its own: `chmod 644` the file, and give secrets as `credential:NAME`"
            }
            _ if is_included => "check that it is the right file and readable, or move it away",
            _ => "give the path of a readable file; without one the defaults are used",
        };
        Complaint::new(format!("the configuration cannot be read: {error}"), hint_for(&error.to_string(), hint))
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Complaint::new(format!("line {line} is not UTF-8"), "save the file as UTF-8")
    })
}

/// The fault of a text that is not YAML, and its place, as far as it is known. `file`: the number of the file.
pub(in crate::config) fn syntax(text: &str, file: usize, error: &serde_yaml::Error) -> (ConfigPlace, Complaint) {
    let message = error.to_string();
    let message = message.rsplit(OURS).next().unwrap_or_default();
    let what = without_place(message);
    // The parser does not report the place of a control character.
    let at = match what.contains("control characters") {
        true => forbidden(text),
        false => error.location().map(|at| (at.line(), at.column())),
    };
    let (place, line) = match at {
        Some((line, column)) => {
            (ConfigPlace::Line { file, line, column }, text.lines().nth(line - 1).unwrap_or_default())
        }
        None => (ConfigPlace::File(file), ""),
    };
    let known = |(sign, _): &&(&str, &str)| message.contains(sign);
    let hint = if line.contains('\t') {
        "YAML allows no tabs: indent with spaces"
    } else {
        SYNTAX_HINTS.iter().find(known).map_or(SYNTAX_HINT, |(_, hint)| hint)
    };
    let what = if what.contains("more than one document") { "the file has more than one document" } else { what };
    (place, Complaint::new(what, hint))
}

/// Line and column of the first character that YAML does not allow (1.2.2 §5.1).
fn forbidden(text: &str) -> Option<(usize, usize)> {
    let is_forbidden =
        |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}') || matches!(c, '\u{fffe}' | '\u{ffff}');
    let before = &text[..text.find(is_forbidden)?];
    let line = before.split('\n').next_back().unwrap_or_default();
    Some((before.matches('\n').count() + 1, line.chars().count() + 1))
}

/// A message of the parser, without the place at its end.
pub(super) fn without_place(message: &str) -> &str {
    [" at line ", " at position "].iter().fold(message, |what, at| what.split(at).next().unwrap_or_default())
}

/// Parts of the parser's messages, and hints for their usual causes.
const SYNTAX_HINTS: &[(&str, &str)] = &[
    ("limit exceeded", "write the values out instead of repeating aliases"),
    ("unfolds to more", "write the values out instead of repeating aliases"),
    ("a tag", "leave out the word that begins with `!`, or put the text in quotes"),
    ("alias", "a text that begins with `*` or `&` needs quotes: \"*.example.com\""),
    ("anchor", "a text that begins with `*` or `&` needs quotes: \"*.example.com\""),
    (
        "mapping values",
        "a text with a colon and a space needs quotes; the keys of a section must begin in the same column",
    ),
    ("control characters", "leave the character out, or write it in double quotes as `\\xNN`"),
    ("one document", "leave out the line `---` and what follows"),
];
const SYNTAX_HINT: &str = "check the indentation, the quotes and the brackets here and in the line before";
