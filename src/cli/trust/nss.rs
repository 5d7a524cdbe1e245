//! The databases of Mozilla's NSS: one for Chromium, one for each profile of Firefox.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{TrustChange, TrustEntry, TrustOutcome, UserMachine, run};

pub(super) fn change(machine: &UserMachine, change: TrustChange, entry: &TrustEntry<'_>) -> Vec<TrustOutcome> {
    let may_make = change == TrustChange::Install && has_browser(machine);
    let databases = machine.home.iter().flat_map(|home| [chromium(machine, home, may_make), firefox(home)].concat());
    let databases: Vec<PathBuf> = databases.collect();
    if databases.is_empty() {
        return vec![TrustOutcome::Nothing(String::from("no database of Chromium's or Firefox's was found"))];
    }
    let Some(certutil) = machine.tool("certutil") else {
        let found: Vec<String> = databases.iter().map(|path| path.display().to_string()).collect();
        return vec![TrustOutcome::failed(
            format!("certutil is missing, which changes {}", found.join(", ")),
            "install the package libnss3-tools (Debian) or nss-tools (Fedora), which brings it",
        )];
    };
    databases.iter().map(|database| change_one(&certutil, database, change, entry)).collect()
}

/// Before a command is run that is a Chromium, or may start one: its databases alone, which only certutil can change. Nothing
/// is reported where there is nothing to do.
pub(super) fn before_run(machine: &UserMachine, program: &str, entry: &TrustEntry<'_>) -> Vec<TrustOutcome> {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (is_browser, may_start_one) = (BROWSERS.contains(&name), STARTERS.contains(&name));
    let Some(home) = machine.home.as_ref().filter(|_| is_browser || may_start_one) else { return Vec::new() };
    let brings_its_own = OWN_CHROMIUM.iter().any(|place| home.join(place).is_dir());
    let databases = chromium(machine, home, brings_its_own || has_browser(machine));
    let Some(certutil) = machine.tool("certutil") else {
        let hint = "install the package libnss3-tools (Debian) or nss-tools (Fedora), which brings it";
        return match is_browser {
            true => vec![TrustOutcome::failed("certutil is missing, which makes Chromium trust the authority", hint)],
            false => Vec::new(),
        };
    };
    let changed = databases.iter().map(|database| change_one(&certutil, database, TrustChange::Install, entry));
    changed.filter(|outcome| !matches!(outcome, TrustOutcome::Nothing(_))).collect()
}

fn change_one(certutil: &Path, database: &Path, change: TrustChange, entry: &TrustEntry<'_>) -> TrustOutcome {
    let mut sql = OsString::from("sql:");
    sql.push(database);
    let common: [&OsStr; 4] = ["-d".as_ref(), &sql, "-n".as_ref(), entry.name.as_ref()];
    let call = |before: &[&str], after: &[&OsStr]| {
        let before: Vec<&OsStr> = before.iter().map(OsStr::new).collect();
        run(certutil, &[before.as_slice(), &common, after].concat())
    };
    let shown = database.display();
    let new = !database.join(DATABASE).is_file();
    if new && let Err(said) = make(certutil, database, &sql) {
        return TrustOutcome::failed(
            format!("{shown} cannot be made: {said}"),
            "start Chromium once, which makes its own",
        );
    }
    let is_there = call(&["-L"], &[]).is_ok();
    let done = match (change, is_there) {
        (TrustChange::Install, true) => return TrustOutcome::Nothing(format!("it was in {shown} already")),
        (TrustChange::Uninstall, false) => return TrustOutcome::Nothing(format!("it is not in {shown}")),
        // C: trusted to issue certificates of servers, and of nobody else.
        (TrustChange::Install, false) => call(&["-A", "-t", "C,,"], &["-i".as_ref(), entry.file.as_ref()]),
        (TrustChange::Uninstall, true) => call(&["-D"], &[]),
    };
    match (done, change) {
        (Ok(()), TrustChange::Install) if new => {
            TrustOutcome::Done(format!("made {shown} and added to it; restart the browser"))
        }
        (Ok(()), TrustChange::Install) => TrustOutcome::Done(format!("added to {shown}; restart the browser")),
        (Ok(()), TrustChange::Uninstall) => TrustOutcome::Done(format!("removed from {shown}; restart the browser")),
        (Err(said), _) => {
            TrustOutcome::failed(format!("certutil cannot change {shown}: {said}"), "close the browser and try again")
        }
    }
}

/// A directory is a database if this file is in it.
const DATABASE: &str = "cert9.db";

fn make(certutil: &Path, database: &Path, sql: &OsStr) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(database);
    made.map_err(|error| error.to_string())?;
    run(certutil, &["-N".as_ref(), "--empty-password".as_ref(), "-d".as_ref(), sql])
}

fn has_browser(machine: &UserMachine) -> bool {
    BROWSERS.iter().any(|name| machine.tool(name).is_some())
}

fn is_database(directory: &Path) -> bool {
    directory.join(DATABASE).is_file()
}

/// `may_make`: where there is none yet, the one that it will look for: every version looks into `~/.pki/nssdb` if it is there.
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

/// Beside the place that it has used since version 156.
const CHROMIUM: [&str; 2] = [".pki/nssdb", "snap/chromium/current/.pki/nssdb"];
/// Programs that are Chromium inside.
const BROWSERS: [&str; 7] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "brave-browser",
    "microsoft-edge",
    "vivaldi",
];
/// What programs that steer a Chromium are written in, or run by.
const STARTERS: [&str; 16] = [
    "python", "pytest", "scrapy", "uv", "poetry", "node", "nodejs", "npm", "npx", "yarn", "pnpm", "deno", "bun",
    "java", "ruby", "dotnet",
];
/// Where Playwright and Puppeteer keep theirs.
const OWN_CHROMIUM: [&str; 2] = [".cache/ms-playwright", ".cache/puppeteer"];
const FIREFOX: [&str; 4] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
];
