//! TLS between clients and the proxy itself (`listen[].tls`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::config::{ListenerTls, read_file};
use crate::tls_words;

use super::client_verifier::ClientVerifier;
use super::provider;

/// Why a listener cannot use TLS. The content of the files is never repeated.
#[derive(Debug, thiserror::Error)]
pub enum ListenerTlsError {
    #[error("{} cannot be read as {what}: {source}", .path.display())]
    File { path: PathBuf, what: &'static str, source: pem::Error },
    #[error("{} and {} cannot be used: {}", .certificate.display(), .key.display(), tls_words::in_plain(.source))]
    Pair { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("{} cannot be used as an authority for client certificates: {source}", .path.display())]
    ClientCa { path: PathBuf, source: VerifierBuilderError },
}

/// TLS configuration of a listener: HTTP/2 or HTTP/1, and client certificates if an authority is named.
///
/// # Errors
/// A file is missing or has unexpected content.
pub fn listener_config(tls: &ListenerTls) -> Result<Arc<ServerConfig>, ListenerTlsError> {
    let chain = certificates(&tls.certificate)?;
    let key = read_file(&tls.key).map_err(pem::Error::Io).and_then(|text| PrivateKeyDer::from_pem_slice(&text));
    let key = key.map_err(|source| ListenerTlsError::File { path: tls.key.clone(), what: "a PEM key", source })?;
    let pair = |source| ListenerTlsError::Pair { certificate: tls.certificate.clone(), key: tls.key.clone(), source };
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            // Certificates that are not authorities are left out; if none is left, the verifier fails below.
            roots.add_parsable_certificates(certificates(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let verifier =
                verifier.build().map_err(|source| ListenerTlsError::ClientCa { path: path.clone(), source })?;
            builder.with_client_cert_verifier(Arc::new(ClientVerifier(verifier)))
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ListenerTlsError> {
    let text = read_file(path).map_err(pem::Error::Io);
    let read = text.and_then(|text| CertificateDer::pem_slice_iter(&text).collect());
    read.map_err(|source| ListenerTlsError::File { path: path.to_owned(), what: "PEM certificates", source })
}
