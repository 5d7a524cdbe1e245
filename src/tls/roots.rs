//! The root certificates for verifying origins: the system's and the operator's.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::certificate::to_pem;
use super::secret_file;
use crate::config::{Settings, UnusableFile, read_file};
use crate::tls_words;

/// Roots that rustls accepts, in two forms.
#[derive(Clone, Debug)]
pub struct Roots {
    pub store: Arc<RootCertStore>,
    /// The certificates of `store` as PEM.
    pub pem: String,
    /// Source of the public roots.
    pub source: Source,
}

/// Source of public roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    System,
    /// Mozilla's, as of this build, if the system has none.
    BuiltIn,
}

/// The system's roots and those in `ca_file`. Unusable roots of the system are left out: they are common, and not the operator's fault.
///
/// # Errors
/// `ca_file` has an unusable certificate, or none.
pub fn bundle(ca_file: Option<&Path>) -> Result<Roots, UnusableFile> {
    collect(rustls_native_certs::load_native_certs().certs, ca_file)
}

/// Like [`bundle`], with the configured `ca_file`.
///
/// # Errors
/// As [`bundle`].
pub fn configured(settings: &Settings) -> Result<Roots, UnusableFile> {
    let path = settings.egress.ca_file.as_deref();
    bundle(path).map_err(|error| path.into_iter().fold(error, UnusableFile::about).placed(&settings.places))
}

/// Writes `roots` and an authority's certificate as PEM, for programs that take a bundle, such as those that read `SSL_CERT_FILE`.
///
/// # Errors
/// The file cannot be written.
pub fn write_bundle(path: &Path, roots: &Roots, ca_pem: &str) -> Result<(), UnusableFile> {
    secret_file::write(path, together(roots, ca_pem), 0o644)
}

/// Like [`write_bundle`], as a Java key store in JKS format, which every version reads without a password.
///
/// # Errors
/// The file cannot be written.
pub fn write_java(path: &Path, roots: &Roots, ca_pem: &str) -> Result<(), UnusableFile> {
    let pem = together(roots, ca_pem);
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect();
    let mut out = JKS_TRUSTED.to_vec();
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend(u16::try_from(text.len()).unwrap_or_default().to_be_bytes());
        out.extend(text.as_bytes());
    };
    out.extend(length(all.len()));
    for (number, certificate) in all.iter().enumerate() {
        out.extend(2u32.to_be_bytes());
        text(&mut out, &number.to_string());
        // Creation date: 1970.
        out.extend([0; 8]);
        text(&mut out, "X.509");
        out.extend(length(certificate.len()));
        out.extend(certificate.iter());
    }
    let mut seal = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    seal.update(&JAVA_PASSWORD.iter().flat_map(|&byte| [0, byte]).collect::<Vec<u8>>());
    seal.update(b"Mighty Aphrodite");
    seal.update(&out);
    out.extend(seal.finish().as_ref());
    secret_file::write(path, out, 0o644)
}

/// The roots and our authority, as PEM. The authority may be among the roots already: installed in the system, or in SSL_CERT_FILE.
fn together(roots: &Roots, ca_pem: &str) -> String {
    let ours = ca_pem.split_inclusive("-----END CERTIFICATE-----\n").filter(|one| !roots.pem.contains(one));
    [roots.pem.as_str()].into_iter().chain(ours).collect()
}

/// Magic number and version 2.
const JKS_TRUSTED: [u8; 8] = [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2];
/// The default password of Java's key stores.
const JAVA_PASSWORD: &[u8] = b"changeit";

fn collect(system: Vec<CertificateDer<'static>>, ca_file: Option<&Path>) -> Result<Roots, UnusableFile> {
    let mut store = RootCertStore::empty();
    let mut pem = String::new();
    let mut add = |certificate: CertificateDer<'static>| {
        let text = to_pem(&certificate);
        store.add(certificate)?;
        pem.push_str(&text);
        Ok::<(), rustls::Error>(())
    };
    let usable = system.into_iter().filter_map(|certificate| add(certificate).ok()).count();
    let source = if usable == 0 { Source::BuiltIn } else { Source::System };
    if source == Source::BuiltIn {
        for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
            // Cannot fail: the same library accepted this root.
            let _ = add(certificate.clone());
        }
    }
    if let Some(path) = ca_file {
        let shown = path.display();
        let text = read_file(path).map_err(|source| {
            let what = format!("the certificates in {shown} cannot be read: {source}");
            UnusableFile::new(what, "correct `egress.ca_file`, or make the file readable")
        })?;
        let mut number = 0;
        for certificate in CertificateDer::pem_slice_iter(&text) {
            number += 1;
            let read = certificate.map_err(|error| error.to_string());
            let added = read.and_then(|certificate| add(certificate).map_err(tls_words::in_plain));
            added.map_err(|why| {
                let what = format!("certificate {number} in {shown} cannot be used: {why}");
                UnusableFile::new(what, "remove it from the file, or replace it with a complete one")
            })?;
        }
        if number == 0 {
            let hint = "`egress.ca_file` is a PEM file: `-----BEGIN CERTIFICATE-----` …";
            return Err(UnusableFile::new(format!("{shown} contains no certificate"), hint));
        }
    }
    Ok(Roots { store: Arc::new(store), pem, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_system_root_is_left_out() {
        let good = webpki_root_certs::TLS_SERVER_ROOT_CERTS[0].clone();
        let broken = CertificateDer::from(vec![0x30, 0x03, 0x02, 0x01, 0x01]);
        let roots = collect(vec![broken, good], None).unwrap();
        assert_eq!((roots.store.len(), roots.source), (1, Source::System));
        assert_eq!(roots.pem.matches("BEGIN CERTIFICATE").count(), 1);
    }

    #[test]
    fn system_without_roots_uses_built_in_roots() {
        let roots = collect(Vec::new(), None).unwrap();
        assert_eq!(roots.source, Source::BuiltIn);
        assert_eq!(roots.store.len(), webpki_root_certs::TLS_SERVER_ROOT_CERTS.len());
        assert_eq!(roots.pem.matches("BEGIN CERTIFICATE").count(), roots.store.len());
    }
}
