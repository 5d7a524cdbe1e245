//! The certificate authority of the origins.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;

pub struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    /// Its certificate is in `file`.
    pub fn new(file: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "soak's origins");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(file, certificate.pem()).expect("the directory is writable");
        Self(Issuer::new(params, key))
    }

    /// What an origin serves with that speaks this protocol alone.
    pub fn server(&self, protocol: &[u8]) -> Arc<rustls::ServerConfig> {
        let params = CertificateParams::new(vec!["*.soak.localhost".into()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let leaf = params.signed_by(&key, &self.0).expect("a certificate");
        let mut config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .expect("key and certificate belong together");
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }
}
