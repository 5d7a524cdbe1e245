//! The system's trust store: a directory of certificates, and a tool that builds bundles from them.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::own_entries::{OwnEntries, remove_each};
use super::{TrustEntry, TrustOutcome, UserMachine, not_listed, run};
use crate::config::{read_file, write_whole};

pub(super) struct SystemStore {
    directory: PathBuf,
    extension: &'static str,
    name: &'static str,
    tool: PathBuf,
}

impl SystemStore {
    /// # Errors
    /// There is no store, or no tool to build its bundles.
    pub fn find(machine: &UserMachine) -> Result<Self, TrustOutcome> {
        let all = STORES
            .map(|(directory, extension, name, package)| (machine.below_root(directory), extension, name, package));
        let Some((directory, extension, name, package)) = all.into_iter().find(|(directory, ..)| directory.is_dir())
        else {
            return Err(TrustOutcome::failed(
                "no store of a known kind was found",
                "install ca-certificates, or give programs the certificate: `politely ca export`",
            ));
        };
        let missing = || {
            TrustOutcome::failed(
                format!("{name} is missing"),
                format!("install the package {package}, which contains it"),
            )
        };
        let tool = machine.tool(name).ok_or_else(missing)?;
        Ok(Self { directory, extension, name, tool })
    }

    pub fn install(&self, entry: &TrustEntry<'_>) -> TrustOutcome {
        let file = self.directory.join(format!("{}.{}", entry.name, self.extension));
        let shown = file.display();
        if read_file(&file).is_ok_and(|content| content == entry.pem.as_bytes()) {
            let what = format!("{shown} existed already");
            return match run(&self.tool, &[], None) {
                Ok(_) => TrustOutcome::Done(format!("{what}, ran {}", self.name)),
                // The tool needs root.
                Err(_) => TrustOutcome::Nothing(what),
            };
        }
        match write_whole(&file, entry.pem.as_bytes(), 0o644) {
            Ok(()) => self.build(&format!("wrote {shown}")),
            Err(error) => self.denied(&error, &shown.to_string(), &format!("politely ca export | sudo tee {shown}")),
        }
    }

    pub fn uninstall(&self, own: &OwnEntries) -> Vec<TrustOutcome> {
        let files = match own.files(&self.directory, self.extension) {
            Err(error) => return vec![not_listed(&self.directory, &error)],
            Ok(files) if files.is_empty() => {
                return vec![TrustOutcome::Nothing(format!("the authority is not in {}", self.directory.display()))];
            }
            Ok(files) => files,
        };
        let (removed, failed) = remove_each(&files, |file| fs::remove_file(file));
        let shown =
            |files: &[&PathBuf]| files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ");
        let done = (!removed.is_empty()).then(|| self.build(&format!("removed {}", shown(&removed))));
        let failed = failed.into_iter().map(|(file, error)| {
            let shown = shown(&[file]);
            self.denied(&error, &shown, &format!("sudo rm {shown}"))
        });
        done.into_iter().chain(failed).collect()
    }

    /// Runs the tool that builds the bundles, after files have changed.
    fn build(&self, what: &str) -> TrustOutcome {
        let (name, tool) = (self.name, self.tool.display());
        match run(&self.tool, &[], None) {
            Ok(_) => TrustOutcome::Done(format!("{what}, ran {name}")),
            Err(said) => {
                TrustOutcome::failed(format!("{what}, but {name} failed: {said}"), format!("run {tool} again"))
            }
        }
    }

    /// Reports a failed change. `by_hand`: the shell command for it. Not `sudo politely`: root has another state directory, and would find
    /// or create another authority there.
    fn denied(&self, error: &io::Error, file: &str, by_hand: &str) -> TrustOutcome {
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root();
        let what = if is_denied { "only root may do this".to_owned() } else { format!("{file}: {error}") };
        TrustOutcome::failed(what, format!("{by_hand} && sudo {}", self.tool.display()))
    }
}

/// Directory, file extension, tool and package of the stores of Debian, Ubuntu, Alpine; Fedora, RHEL; Arch; openSUSE.
const STORES: [(&str, &str, &str, &str); 4] = [
    ("/usr/local/share/ca-certificates", "crt", "update-ca-certificates", "ca-certificates"),
    ("/etc/pki/ca-trust/source/anchors", "pem", "update-ca-trust", "ca-certificates"),
    ("/etc/ca-certificates/trust-source/anchors", "crt", "update-ca-trust", "ca-certificates-utils"),
    ("/etc/pki/trust/anchors", "pem", "update-ca-certificates", "ca-certificates"),
];
