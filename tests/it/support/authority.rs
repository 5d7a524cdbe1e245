//! A certificate authority for the origins, created once per test process; the proxy is configured to trust it.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub struct TestCa {
    pub issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

/// The authority that issues the origins' certificates in this process.
pub fn test_ca() -> &'static TestCa {
    static CA: OnceLock<TestCa> = OnceLock::new();
    CA.get_or_init(|| TestCa::new("politely test origins"))
}

impl TestCa {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a P-256 key");
        let certificate = params.self_signed(&key).expect("a self-signed certificate");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("origins.pem");
        std::fs::write(&file, certificate.pem()).expect("the temporary directory is writable");
        Self { issuer: Issuer::new(params, key), file, _directory: directory }
    }

    /// The PEM file of the authority's certificate.
    pub fn pem_file(&self) -> &Path {
        &self.file
    }

    /// A server configuration with a fresh certificate for `names` (DNS names or IP addresses).
    pub fn server_config(&self, names: &[&str], alpn: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        self.server_config_until(2099, names, alpn)
    }

    /// Like [`server_config`](Self::server_config), with a certificate that expires at the start of `year`.
    pub fn server_config_until(&self, year: i32, names: &[&str], alpn: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names that a certificate can hold");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2019, 1, 1), rcgen::date_time_ymd(year, 1, 1));
        let key = KeyPair::generate().expect("a P-256 key");
        let leaf = params.signed_by(&key, &self.issuer).expect("a signed leaf");
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .expect("key and certificate belong together");
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
