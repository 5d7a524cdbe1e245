//! The directory of the files that tell the command's programs whom to trust.

use super::super::CommandError;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// Nobody else gets there until [`let_read`].
pub(super) fn directory() -> Result<TempDir, CommandError> {
    let permissions = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("politely-trust-").permissions(permissions).tempdir().map_err(|error| {
        CommandError::usage(
            format!("cannot keep temporary files: {error}"),
            "check that `TMPDIR` exists and is writable",
        )
    })
}

/// Lets everybody read what is there, as the command may become another user, and nobody else write, whatever the umask.
pub(super) fn let_read(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => let_read(&entry.path())?,
            false => fs::set_permissions(entry.path(), Permissions::from_mode(0o644))?,
        }
    }
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}
