//! The directory of the files that tell the command's programs whom to trust.

use super::super::CommandError;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Everybody may enter it, as the command may become another user, and nobody else write there, whatever the umask.
pub(super) fn directory() -> Result<TempDir, CommandError> {
    let made = tempfile::Builder::new().prefix("politely-trust-").tempdir();
    let opened = made.and_then(|made| {
        fs::set_permissions(made.path(), Permissions::from_mode(0o755))?;
        Ok(made)
    });
    opened.map_err(|error| {
        CommandError::usage(
            format!("cannot keep temporary files: {error}"),
            "check that `TMPDIR` exists and is writable",
        )
    })
}
