//! Puts the authority into the browsers' databases for the duration of a run. The last of the user's runs to end removes the authority; if
//! that run was killed, the next run does.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::nss::{self, Database, LENT};
use super::own_entries::PREFIX;
use super::{TrustEntry, TrustOutcome, UserMachine, written};
use crate::config::{open_own, private_directory};
use crate::tls::Ca;

/// Keeps the authority in the databases until dropped.
#[derive(Debug)]
pub(in crate::cli) struct Loan {
    machine: UserMachine,
    certutil: PathBuf,
    /// Locked (shared) by each run of the user. Contains the paths of databases that runs have created, each followed by NUL.
    lock: File,
}

/// Makes browsers trust the authority, if the command is or may start one. `None`: no browser or no certutil was found. Also returns
/// the steps that failed. `directory`: the user's cache directory.
///
/// # Errors
/// The file that coordinates the user's runs cannot be opened, or the certificate cannot be written.
pub(in crate::cli) fn lend(
    machine: UserMachine,
    ca: &Ca,
    directory: &Path,
) -> io::Result<(Option<Loan>, Vec<TrustOutcome>)> {
    let file = written(ca.cert_pem())?;
    let entry = TrustEntry { name: format!("{PREFIX}{}", ca.mark()), pem: ca.cert_pem(), file: file.path() };
    let databases = nss::databases(&machine, nss::may_start_chromium(&machine));
    if databases.is_empty() {
        return Ok((None, Vec::new()));
    }
    let Some(certutil) = machine.tool("certutil") else {
        return Ok((None, vec![nss::no_certutil("make browsers trust the authority")]));
    };
    private_directory(directory)?;
    let path = directory.join("browsers.lock");
    let mut lock = open_own(OpenOptions::new().read(true).append(true).create(true), &path)?;
    share(&lock, PATIENCE)?;
    let lent = TrustEntry { name: format!("{LENT}{}", entry.name), pem: entry.pem, file: entry.file };
    let (mut failed, until) = (Vec::new(), Some(Instant::now() + machine.patience));
    for path in databases {
        let database = Database { certutil: &certutil, path: &path, until };
        if !nss::is_database(&path) {
            lock.write_all(&[path.as_os_str().as_bytes(), b"\0"].concat())?;
        } else if database.holds(&entry.name) {
            continue;
        }
        let outcome = database.install(&lent);
        if matches!(outcome, TrustOutcome::Failed { .. }) {
            // A failed attempt may leave an entry without trust.
            let _ = database.remove(&lent.name);
            failed.push(outcome);
        }
    }
    Ok((Some(Loan { machine, certutil, lock }), failed))
}

/// Takes a shared lock. Another run may hold the exclusive lock while it removes its entries at its end. Waits for that run at most
/// `patience`, as its certutil may hang on a database.
///
/// # Errors
/// `TimedOut`, or the file system has no locks.
fn share(lock: &File, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                #[expect(clippy::disallowed_methods, reason = "nothing is served yet")]
                std::thread::sleep(MOMENT);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "another `politely run` is changing their databases",
                ));
            }
            taken => return Ok(taken?),
        }
    }
}

impl Loan {
    /// Removes the entries of this run and of earlier ones, whatever authority they are for.
    fn take_out(&self) {
        let until = Some(Instant::now() + self.machine.patience);
        for path in nss::databases(&self.machine, false) {
            let database = Database { certutil: &self.certutil, path: &path, until };
            for name in database.names().iter().flatten().filter(|name| name.starts_with(LENT)) {
                let _ = database.remove(name);
            }
        }
        let (mut lock, mut made) = (&self.lock, Vec::new());
        let _ = lock.rewind().and_then(|()| lock.read_to_end(&mut made));
        let made = made.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        let unmade = made.map(|path| {
            let path = PathBuf::from(OsString::from_vec(path.to_vec()));
            Database { certutil: &self.certutil, path: &path, until }.unmake()
        });
        // If a database could not be removed, the next run tries again.
        if unmade.fold(true, |all, one| all & one) {
            let _ = self.lock.set_len(0);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let _ = self.lock.unlock();
        // If other runs hold the lock, the last of them removes the entries.
        if self.lock.try_lock().is_ok() {
            self.take_out();
        }
    }
}

/// Maximum time to wait for another run to remove its entries.
const PATIENCE: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_another_runs_loan_times_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = file.reopen().unwrap();
        other.lock().unwrap();
        assert_eq!(share(file.as_file(), MOMENT).unwrap_err().kind(), io::ErrorKind::TimedOut);
        other.unlock().unwrap();
        share(file.as_file(), Duration::ZERO).unwrap();
        other.lock_shared().unwrap();
    }
}
