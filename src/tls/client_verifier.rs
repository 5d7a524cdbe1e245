//! Verifies clients' certificates, in bounded time.

use crate::tls_provider::MAX_INTERMEDIATES;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// webpki's verifier, which gets only the first [`MAX_INTERMEDIATES`] intermediates.
#[derive(Debug)]
pub(super) struct ClientVerifier(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client_cert(end_entity, &intermediates[..intermediates.len().min(MAX_INTERMEDIATES)], now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName as Name, DnType, IsCa, Issuer, KeyPair};
    use rustls::RootCertStore;
    use rustls::server::WebPkiClientVerifier;

    /// A certificate with a fresh key, signed by `issuer` or self-signed.
    fn certificate(
        name: &str,
        issuer: Option<&Issuer<'_, KeyPair>>,
    ) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::default();
        params.distinguished_name = Name::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if name != "client" {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let made = issuer.map_or_else(|| params.self_signed(&key), |issuer| params.signed_by(&key, issuer));
        (made.unwrap().der().clone(), Issuer::new(params, key))
    }

    #[test]
    fn only_the_first_intermediates_of_a_client_are_tried() {
        let (trusted, root) = certificate("root", None);
        let mut store = RootCertStore::empty();
        store.add(trusted).unwrap();
        let webpki = WebPkiClientVerifier::builder_with_provider(Arc::new(store), crate::tls::provider());
        let verifier = ClientVerifier(webpki.build().unwrap());
        let verified = |leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]| {
            verifier.verify_client_cert(leaf, chain, UnixTime::now()).map(drop)
        };
        let (_, other) = certificate("x", None);
        let crowd: Vec<_> = (0..20).map(|_| certificate("x", Some(&other)).0).collect();
        // The errors "too many signatures" and "too many paths" would come only after costly attempts.
        let unknown = Err(Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        assert_eq!(verified(&certificate("client", Some(&other)).0, &crowd), unknown);
        let (middle, issuer) = certificate("middle", Some(&root));
        let (client, _) = certificate("client", Some(&issuer));
        for at in [0, 2, 3] {
            let mut chain = crowd.clone();
            chain.insert(at, middle.clone());
            assert_eq!(verified(&client, &chain).is_ok(), at < MAX_INTERMEDIATES, "{at}");
        }
    }
}
