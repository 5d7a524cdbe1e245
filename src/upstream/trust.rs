//! TLS terms: for all origins and the upstream proxy, and for hosts with their own settings (`pin`, `client_certificate`, `verify`,
//! `tls`). Built by `OriginSettings`.

use super::identity::{PinMismatch, ShownIdentity, key_digest};
use super::wide::WideTls;
use crate::config::{CertificatePair, OriginTls, UnusableFile, read_file};
use crate::tls_provider::{MAX_CHAIN, MAX_INTERMEDIATES, provider};
use crate::tls_words::{self, LONG_CHAIN};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tokio::sync::OnceCell;

/// Roots for verifying origins, in the forms for rustls and OpenSSL.
#[derive(Clone)]
pub struct OriginRoots {
    pub store: Arc<RootCertStore>,
    /// The same certificates as PEM.
    pub pem: Arc<str>,
}

/// The terms for all hosts, and the hosts' own terms.
pub(super) struct Trust {
    /// The terms for hosts without TLS settings of their own: certificates are verified against the roots only.
    pub plain: TlsTerms,
    own: HashMap<OriginTls, OwnTerms>,
}

/// The terms of a host, kept while the settings or requests in flight use them.
struct OwnTerms {
    terms: TlsTerms,
    holders: Vec<Weak<OriginTls>>,
}

/// TLS configurations. `http1` and `either` share one verifier and one session cache.
#[derive(Clone, Debug)]
pub(super) struct TlsTerms {
    pub http1: Arc<ClientConfig>,
    /// Offers HTTP/2, too.
    pub either: Arc<ClientConfig>,
    /// For an origin that rejects the parameters of the other two.
    pub wide: Arc<WideTls>,
}

impl Trust {
    pub fn new<'a>(
        roots: &OriginRoots,
        own: impl Iterator<Item = &'a Arc<OriginTls>>,
        before: Option<&Self>,
    ) -> Result<Self, UnusableFile> {
        let setup = |error: &dyn std::fmt::Display| UnusableFile::new(format!("TLS cannot be set up: {error}"), HINT);
        let webpki = WebPkiServerVerifier::builder_with_provider(roots.store.clone(), provider());
        let webpki = webpki.build().map_err(|error| setup(&error))?;
        let config = |terms: &OriginTls| -> Result<TlsTerms, UnusableFile> {
            let pins: Vec<_> = terms.pins.iter().map(|pin| pin.0).collect();
            let identity = terms.client_certificate.as_ref().map(read).transpose()?.map(Arc::new);
            let wide = WideTls {
                roots: roots.pem.clone(),
                verify: terms.verify,
                pins: pins.clone(),
                identity: identity.clone(),
                legacy: terms.legacy,
                context: OnceCell::new(),
            };
            let verifier = Verifier { webpki: webpki.clone(), verify: terms.verify, pins };
            let builder = ClientConfig::builder_with_provider(provider());
            let builder = builder.with_safe_default_protocol_versions().map_err(|error| setup(&error))?;
            let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
            let mut config = match terms.client_certificate.as_ref().zip(identity) {
                None => builder.with_no_client_auth(),
                Some((pair, identity)) => {
                    let (chain, key) = (identity.chain.clone(), identity.key.clone_key());
                    builder.with_client_auth_cert(chain, key).map_err(|error| {
                        let (certificate, key) = (pair.certificate.display(), pair.key.display());
                        let what = format!("{certificate} and {key} cannot be used: {}", tls_words::in_plain(error));
                        UnusableFile::new(what, HINT).about(&pair.certificate)
                    })?
                }
            };
            // The session cache allocates all its memory at once, so only the terms for all hosts get a large one.
            if *terms == OriginTls::default() {
                config.resumption = Resumption::in_memory_sessions(SESSIONS);
            }
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            let mut either = config.clone();
            either.alpn_protocols.insert(0, b"h2".to_vec());
            Ok(TlsTerms { http1: Arc::new(config), either: Arc::new(either), wide: Arc::new(wide) })
        };
        let plain = config(&OriginTls::default())?;
        let mut all = HashMap::<OriginTls, OwnTerms>::new();
        for terms in own {
            let holder = Arc::downgrade(terms);
            match all.get_mut(&**terms) {
                Some(known) => known.holders.push(holder),
                None => {
                    drop(all.insert(OriginTls::clone(terms), OwnTerms { terms: config(terms)?, holders: vec![holder] }))
                }
            }
        }
        // A request in flight keeps its user's settings as of its arrival, so terms that it may still need are kept until it ends.
        for (terms, before) in before.into_iter().flat_map(|before| &before.own) {
            let held = before.holders.iter().filter(|holder| holder.strong_count() > 0).cloned();
            match all.get_mut(terms) {
                Some(now) => now.holders.extend(held),
                None => {
                    let holders: Vec<_> = held.collect();
                    if !holders.is_empty() {
                        all.insert(terms.clone(), OwnTerms { terms: before.terms.clone(), holders });
                    }
                }
            }
        }
        Ok(Trust { plain, own: all })
    }

    pub fn of(&self, terms: &OriginTls) -> &TlsTerms {
        &self.own.get(terms).expect("kept while its holder exists").terms
    }

    /// Number of hosts whose terms are kept.
    #[cfg(test)]
    pub fn own(&self) -> usize {
        self.own.len()
    }
}

fn read(pair: &CertificatePair) -> Result<ShownIdentity, UnusableFile> {
    let file = |path: &PathBuf, what: &str, error: pem::Error| {
        let what = format!("{} cannot be read as {what}: {error}", path.display());
        UnusableFile::new(what, HINT).about(path)
    };
    let text = |path: &PathBuf| read_file(path).map_err(pem::Error::Io);
    let chain = text(&pair.certificate).and_then(|text| CertificateDer::pem_slice_iter(&text).collect());
    let chain = chain.map_err(|source| file(&pair.certificate, "PEM certificates", source))?;
    let key = text(&pair.key).and_then(|text| PrivateKeyDer::from_pem_slice(&text));
    let key = key.map_err(|source| file(&pair.key, "a PEM key", source))?;
    Ok(ShownIdentity { chain, key })
}

/// Maximum number of TLS sessions kept for resumption: of 4,096 hosts, as rustls counts eight for each.
const SESSIONS: usize = 8 * 4096;
const HINT: &str = "correct `client_certificate` in `hosts`: `certificate` with its chain and `key` are PEM files";

/// Verifies certificates against the roots, and against pins if there are any.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    /// `false`: roots, name and dates are not checked.
    verify: bool,
    /// SHA-256 of pinned keys, one of which the server's own certificate must have. Empty: any key.
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
        if [end_entity].into_iter().chain(intermediates).map(|shown| shown.len()).sum::<usize>() > MAX_CHAIN {
            return Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(LongChain)))));
        }
        if self.verify {
            let near = &intermediates[..intermediates.len().min(MAX_INTERMEDIATES)];
            match self.webpki.verify_server_cert(end_entity, near, server_name, ocsp, now) {
                Ok(_) => {}
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) if near.len() < intermediates.len() => {
                    let why = OtherError(Arc::new(ManyIntermediates));
                    return Err(Error::InvalidCertificate(CertificateError::Other(why)));
                }
                Err(error) => return Err(error),
            }
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

/// Error for a chain with too many intermediates for rustls. OpenSSL tries only one path and may still verify it.
/// Formatted like webpki's errors.
#[derive(Debug, thiserror::Error)]
#[error("ManyIntermediates")]
struct ManyIntermediates;

/// Error for a chain that is too long even for OpenSSL.
#[derive(Debug, thiserror::Error)]
#[error("{LONG_CHAIN}")]
struct LongChain;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::DialError;
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
    use std::io;

    /// A certificate for `subject`, signed by `issuer` with a fresh key.
    fn certificate(subject: &str, issuer: &Issuer<'_, KeyPair>) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        if subject != "leaf" {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, issuer).unwrap().der().clone();
        (made, Issuer::new(params, key))
    }

    fn root(name: &str) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().der().clone(), Issuer::new(params, key))
    }

    /// OpenSSL does not get the chain, because it would refuse it as well.
    #[test]
    fn certificate_chain_over_16_kib_is_refused_before_verification() {
        let (trusted, issuer) = root("root");
        let mut store = RootCertStore::empty();
        store.add(trusted).unwrap();
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider()).build().unwrap();
        for (names, verify, is_accepted) in [(100, true, true), (1000, true, false), (1000, false, false)] {
            let names = (0..names).map(|number| format!("name{number}.a.example"));
            let mut params =
                CertificateParams::new(["a.example".to_owned()].into_iter().chain(names).collect::<Vec<_>>());
            params.as_mut().unwrap().is_ca = IsCa::ExplicitNoCa;
            let leaf = params.unwrap().signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
            let verifier = Verifier { webpki: webpki.clone(), verify, pins: Vec::new() };
            let server = ServerName::try_from("a.example").unwrap();
            let verified = verifier.verify_server_cert(&leaf, &[], &server, &[], UnixTime::now());
            let verified = verified.map_err(|error| DialError::of_handshake(&io::Error::other(error)));
            assert_eq!(verified.is_ok(), is_accepted, "{verified:?}");
            if let Err(error) = verified {
                assert!(error.to_string().contains("certificate chain is longer than 16 KiB"), "{error}");
                assert!(!error.is_for_wider);
            }
        }
    }

    #[test]
    fn only_the_first_intermediates_of_an_origin_are_tried() {
        let (trusted, issuer) = root("root");
        let mut store = RootCertStore::empty();
        store.add(trusted).unwrap();
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider());
        let verifier = Verifier { webpki: webpki.build().unwrap(), verify: true, pins: Vec::new() };
        let verified = |leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]| {
            let server = ServerName::try_from("a.example").unwrap();
            let verified = verifier.verify_server_cert(leaf, chain, &server, &[], UnixTime::now());
            verified.map(drop).map_err(|error| DialError::of_handshake(&io::Error::other(error)))
        };
        for name in ["x", "root"] {
            let (_, other) = root(name);
            let (leaf, _) = certificate("leaf", &other);
            let crowd: Vec<_> = (0..20).map(|_| certificate(name, &other).0).collect();
            let error = verified(&leaf, &crowd).unwrap_err();
            assert!(!error.to_string().contains("maximum"), "{error}");
            assert!(error.is_for_wider, "should be tried with OpenSSL, which tries only one path: {error}");
        }
        // The needed intermediate usually comes first; otherwise OpenSSL is tried.
        let (middle, middle_issuer) = certificate("middle", &issuer);
        let (leaf, _) = certificate("leaf", &middle_issuer);
        let junk: Vec<_> = (0..20).map(|number| certificate(&format!("junk {number}"), &issuer).0).collect();
        for at in [0, 2, 3, 20] {
            let mut chain = junk.clone();
            chain.insert(at, middle.clone());
            let verified = verified(&leaf, &chain);
            assert_eq!(verified.is_ok(), at < MAX_INTERMEDIATES, "{verified:?}");
            assert!(verified.is_ok() || verified.unwrap_err().is_for_wider);
        }
    }
}
