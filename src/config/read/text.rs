//! Reads the file's text, and explains texts that are not YAML.

use std::io;
use std::path::Path;

use super::error::{Complaint, ConfigFault, ConfigPlace};
use super::tree::OURS;
use crate::config::{read_argument, read_file};

/// Reads the given file, which the command line may have named, or an included one.
pub(in crate::config) fn read_text(path: &Path, is_included: bool) -> Result<String, ConfigFault> {
    let whole = |what, hint: &str| ConfigFault { place: ConfigPlace::File(0), complaint: Complaint::new(what, hint) };
    let read = if is_included { read_file(path) } else { read_argument(path) };
    let bytes = read.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::FileTooLarge => "check that it is the right file",
            _ => "give the path of a readable file; without one the defaults are used",
        };
        whole(format!("the configuration cannot be read: {error}"), hint)
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        whole(format!("line {line} is not UTF-8"), "save the file as UTF-8")
    })
}

/// What is wrong with a text that is not YAML, and the place, if known, in the file with this number.
pub(in crate::config) fn syntax(text: &str, file: usize, error: &serde_yaml::Error) -> ConfigFault {
    let message = error.to_string();
    let message = message.rsplit(OURS).next().unwrap_or_default();
    let what = message.split(" at line ").next().unwrap_or_default();
    let (place, line) = match error.location() {
        Some(at) => {
            let place = ConfigPlace::Line { file, line: at.line(), column: at.column() };
            (place, text.lines().nth(at.line() - 1).unwrap_or_default())
        }
        None => (ConfigPlace::File(file), ""),
    };
    let known = |(sign, _): &&(&str, &str)| message.contains(sign);
    let hint = if line.contains('\t') {
        "YAML allows no tabs: indent with spaces"
    } else {
        SYNTAX_HINTS.iter().find(known).map_or(SYNTAX_HINT, |(_, hint)| hint)
    };
    let what = if what.contains("more than one document") { "there is more than one document in it" } else { what };
    ConfigFault { place, complaint: Complaint::new(what, hint) }
}

/// Parts of the parser's messages, and hints for their usual causes.
const SYNTAX_HINTS: &[(&str, &str)] = &[
    ("limit exceeded", "write the values out instead of repeating aliases"),
    ("unfolds to more", "write the values out instead of repeating aliases"),
    ("a tag", "leave out the word that begins with `!`, or put the text in quotes"),
    ("alias", "a text that begins with `*` or `&` needs quotes: \"*.example.com\""),
    ("anchor", "a text that begins with `*` or `&` needs quotes: \"*.example.com\""),
    ("mapping values", "a text with a colon and a space needs quotes; keys of one section stand in one column"),
    ("one document", "leave out the line `---` and what follows"),
];
const SYNTAX_HINT: &str = "check the indentation, the quotes and the brackets here and in the line before";
