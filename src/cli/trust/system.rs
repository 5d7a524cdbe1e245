//! The system's trust store: a directory of certificates, and a tool that builds bundles from them.

use std::fs;
use std::io;
use std::path::Path;

use super::{TrustChange, TrustEntry, TrustOutcome, UserMachine, run};
use crate::config::{read_file, write_whole};

pub(super) fn change(machine: &UserMachine, change: TrustChange, entry: &TrustEntry<'_>) -> TrustOutcome {
    let found = STORES.into_iter().find(|(directory, ..)| machine.below_root(directory).is_dir());
    let Some((directory, extension, name, package)) = found else {
        return TrustOutcome::failed(
            "no store of a known kind was found",
            "install ca-certificates, or give programs the certificate: `politely ca export`",
        );
    };
    let Some(tool) = machine.tool(name) else {
        let hint = format!("install the package {package}, which brings it");
        return TrustOutcome::failed(format!("{name} is missing"), hint);
    };
    let file = machine.below_root(directory).join(format!("{}.{extension}", entry.name));
    let shown = file.display();
    let was_there = read_file(&file).is_ok_and(|content| content == entry.pem.as_bytes());
    let changed = match change {
        TrustChange::Install if was_there => Ok(format!("{shown} was there already")),
        TrustChange::Install => write_whole(&file, entry.pem.as_bytes(), 0o644).map(|()| format!("wrote {shown}")),
        TrustChange::Uninstall => fs::remove_file(&file).map(|()| format!("removed {shown}")),
    };
    let what = match changed {
        Ok(what) => what,
        Err(error) if change == TrustChange::Uninstall && error.kind() == io::ErrorKind::NotFound => {
            return TrustOutcome::Nothing(format!("{shown} is not there"));
        }
        Err(error) => {
            let what = match error.kind() {
                io::ErrorKind::PermissionDenied => String::from("only root may do this"),
                _ => error.to_string(),
            };
            return TrustOutcome::failed(what, by_hand(change, &file, &tool));
        }
    };
    match run(&tool, &[], None) {
        Ok(_) => TrustOutcome::Done(format!("{what}, ran {name}")),
        // The tool needs root, and the file is there already.
        Err(_) if was_there && change == TrustChange::Install => TrustOutcome::Nothing(what),
        Err(said) => {
            TrustOutcome::failed(format!("{what}, but {name} failed: {said}"), format!("run {} again", tool.display()))
        }
    }
}

/// Not `sudo politely`: root has another state directory, and would find or create another authority there.
fn by_hand(change: TrustChange, file: &Path, tool: &Path) -> String {
    let (file, tool) = (file.display(), tool.display());
    match change {
        TrustChange::Install => format!("politely ca export | sudo tee {file} && sudo {tool}"),
        TrustChange::Uninstall => format!("sudo rm {file} && sudo {tool}"),
    }
}

/// Of Debian, Ubuntu, Alpine; Fedora, RHEL; Arch; openSUSE: the directory, how its files are named, the tool, and its package.
const STORES: [(&str, &str, &str, &str); 4] = [
    ("/usr/local/share/ca-certificates", "crt", "update-ca-certificates", "ca-certificates"),
    ("/etc/pki/ca-trust/source/anchors", "pem", "update-ca-trust", "ca-certificates"),
    ("/etc/ca-certificates/trust-source/anchors", "crt", "update-ca-trust", "ca-certificates-utils"),
    ("/etc/pki/trust/anchors", "pem", "update-ca-certificates", "ca-certificates"),
];
