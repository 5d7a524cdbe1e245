//! Where the processes of a machine meet: a directory, the lock on it that one of them has, and the socket on which that
//! one listens. The lock goes with its process, however that ends.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// The directory.
#[derive(Debug)]
pub(super) struct MeetingPlace {
    path: PathBuf,
    directory: File,
}

/// To have it is to be the one whom the others ask. Given back when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _directory: File,
}

impl MeetingPlace {
    pub fn open(path: &Path) -> io::Result<Self> {
        // Whoever may read it could have the lock.
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self { path: path.to_owned(), directory: File::open(path)? })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `None`: another has it.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        let directory = File::open(&self.path)?;
        match directory.try_lock() {
            Ok(()) => Ok(Some(Lock { _directory: directory })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether whoever had the lock had no time to clear up; for whoever has it.
    pub fn is_left(&self) -> bool {
        fs::symlink_metadata(self.path.join(SOCKET)).is_ok()
    }

    /// In place of what another may have left; for whoever has the lock.
    pub fn listen(&self) -> io::Result<UnixListener> {
        // Nobody can connect before the rights are right.
        let new = self.path.join(NEW);
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(self.short(NEW))?;
        self.hand_over(&new)?;
        fs::rename(&new, self.path.join(SOCKET))?;
        Ok(listener)
    }

    /// To the directory's owner, who may be another than root, and nobody else.
    fn hand_over(&self, socket: &Path) -> io::Result<()> {
        // Whose directory it is may put something else in its place at any time.
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let socket = OpenOptions::new().read(true).custom_flags(flags).open(socket)?;
        let (it, whose) = (socket.metadata()?, self.directory.metadata()?);
        if !it.file_type().is_socket() || it.nlink() != 1 {
            return Err(io::Error::other("the new socket has been replaced"));
        }
        let socket = format!("/proc/self/fd/{}", socket.as_raw_fd());
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        if it.uid() != whose.uid() {
            // Only root may.
            let _ = chown(&socket, Some(whose.uid()), Some(whose.gid()));
        }
        Ok(())
    }

    pub async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.short(SOCKET)).await
    }

    /// Nobody listens any more; for whoever has the lock.
    pub fn clear(&self) {
        let _ = fs::remove_file(self.path.join(SOCKET));
    }

    /// A socket's path has room for 107 bytes.
    fn short(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        match path.as_os_str().len() {
            0..=100 => path,
            _ => format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()).into(),
        }
    }
}

const SOCKET: &str = "politely.sock";
const NEW: &str = "politely.sock.new";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_has_the_lock_and_is_found_however_long_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long".repeat(40));
        let (one, other) = (MeetingPlace::open(&path).unwrap(), MeetingPlace::open(&path).unwrap());
        let lock = one.lock().unwrap();
        assert!(lock.is_some());
        assert!(other.lock().unwrap().is_none());
        assert!(other.connect().await.is_err());
        for _ in 0..2 {
            let listener = one.listen().unwrap();
            assert!(one.is_left());
            let (accepted, connected) = tokio::join!(listener.accept(), other.connect());
            assert!(accepted.is_ok() && connected.is_ok());
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join(SOCKET))), (0o700, 0o600));
        one.clear();
        assert!(!one.is_left());
        drop(lock);
        assert!(other.lock().unwrap().is_some());
    }

    #[tokio::test]
    async fn what_root_makes_in_anothers_directory_is_that_ones() {
        let directory = tempfile::tempdir().unwrap();
        let Ok(()) = chown(directory.path(), Some(4711), Some(4712)) else { return };
        let place = MeetingPlace::open(directory.path()).unwrap();
        let _listener = place.listen().unwrap();
        let socket = fs::metadata(directory.path().join(SOCKET)).unwrap();
        assert_eq!((socket.uid(), socket.gid(), socket.mode() & 0o777), (4711, 4712, 0o600));
    }
}
