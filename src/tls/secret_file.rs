//! Files with secrets: in a directory that only its owner can write, never readable by others, not even while being written, and safe
//! if several processes write at once.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rcgen::KeyPair;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};

use super::error::CaError;
use crate::config::{give_to_owner, open_file, open_regular, private_directory, read_whole};

/// Creates the directory, mode 0700, if it does not exist.
pub(crate) fn directory(path: &Path) -> Result<(), CaError> {
    private_directory(path).map_err(fault(path, "made"))?;
    let mode = fs::metadata(path).map_err(fault(path, "read"))?.mode() & 0o7777;
    // Anyone who can write here can replace our key.
    if mode & 0o022 != 0 { Err(CaError::DirectoryOpen { path: path.to_owned(), mode }) } else { Ok(()) }
}

/// Loads a key (PKCS #8, PEM) of a kind that can sign certificates.
pub(super) fn load_key(path: &Path) -> Result<KeyPair, CaError> {
    let unusable = |why, hint| CaError::KeyUnusable { path: path.to_owned(), why, hint };
    let text = read_key(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(PrivateKeyDer::Pkcs8(key)) => KeyPair::try_from(&key).map_err(|_| {
            unusable(
                "its kind is not known",
                "take an ECDSA key (P-256, P-384), an Ed25519 key, or an RSA key of 2048 bits up",
            )
        }),
        Ok(_) => Err(unusable(
            "it is not in the form PKCS #8",
            "convert it: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW; chmod 600 NEW",
        )),
        Err(pem::Error::NoItemsFound) if text.windows(9).any(|part| part == b"ENCRYPTED") => Err(unusable(
            "it is encrypted",
            "decrypt it: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW; chmod 600 NEW",
        )),
        Err(_) => Err(unusable("there is no private key in it", "a PEM file: `-----BEGIN PRIVATE KEY-----` …")),
    }
}

/// Waits for an exclusive lock on the directory, held until the file is dropped.
pub(super) fn lock(directory: &Path) -> Result<File, CaError> {
    let path = directory.join(".lock");
    let mut options = OpenOptions::new();
    let file = open_regular(options.create(true).truncate(false).write(true).mode(0o600), &path);
    let file = file.map_err(fault(&path, "made"))?;
    give_to_owner(&file, directory).map_err(fault(&path, "written"))?;
    file.lock().map_err(fault(&path, "locked"))?;
    Ok(file)
}

/// Writes a file atomically. Call under [`lock`] if other processes may write it.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result<(), CaError> {
    let new = path.with_added_extension("new");
    // A leftover of a process that was killed here.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(&new, "removed")(error)),
        Ok(()) | Err(_) => {}
    }
    let mut file =
        OpenOptions::new().create_new(true).write(true).mode(mode).open(&new).map_err(fault(&new, "made"))?;
    let written = file.write_all(content.as_ref()).and_then(|()| file.sync_all());
    written.map_err(fault(&new, "written"))?;
    give_to_owner(&file, path.parent().unwrap_or(Path::new("."))).map_err(fault(&new, "written"))?;
    fs::rename(&new, path).map_err(fault(path, "written"))?;
    // Without this, a power cut may lose the new name.
    let directory = path.parent().map(File::open).transpose().map_err(fault(path, "written"))?;
    directory.map_or(Ok(()), |directory| directory.sync_all()).map_err(fault(path, "written"))
}

/// Reads a key, which only its owner may be able to read.
pub(super) fn read_key(path: &Path) -> Result<Vec<u8>, CaError> {
    let file = open_file(path).map_err(fault(path, "read"))?;
    let mode = file.metadata().map_err(fault(path, "read"))?.mode() & 0o7777;
    if mode & 0o077 != 0 && !is_credential(path) {
        return Err(CaError::KeyOpen { path: path.to_owned(), mode });
    }
    read_whole(file).map_err(fault(path, "read"))
}

/// systemd's credentials are in the service's directory, with an access list that appears as group permissions.
fn is_credential(path: &Path) -> bool {
    env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|directory| !directory.is_empty() && path.starts_with(directory))
}

pub(super) fn fault(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> CaError {
    let path = path.to_owned();
    move |source| CaError::File { path, doing, source }
}
