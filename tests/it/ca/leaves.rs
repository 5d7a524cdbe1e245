//! Leaves, as clients see them.

use super::*;

fn leaf_of(cache: &LeafCache, host: &str) -> CertificateDer<'static> {
    let host_name = host.trim_matches(['[', ']']);
    let config = cache.config_for(&Host::parse(host).unwrap());
    let client = shake_hands(&config, &trusting(&cache.ca()), host_name).unwrap();
    client.peer_certificates().unwrap()[0].clone()
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

fn trusting(ca: &Ca) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add(ca.cert_der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

#[test]
fn leaf_names_only_its_host_and_is_valid_for_a_week() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    for host in
        ["example.com", "xn--bcher-kva.example", "a_b.example", "127.0.0.1", "[2001:db8::1]", "[2001:0DB8:0::0:1]"]
    {
        let der = leaf_of(&cache, host);
        let (_, x509) = X509Certificate::from_der(&der).unwrap();
        let names = &x509.subject_alternative_name().unwrap().unwrap().value.general_names;
        let expected = match Host::parse(host).unwrap() {
            Host::Name(_) => vec![GeneralName::DNSName(host)],
            Host::Ip(IpAddr::V4(_)) => vec![GeneralName::IPAddress(&[127, 0, 0, 1])],
            Host::Ip(IpAddr::V6(_)) => {
                vec![GeneralName::IPAddress(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])]
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
fn serials_are_long_and_unique_and_leaves_do_not_use_the_ca_key() {
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
fn client_negotiates_h2_and_resumes_its_tls_session() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    let client = trusting(&cache.ca());
    let host = Host::parse("example.com").unwrap();
    let first = shake_hands(&cache.config_for(&host), &client, "example.com").unwrap();
    assert_eq!(first.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(first.handshake_kind(), Some(rustls::HandshakeKind::Full));
    let second = shake_hands(&cache.config_for(&host), &client, "example.com").unwrap();
    assert_eq!(second.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn leaf_is_rejected_for_another_host_and_by_clients_without_our_ca() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    let stranger = Ca::open_or_create(&home.path().join("other")).unwrap();
    let config = cache.config_for(&Host::parse("example.com").unwrap());
    assert!(shake_hands(&config, &trusting(&cache.ca()), "www.example.com").is_err());
    assert!(shake_hands(&config, &trusting(&stranger), "example.com").is_err());
}

#[test]
fn the_cache_is_bounded() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 32).unwrap();
    for number in 0..500 {
        cache.config_for(&Host::Name(format!("h{number}.example").into()));
    }
    assert!(cache.ready() <= 32, "{}", cache.ready());
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
    let middle = authority("Middle").signed_by(&key, &Issuer::new(root_params, root_key)).unwrap();
    let path = directory.join("key.pem");
    fs::write(&path, key.serialize_pem()).unwrap();
    set_mode(&path, 0o600);
    (middle.pem(), root.pem())
}

#[test]
fn operator_ca_is_sent_with_intermediates_and_trusted_by_its_root() {
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
        assert_eq!(client.peer_certificates().unwrap().len(), 2, "the leaf and the intermediate, not the root");
    }
}

#[test]
fn keys_not_in_pkcs8_are_refused_with_the_conversion_command() {
    let home = TempDir::new().unwrap();
    let (middle, _) = company(home.path(), BasicConstraints::Unconstrained);
    let certificate = home.path().join("chain.pem");
    fs::write(&certificate, middle).unwrap();
    let key = home.path().join("other.pem");
    fs::write(&key, "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n").unwrap();
    set_mode(&key, 0o600);
    let (what, hint) = complaint(Ca::open(&certificate, &key));
    assert_eq!(what, format!("{} contains no usable key: it is not in PKCS #8 format", key.display()));
    assert!(hint.starts_with("convert it: openssl pkcs8"), "{hint}");
    fs::write(&key, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n").unwrap();
    let (what, hint) = complaint(Ca::open(&certificate, &key));
    assert_eq!(what, format!("{} contains no usable key: it is encrypted", key.display()));
    assert!(hint.starts_with("decrypt it: openssl pkcs8"), "{hint}");
}

#[test]
fn openssl_accepts_a_leaf_in_strict_mode() {
    let home = TempDir::new().unwrap();
    let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 16).unwrap();
    let der = home.path().join("leaf.der");
    fs::write(&der, leaf_of(&cache, "example.com")).unwrap();
    let verify = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "example.com", "-CAfile"])
        .args([cache.ca().path(), &der])
        .output()
        .expect("openssl is installed");
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
}
