//! The certificate authority and its leaves, as clients and attackers meet them.

mod command;
mod leaves;
mod trusted;

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;

use politely::config::UnusableFile;
use politely::policy::Host;
use politely::tls::{self, Ca, LeafCache, roots};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use tempfile::TempDir;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn complaint(opened: Result<Ca, UnusableFile>) -> (String, String) {
    let error = opened.expect_err("this authority must be refused");
    (error.to_string(), error.hint().to_owned())
}

#[test]
fn first_use_creates_an_authority_readable_only_by_its_owner() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("state/ca");
    let ca = Ca::open_or_create(&directory).unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("ca.key")), 0o600);
    assert_eq!(ca.path(), directory.join("ca.pem"));
    assert_eq!(fs::read_to_string(ca.path()).unwrap(), ca.cert_pem());
    let again = Ca::open_or_create(&directory).unwrap();
    assert_eq!(again.cert_der(), ca.cert_der());
    let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".lock", "ca.key", "ca.pem"]);
}

#[test]
fn authority_can_sign_only_leaves_for_ten_years() {
    let home = TempDir::new().unwrap();
    let ca = Ca::open_or_create(home.path().join("ca").as_path()).unwrap();
    let (_, x509) = X509Certificate::from_der(ca.cert_der()).unwrap();
    let constraints = x509.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = x509.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
    assert_eq!(usage.value.flags.count_ones(), 2);
    assert!(x509.verify_signature(None).is_ok());
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    assert_eq!((x509.validity().not_after.timestamp() - now + 3600) / 86_400, 3650);
    assert!(x509.validity().not_before.timestamp() <= now - 86_400);
    let name = x509.subject().to_string();
    let today = time::OffsetDateTime::now_utc().date().to_string();
    assert!(name.starts_with("O=politely, CN=politely ") && name.contains(&today), "{name}");
}

#[test]
fn authorities_have_distinct_names() {
    let home = TempDir::new().unwrap();
    let names: HashSet<String> = (0..4)
        .map(|number| {
            let ca = Ca::open_or_create(&home.path().join(number.to_string())).unwrap();
            X509Certificate::from_der(ca.cert_der()).unwrap().1.subject().to_string()
        })
        .collect();
    assert_eq!(names.len(), 4);
}

#[test]
fn concurrent_threads_create_one_authority() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    let start = Barrier::new(8);
    let made: HashSet<String> = thread::scope(|scope| {
        let create = || {
            start.wait();
            Ca::open_or_create(&directory).unwrap().cert_pem().to_owned()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 1);
}

#[test]
fn interrupted_creation_is_completed_with_the_existing_key() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    Ca::open_or_create(&directory).unwrap();
    let key = fs::read(directory.join("ca.key")).unwrap();
    fs::remove_file(directory.join("ca.pem")).unwrap();
    Ca::open_or_create(&directory).unwrap();
    assert_eq!(fs::read(directory.join("ca.key")).unwrap(), key);
}

#[test]
fn key_readable_by_others_is_refused() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    Ca::open_or_create(&directory).unwrap();
    let key = directory.join("ca.key");
    for open in [0o640, 0o604, 0o620, 0o601] {
        set_mode(&key, open);
        let (what, hint) = complaint(Ca::open_or_create(&directory));
        assert_eq!(what, format!("the key {} can be read by others (mode {open:04o})", key.display()));
        assert!(hint.contains(&format!("chmod 600 {}", key.display())), "{hint}");
    }
    set_mode(&key, 0o400);
    Ca::open_or_create(&directory).unwrap();
}

#[test]
fn directory_writable_by_others_is_refused() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    Ca::open_or_create(&directory).unwrap();
    set_mode(&directory, 0o770);
    let (what, hint) = complaint(Ca::open_or_create(&directory));
    assert_eq!(what, format!("the directory {} can be written by others (mode 0770)", directory.display()));
    assert_eq!(hint, format!("chmod 700 {}", directory.display()));
}

#[test]
fn files_that_are_missing_broken_or_not_a_pair_are_refused_by_name() {
    let home = TempDir::new().unwrap();
    let (one, two) = (home.path().join("one"), home.path().join("two"));
    Ca::open_or_create(&one).unwrap();
    Ca::open_or_create(&two).unwrap();
    let (certificate, key) = (one.join("ca.pem"), one.join("ca.key"));
    let shown = (certificate.display().to_string(), key.display().to_string());

    let (what, _) = complaint(Ca::open(&certificate, &two.join("ca.key")));
    assert_eq!(
        what,
        format!("the key {} does not belong to the certificate {}", two.join("ca.key").display(), shown.0)
    );

    let (what, _) = complaint(Ca::open(&one.join("none.pem"), &key));
    assert_eq!(what, format!("{}/none.pem cannot be read: No such file or directory (os error 2)", one.display()));

    let (what, _) = complaint(Ca::open(&key, &key));
    assert_eq!(what, format!("{} cannot be used: it contains no certificate", shown.1));

    let empty = one.join("empty");
    fs::write(&empty, "").unwrap();
    set_mode(&empty, 0o600);
    let (what, _) = complaint(Ca::open(&certificate, &empty));
    assert_eq!(what, format!("{} contains no usable key: there is no private key in it", empty.display()));

    fs::remove_file(&key).unwrap();
    let (what, hint) = complaint(Ca::open_or_create(&one));
    assert_eq!(what, format!("the certificate {} exists, but its key {} does not", shown.0, shown.1));
    assert_eq!(hint, format!("put the key back, or delete {} to create both again", shown.0));

    fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    fs::copy(two.join("ca.key"), &key).unwrap();
    let (what, _) = complaint(Ca::open_or_create(&one));
    assert_eq!(what, format!("{} cannot be used: a certificate in it is malformed", shown.0));
}

#[test]
fn certificate_without_signing_right_is_refused() {
    let home = TempDir::new().unwrap();
    let key = KeyPair::generate().unwrap();
    let (certificate, key_path) = (home.path().join("c.pem"), home.path().join("k.pem"));
    fs::write(&key_path, key.serialize_pem()).unwrap();
    set_mode(&key_path, 0o600);
    let refused = |params: CertificateParams| {
        fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        let (what, _) = complaint(Ca::open(&certificate, &key_path));
        what.split_once("cannot be used: ").unwrap().1.to_owned()
    };
    let plain = CertificateParams::default();
    assert_eq!(refused(plain.clone()), "it is not a CA certificate");
    let mut signer = plain;
    signer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    signer.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    assert_eq!(refused(signer), "it may not sign certificates");
}
