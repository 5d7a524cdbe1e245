//! Java's keystore, changed with keytool.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::{TrustEntry, TrustOutcome, UserMachine, is_ours, run};

pub(super) fn install(machine: &UserMachine, entry: &TrustEntry<'_>) -> TrustOutcome {
    let keystore = match JavaKeystore::find(machine) {
        Ok(keystore) => keystore,
        Err(none) => return none,
    };
    let (place, alias) = (keystore.place(), ["-alias", &entry.name]);
    if keystore.call(&["-list"], &alias, &[]).is_ok() {
        return TrustOutcome::Nothing(format!("it was in {place} already"));
    }
    let file = ["-file".as_ref(), entry.file.as_os_str()];
    let added = keystore.call(&["-importcert", "-noprompt", "-trustcacerts"], &alias, &file);
    keystore.told(added.map(|_| format!("added to {place} as {}", entry.name)))
}

pub(super) fn uninstall(machine: &UserMachine) -> TrustOutcome {
    let keystore = match JavaKeystore::find(machine) {
        Ok(keystore) => keystore,
        Err(none) => return none,
    };
    let place = keystore.place();
    let removed = keystore.call(&["-list"], &[], &[]).and_then(|all| {
        let certificates = all.lines().filter(|line| line.contains("trustedCertEntry"));
        let aliases = certificates.filter_map(|line| Some(line.split_once(',')?.0));
        let ours: Vec<_> = aliases.filter(|alias| is_ours(of_system(alias).unwrap_or(alias))).collect();
        ours.iter().try_for_each(|alias| keystore.call(&["-delete"], &["-alias", alias], &[]).map(drop))?;
        Ok(ours.join(", "))
    });
    match removed.as_deref() {
        Ok("") => TrustOutcome::Nothing(format!("it is not in {place}")),
        _ => keystore.told(removed.map(|ours| format!("removed {ours} from {place}"))),
    }
}

/// The name in the system's store, of which Debian makes an entry here that it leaves when the other goes.
fn of_system(alias: &str) -> Option<&str> {
    alias.strip_prefix("debian:")?.strip_suffix(".pem")
}

struct JavaKeystore {
    keytool: PathBuf,
}

impl JavaKeystore {
    fn find(machine: &UserMachine) -> Result<Self, TrustOutcome> {
        let homes = machine.java_home.as_ref().map(|home| home.join("bin/keytool")).filter(|tool| tool.is_file());
        let keytool = homes.or_else(|| machine.tool("keytool"));
        keytool.map(|keytool| Self { keytool }).ok_or_else(|| match machine.tool("java") {
            Some(java) => TrustOutcome::failed(
                format!("keytool is missing beside {}", java.display()),
                "install a JDK or a whole JRE, which brings it, or set JAVA_HOME",
            ),
            None => TrustOutcome::Nothing(String::from("there is no Java on the PATH")),
        })
    }

    fn place(&self) -> String {
        format!("the keystore of {}", self.keytool.display())
    }

    /// Returns the output.
    fn call(&self, command: &[&str], alias: &[&str], file: &[&OsStr]) -> Result<String, String> {
        // `changeit` is the default password of Java's keystores.
        let arguments = [command, &["-cacerts", "-storepass", "changeit"], alias].concat();
        let arguments = arguments.into_iter().map(OsStr::new).chain(file.iter().copied());
        run(&self.keytool, &arguments.collect::<Vec<_>>(), None)
    }

    fn told(&self, changed: Result<String, String>) -> TrustOutcome {
        let failed = |said| {
            TrustOutcome::failed(
                format!("{} cannot change its keystore: {said}", self.keytool.display()),
                "its owner, mostly root, may; or give Java the certificate: `politely ca export`",
            )
        };
        changed.map_or_else(failed, TrustOutcome::Done)
    }
}
