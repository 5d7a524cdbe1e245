//! The file by which `status`, `refresh` and `reload` find a running proxy. It contains the proxy's actual admin address and token,
//! whatever the configuration says now. `serve` keeps it locked while it runs, so that a file left over by a kill is ignored.

use crate::config::{is_same, open_ours, private_directory, read_whole, state_directory, unnamed};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How to reach a running proxy. Contains the token itself, not its path: root must not read a path that another user wrote here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningProxy {
    pub admin: SocketAddr,
    pub token: Option<String>,
}

/// The file of a running proxy. Dropping it removes the file.
pub(super) struct RunningFile {
    path: PathBuf,
    /// The open file, locked until it is dropped.
    file: File,
}

impl RunningProxy {
    /// Writes the file for the proxy of this configuration file (`None`: it has none).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn announce(&self, directory: &Path, config: Option<&Path>) -> io::Result<RunningFile> {
        private_directory(directory)?;
        let path = directory.join(name(config));
        // Created atomically and locked, readable only by its owner (0600). If several proxies use one configuration, the latest counts.
        let mut file = unnamed(directory)?;
        file.as_file().lock()?;
        serde_json::to_writer(&mut file, self)?;
        let file = file.persist(&path).map_err(|error| error.error)?;
        Ok(RunningFile { path, file })
    }

    /// The running proxy with this configuration file, if we may read its file.
    pub fn find(directory: &Path, config: Option<&Path>) -> Option<Self> {
        let file = open_ours(&directory.join(name(config)), directory).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => serde_json::from_slice(&read_whole(file).ok()?).ok(),
            // The lock is free, so the proxy has ended.
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

impl Drop for RunningFile {
    fn drop(&mut self) {
        // Keeps the file if a proxy started later has replaced it.
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The directory of all running files.
pub(super) fn directory() -> PathBuf {
    state_directory().join("running")
}

/// The name of the running file: a digest of the configuration file's absolute path, whatever the current directory. Symbolic links are
/// not resolved.
fn name(config: Option<&Path>) -> String {
    let Some(path) = config else { return String::from("default.json") };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let digest = digest(&SHA256, path.as_os_str().as_bytes());
    let hex = data_encoding::HEXLOWER.encode(&digest.as_ref()[..8]);
    format!("{hex}.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn proxy(port: u16) -> RunningProxy {
        RunningProxy { admin: SocketAddr::from(([127, 0, 0, 1], port)), token: Some("s3cret".into()) }
    }

    #[test]
    fn running_proxy_is_found_by_its_configuration_file() {
        let home = tempfile::tempdir().unwrap();
        let (there, file) = (home.path().join("running"), Path::new("/etc/a.yaml"));
        let running = proxy(1).announce(&there, Some(file)).unwrap();
        assert_eq!(RunningProxy::find(&there, Some(file)), Some(proxy(1)));
        assert_eq!(RunningProxy::find(&there, None), None);
        let mode = fs::metadata(&running.path).unwrap().mode() & 0o777;
        assert_eq!((mode, fs::metadata(&there).unwrap().mode() & 0o777), (0o600, 0o700));
        drop(running);
        assert_eq!(fs::read_dir(&there).unwrap().count(), 0);
        assert_eq!(RunningProxy::find(&there, Some(file)), None);
    }

    #[test]
    fn file_left_by_a_killed_proxy_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let running = proxy(1).announce(home.path(), None).unwrap();
        let path = running.path.clone();
        let text = fs::read(&path).unwrap();
        drop(running);
        fs::write(&path, text).unwrap();
        assert_eq!(RunningProxy::find(home.path(), None), None);
        let again = proxy(2).announce(home.path(), None).unwrap();
        assert_eq!(RunningProxy::find(home.path(), None), Some(proxy(2)));
        drop(again);
    }

    #[test]
    fn newest_of_two_proxies_with_one_configuration_is_found() {
        let home = tempfile::tempdir().unwrap();
        let first = proxy(1).announce(home.path(), None).unwrap();
        let second = proxy(2).announce(home.path(), None).unwrap();
        drop(first);
        assert_eq!(RunningProxy::find(home.path(), None), Some(proxy(2)));
        drop(second);
        assert_eq!(RunningProxy::find(home.path(), None), None);
    }
}
