//! Java's keystore, changed with keytool.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::own_entries::{OwnEntries, remove_each};
use super::{TrustEntry, TrustOutcome, UserMachine, run};

pub(super) struct JavaKeystore {
    keytool: PathBuf,
    /// Options that name the keystore: its file if known, else `-cacerts`, which Java 8 does not have.
    store: Vec<OsString>,
}

impl JavaKeystore {
    /// # Errors
    /// Java is not installed, or lacks keytool.
    pub fn find(machine: &UserMachine) -> Result<Self, TrustOutcome> {
        let homes = machine.java_home.as_ref().map(|home| home.join("bin/keytool")).filter(|tool| tool.is_file());
        let keytool = homes.or_else(|| machine.tool("keytool"));
        keytool.map(Self::of).ok_or_else(|| match machine.tool("java") {
            Some(java) => TrustOutcome::failed(
                format!("keytool is missing beside {}", java.display()),
                "install a JDK or a whole JRE, which contains it, or set JAVA_HOME",
            ),
            None => TrustOutcome::Nothing(String::from("there is no Java on the PATH")),
        })
    }

    fn of(keytool: PathBuf) -> Self {
        let tool = fs::canonicalize(&keytool).unwrap_or_default();
        let home = tool.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let places = ["lib/security/cacerts", "jre/lib/security/cacerts"].map(|place| home.join(place));
        let store = match places.into_iter().find(|place| place.is_file()) {
            Some(place) => vec!["-keystore".into(), place.into()],
            None => vec!["-cacerts".into()],
        };
        Self { keytool, store }
    }

    pub fn install(&self, entry: &TrustEntry<'_>) -> TrustOutcome {
        let (place, alias) = (self.place(), ["-alias", &entry.name]);
        if self.call(&["-list"], &alias, &[]).is_ok() {
            return TrustOutcome::Nothing(format!("the authority was in {place} already"));
        }
        let file = ["-file".as_ref(), entry.file.as_os_str()];
        let added = self.call(&["-importcert", "-noprompt", "-trustcacerts"], &alias, &file);
        self.outcome(added.map(|_| format!("added to {place} as {}", entry.name)))
    }

    pub fn uninstall(&self, own: &OwnEntries) -> Vec<TrustOutcome> {
        let place = self.place();
        let all = match self.call(&["-list"], &[], &[]) {
            Ok(all) => all,
            Err(said) => return vec![self.outcome(Err(said))],
        };
        let certificates = all.lines().filter(|line| line.contains("trustedCertEntry"));
        let aliases = certificates.filter_map(|line| Some(line.split_once(',')?.0));
        let pem = |alias| self.call(&["-exportcert", "-rfc"], &["-alias", alias], &[]).ok().map(String::into_bytes);
        let ours: Vec<_> =
            aliases.filter(|alias| own.has(system_alias(alias).unwrap_or(alias), || pem(alias))).collect();
        if ours.is_empty() {
            return vec![TrustOutcome::Nothing(format!("the authority is not in {place}"))];
        }
        let (removed, failed) = remove_each(&ours, |alias| self.call(&["-delete"], &["-alias", alias], &[]).map(drop));
        let removed = removed.into_iter().copied().collect::<Vec<_>>().join(", ");
        let done = (!removed.is_empty()).then(|| self.outcome(Ok(format!("removed {removed} from {place}"))));
        done.into_iter().chain(failed.into_iter().map(|(_, said)| self.outcome(Err(said)))).collect()
    }

    fn place(&self) -> String {
        format!("the keystore of {}", self.keytool.display())
    }

    /// Runs keytool; returns its output.
    fn call(&self, command: &[&str], alias: &[&str], file: &[&OsStr]) -> Result<String, String> {
        // `changeit` is the default password of Java's keystores.
        let password = [&["-storepass", "changeit"], alias].concat();
        let command = command.iter().map(OsStr::new).chain(self.store.iter().map(OsString::as_os_str));
        let arguments = command.chain(password.into_iter().map(OsStr::new)).chain(file.iter().copied());
        run(&self.keytool, &arguments.collect::<Vec<_>>(), None)
    }

    fn outcome(&self, changed: Result<String, String>) -> TrustOutcome {
        let failed = |said| {
            TrustOutcome::failed(
                format!("{} cannot change its keystore: {said}", self.keytool.display()),
                "run this as the keystore's owner, usually root; or give Java the certificate: `politely ca export`",
            )
        };
        changed.map_or_else(failed, TrustOutcome::Done)
    }
}

/// The entry's name in the system's store. Debian copies that store's entries into the keystore, and never removes the copies.
fn system_alias(alias: &str) -> Option<&str> {
    alias.strip_prefix("debian:")?.strip_suffix(".pem")
}
