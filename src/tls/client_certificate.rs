//! The names in a client's certificate, one of which may be a user's (`access.users[].certificate`).

use std::sync::OnceLock;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::certificate::parse;

/// A client's verified certificate. Its names are read on first use.
#[derive(Debug)]
pub struct ClientCertificate {
    der: CertificateDer<'static>,
    names: OnceLock<Vec<CertifiedName>>,
}

#[derive(Debug)]
enum CertifiedName {
    /// The subject's CN, an e-mail address or a URI.
    Exact(Box<str>),
    /// Case-insensitive (RFC 4343).
    Dns(Box<str>),
}

impl ClientCertificate {
    pub fn new(der: CertificateDer<'static>) -> Self {
        Self { der, names: OnceLock::new() }
    }

    /// Whether `name` is a CN of the subject or one of the subject alternative names (RFC 5280 §4.2.1.6) for DNS, e-mail and URIs.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.get_or_init(|| names(&self.der)).iter().any(|own| match own {
            CertifiedName::Exact(own) => **own == *name,
            CertifiedName::Dns(own) => own.eq_ignore_ascii_case(name),
        })
    }
}

/// The names in a certificate; none if it cannot be read.
fn names(der: &CertificateDer<'_>) -> Vec<CertifiedName> {
    let Some(x509) = parse(der) else { return Vec::new() };
    let common = x509.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = x509.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(CertifiedName::Dns((*name).into())),
        GeneralName::RFC822Name(name) | GeneralName::URI(name) => Some(CertifiedName::Exact((*name).into())),
        _ => None,
    });
    common.map(|name| CertifiedName::Exact(name.into())).chain(alternative).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    fn certificate(common: &[&str], alternative: Vec<SanType>) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        for name in common {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.subject_alt_names = alternative;
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate::new(made.der().clone())
    }

    #[test]
    fn common_name_and_alternative_names_match() {
        let alternative = vec![
            SanType::DnsName("team.example".try_into().unwrap()),
            SanType::DnsName("*.wild.example".try_into().unwrap()),
            SanType::Rfc822Name("Team@example.com".try_into().unwrap()),
            SanType::URI("spiffe://example.com/team".try_into().unwrap()),
            SanType::IpAddress([192, 0, 2, 1].into()),
        ];
        let shown = certificate(&["Forschung Köln"], alternative);
        for name in
            ["Forschung Köln", "team.example", "Team@example.com", "spiffe://example.com/team", "*.wild.example"]
        {
            assert!(shown.is_named(name), "{name}");
        }
        for name in
            ["", "Example", "Forschung", "Forschung Köln ", "example", "a.team.example", "a.wild.example", "192.0.2.1"]
        {
            assert!(!shown.is_named(name), "{name}");
        }
        assert!(certificate(&[], vec![]).names.into_inner().is_none(), "names are read only when needed");
    }

    #[test]
    fn case_is_ignored_only_in_dns_names() {
        let alternative = vec![
            SanType::DnsName("Team.Example".try_into().unwrap()),
            SanType::Rfc822Name("Team@example.com".try_into().unwrap()),
            SanType::URI("spiffe://example.com/Team".try_into().unwrap()),
        ];
        let shown = certificate(&["Team"], alternative);
        assert!(shown.is_named("team.EXAMPLE"));
        for name in ["team", "team@example.com", "Team@EXAMPLE.com", "spiffe://example.com/team"] {
            assert!(!shown.is_named(name), "{name}");
        }
    }

    #[test]
    fn name_with_a_nul_does_not_match_its_prefix() {
        let shown = certificate(&["alice\0.example"], vec![]);
        assert!(!shown.is_named("alice") && shown.is_named("alice\0.example"));
    }

    #[test]
    fn malformed_certificate_has_no_names() {
        let made = certificate(&["alice"], vec![]);
        for der in [&[][..], b"no certificate", &made.der[..made.der.len() - 1]] {
            assert!(!ClientCertificate::new(der.to_vec().into()).is_named("alice"));
        }
    }
}
