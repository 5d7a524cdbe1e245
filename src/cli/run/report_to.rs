//! The destination of the report for scripts (`--report`).

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{FdFlags, fcntl_getfd};
use serde_json::Value;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The destination of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportTo {
    /// Standard error: the report is one line, and replaces the summary for people.
    StandardError,
    File(PathBuf),
}

impl ReportTo {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "json" => Ok(Self::StandardError),
            Some(("json", file)) if !file.is_empty() => Ok(Self::File(file.into())),
            _ => Err("write `json`, for standard error, or `json=FILE`".into()),
        }
    }

    /// Opens the file before the command runs, to see that it can be written. Its content stays until [`ReportFile::write`].
    pub fn open(&self) -> io::Result<Option<ReportFile>> {
        let Self::File(path) = self else { return Ok(None) };
        if let Some(file) = inherited(path)? {
            return Ok(Some(ReportFile { file, is_shared: true }));
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        Ok(Some(ReportFile { file, is_shared: false }))
    }
}

/// Copies an inherited descriptor of the same file, such as /dev/stdout: if the file were opened again, the report would overwrite what
/// the command writes.
///
/// # Errors
/// The file is open only for reading, as the command's input.
fn inherited(path: &Path) -> io::Result<Option<File>> {
    let Ok(file) = fs::metadata(path) else { return Ok(None) };
    let mut is_input = false;
    for entry in fs::read_dir("/dev/fd").into_iter().flatten().flatten() {
        let is_same = |it: Metadata| (it.dev(), it.ino()) == (file.dev(), file.ino());
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(number) = number.filter(|_| fs::metadata(entry.path()).is_ok_and(is_same)) else { continue };
        // SAFETY: the descriptor was open just now, and is only copied.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        // Descriptors with CLOEXEC are this program's own.
        if fcntl_getfd(descriptor).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC)) {
            continue;
        }
        if fcntl_getfl(descriptor)? & OFlags::RWMODE != OFlags::RDONLY {
            return Ok(Some(descriptor.try_clone_to_owned()?.into()));
        }
        is_input |= file.is_file();
    }
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "the file is open only for reading");
    if is_input { Err(refused()) } else { Ok(None) }
}

/// The open file for the report.
pub(super) struct ReportFile {
    file: File,
    /// The descriptor is inherited: the command may write to the file, too.
    is_shared: bool,
}

impl ReportFile {
    /// Writes the report: replaces the content of a file, appends to a shared one.
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
    fn report_file_is_replaced_only_at_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the report of an earlier run, which was longer").unwrap();
        let opened = ReportTo::File(file.path().into()).open().unwrap().unwrap();
        assert!(std::fs::read_to_string(file.path()).unwrap().starts_with("the report of"));
        opened.write(&json!(1)).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "1\n");
        let null = ReportTo::File("/dev/null".into()).open().unwrap().unwrap();
        null.write(&json!(1)).unwrap();
    }
}
