//! Where the report for scripts goes.

use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

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
    pub fn open(&self) -> io::Result<Option<ReportFile>> {
        let Self::File(path) = self else { return Ok(None) };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        let Some(descriptor) = descriptor(path) else { return Ok(Some(ReportFile { file, is_shared: false })) };
        // SAFETY: it was open just now, and is only copied.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?.into();
        Ok(Some(ReportFile { file, is_shared: true }))
    }
}

/// The descriptor of ours that this path names, such as /dev/stdout. A file that is opened by it again is written from its beginning.
fn descriptor(path: &Path) -> Option<RawFd> {
    let path = path.to_str()?;
    #[cfg(target_os = "linux")]
    if let Some(number) = path.strip_prefix("/proc/self/fd/") {
        return number.parse().ok();
    }
    match path {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        path => path.strip_prefix("/dev/fd/")?.parse().ok(),
    }
}

/// Where the report will be written.
pub(super) struct ReportFile {
    file: File,
    /// The command may write there, too.
    is_shared: bool,
}

impl ReportFile {
    /// Puts the report in the place of what the file held, or after what was written to a shared one.
    pub fn write(mut self, report: &Value) -> io::Result<()> {
        // A pipe has no length.
        if !self.is_shared && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(super::super::inert_json(&format!("{report:#}\n")).as_bytes())
    }
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
    fn a_file_with_a_number_for_its_name_is_no_descriptor() {
        let named = ["/dev/stdout", "/dev/fd/3", "3", "dev/fd/3", "/dev/fd/x", "/dev/null"];
        assert_eq!(named.map(|path| descriptor(Path::new(path))), [Some(1), Some(3), None, None, None, None]);
    }

    #[test]
    fn a_report_takes_the_place_of_the_last_one_at_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the report of an earlier run, which was longer").unwrap();
        let opened = ReportTo::File(file.path().into()).open().unwrap().unwrap();
        assert!(std::fs::read_to_string(file.path()).unwrap().starts_with("the report of"));
        opened.write(&json!(1)).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "1\n");
        let pipe = ReportTo::File("/dev/null".into()).open().unwrap().unwrap();
        pipe.write(&json!(1)).unwrap();
    }
}
