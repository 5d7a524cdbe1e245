//! Firefox's enterprise policies, by which a profile trusts the authority from its first start on. Root owns the system's file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::{read_file, rewrite, write_whole};

/// Adds the certificates in these files to those that Firefox trusts.
///
/// # Errors
/// `policies` is not the JSON of a policies.json.
pub(super) fn with_certificates(policies: &[u8], certificates: &[PathBuf]) -> io::Result<Vec<u8>> {
    let mut all = parsed(policies)?;
    let installed = installed(&mut all)?;
    for path in certificates.iter().map(|path| json!(path.display().to_string())) {
        if !installed.contains(&path) {
            installed.push(path);
        }
    }
    Ok(format!("{all:#}\n").into_bytes())
}

/// Writes the certificate, and adds it to the system's file.
pub(super) fn install(file: &Path, certificate: &Path, pem: &str) -> io::Result<()> {
    let policies = with_certificates(&read_or_empty(file)?, &[certificate.to_owned()])?;
    certificate.parent().map_or(Ok(()), fs::create_dir_all)?;
    write_whole(certificate, pem.as_bytes(), 0o644)?;
    match file.exists() {
        true => rewrite(file, &policies),
        false => write_whole(file, &policies, 0o644),
    }
}

/// Removes these certificates from the system's file.
pub(super) fn uninstall(file: &Path, certificates: &[PathBuf]) -> io::Result<()> {
    let mut all = parsed(&read_or_empty(file)?)?;
    installed(&mut all)?.retain(|path| certificates.iter().all(|ours| *path != json!(ours.display().to_string())));
    match all == parsed(b"")? {
        true if file.exists() => fs::remove_file(file),
        true => Ok(()),
        false => rewrite(file, format!("{all:#}\n").as_bytes()),
    }
}

fn read_or_empty(file: &Path) -> io::Result<Vec<u8>> {
    match read_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// Parses policies; an empty file has none.
fn parsed(policies: &[u8]) -> io::Result<Value> {
    let mut all = match policies {
        b"" => json!({}),
        policies => serde_json::from_slice(policies)?,
    };
    installed(&mut all)?;
    Ok(all)
}

/// The list of certificate files, which is created if missing.
fn installed(all: &mut Value) -> io::Result<&mut Vec<Value>> {
    let mut value = all;
    for key in ["policies", "Certificates", "Install"] {
        let entries = value.as_object_mut().ok_or(io::ErrorKind::InvalidData)?;
        value = entries.entry(key).or_insert_with(|| if key == "Install" { json!([]) } else { json!({}) });
    }
    value.as_array_mut().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Directory of the system's policies, which every Firefox but Flatpak's reads.
pub(super) const DIRECTORY: &str = "/etc/firefox/policies";
pub(super) const FILE: &str = "policies.json";
