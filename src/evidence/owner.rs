//! Whose the files of a directory are: only those are read as segments that are ours, or of the directory's owner.

use crate::config::{is_ours, open_ours};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens a segment.
///
/// # Errors
/// It cannot be read, or is another user's.
pub(super) fn open(path: &Path) -> io::Result<File> {
    open_ours(path, path.parent().unwrap_or(Path::new(".")))
}

/// Whether another user has put it there. What has just been removed was ours.
pub(super) fn is_foreign(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !is_ours(&found, path.parent().unwrap_or(Path::new("."))))
}
