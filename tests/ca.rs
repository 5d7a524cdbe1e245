//! The certificate authority and its leaves, as clients and attackers meet them.
#![cfg(feature = "proxy")]

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;

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

fn complaint(opened: Result<Ca, tls::CaError>) -> (String, String) {
    let error = opened.expect_err("this authority must be refused");
    (error.to_string(), error.hint())
}

fn trusting(ca: &Ca) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add(ca.cert_der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Shakes hands in memory; the client's connection, or its complaint.
fn shake_hands(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<ClientConnection, rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    let mut wire = Vec::new();
    for _ in 0..8 {
        wire.clear();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut sent = wire.as_slice();
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets()?;
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut sent = wire.as_slice();
        while !sent.is_empty() {
            client.read_tls(&mut sent).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking());
    Ok(client)
}

fn leaf_of(cache: &LeafCache, host: &str) -> CertificateDer<'static> {
    let host_name = host.trim_matches(['[', ']']);
    let config = cache.config_for(&Host::parse(host).unwrap());
    let client = shake_hands(&config, &trusting(cache.ca()), host_name).unwrap();
    client.peer_certificates().unwrap()[0].clone()
}

#[test]
fn the_first_use_makes_an_authority_that_only_its_owner_can_read() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("state/ca");
    let ca = Ca::open_or_create(&directory).unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("ca.key")), 0o600);
    assert_eq!(ca.path(), directory.join("ca.pem"));
    assert_eq!(fs::read_to_string(ca.path()).unwrap(), ca.cert_pem());
    let again = Ca::open_or_create(&directory).unwrap();
    assert_eq!(again.cert_der(), ca.cert_der());
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, [".lock", "ca.key", "ca.pem"]);
}

#[test]
fn the_authority_can_sign_leaves_and_nothing_else_for_ten_years() {
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
    let days = (x509.validity().not_after.timestamp() - x509.validity().not_before.timestamp()) / 86_400;
    assert_eq!(days, 3651);
    let name = x509.subject().to_string();
    let today = time::OffsetDateTime::now_utc().date().to_string();
    assert!(
        name.starts_with("O=politely, CN=politely ") && name.contains(&today),
        "{name}"
    );
}

#[test]
fn several_authorities_are_told_apart_by_name() {
    let home = TempDir::new().unwrap();
    let names: HashSet<String> = (0..4)
        .map(|number| {
            let ca = Ca::open_or_create(&home.path().join(number.to_string())).unwrap();
            X509Certificate::from_der(ca.cert_der())
                .unwrap()
                .1
                .subject()
                .to_string()
        })
        .collect();
    assert_eq!(names.len(), 4);
}

#[test]
fn all_who_create_it_at_once_get_the_same_one() {
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
fn a_creation_cut_off_after_the_key_is_completed_with_that_key() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    Ca::open_or_create(&directory).unwrap();
    let key = fs::read(directory.join("ca.key")).unwrap();
    fs::remove_file(directory.join("ca.pem")).unwrap();
    fs::write(directory.join("ca.pem.new"), "half of a certific").unwrap();
    Ca::open_or_create(&directory).unwrap();
    assert_eq!(fs::read(directory.join("ca.key")).unwrap(), key);
    assert!(!directory.join("ca.pem.new").exists());
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    Ca::open_or_create(&directory).unwrap();
    let key = directory.join("ca.key");
    for open in [0o640, 0o604, 0o620, 0o601] {
        set_mode(&key, open);
        let (what, hint) = complaint(Ca::open_or_create(&directory));
        assert_eq!(
            what,
            format!("the key {} can be read by others (mode {open:04o})", key.display())
        );
        assert!(hint.contains(&format!("chmod 600 {}", key.display())), "{hint}");
    }
    set_mode(&key, 0o400);
    Ca::open_or_create(&directory).unwrap();
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    Ca::open_or_create(&directory).unwrap();
    set_mode(&directory, 0o770);
    let (what, hint) = complaint(Ca::open_or_create(&directory));
    assert_eq!(
        what,
        format!(
            "the directory {} can be written by others (mode 0770)",
            directory.display()
        )
    );
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
        format!(
            "the key {} does not belong to the certificate {}",
            two.join("ca.key").display(),
            shown.0
        )
    );

    let (what, _) = complaint(Ca::open(&one.join("none.pem"), &key));
    assert_eq!(
        what,
        format!(
            "{}/none.pem cannot be read: No such file or directory (os error 2)",
            one.display()
        )
    );

    let (what, _) = complaint(Ca::open(&key, &key));
    assert_eq!(
        what,
        format!("{} cannot be used: there is no certificate in it", shown.1)
    );

    let empty = one.join("empty");
    fs::write(&empty, "").unwrap();
    set_mode(&empty, 0o600);
    let (what, _) = complaint(Ca::open(&certificate, &empty));
    assert_eq!(
        what,
        format!(
            "{} holds no key that can be used: there is no private key in it",
            empty.display()
        )
    );

    fs::remove_file(&key).unwrap();
    let (what, hint) = complaint(Ca::open_or_create(&one));
    assert_eq!(
        what,
        format!("the certificate {} is there, its key {} is not", shown.0, shown.1)
    );
    assert_eq!(
        hint,
        format!("put the key back, or delete {} to have both made anew", shown.0)
    );

    fs::write(
        &certificate,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    fs::copy(two.join("ca.key"), &key).unwrap();
    let (what, _) = complaint(Ca::open_or_create(&one));
    assert_eq!(
        what,
        format!("{} cannot be used: a certificate in it is broken", shown.0)
    );
}

#[test]
fn a_leaf_names_its_host_alone_and_lives_a_week() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    for host in [
        "example.com",
        "xn--bcher-kva.example",
        "a_b.example",
        "127.0.0.1",
        "[2001:db8::1]",
    ] {
        let der = leaf_of(&cache, host);
        let (_, x509) = X509Certificate::from_der(&der).unwrap();
        let names = &x509.subject_alternative_name().unwrap().unwrap().value.general_names;
        let expected = match Host::parse(host).unwrap() {
            Host::Name(_) => vec![GeneralName::DNSName(host)],
            Host::Ip(IpAddr::V4(_)) => vec![GeneralName::IPAddress(&[127, 0, 0, 1])],
            Host::Ip(IpAddr::V6(_)) => {
                vec![GeneralName::IPAddress(&[
                    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
                ])]
            }
        };
        assert_eq!(*names, expected);
        assert_eq!(x509.subject().to_string(), "O=politely");
        assert!(!x509.is_ca());
        let usage = x509.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any && usage.other.is_empty());
        let days = (x509.validity().not_after.timestamp() - x509.validity().not_before.timestamp()) / 86_400;
        assert_eq!(days, 7);
        assert!(x509.validity().is_valid());
    }
}

#[test]
fn serials_are_long_and_unique_and_the_leaf_key_is_never_the_authoritys() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    let cache = LeafCache::new(Ca::open_or_create(&directory).unwrap(), 16).unwrap();
    let other = LeafCache::new(Ca::open_or_create(&directory).unwrap(), 16).unwrap();
    let ca = cache.ca().cert_der().clone();
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    let mut serials = HashSet::from([ca.raw_serial().to_vec()]);
    let mut keys = HashSet::from([ca.public_key().raw.to_vec()]);
    for cache in [&cache, &other] {
        for host in ["a.example", "b.example", "c.example"] {
            let der = leaf_of(cache, host);
            let (_, x509) = X509Certificate::from_der(&der).unwrap();
            assert_eq!(x509.raw_serial().len(), 20);
            assert!(serials.insert(x509.raw_serial().to_vec()));
            keys.insert(x509.public_key().raw.to_vec());
        }
    }
    assert_eq!(keys.len(), 3, "the authority's, and one of each process's");
}

#[test]
fn a_client_gets_h2_by_choice_and_resumes_its_session() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    let client = trusting(cache.ca());
    let host = Host::parse("example.com").unwrap();
    let first = shake_hands(&cache.config_for(&host), &client, "example.com").unwrap();
    assert_eq!(first.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(first.handshake_kind(), Some(rustls::HandshakeKind::Full));
    let second = shake_hands(&cache.config_for(&host), &client, "example.com").unwrap();
    assert_eq!(second.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn a_leaf_is_worth_nothing_for_another_host_or_to_who_does_not_trust_the_authority() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    let stranger = Ca::open_or_create(&home.path().join("other")).unwrap();
    let config = cache.config_for(&Host::parse("example.com").unwrap());
    assert!(shake_hands(&config, &trusting(cache.ca()), "www.example.com").is_err());
    assert!(shake_hands(&config, &trusting(&stranger), "example.com").is_err());
}

#[test]
fn the_cache_is_bounded() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 32).unwrap();
    for number in 0..500 {
        cache.config_for(&Host::Name(format!("h{number}.example").into()));
    }
    assert!(cache.len() <= 32, "{}", cache.len());
}

/// A root, an intermediate signed by it, and the intermediate's key, as files.
fn company(directory: &Path, path_length: BasicConstraints) -> (String, String) {
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example GmbH");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(path_length);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    };
    let root_key = KeyPair::generate().unwrap();
    let root_params = authority("Root");
    let root = root_params.self_signed(&root_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let middle = authority("Middle")
        .signed_by(&key, &Issuer::new(root_params, root_key))
        .unwrap();
    let path = directory.join("key.pem");
    fs::write(&path, key.serialize_pem()).unwrap();
    set_mode(&path, 0o600);
    (middle.pem(), root.pem())
}

#[test]
fn an_authority_of_ones_own_is_shown_with_its_intermediates_and_trusted_by_its_root() {
    let home = TempDir::new().unwrap();
    let (middle, root) = company(home.path(), BasicConstraints::Unconstrained);
    let certificate = home.path().join("chain.pem");
    // Either order: the key says which of them signs.
    for chain in [format!("{middle}{root}"), format!("{root}{middle}")] {
        fs::write(&certificate, chain).unwrap();
        let ca = Ca::open(&certificate, &home.path().join("key.pem")).unwrap();
        assert_eq!(ca.cert_pem(), root);
        let client = trusting(&ca);
        let cache = LeafCache::new(ca, 16).unwrap();
        let config = cache.config_for(&Host::parse("example.com").unwrap());
        let client = shake_hands(&config, &client, "example.com").unwrap();
        assert_eq!(
            client.peer_certificates().unwrap().len(),
            2,
            "the leaf and the intermediate, not the root"
        );
    }
}

#[test]
fn keys_in_other_forms_are_refused_with_the_command_that_converts_them() {
    let home = TempDir::new().unwrap();
    let (middle, _) = company(home.path(), BasicConstraints::Unconstrained);
    let certificate = home.path().join("chain.pem");
    fs::write(&certificate, middle).unwrap();
    let key = home.path().join("other.pem");
    fs::write(
        &key,
        "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
    )
    .unwrap();
    set_mode(&key, 0o600);
    let (what, hint) = complaint(Ca::open(&certificate, &key));
    assert_eq!(
        what,
        format!(
            "{} holds no key that can be used: it is not in the form PKCS #8",
            key.display()
        )
    );
    assert!(hint.starts_with("convert it: openssl pkcs8"), "{hint}");
    fs::write(
        &key,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let (what, hint) = complaint(Ca::open(&certificate, &key));
    assert_eq!(
        what,
        format!("{} holds no key that can be used: it is encrypted", key.display())
    );
    assert!(hint.starts_with("decrypt it: openssl pkcs8"), "{hint}");
}

#[test]
fn a_certificate_that_may_not_sign_is_refused() {
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
    assert_eq!(refused(plain.clone()), "it is no certificate of an authority");
    let mut authority = plain;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut signer = authority.clone();
    signer.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    assert_eq!(refused(signer), "it may not sign certificates");
    let mut old = authority.clone();
    old.not_after = time::OffsetDateTime::now_utc() - time::Duration::MINUTE;
    assert_eq!(refused(old), "it has expired");
    let mut young = authority;
    young.not_before = time::OffsetDateTime::now_utc() + time::Duration::HOUR;
    assert_eq!(refused(young), "it is not yet valid");
}

#[test]
fn openssl_accepts_a_leaf_in_strict_mode() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    let der = home.path().join("leaf.der");
    fs::write(&der, leaf_of(&cache, "example.com")).unwrap();
    let verify = Command::new("openssl")
        .args([
            "verify",
            "-x509_strict",
            "-purpose",
            "sslserver",
            "-verify_hostname",
            "example.com",
            "-CAfile",
        ])
        .args([cache.ca().path(), &der])
        .output()
        .expect("openssl is installed");
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
}

#[test]
fn a_bundle_holds_the_systems_roots_and_the_operators() {
    let home = TempDir::new().unwrap();
    let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
    let system = roots::bundle(None).unwrap();
    let both = roots::bundle(Some(ca.path())).unwrap();
    assert!(system.store.len() > 50);
    assert_eq!(both.store.len(), system.store.len() + 1);
    assert_eq!(both.pem, system.pem.clone() + ca.cert_pem());
    let bundle = home.path().join("bundle.pem");
    roots::write_bundle(&bundle, &system, &ca).unwrap();
    assert_eq!(fs::read_to_string(&bundle).unwrap(), both.pem);
    assert_eq!(mode(&bundle), 0o644);
}

#[test]
fn a_bad_file_of_roots_is_refused_with_the_number_of_the_certificate() {
    let home = TempDir::new().unwrap();
    let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
    let file = home.path().join("roots.pem");
    let complaint = || roots::bundle(Some(&file)).unwrap_err().to_string();
    let shown = file.display();
    assert_eq!(
        complaint(),
        format!("the roots in {shown} cannot be read: No such file or directory (os error 2)")
    );
    fs::write(&file, "# none yet\n").unwrap();
    assert_eq!(complaint(), format!("{shown} holds no certificate"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&file, format!("{}{broken}", ca.cert_pem())).unwrap();
    assert!(
        complaint().starts_with(&format!("certificate 2 in {shown} cannot be used: ")),
        "{}",
        complaint()
    );
    fs::write(&file, "-----BEGIN CERTIFICATE-----\nAA").unwrap();
    assert!(
        complaint().starts_with(&format!("certificate 1 in {shown} cannot be used: ")),
        "{}",
        complaint()
    );
}

/// The command `politely ca …`, with a home, a state directory and tools of its own.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    let tools = format!("{}:/usr/bin:/bin", home.join("bin").display());
    command
        .arg("ca")
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("PATH", tools);
    command.env("STATE_DIRECTORY", home.join("state"));
    command
}

/// Exit code, standard output, standard error.
fn run(home: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(home, arguments).output().unwrap();
    let text = |bytes| {
        String::from_utf8(bytes)
            .unwrap()
            .replace(&home.display().to_string(), "HOME")
    };
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn done(told: &str) -> (Option<i32>, String, String) {
    (Some(0), told.to_owned(), String::new())
}

#[test]
fn each_command_makes_the_authority_if_there_is_none() {
    let home = TempDir::new().unwrap();
    assert_eq!(run(home.path(), &["path"]), done("HOME/state/ca/ca.pem\n"));
    let pem = fs::read_to_string(home.path().join("state/ca/ca.pem")).unwrap();
    assert_eq!(run(home.path(), &["export"]), done(&pem));
    let home = TempDir::new().unwrap();
    assert!(
        run(home.path(), &["export"])
            .1
            .starts_with("-----BEGIN CERTIFICATE-----\n")
    );
    let home = TempDir::new().unwrap();
    let next = "  \
  trust it on this machine:  politely ca install
  trust it in one shell:     eval \"$(politely ca env)\"
  trust it elsewhere:        politely ca export
";
    assert_eq!(
        run(home.path(), &["init"]),
        done(&format!("made HOME/state/ca/ca.pem\n{next}"))
    );
    assert_eq!(
        run(home.path(), &["init"]),
        done(&format!("there already: HOME/state/ca/ca.pem\n{next}"))
    );
}

#[test]
fn processes_that_create_it_at_once_get_the_same_one() {
    let home = TempDir::new().unwrap();
    let export = || {
        command(home.path(), &["export"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..6).map(|_| export()).collect();
    let exported: HashSet<Vec<u8>> = processes
        .into_iter()
        .map(|process| {
            let output = process.wait_with_output().unwrap();
            assert!(output.status.success());
            output.stdout
        })
        .collect();
    assert_eq!(exported.len(), 1);
    assert_eq!(
        exported.into_iter().next().unwrap(),
        fs::read(home.path().join("state/ca/ca.pem")).unwrap()
    );
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let home = TempDir::new().unwrap();
    let mut process = command(home.path(), &["export"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(process.stdout.take());
    let output = process.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn env_makes_a_shell_trust_the_systems_roots_and_ours() {
    let home = TempDir::new().unwrap();
    let spaced = home.path().join("it's a home");
    fs::create_dir(&spaced).unwrap();
    let exports = String::from_utf8(command(&spaced, &["env"]).output().unwrap().stdout).unwrap();
    for name in [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "AWS_CA_BUNDLE",
    ] {
        assert!(exports.contains(&format!("export {name}='")), "{exports}");
    }
    let script = format!("{exports}\nopenssl verify -CAfile \"$SSL_CERT_FILE\" \"$1\"");
    let certificate = spaced.join("state/ca/ca.pem");
    let shell = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(certificate)
        .output()
        .unwrap();
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    // A shell that has these already names our own bundle as the system's roots.
    let bundle = spaced.join("state/ca/bundle.pem");
    let before = fs::read(&bundle).unwrap();
    assert!(
        command(&spaced, &["env"])
            .env("SSL_CERT_FILE", &bundle)
            .output()
            .unwrap()
            .status
            .success()
    );
    assert_eq!(fs::read(&bundle).unwrap().len(), before.len());
}

#[test]
fn an_authority_that_cannot_be_used_is_told_with_a_hint_and_exit_code_2() {
    let home = TempDir::new().unwrap();
    run(home.path(), &["init"]);
    set_mode(&home.path().join("state/ca/ca.key"), 0o640);
    let fault = "\
error: the key HOME/state/ca/ca.key can be read by others (mode 0640)
hint: if nobody can have read it, chmod 600 HOME/state/ca/ca.key; else delete it and its certificate
";
    for action in ["init", "path", "export", "env", "install", "uninstall"] {
        assert_eq!(
            run(home.path(), &[action]),
            (Some(2), String::new(), fault.to_owned()),
            "{action}"
        );
    }
    assert_eq!(run(home.path(), &["steal"]).0, Some(2));
}

#[test]
fn install_without_the_tool_it_needs_says_so_and_exits_1() {
    let home = TempDir::new().unwrap();
    let profile = home.path().join(".mozilla/firefox/a.default");
    fs::create_dir_all(&profile).unwrap();
    fs::write(profile.join("cert9.db"), "").unwrap();
    let none = command(home.path(), &["install", "--only", "browsers"])
        .env("PATH", home.path())
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(1));
    let told = String::from_utf8(none.stderr).unwrap();
    assert!(
        told.starts_with("error: browsers: certutil is missing, which changes "),
        "{told}"
    );
    assert!(
        told.ends_with("hint: install the package libnss3-tools (Debian) or nss-tools (Fedora), which brings it\n")
    );
}
