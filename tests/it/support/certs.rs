//! Certificates for tests, and clients that trust them.

use super::authority::{TestCa, provider, test_ca};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::path::Path;
use std::sync::Arc;

impl TestCa {
    /// A new certificate for `name` and its key, PEM.
    pub fn pem_pair(&self, name: &str) -> (String, String) {
        self.pem_pair_for(&[name])
    }

    fn pem_pair_for(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).expect("names that a certificate can hold");
        let key = KeyPair::generate().expect("a P-256 key");
        let leaf = params.signed_by(&key, &self.issuer).expect("a signed leaf");
        (leaf.pem(), key.serialize_pem())
    }

    /// A client that trusts the test authority, and presents a certificate of this authority for `name`.
    pub fn client_config_as(&self, name: &str) -> Arc<rustls::ClientConfig> {
        let (certificate, key) = self.pem_pair(name);
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(test_ca().pem_file()).expect("a PEM file") {
            roots.add(root.expect("a PEM certificate")).expect("a certificate that can be a root");
        }
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM as written above");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM as written above");
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .expect("key and certificate belong together");
        Arc::new(config)
    }
}

/// The pin (RFC 7469 §2.4) of the key that an origin of this authority uses as `a.localhost`.
pub async fn key_pin(ca: &TestCa, origin: &super::Origin) -> String {
    key_pin_as(ca, origin, "a.localhost").await
}

/// Like [`key_pin`], for the key used as `name`.
pub async fn key_pin_as(ca: &TestCa, origin: &super::Origin, name: &str) -> String {
    use base64::Engine;
    let client = super::Client::open(origin.address()).await.tls(name, ca.pem_file(), &[b"http/1.1"]).await;
    let shown = client.peer_certificates();
    let (_, certificate) = x509_parser::parse_x509_certificate(&shown[0]).expect("a certificate");
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate.public_key().raw);
    format!("sha256/{}", base64::prelude::BASE64_STANDARD.encode(digest))
}

/// A server of the test authority that requires client certificates issued by `clients`.
pub fn server_config_asking(clients: &TestCa, names: &[&str]) -> Arc<rustls::ServerConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(clients.pem_file()).expect("a PEM file") {
        roots.add(root.expect("a PEM certificate")).expect("a certificate that can be a root");
    }
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let (certificate, key) = test_ca().pem_pair_for(names);
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_client_cert_verifier(verifier.build().expect("an authority"))
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM as written above")],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM as written above"),
        )
        .expect("key and certificate belong together");
    Arc::new(config)
}

/// A client configuration that trusts the certificates in `pem_file` and nothing else.
pub fn client_config(pem_file: &Path, alpn: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(pem_file).expect("a PEM file") {
        roots.add(certificate.expect("a PEM certificate")).expect("a certificate that can be a root");
    }
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}
