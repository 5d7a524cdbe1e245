//! NSS databases: one for Chromium, and one for each profile of Firefox.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::config::{private_directory, refuse_foreign};

use super::own_entries::{OwnEntries, remove_each};
use super::{TrustEntry, TrustOutcome, UserMachine, not_listed, run};

pub(super) fn install(machine: &UserMachine, entry: &TrustEntry<'_>) -> Vec<TrustOutcome> {
    each(machine, has_browser(machine), |database| {
        // Removes the entry of a run first: a database stores a certificate under one name only, so the end of that run would remove this
        // entry, too.
        let _ = database.remove(&format!("{LENT}{}", entry.name));
        database.install(entry)
    })
}

/// Removes our entries from all databases, even those of runs that were killed.
pub(super) fn uninstall(machine: &UserMachine, own: &OwnEntries) -> Vec<TrustOutcome> {
    each(machine, false, |database| {
        let shown = database.path.display();
        let mut names = match database.names() {
            Ok(names) => names,
            Err(said) => return database.outcome(Err(said)),
        };
        names.retain(|name| own.has(name.strip_prefix(LENT).unwrap_or(name), || database.pem(name)));
        if names.is_empty() {
            return TrustOutcome::Nothing(format!("the authority is not in {shown}"));
        }
        let (_, failed) = remove_each(&names, |name| database.remove(name));
        let said = failed.into_iter().map(|(_, said)| said).collect::<Vec<_>>().join("; ");
        database.outcome(if said.is_empty() { Ok(format!("removed from {shown}")) } else { Err(said) })
    })
}

/// Calls a function for each database. `may_make`: as in [`databases`].
fn each(machine: &UserMachine, may_make: bool, change: impl Fn(Database<'_>) -> TrustOutcome) -> Vec<TrustOutcome> {
    let (databases, mut outcomes) = (databases(machine, may_make), unreadable_directories(machine));
    if databases.is_empty() && outcomes.is_empty() {
        return vec![TrustOutcome::Nothing(String::from("no database of Chromium's or Firefox's was found"))];
    }
    match machine.tool("certutil") {
        Some(certutil) => {
            outcomes.extend(databases.iter().map(|path| change(Database { certutil: &certutil, path, until: None })));
        }
        None if databases.is_empty() => {}
        None => {
            let found: Vec<String> = databases.iter().map(|path| path.display().to_string()).collect();
            outcomes.push(no_certutil(&format!("change {}", found.join(", "))));
        }
    }
    outcomes
}

/// Reports directories that cannot be read, and may contain databases.
fn unreadable_directories(machine: &UserMachine) -> Vec<TrustOutcome> {
    let Some(home) = &machine.home else { return Vec::new() };
    let chromium =
        CHROMIUM.map(|directory| home.join(directory)).map(|path| (path.join(DATABASE).try_exists().err(), path));
    let firefox = FIREFOX.map(|directory| home.join(directory)).map(|path| (fs::read_dir(&path).err(), path));
    let is_there = |error: &io::Error| !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let failed = chromium.into_iter().chain(firefox).filter_map(|(error, path)| Some((error.filter(is_there)?, path)));
    failed.map(|(error, path)| not_listed(&path, &error)).collect()
}

/// The databases of all browsers. `may_make`: include the database to create for Chromium, if it has none.
pub(super) fn databases(machine: &UserMachine, may_make: bool) -> Vec<PathBuf> {
    let of = |home: &PathBuf| [chromium(machine, home, may_make), firefox(home)].concat();
    machine.home.as_ref().map(of).unwrap_or_default()
}

/// Reports that certutil is missing. `what`: what certutil is needed for.
pub(super) fn no_certutil(what: &str) -> TrustOutcome {
    let hint = "install the package libnss3-tools (Debian) or nss-tools (Fedora), which contains it";
    TrustOutcome::failed(format!("certutil is missing, which is needed to {what}"), hint)
}

/// Whether the program is a browser.
pub(in crate::cli) fn is_browser(program: &str) -> bool {
    BROWSERS.contains(&program) || FIREFOX_PROGRAMS.contains(&program)
}

/// Whether the command could start a Chromium: one on the PATH, or one of Playwright's or Puppeteer's.
pub(super) fn may_start_chromium(machine: &UserMachine) -> bool {
    let brings_its_own = |home: &PathBuf| OWN_CHROMIUM.iter().any(|place| home.join(place).is_dir());
    has_browser(machine) || machine.home.as_ref().is_some_and(brings_its_own)
}

/// A database directory, which only certutil can change.
pub(super) struct Database<'a> {
    pub certutil: &'a Path,
    pub path: &'a Path,
    /// When certutil is killed. `None`: never, as certutil may ask the user for a password. With a time limit, a database with a password
    /// fails.
    pub until: Option<Instant>,
}

impl Database<'_> {
    pub fn holds(&self, name: &str) -> bool {
        self.call(&["-L", "-n", name], &[]).is_ok()
    }

    pub fn remove(&self, name: &str) -> Result<(), String> {
        self.call(&["-D", "-n", name], &[]).map(|_| ())
    }

    fn pem(&self, name: &str) -> Option<Vec<u8>> {
        self.call(&["-L", "-a", "-n", name], &[]).ok().map(String::into_bytes)
    }

    /// The names of all certificates in the database.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let told = self.call(&["-L"], &[])?;
        // Leaves out the heading, which has a trust column but no name.
        let entries = told.lines().filter_map(|line| line.trim().rsplit_once(char::is_whitespace));
        let entries = entries.filter(|(_, trust)| trust.split(',').count() == 3);
        Ok(entries.map(|(name, _)| name.trim().to_owned()).collect())
    }

    /// Removes a database that a run has created, unless it contains other entries by now. Returns false if certutil could not read the
    /// database.
    pub fn unmake(&self) -> bool {
        if !is_database(self.path) {
            return true;
        }
        let Ok(names) = self.names() else { return false };
        // Without keys, `-K` fails.
        if !names.is_empty() || self.call(&["-K"], &[]).is_ok() {
            return true;
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        for file in FILES {
            let _ = fs::remove_file(self.path.join(file));
        }
        // Fails if others have put files there.
        let _ = fs::remove_dir(self.path);
        self.path.parent().into_iter().for_each(|above| _ = fs::remove_dir(above));
        true
    }

    pub fn install(&self, entry: &TrustEntry<'_>) -> TrustOutcome {
        let (shown, name) = (self.path.display(), &*entry.name);
        let new = !is_database(self.path);
        if new && let Err(said) = self.make() {
            return TrustOutcome::failed(
                format!("{shown} cannot be created: {said}"),
                "start Chromium once: it creates a database of its own",
            );
        }
        if self.holds(name) {
            return TrustOutcome::Nothing(format!("the authority was in {shown} already"));
        }
        let what = if new { format!("made {shown} and added to it") } else { format!("added to {shown}") };
        // C: trusted as an issuer of server certificates only.
        self.outcome(self.call(&["-A", "-t", "C,,", "-n", name, "-i"], &[entry.file.as_ref()]).map(|_| what))
    }

    fn outcome(&self, changed: Result<String, String>) -> TrustOutcome {
        match changed {
            Ok(what) => TrustOutcome::Done(format!("{what}; restart the browser")),
            Err(said) => TrustOutcome::failed(
                format!("certutil cannot change {}: {said}", self.path.display()),
                "close the browser and try again",
            ),
        }
    }

    fn make(&self) -> Result<(), String> {
        private_directory(self.path).map_err(|error| error.to_string())?;
        self.call(&["-N", "--empty-password"], &[]).map(drop)
    }

    /// Runs certutil; returns its output. Another user's database is refused, as it names libraries that certutil loads.
    fn call(&self, arguments: &[&str], file: &[&OsStr]) -> Result<String, String> {
        refuse_foreign(self.path).map_err(|error| error.to_string())?;
        let mut database = OsString::from("sql:");
        database.push(self.path);
        let arguments = arguments.iter().map(OsStr::new).chain(file.iter().copied());
        let common: [&OsStr; 4] = ["-d".as_ref(), &database, "-f".as_ref(), "/dev/null".as_ref()];
        let common = &common[..if self.until.is_none() { 2 } else { 4 }];
        run(self.certutil, &arguments.chain(common.iter().copied()).collect::<Vec<_>>(), self.until)
    }
}

/// A directory with this file is a database.
const DATABASE: &str = "cert9.db";
/// All files of a database.
const FILES: [&str; 3] = [DATABASE, "key4.db", "pkcs11.txt"];

fn has_browser(machine: &UserMachine) -> bool {
    BROWSERS.iter().any(|name| machine.tool(name).is_some())
}

pub(super) fn is_database(directory: &Path) -> bool {
    directory.join(DATABASE).is_file()
}

/// Chromium's databases. `may_make`: if there are none, includes the one to create, `~/.pki/nssdb`, which every version uses if it exists.
fn chromium(machine: &UserMachine, home: &Path, may_make: bool) -> Vec<PathBuf> {
    let data = machine.data.clone().unwrap_or_else(|| home.join(".local/share"));
    let all = CHROMIUM.map(|directory| home.join(directory)).into_iter().chain([data.join("pki/nssdb")]);
    let mut databases: Vec<_> = all.filter(|directory| is_database(directory)).collect();
    if databases.is_empty() && may_make {
        databases.push(home.join(CHROMIUM[0]));
    }
    databases
}

fn firefox(home: &Path) -> Vec<PathBuf> {
    let profiles = FIREFOX.iter().flat_map(|directory| fs::read_dir(home.join(directory)).into_iter().flatten());
    let mut databases: Vec<_> =
        profiles.flatten().map(|entry| entry.path()).filter(|directory| is_database(directory)).collect();
    databases.sort();
    databases
}

/// Prefix for entries of a run, which are temporary.
pub(super) const LENT: &str = "run-of-";
/// Directories of Chromium's databases, besides the one that Chromium has used since version 156.
const CHROMIUM: [&str; 2] = [".pki/nssdb", "snap/chromium/current/.pki/nssdb"];
/// Browsers based on Chromium.
const BROWSERS: [&str; 7] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "brave-browser",
    "microsoft-edge",
    "vivaldi",
];
/// Directories of Playwright's and Puppeteer's browsers.
const OWN_CHROMIUM: [&str; 2] = [".cache/ms-playwright", ".cache/puppeteer"];
pub(super) const FIREFOX_PROGRAMS: [&str; 2] = ["firefox", "firefox-esr"];
/// Directories of Firefox's profiles.
const FIREFOX: [&str; 4] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
];
