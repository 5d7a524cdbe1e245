//! Java's keystore, changed with keytool.

use std::ffi::OsStr;

use super::{TrustChange, TrustEntry, TrustOutcome, UserMachine, nothing_to_do, run};

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
        run(&keytool, &all, None)
    };
    let place = format!("the keystore of {}", keytool.display());
    if let Some(nothing) = nothing_to_do(change, call(&["-list"], &[]).is_ok(), &place) {
        return nothing;
    }
    let (done, what) = match change {
        TrustChange::Install => {
            let import = ["-importcert", "-noprompt", "-trustcacerts"];
            (call(&import, &["-file".as_ref(), entry.file.as_ref()]), format!("added to {place} as {}", entry.name))
        }
        TrustChange::Uninstall => (call(&["-delete"], &[]), format!("removed {} from {place}", entry.name)),
    };
    match done {
        Ok(_) => TrustOutcome::Done(what),
        Err(said) => TrustOutcome::failed(
            format!("{} cannot change its keystore: {said}", keytool.display()),
            "its owner, mostly root, may; or give Java the certificate: `politely ca export`",
        ),
    }
}
