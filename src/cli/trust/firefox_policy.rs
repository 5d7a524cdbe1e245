//! Firefox's enterprise policies, by which a profile trusts the authority from its first start on. The system's file is root's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{TrustChange, TrustEntry, TrustOutcome, UserMachine};
use crate::config::read_file;

/// `None`: there is neither a Firefox nor an entry. A user who may not change the system's file is told, without an error: most use
/// profiles that exist.
pub(super) fn change(machine: &UserMachine, change: TrustChange, entry: &TrustEntry<'_>) -> Option<TrustOutcome> {
    let directory = machine.below_root(DIRECTORY);
    let certificate = directory.join(format!("{}.pem", entry.name));
    let has_firefox = FIREFOX.iter().any(|name| machine.tool(name).is_some());
    if !certificate.exists() && (change == TrustChange::Uninstall || !has_firefox) {
        return None;
    }
    let file = directory.join("policies.json");
    let shown = file.display();
    let changed = match change {
        TrustChange::Install => install(&directory, &file, &certificate, entry.pem),
        TrustChange::Uninstall => uninstall(&file, &certificate),
    };
    Some(match (changed, change) {
        (Ok(()), TrustChange::Install) => TrustOutcome::Done(format!("added to {shown}, for new profiles of Firefox")),
        (Ok(()), TrustChange::Uninstall) => TrustOutcome::Done(format!("removed from {shown}")),
        (Err(error), TrustChange::Install) if error.kind() == io::ErrorKind::PermissionDenied => {
            TrustOutcome::Nothing(format!("new profiles of Firefox do not trust it, as only root can change {shown}"))
        }
        (Err(error), _) => TrustOutcome::failed(
            format!("{shown} cannot be changed: {error}"),
            "it must be a file of JSON that you may write",
        ),
    })
}

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

fn install(directory: &Path, file: &Path, certificate: &Path, pem: &str) -> io::Result<()> {
    let policies = trusting(&present(file)?, &[certificate.to_owned()])?;
    fs::create_dir_all(directory)?;
    fs::write(certificate, pem)?;
    fs::write(file, policies)
}

fn uninstall(file: &Path, certificate: &Path) -> io::Result<()> {
    let mut all = parsed(&present(file)?)?;
    let path = json!(certificate.display().to_string());
    installed(&mut all)?.retain(|other| *other != path);
    match all == parsed(b"")? {
        true => fs::remove_file(file)?,
        false => fs::write(file, format!("{all:#}\n"))?,
    }
    fs::remove_file(certificate)
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
pub(super) const FIREFOX: [&str; 2] = ["firefox", "firefox-esr"];
