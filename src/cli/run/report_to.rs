//! Where the report for scripts goes.

use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

/// The place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportTo {
    /// In place of the summary for people, as one line.
    StandardError,
    File(PathBuf),
}

impl ReportTo {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "json" => Ok(Self::StandardError),
            Some(("json", file)) if !file.is_empty() => Ok(Self::File(file.into())),
            _ => Err("it is `json`, for standard error, or `json=FILE`".into()),
        }
    }

    /// The file, so that it is known before the command runs that it can be written. What it holds stays until then.
    pub fn open(&self) -> io::Result<Option<File>> {
        match self {
            Self::StandardError => Ok(None),
            Self::File(path) => OpenOptions::new().create(true).truncate(false).write(true).open(path).map(Some),
        }
    }
}

/// Puts the report in the place of what the file held.
pub(super) fn replace(mut file: File, report: &Value) -> io::Result<()> {
    // A pipe has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(super::super::inert_json(&format!("{report:#}\n")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_goes_to_standard_error_or_to_a_file() {
        assert_eq!(ReportTo::parse("json"), Ok(ReportTo::StandardError));
        assert_eq!(ReportTo::parse("json=a=b.json"), Ok(ReportTo::File("a=b.json".into())));
        for wrong in ["", "text", "json=", "text=x"] {
            assert!(ReportTo::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_report_takes_the_place_of_the_last_one_at_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the report of an earlier run, which was longer").unwrap();
        let opened = ReportTo::File(file.path().into()).open().unwrap().unwrap();
        assert!(std::fs::read_to_string(file.path()).unwrap().starts_with("the report of"));
        replace(opened, &json!(1)).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "1\n");
        let pipe = ReportTo::File("/dev/null".into()).open().unwrap().unwrap();
        replace(pipe, &json!(1)).unwrap();
    }
}
