//! TLS between clients and the proxy itself (`listen[].tls`).

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use time::OffsetDateTime;

use crate::config::{Complaint, Listener, ListenerTls, UnusableFile, read_file};
use crate::tls_words;

use super::certificate::{parse, shown};
use super::client_verifier::ClientVerifier;
use super::provider;

/// TLS configuration of a listener: HTTP/2 or HTTP/1, and client certificates if an authority is named.
///
/// # Errors
/// A file is missing or has unexpected content.
pub fn listener_config(tls: &ListenerTls) -> Result<Arc<ServerConfig>, UnusableFile> {
    let chain = certificates(&tls.certificate)?;
    let key = read_file(&tls.key).map_err(pem::Error::Io).and_then(|text| PrivateKeyDer::from_pem_slice(&text));
    let key = key.map_err(|error| not_pem(&tls.key, "a PEM key", &error))?;
    if chain.is_empty() {
        return Err(not_pem(&tls.certificate, "PEM certificates", &pem::Error::NoItemsFound));
    }
    let pair = |error| {
        let (certificate, key) = (tls.certificate.display(), tls.key.display());
        let what = format!("{certificate} and {key} cannot be used: {}", tls_words::in_plain(error));
        UnusableFile::new(what, HINT).about(&tls.certificate)
    };
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            // Certificates that cannot be parsed are left out; if none is left, the verifier fails below.
            roots.add_parsable_certificates(certificates(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let verifier = verifier.build().map_err(|error| {
                let shown = path.display();
                let what = format!("{shown} cannot be used as an authority for client certificates: {error}");
                UnusableFile::new(what, HINT).about(path)
            })?;
            builder.with_client_cert_verifier(Arc::new(ClientVerifier(verifier)))
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
    Ok(Arc::new(config))
}

/// Warnings about the listeners' certificates, and the authorities of their clients (`client_ca`), that are expired or not valid yet at
/// `now`. Files and certificates that cannot be read are left out.
pub fn date_warnings(listeners: &[Listener], now: OffsetDateTime) -> Vec<Complaint> {
    let mut warnings = Vec::new();
    for (address, tls) in listeners.iter().filter_map(|it| Some((&it.address, it.tls.as_ref()?))) {
        let own = ("certificate", &tls.certificate, "clients refuse it");
        // RFC 5280 §6.1.1 (d): a trust anchor has no dates.
        let clients = tls
            .client_ca
            .iter()
            .map(|path| ("client_ca", path, "clients with its certificates are let in all the same"));
        for (key, path, then) in std::iter::once(own).chain(clients) {
            for (at, der) in certificates(path).unwrap_or_default().iter().enumerate() {
                let Some(validity) = parse(der).map(|x509| x509.validity.clone()) else { continue };
                let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
                let (fault, hint) = match () {
                    () if until < now => (
                        format!("expired on {}", shown(until)),
                        format!("renew `listen[].tls.{key}` and run `politely reload`, or set this machine's clock"),
                    ),
                    () if now < from => (
                        format!("is not valid before {}", shown(from)),
                        "set this machine's clock, or take a certificate that is valid now and run `politely reload`"
                            .into(),
                    ),
                    () => continue,
                };
                let number = if at > 0 { format!(" (number {})", at + 1) } else { String::new() };
                let then = if at > 0 && key == "certificate" { "clients may refuse it" } else { then };
                let path = path.display();
                let what = format!("the certificate {path}{number} of the listener `{address}` {fault}: {then}");
                warnings.push(Complaint::new(what, hint));
            }
        }
    }
    warnings
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, UnusableFile> {
    let text = read_file(path).map_err(pem::Error::Io);
    let read = text.and_then(|text| CertificateDer::pem_slice_iter(&text).collect());
    read.map_err(|error| not_pem(path, "PEM certificates", &error))
}

fn not_pem(path: &Path, what: &str, error: &pem::Error) -> UnusableFile {
    UnusableFile::new(format!("{} cannot be read as {what}: {error}", path.display()), HINT).about(path)
}

const HINT: &str = "correct `listen[].tls`: `certificate` with its chain, `key` and `client_ca` are PEM files";
