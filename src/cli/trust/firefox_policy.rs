//! Firefox's enterprise policies, by which a profile trusts the authority from its first start on. The system's file is root's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::nss::FIREFOX_PROGRAMS;
use super::{TrustEntry, TrustOutcome, UserMachine, ours_in};
use crate::config::{read_file, rewrite, write_whole};

/// The policies with the certificates in these files among those that Firefox trusts.
///
/// # Errors
/// `policies` is not the JSON of a policies.json.
pub(super) fn trusting(policies: &[u8], certificates: &[PathBuf]) -> io::Result<Vec<u8>> {
    let mut all = parsed(policies)?;
    let installed = installed(&mut all)?;
    for path in certificates.iter().map(|path| json!(path.display().to_string())) {
        if !installed.contains(&path) {
            installed.push(path);
        }
    }
    Ok(format!("{all:#}\n").into_bytes())
}

/// `None`: there is no Firefox. A user who may not change the system's file is told, without an error: most use profiles that exist.
pub(super) fn install(machine: &UserMachine, entry: &TrustEntry<'_>) -> Option<TrustOutcome> {
    let directory = machine.below_root(DIRECTORY);
    let (certificate, file) = (directory.join(format!("{}.pem", entry.name)), directory.join(FILE));
    if !certificate.exists() && !FIREFOX_PROGRAMS.iter().any(|name| machine.tool(name).is_some()) {
        return None;
    }
    let change = || {
        let policies = trusting(&present(&file)?, std::slice::from_ref(&certificate))?;
        fs::create_dir_all(&directory)?;
        write_whole(&certificate, entry.pem.as_bytes(), 0o644)?;
        match file.exists() {
            true => rewrite(&file, &policies),
            false => write_whole(&file, &policies, 0o644),
        }
    };
    let shown = file.display();
    Some(match change() {
        Ok(()) => TrustOutcome::Done(format!("added to {shown}, for new profiles of Firefox")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            TrustOutcome::Nothing(format!("new profiles of Firefox do not trust it, as only root can change {shown}"))
        }
        Err(error) => cannot_be_changed(&file, &error),
    })
}

/// `None`: there is no entry.
pub(super) fn uninstall(machine: &UserMachine) -> Option<TrustOutcome> {
    let directory = machine.below_root(DIRECTORY);
    let (certificates, file) = (ours_in(&directory, "pem"), directory.join(FILE));
    if certificates.is_empty() {
        return None;
    }
    let change = || {
        let mut all = parsed(&present(&file)?)?;
        installed(&mut all)?.retain(|path| certificates.iter().all(|ours| *path != json!(ours.display().to_string())));
        match all == parsed(b"")? {
            true => fs::remove_file(&file)?,
            false => rewrite(&file, format!("{all:#}\n").as_bytes())?,
        }
        certificates.iter().try_for_each(fs::remove_file)
    };
    Some(match change() {
        Ok(()) => TrustOutcome::Done(format!("removed from {}", file.display())),
        Err(error) => cannot_be_changed(&file, &error),
    })
}

fn cannot_be_changed(file: &Path, error: &io::Error) -> TrustOutcome {
    TrustOutcome::failed(
        format!("{} cannot be changed: {error}", file.display()),
        "it must be a file of JSON that you may write",
    )
}

fn present(file: &Path) -> io::Result<Vec<u8>> {
    match read_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// Nothing stands for policies without a certificate.
fn parsed(policies: &[u8]) -> io::Result<Value> {
    let mut all = match policies {
        b"" => json!({}),
        policies => serde_json::from_slice(policies)?,
    };
    installed(&mut all)?;
    Ok(all)
}

/// The files of certificates, added where there are none.
fn installed(all: &mut Value) -> io::Result<&mut Vec<Value>> {
    let mut value = all;
    for key in ["policies", "Certificates", "Install"] {
        let entries = value.as_object_mut().ok_or(io::ErrorKind::InvalidData)?;
        value = entries.entry(key).or_insert_with(|| if key == "Install" { json!([]) } else { json!({}) });
    }
    value.as_array_mut().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Read by every Firefox but Flatpak's.
const DIRECTORY: &str = "/etc/firefox/policies";
const FILE: &str = "policies.json";
