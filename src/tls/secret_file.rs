//! Files with secrets. They are in a directory that only its owner can write, are never readable by others, not even while being
//! written, and several processes may write them at once.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rcgen::KeyPair;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};

use super::error::fault;
use crate::config::{UnusableFile, open_lock_file, open_private, private_directory, read_whole, write_whole};

/// Creates the directory, mode 0700, if it does not exist. Fails if others can write to it.
pub(crate) fn directory(path: &Path) -> Result<(), UnusableFile> {
    private_directory(path).map_err(fault(path, "created"))?;
    let mode = fs::metadata(path).map_err(fault(path, "read"))?.mode() & 0o7777;
    // Anyone who can write here can replace our key.
    if mode & 0o022 != 0 {
        let path = path.display();
        let what = format!("the directory {path} can be written by others (mode {mode:04o})");
        return Err(UnusableFile::new(what, format!("chmod 700 {path}")));
    }
    Ok(())
}

/// Loads a private key (PKCS #8, PEM) whose algorithm can sign certificates.
pub(super) fn load_key(path: &Path) -> Result<KeyPair, UnusableFile> {
    let unusable = |why: &str, hint: &str| {
        UnusableFile::new(format!("{} contains no usable key: {why}", path.display()), hint).about(path)
    };
    let text = read_key(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(PrivateKeyDer::Pkcs8(key)) => KeyPair::try_from(&key).map_err(|_| {
            unusable(
                "its algorithm is not supported",
                "use an ECDSA key (P-256, P-384), an Ed25519 key, or an RSA key of at least 2048 bits",
            )
        }),
        Ok(_) => Err(unusable(
            "it is not in PKCS #8 format",
            "convert it: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW; chmod 600 NEW",
        )),
        Err(pem::Error::NoItemsFound) if text.windows(9).any(|part| part == b"ENCRYPTED") => Err(unusable(
            "it is encrypted",
            "decrypt it: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW; chmod 600 NEW",
        )),
        Err(_) => Err(unusable("there is no private key in it", "name a PEM file with `-----BEGIN PRIVATE KEY-----`")),
    }
}

/// Waits for an exclusive lock on the directory, held until the file is dropped.
pub(super) fn lock(directory: &Path) -> Result<File, UnusableFile> {
    let file = open_lock_file(&directory.join(".lock")).map_err(fault(directory, "locked"))?;
    file.lock().map_err(fault(directory, "locked"))?;
    Ok(file)
}

/// Writes a file, as [`write_whole`] does.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result<(), UnusableFile> {
    write_whole(path, content.as_ref(), mode).map_err(fault(path, "written"))
}

/// Reads a key file. Fails if anybody but its owner can read it.
pub(super) fn read_key(path: &Path) -> Result<Vec<u8>, UnusableFile> {
    let (file, open) = open_private(path).map_err(fault(path, "read"))?;
    if let Some(mode) = open {
        let shown = path.display();
        let hint = format!("if nobody can have read it, chmod 600 {shown}; otherwise delete it and its certificate");
        let what = format!("the key {shown} can be read by others (mode {mode:04o})");
        return Err(UnusableFile::new(what, hint).about(path));
    }
    read_whole(file).map_err(fault(path, "read"))
}
