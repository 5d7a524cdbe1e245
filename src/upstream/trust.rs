//! TLS settings for connections that pingora does not make: to an upstream proxy, for upgraded protocols,
//! and to hosts that have settings of their own (`pin`, `client_certificate`, `verify`). Built by `OriginSettings`.

use crate::config::{CertificatePair, OriginTls, read_file};
use crate::tls_words;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The terms for all, and those of some.
pub(super) struct Trust {
    /// By the roots alone.
    pub plain: TlsTerms,
    own: HashMap<Arc<OriginTls>, TlsTerms>,
}

/// One verifier and one memory of sessions, for either version of HTTP.
#[derive(Clone, Debug)]
pub(super) struct TlsTerms {
    pub http1: Arc<ClientConfig>,
    /// The origin may choose HTTP/2.
    pub either: Arc<ClientConfig>,
}

/// Why TLS cannot be spoken on the configured terms. The files' contents are never repeated.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{} cannot be read as {what}: {source}", .path.display())]
    File { path: PathBuf, what: &'static str, source: pem::Error },
    #[error("{} and {} cannot be used: {}", .certificate.display(), .key.display(), tls_words::in_plain(.source))]
    Pair { certificate: PathBuf, key: PathBuf, source: Error },
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

impl Trust {
    pub fn new<'a>(
        roots: &Arc<RootCertStore>,
        own: impl Iterator<Item = &'a Arc<OriginTls>>,
        before: Option<&Self>,
    ) -> Result<Self, TrustError> {
        let setup = |error: &dyn std::fmt::Display| TrustError::Setup(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let webpki = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let webpki = webpki.build().map_err(|error| setup(&error))?;
        let config = |terms: &OriginTls| -> Result<TlsTerms, TrustError> {
            let pins = terms.pins.iter().map(|pin| pin.0).collect();
            let verifier = Verifier { webpki: webpki.clone(), verify: terms.verify, pins };
            let builder = ClientConfig::builder_with_provider(provider.clone());
            let builder = builder.with_safe_default_protocol_versions().map_err(|error| setup(&error))?;
            let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
            let mut config = match &terms.client_certificate {
                None => builder.with_no_client_auth(),
                Some(pair) => {
                    let (chain, key) = read(pair)?;
                    builder.with_client_auth_cert(chain, key).map_err(|source| TrustError::Pair {
                        certificate: pair.certificate.clone(),
                        key: pair.key.clone(),
                        source,
                    })?
                }
            };
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            let mut either = config.clone();
            either.alpn_protocols.insert(0, b"h2".to_vec());
            Ok(TlsTerms { http1: Arc::new(config), either: Arc::new(either) })
        };
        let plain = config(&OriginTls::default())?;
        // A connection is its user's as that was when it was opened.
        let mut all = before.map(|before| before.own.clone()).unwrap_or_default();
        for terms in own {
            all.insert(terms.clone(), config(terms)?);
        }
        let own = all;
        Ok(Trust { plain, own })
    }

    pub fn of(&self, terms: &OriginTls) -> &TlsTerms {
        self.own.get(terms).expect("made of these settings or earlier ones")
    }
}

fn read(pair: &CertificatePair) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TrustError> {
    let file = |path: &PathBuf, what, source| TrustError::File { path: path.clone(), what, source };
    let text = |path: &PathBuf| read_file(path).map_err(pem::Error::Io);
    let chain = text(&pair.certificate).and_then(|text| CertificateDer::pem_slice_iter(&text).collect());
    let chain = chain.map_err(|source| file(&pair.certificate, "PEM certificates", source))?;
    let key = text(&pair.key).and_then(|text| PrivateKeyDer::from_pem_slice(&text));
    let key = key.map_err(|source| file(&pair.key, "a PEM key", source))?;
    Ok((chain, key))
}

/// The roots decide, and where there are pins these too.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    /// `false`: the roots do not.
    verify: bool,
    /// SHA-256 of the keys of which the certificate must hold one. Empty: any.
    pins: Vec<[u8; 32]>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.verify {
            self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp, now)?;
        }
        if !self.pins.is_empty() && !self.pins.contains(&key_digest(end_entity)?) {
            let why = OtherError(Arc::new(PinMismatch));
            return Err(Error::InvalidCertificate(CertificateError::Other(why)));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Of the SubjectPublicKeyInfo (RFC 7469 §2.4).
fn key_digest(certificate: &CertificateDer<'_>) -> Result<[u8; 32], Error> {
    let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| bad())?;
    let digest = ::ring::digest::digest(&::ring::digest::SHA256, parsed.public_key().raw);
    digest.as_ref().try_into().map_err(|_| bad())
}

#[derive(Debug, thiserror::Error)]
#[error("its key is none of those that are pinned for this host")]
struct PinMismatch;
