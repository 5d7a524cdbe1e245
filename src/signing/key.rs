//! Ed25519 keys in files: read, created, and named by their thumbprint (RFC 8037, RFC 7638).

use crate::config::{UnusableFile, open_private, read_whole, refuse_foreign};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A signing key.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    id: String,
}

impl SigningKey {
    /// Reads a PEM file that only its owner can read, or a systemd credential.
    pub fn read(path: &Path) -> Result<Self, UnusableFile> {
        let shown = path.display();
        let unreadable = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    "correct `identity.signature`, or make one with `politely identity keygen FILE`"
                }
                _ => "make it readable for the user that the proxy runs as",
            };
            UnusableFile::new(format!("cannot read the signing key {shown}: {error}"), hint)
        };
        let (file, open) = open_private(path).map_err(unreadable)?;
        if let Some(mode) = open {
            let what = format!("the signing key {shown} can be read by users other than its owner (mode {mode:04o})");
            return Err(UnusableFile::new(what, format!("`chmod 600 {shown}`")));
        }
        Self::from_pem(&read_whole(file).map_err(unreadable)?).map_err(|why| {
            let hint = "make one with `politely identity keygen`, or with `openssl genpkey -algorithm ed25519`";
            UnusableFile::new(format!("{shown} does not hold an Ed25519 key: {why}"), hint)
        })
    }

    /// Creates a key in a new file that only its owner can read. Fails if the file exists.
    pub fn make(path: &Path) -> Result<Self, UnusableFile> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| {
            UnusableFile::new("the system provides no random numbers", "check that /dev/urandom exists and can be read")
        })?;
        let pem = pem::encode(&pem::Pem::new(PEM_TAG, [PKCS8, &seed[..]].concat()));
        let unwritable = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::AlreadyExists => "the file exists and is not replaced: name another file",
                _ => "name a file in a directory that you may write to",
            };
            UnusableFile::new(format!("cannot create the signing key {}: {error}", path.display()), hint)
        };
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = refuse_foreign(path).and_then(|()| create()).map_err(unwritable)?;
        let written = file.write_all(pem.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // An incomplete key is useless and would block the next attempt.
            let _ = fs::remove_file(path);
            return Err(unwritable(error));
        }
        Self::read(path)
    }

    /// Parses a PEM text. `Err`: what is wrong with the text.
    pub(super) fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, String> {
        let pem = pem::parse(text).map_err(|_| "not a PEM file")?;
        if pem.tag() != PEM_TAG {
            return Err(format!("it holds a `{}` instead of a `{PEM_TAG}`", pem.tag()));
        }
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pem.contents());
        let pair = pair.map_err(|_| "not an Ed25519 private key, or damaged")?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, thumbprint_input(&public(&pair)).as_bytes()));
        Ok(Self { pair, id })
    }

    /// The thumbprint, by which signatures name the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public key as a JSON Web Key.
    pub fn jwk(&self) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": public(&self.pair), "use": "sig" })
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

fn public(pair: &Ed25519KeyPair) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(pair.public_key())
}

/// Input of the thumbprint's hash (RFC 7638 §3.2): the required members, sorted, without white space.
fn thumbprint_input(x: &str) -> String {
    format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)
}

const PEM_TAG: &str = "PRIVATE KEY";
/// The DER before the 32 bytes of an Ed25519 key (RFC 8410 §7).
const PKCS8: &[u8] = &[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn key_is_created_once_and_readable_only_by_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("bot.pem");
        let made = SigningKey::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::read(&path).unwrap().id(), made.id());
        let again = SigningKey::make(&path).err().unwrap();
        assert!(again.hint().contains("not replaced"), "{again}");
        assert_eq!(SigningKey::read(&path).unwrap().id(), made.id());
    }

    #[test]
    fn key_readable_by_others_is_refused_with_a_hint() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("bot.pem");
        SigningKey::make(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = SigningKey::read(&path).err().unwrap();
            assert!(error.to_string().contains(&format!("(mode {mode:04o})")), "{error}");
            assert_eq!(error.hint(), format!("`chmod 600 {}`", path.display()));
        }
        fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
        assert!(SigningKey::read(&path).is_ok());
    }

    #[test]
    fn an_invalid_key_is_reported_without_its_content() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("bot.pem");
        for text in ["s3cret", "-----BEGIN PUBLIC KEY-----\nczNjcmV0\n-----END PUBLIC KEY-----\n"] {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let error = SigningKey::read(&path).err().unwrap().to_string();
            assert!(error.contains("does not hold an Ed25519 key") && !error.contains("s3cret"), "{error}");
        }
        let missing = SigningKey::read(&home.path().join("none")).err().unwrap();
        assert!(missing.hint().contains("identity keygen"), "{missing}");
    }
}
