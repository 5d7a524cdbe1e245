//! The temporary directory of files that make the command's programs trust the authority.

use super::super::CommandError;
use crate::config::{LOCK, is_same, open_own};
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

/// A temporary directory, removed on drop, or by the user's next run if this run was killed.
pub(super) struct TrustDirectory {
    made: TempDir,
    /// Locked for as long as the run lives.
    _lock: File,
}

/// Creates the directory. Whatever the umask, everybody may enter, as the command may become another user, but only its owner may write.
pub(super) fn directory() -> Result<TrustDirectory, CommandError> {
    let parent = std::env::temp_dir();
    remove_left(&parent);
    TrustDirectory::new(&parent).map_err(CommandError::no_temporary_files)
}

impl TrustDirectory {
    fn new(parent: &Path) -> io::Result<Self> {
        loop {
            let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let path = made.path().join(LOCK);
            let lock = open_own(File::options().read(true).write(true).create_new(true).mode(0o600), &path)?;
            // Another run may have removed the directory before it was locked, as one left by a killed run; if so, tries again. A
            // file system without locks is no reason to try again.
            if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) || !is_same(&lock, &path) {
                continue;
            }
            fs::set_permissions(made.path(), Permissions::from_mode(0o755))?;
            return Ok(Self { made, _lock: lock });
        }
    }

    pub fn path(&self) -> &Path {
        self.made.path()
    }
}

/// Removes the user's directories of runs that were killed.
fn remove_left(parent: &Path) {
    for found in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = found.path();
        let is_ours = |it: fs::Metadata| it.is_dir() && it.uid() == rustix::process::geteuid().as_raw();
        if !found.file_name().as_bytes().starts_with(PREFIX.as_bytes()) || !found.metadata().is_ok_and(is_ours) {
            continue;
        }
        // A directory that another run is just creating has no lock file yet.
        let Ok(lock) = open_own(File::options().read(true).write(true), &path.join(LOCK)) else { continue };
        // Keeps the lock until the directory is removed: a run that is just starting checks that its lock file still exists.
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

const PREFIX: &str = "politely-trust-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_killed_run_are_removed_but_not_those_in_use() {
        let parent = tempfile::tempdir().unwrap();
        let [left, used] = [(); 2].map(|()| TrustDirectory::new(parent.path()).unwrap());
        let TrustDirectory { made, _lock } = left;
        let left = made.keep();
        fs::write(left.join("ca.pem"), "").unwrap();
        drop(_lock);
        let earlier = parent.path().join(format!("{PREFIX}earlier"));
        let another = parent.path().join("another");
        for directory in [&earlier, &another] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(another.join(LOCK), "").unwrap();
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&another, &link).unwrap();
        let is_there = || [&left, used.path(), &earlier, &another, &link].map(|path| path.symlink_metadata().is_ok());
        assert_eq!(is_there(), [true; 5]);
        remove_left(parent.path());
        assert_eq!(is_there(), [false, true, true, true, true]);
        assert!(another.join(LOCK).exists());
    }
}
