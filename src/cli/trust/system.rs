//! The system's trust store: a directory of certificates, and a tool that builds bundles from them.

use std::fs;
use std::io;
use std::path::Path;

use super::{TrustChange, TrustEntry, TrustOutcome, UserMachine, run};
use crate::config::{read_file, write_whole};

pub(super) fn change(machine: &UserMachine, change: TrustChange, entry: &TrustEntry<'_>) -> TrustOutcome {
    let Some(store) = STORES.iter().find(|store| machine.below_root(store.directory).is_dir()) else {
        return TrustOutcome::failed(
            "no store of a known kind was found",
            "install ca-certificates, or give programs the certificate: `politely ca export`",
        );
    };
    let Some(tool) = machine.tool(store.tool) else {
        return TrustOutcome::failed(
            format!("{} is missing", store.tool),
            format!("install the package {}, which brings it", store.package),
        );
    };
    let file = machine.below_root(store.directory).join(format!("{}.{}", entry.name, store.extension));
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
        Ok(_) => TrustOutcome::Done(format!("{what}, ran {}", store.tool)),
        // The tool needs root, and the file is there already.
        Err(_) if was_there && change == TrustChange::Install => TrustOutcome::Nothing(what),
        Err(said) => TrustOutcome::failed(
            format!("{what}, but {} failed: {said}", store.tool),
            format!("run {} again", tool.display()),
        ),
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

struct SystemStore {
    directory: &'static str,
    extension: &'static str,
    tool: &'static str,
    package: &'static str,
}

/// Debian, Ubuntu, Alpine; Fedora, RHEL; Arch; openSUSE.
const STORES: &[SystemStore] = &[
    SystemStore {
        directory: "/usr/local/share/ca-certificates",
        extension: "crt",
        tool: "update-ca-certificates",
        package: "ca-certificates",
    },
    SystemStore {
        directory: "/etc/pki/ca-trust/source/anchors",
        extension: "pem",
        tool: "update-ca-trust",
        package: "ca-certificates",
    },
    SystemStore {
        directory: "/etc/ca-certificates/trust-source/anchors",
        extension: "crt",
        tool: "update-ca-trust",
        package: "ca-certificates-utils",
    },
    SystemStore {
        directory: "/etc/pki/trust/anchors",
        extension: "pem",
        tool: "update-ca-certificates",
        package: "ca-certificates",
    },
];
