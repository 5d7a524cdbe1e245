//! The places where a machine's programs look for trusted authorities: the system's store, the browsers' databases, Java's keystore.
//! Each step reports what was done, or what is missing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tempfile::NamedTempFile;

use crate::config::{refuse_foreign, unnamed};
use crate::tls::{Ca, Trusted};
use own_entries::{PREFIX, remove_each};

mod firefox_policy;
mod java;
pub(super) mod loan;
mod nss;
mod own_entries;
mod system;
#[cfg(test)]
mod tests;
mod variables;

pub(super) use nss::is_browser;
pub(super) use own_entries::OwnEntries;
pub(super) use variables::{PROXY, TrustFiles, direct};

/// A kind of trust store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum StoreKind {
    /// The system's store: curl, wget, Python's ssl, Go, …
    System,
    /// The databases of Chromium and Firefox
    Browsers,
    /// Java's keystore
    Java,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("no value is hidden").get_name())
    }
}

/// The result for one store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrustStep {
    pub place: StoreKind,
    pub outcome: TrustOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TrustOutcome {
    Done(String),
    /// Nothing had to be done, for this reason.
    Nothing(String),
    Failed {
        what: String,
        hint: String,
    },
}

impl TrustOutcome {
    pub fn failed(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Failed { what: what.into(), hint: hint.into() }
    }
}

/// The machine from the point of view of one user.
#[derive(Debug)]
pub(super) struct UserMachine {
    root: PathBuf,
    home: Option<PathBuf>,
    /// `XDG_DATA_HOME`, if set.
    data: Option<PathBuf>,
    java_home: Option<PathBuf>,
    /// Directories to search for tools.
    path: Vec<PathBuf>,
    /// Maximum time for all tools together, if no user waits for them.
    patience: Duration,
}

impl UserMachine {
    /// This machine and user.
    pub fn here() -> Self {
        let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
        let mut path: Vec<PathBuf> =
            env::var_os("PATH").map(|all| env::split_paths(&all).collect()).unwrap_or_default();
        // Debian leaves these directories out of a user's PATH. The user must be told that root is needed, not that a tool is missing.
        path.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
        Self {
            root: PathBuf::from("/"),
            home: set("HOME"),
            data: set("XDG_DATA_HOME"),
            java_home: set("JAVA_HOME"),
            path,
            patience: PATIENCE,
        }
    }

    /// Makes the programs that use these stores (none given: all) trust the authority.
    pub fn install(&self, ca: &Ca, only: &[StoreKind]) -> io::Result<Vec<TrustStep>> {
        let mut all = Vec::new();
        for Trusted { pem, mark, .. } in &ca.trusted() {
            let file = written(pem)?;
            let entry = TrustEntry { name: format!("{PREFIX}{mark}"), pem, file: file.path() };
            let outcomes = |place| match place {
                StoreKind::System => Ok(vec![system::SystemStore::find(self)?.install(&entry)]),
                StoreKind::Browsers => {
                    Ok(nss::install(self, &entry).into_iter().chain(install_firefox(self, &entry)).collect())
                }
                StoreKind::Java => Ok(vec![java::JavaKeystore::find(self)?.install(&entry)]),
            };
            all.extend(steps(only, outcomes));
        }
        Ok(all)
    }

    /// Removes all of our authorities from these stores, also those whose files are lost. A failure does not keep the others from being
    /// removed.
    pub fn uninstall(&self, own: &OwnEntries, only: &[StoreKind]) -> Vec<TrustStep> {
        let outcomes = |place| {
            let outcomes = match place {
                StoreKind::System => vec![system::SystemStore::find(self)?.uninstall(own)],
                StoreKind::Browsers => vec![nss::uninstall(self, own), uninstall_firefox(self, own)],
                StoreKind::Java => vec![java::JavaKeystore::find(self)?.uninstall(own)],
            };
            Ok(outcomes.concat())
        };
        steps(only, outcomes).collect()
    }

    fn tool(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|directory| directory.join(name)).find(|file| file.is_file())
    }

    fn below_root(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// Yields the steps of `outcomes` for each kind of store in `only`; for all kinds if `only` is empty. If `outcomes` fails, because there is
/// no store of this kind, its error becomes the only step.
fn steps(
    only: &[StoreKind],
    outcomes: impl Fn(StoreKind) -> Result<Vec<TrustOutcome>, TrustOutcome>,
) -> impl Iterator<Item = TrustStep> {
    let outcomes = move |place| outcomes(place).unwrap_or_else(|missing| vec![missing]);
    let wanted = StoreKind::value_variants().iter().filter(|kind| only.is_empty() || only.contains(kind));
    wanted.flat_map(move |&place| outcomes(place).into_iter().map(move |outcome| TrustStep { place, outcome }))
}

/// Adds the authority to Firefox's policies. `None`: there is no Firefox. Missing permission is not an error, as most users have a profile.
fn install_firefox(machine: &UserMachine, entry: &TrustEntry<'_>) -> Option<TrustOutcome> {
    let directory = machine.below_root(firefox_policy::DIRECTORY);
    let (certificate, file) = (directory.join(format!("{}.pem", entry.name)), directory.join(firefox_policy::FILE));
    if !certificate.exists() && !nss::FIREFOX_PROGRAMS.iter().any(|name| machine.tool(name).is_some()) {
        return None;
    }
    let shown = file.display();
    Some(match firefox_policy::install(&file, &certificate, entry.pem) {
        Ok(()) => TrustOutcome::Done(format!("added to {shown}, for new profiles of Firefox")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => TrustOutcome::Nothing(format!(
            "new profiles of Firefox do not trust the authority, as only root can change {shown}"
        )),
        Err(error) => not_changed(&file, &error),
    })
}

/// Removes our authorities from Firefox's policies. The result is empty if there are none.
fn uninstall_firefox(machine: &UserMachine, own: &OwnEntries) -> Vec<TrustOutcome> {
    let directory = machine.below_root(firefox_policy::DIRECTORY);
    let file = directory.join(firefox_policy::FILE);
    let certificates = match own.files(&directory, "pem") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return vec![not_listed(&directory, &error)],
        certificates => certificates.unwrap_or_default(),
    };
    if certificates.is_empty() {
        return Vec::new();
    }
    if let Err(error) = firefox_policy::uninstall(&file, &certificates) {
        return vec![not_changed(&file, &error)];
    }
    let (removed, failed) = remove_each(&certificates, |path| fs::remove_file(path));
    let removed = (!removed.is_empty()).then(|| TrustOutcome::Done(format!("removed from {}", file.display())));
    let failed = failed.into_iter().map(|(path, error)| {
        TrustOutcome::failed(
            format!("{}: {error}", path.display()),
            "remove it by hand: Firefox does not read it any more",
        )
    });
    removed.into_iter().chain(failed).collect()
}

/// Reports a store that cannot be read, and may contain an entry of ours.
fn not_listed(place: &Path, error: &io::Error) -> TrustOutcome {
    TrustOutcome::failed(format!("{} cannot be read: {error}", place.display()), "run this as a user who may read it")
}

fn not_changed(policies: &Path, error: &io::Error) -> TrustOutcome {
    let what = format!("{} cannot be changed: {error}", policies.display());
    TrustOutcome::failed(what, "it must be a JSON file that you may write to")
}

fn written(pem: &str) -> io::Result<NamedTempFile> {
    let mut file = unnamed(&std::env::temp_dir())?;
    file.write_all(pem.as_bytes())?;
    Ok(file)
}

/// The entry to add to the stores: a name and our certificate.
struct TrustEntry<'a> {
    /// Name of the entry, which identifies this authority.
    name: String,
    pem: &'a str,
    /// The certificate as a file. The authority's own file may begin with an intermediate.
    file: &'a Path,
}

/// Runs a tool and returns its output; the error is the last line of its messages. `until`: when the tool is killed. `None`: never, as it
/// may ask the user for a password.
fn run(tool: &Path, arguments: &[&OsStr], until: Option<Instant>) -> Result<String, String> {
    let (status, [output, errors]) = call(tool, arguments, until).map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(output);
    }
    // keytool prints errors on standard output.
    let said = errors + &output;
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(last.map_or_else(|| status.to_string(), str::to_owned))
}

/// Runs a tool; returns its status, output and messages.
fn call(tool: &Path, arguments: &[&OsStr], until: Option<Instant>) -> io::Result<(ExitStatus, [String; 2])> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("{} did not end in time", tool.display()));
    if until.is_some_and(|until| Instant::now() >= until) {
        return Err(late());
    }
    refuse_foreign(tool)?;
    // Files instead of pipes: a full pipe, or one that another process keeps open, would block.
    let mut files = [tempfile::tempfile()?, tempfile::tempfile()?];
    let mut command = Command::new(tool);
    command.args(arguments).stdin(Stdio::null()).stdout(files[0].try_clone()?).stderr(files[1].try_clone()?);
    if until.is_some() {
        // In its own process group, the tool cannot prompt the user, and Ctrl-C does not interrupt it halfway.
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    let Some(status) = wait(&mut child, until)? else {
        let shown = tool.display();
        eprintln!(
            "politely: warning: {shown} did not end within {PATIENCE:?} in all and was killed: browsers may not trust the \
             authority, or may still trust it after the run\n\
             hint: end the browser that it waits for, or try again when this machine is less busy",
        );
        return Err(late());
    };
    let read = |file: &mut File| {
        let mut text = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    };
    let [output, errors] = &mut files;
    Ok((status, [read(output)?, read(errors)?]))
}

/// Waits for a tool to end. `None`: it did not end in time, and was killed.
fn wait(child: &mut Child, until: Option<Instant>) -> io::Result<Option<ExitStatus>> {
    let Some(until) = until else { return child.wait().map(Some) };
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        #[expect(clippy::disallowed_methods, reason = "no request is served by this thread")]
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait().map(|_| None)
}

/// Time limit of all tools together at the beginning of a run, and again at its end.
const PATIENCE: Duration = Duration::from_secs(5);
