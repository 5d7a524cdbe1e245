//! Java's keystore, changed with keytool.

use std::ffi::OsStr;

use super::{TrustChange, TrustEntry, TrustOutcome, UserMachine, run};

pub(super) fn change(machine: &UserMachine, change: TrustChange, entry: &TrustEntry<'_>) -> TrustOutcome {
    let homes = machine.java_home.as_ref().map(|home| home.join("bin/keytool")).filter(|tool| tool.is_file());
    let Some(keytool) = homes.or_else(|| machine.tool("keytool")) else {
        return match machine.tool("java") {
            Some(java) => TrustOutcome::failed(
                format!("keytool is missing beside {}", java.display()),
                "install a JDK or a whole JRE, which brings it, or set JAVA_HOME",
            ),
            None => TrustOutcome::Nothing(String::from("there is no Java on the PATH")),
        };
    };
    let call = |command: &[&str], after: &[&OsStr]| {
        // `changeit` is the default password of Java's keystores.
        let common = ["-cacerts", "-storepass", "changeit", "-alias", &entry.name];
        let all: Vec<&OsStr> = command.iter().chain(&common).map(OsStr::new).chain(after.iter().copied()).collect();
        run(&keytool, &all)
    };
    let shown = keytool.display();
    let is_there = call(&["-list"], &[]).is_ok();
    let done = match (change, is_there) {
        (TrustChange::Install, true) => {
            return TrustOutcome::Nothing(format!("it was in the keystore of {shown} already"));
        }
        (TrustChange::Uninstall, false) => {
            return TrustOutcome::Nothing(format!("it is not in the keystore of {shown}"));
        }
        (TrustChange::Install, false) => {
            call(&["-importcert", "-noprompt", "-trustcacerts"], &["-file".as_ref(), entry.file.as_ref()])
        }
        (TrustChange::Uninstall, true) => call(&["-delete"], &[]),
    };
    match (done, change) {
        (Ok(_), TrustChange::Install) => {
            TrustOutcome::Done(format!("added to the keystore of {shown} as {}", entry.name))
        }
        (Ok(_), TrustChange::Uninstall) => {
            TrustOutcome::Done(format!("removed {} from the keystore of {shown}", entry.name))
        }
        (Err(said), _) => TrustOutcome::failed(
            format!("{shown} cannot change its keystore: {said}"),
            "its owner, mostly root, may; or give Java the certificate: `politely ca export`",
        ),
    }
}
