//! The token that callers of the admin address must send: the operator's, or one generated on first use.

use super::{Settings, as_line, read_file, read_ours, write_once};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::PathBuf;

/// The file of the admin token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminToken {
    pub path: PathBuf,
    /// Whether `admin.token_file` names the file; otherwise the proxy generates the token.
    pub is_configured: bool,
}

impl AdminToken {
    /// Returns the file of the token according to these settings.
    pub fn of(settings: &Settings) -> Self {
        match &settings.admin.token_file {
            Some(path) => Self { path: path.clone(), is_configured: true },
            None => {
                let directory = settings.store.place();
                Self { path: directory.join(NAME), is_configured: false }
            }
        }
    }

    /// Reads the token.
    ///
    /// # Errors
    /// The file cannot be read, is not text, or is empty; or it is not configured, and belongs to another user.
    pub fn read(&self) -> io::Result<String> {
        let read = if self.is_configured { read_file } else { read_ours };
        let token = as_line(&read(&self.path)?)?;
        if token.is_empty() { Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")) } else { Ok(token) }
    }

    /// Reads the token; generates it first if it is not configured and does not exist.
    ///
    /// # Errors
    /// The file cannot be read or created.
    pub fn read_or_make(&self) -> io::Result<String> {
        match self.read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_configured => {}
            read => return read,
        }
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
        let token = data_encoding::HEXLOWER.encode(&bytes);
        match write_once(&self.path, format!("{token}\n").as_bytes())? {
            true => Ok(token),
            // Another process has created the file since the first read.
            false => self.read(),
        }
    }
}

const NAME: &str = "admin-token";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn token_is_created_once_and_readable_only_by_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let token = AdminToken { path: home.path().join("new/admin-token"), is_configured: false };
        assert!(token.read().is_err());
        let made = token.read_or_make().unwrap();
        assert_eq!((made.len(), token.read_or_make().unwrap(), token.read().unwrap()), (32, made.clone(), made));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&token.path), mode(token.path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn configured_token_file_is_never_created() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("token");
        let token = AdminToken { path: path.clone(), is_configured: true };
        assert!(token.read_or_make().is_err() && !path.exists());
        fs::write(&path, "\n").unwrap();
        assert!(token.read_or_make().is_err(), "an empty file has no token");
    }
}
