//! Certificates for intercepted hosts, created on demand and cached.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use quick_cache::sync::Cache;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use time::{Date, Duration, OffsetDateTime, Time};

use crate::config::UnusableFile;
use crate::policy::Host;

use super::ca::Ca;
use super::{provider, serial};

/// The leaves of one process. All share one key for the life of the process: it never touches the disk, and a key for each host would
/// cost more than the signature.
pub struct LeafCache {
    ca: ArcSwap<Ca>,
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    ticketer: Arc<dyn ProducesTickets>,
    leaves: Cache<Host, Leaf>,
    made: AtomicU64,
}

#[derive(Clone)]
struct Leaf {
    config: Arc<ServerConfig>,
    day: Date,
    by: Weak<Ca>,
}

impl LeafCache {
    /// Caches about `capacity` hosts, the most requested ones.
    ///
    /// # Errors
    /// The key cannot be created, or the authority cannot sign.
    pub fn new(ca: Ca, capacity: usize) -> Result<Self, UnusableFile> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let der = PrivatePkcs8KeyDer::from(key.serialize_der());
        let signing_key = provider().key_provider.load_private_key(der.into())?;
        let cache = Self {
            ca: ArcSwap::from_pointee(ca),
            key,
            signing_key,
            ticketer: Ticketer::new()?,
            leaves: Cache::new(capacity),
            made: AtomicU64::new(0),
        };
        // An authority that cannot sign must fail here, not at a client's first request.
        cache.try_out(&cache.ca())?;
        Ok(cache)
    }

    /// Checks that another authority can sign, for [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// The authority cannot sign.
    pub fn prepare(&self, ca: Ca) -> Result<Arc<Ca>, UnusableFile> {
        self.try_out(&ca)?;
        Ok(Arc::new(ca))
    }

    /// Makes a prepared authority sign all leaves from now on.
    pub fn adopt(&self, ca: Arc<Ca>) {
        self.ca.store(ca);
        self.leaves.clear();
    }

    /// The TLS configuration for accepting connections as this host: HTTP/2 and HTTP/1.1, with session resumption. All leaves of a day
    /// (UTC) have the same dates and are used only on that day, so a leaf does not tell when the host was first requested.
    pub fn config_for(&self, host: &Host) -> Arc<ServerConfig> {
        self.config_at(host, OffsetDateTime::now_utc())
    }

    /// Whether this host has no cached leaf.
    pub fn is_new(&self, host: &Host) -> bool {
        self.leaves.peek(host).is_none()
    }

    /// Changes the maximum number of cached hosts.
    pub fn resize(&self, capacity: usize) {
        self.leaves.set_capacity(capacity as u64);
    }

    /// The authority that signs.
    pub fn ca(&self) -> Arc<Ca> {
        self.ca.load_full()
    }

    /// Number of leaves created so far.
    pub fn made(&self) -> u64 {
        self.made.load(Relaxed)
    }

    /// Number of hosts with a cached leaf.
    pub fn ready(&self) -> usize {
        self.leaves.len()
    }

    fn config_at(&self, host: &Host, now: OffsetDateTime) -> Arc<ServerConfig> {
        let ca = self.ca();
        // A concurrent request may have cached a leaf of the previous authority.
        let is_valid = |leaf: &Leaf| leaf.by.as_ptr() == Arc::as_ptr(&ca) && leaf.day == now.date();
        if let Some(leaf) = self.leaves.get(host).filter(is_valid) {
            return leaf.config;
        }
        let config = self.mint(&ca, host, now).expect("the authority was tested by `try_out`");
        self.made.fetch_add(1, Relaxed);
        self.leaves
            .insert(host.clone(), Leaf { config: Arc::clone(&config), day: now.date(), by: Arc::downgrade(&ca) });
        config
    }

    fn try_out(&self, ca: &Ca) -> Result<(), UnusableFile> {
        self.mint(ca, &Host::Name("politely.invalid".into()), OffsetDateTime::now_utc()).map(drop)
    }

    fn mint(&self, ca: &Ca, host: &Host, now: OffsetDateTime) -> Result<Arc<ServerConfig>, UnusableFile> {
        let mut certificates = vec![self.sign(ca, host, now)?];
        certificates.extend_from_slice(&ca.chain);
        let certified = CertifiedKey::new(certificates, Arc::clone(&self.signing_key));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.ignore_client_order = true;
        // One ticket is enough: a client gets a new one when it resumes.
        config.send_tls13_tickets = 1;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        // Resumption by tickets only; a session store would cost memory for each host.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.ticketer);
        Ok(Arc::new(config))
    }

    fn sign(&self, ca: &Ca, host: &Host, now: OffsetDateTime) -> Result<CertificateDer<'static>, UnusableFile> {
        let (ca_from, ca_until) = ca.validity();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "politely");
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_ref().try_into()?),
            Host::Ip(address) => SanType::IpAddress(*address),
        }];
        params.serial_number = Some(serial()?);
        params.not_before = (now.replace_time(Time::MIDNIGHT) - BACKDATED).max(ca_from);
        params.not_after = (params.not_before + LIFE).min(ca_until);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Strict clients (Python 3.13) require this extension.
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(&self.key, &ca.issuer)?.der().clone())
    }
}

/// Time by which a leaf's validity begins early, for clients with a slow clock or a wrong time zone.
const BACKDATED: Duration = Duration::DAY;
/// Length of a leaf's validity. It ends five days after the day on which the leaf is used, for open connections and for clients with a fast
/// clock.
const LIFE: Duration = Duration::WEEK;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_is_cached_for_a_day_and_hides_its_creation_time() {
        let home = tempfile::tempdir().unwrap();
        let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 4).unwrap();
        let ca = cache.ca();
        let midnight = (ca.validity().0 + Duration::days(9)).replace_time(Time::MIDNIGHT);
        let host = Host::Name("example.com".into());
        let first = cache.config_at(&host, midnight);
        assert!(Arc::ptr_eq(&first, &cache.config_at(&host, midnight + Duration::hours(23))));
        let next_day = cache.config_at(&host, midnight + Duration::hours(24));
        assert!(!Arc::ptr_eq(&first, &next_day));
        let set_back = cache.config_at(&host, midnight);
        assert!(!Arc::ptr_eq(&next_day, &set_back), "a leaf of a later day is not used, either");
        for made in [0, 1, 23].map(|hour| midnight + Duration::hours(hour)) {
            let der = cache.sign(&ca, &host, made).unwrap();
            let (_, x509) = x509_parser::parse_x509_certificate(&der).unwrap();
            let leaf = [x509.validity().not_before, x509.validity().not_after].map(|time| time.to_datetime());
            assert_eq!(leaf, [midnight - Duration::DAY, midnight + Duration::days(6)], "{made}");
        }
    }

    #[test]
    fn adopted_authority_signs_from_then_on() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("ca");
        let cache = LeafCache::new(Ca::open_or_create(&directory).unwrap(), 4).unwrap();
        let (host, before) = (Host::Name("example.com".into()), cache.ca());
        let first = cache.config_for(&host);
        Ca::prepare(&directory).unwrap();
        let next = Ca::finish(&directory, &Ca::prepared(&directory).unwrap()).unwrap();
        let next = cache.prepare(next).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.config_for(&host)), "a prepared authority does not sign yet");
        cache.adopt(next);
        assert!(cache.ready() == 0 && !Arc::ptr_eq(&first, &cache.config_for(&host)));
        // As if a concurrent request had cached a leaf of the previous authority.
        let late = Leaf { config: first.clone(), day: OffsetDateTime::now_utc().date(), by: Arc::downgrade(&before) };
        cache.leaves.insert(host.clone(), late);
        assert!(!Arc::ptr_eq(&first, &cache.config_for(&host)));
    }

    #[test]
    fn leaf_expires_no_later_than_its_authority() {
        let home = tempfile::tempdir().unwrap();
        let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 4).unwrap();
        let (_, until) = cache.ca().validity();
        let der = cache.sign(&cache.ca(), &Host::Name("example.com".into()), until - Duration::HOUR).unwrap();
        let (_, x509) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(x509.validity().not_after.to_datetime(), until);
    }

    #[test]
    fn leaf_dates_are_within_the_authoritys_whatever_the_clock() {
        let home = tempfile::tempdir().unwrap();
        let cache = LeafCache::new(Ca::open_or_create(&home.path().join("ca")).unwrap(), 4).unwrap();
        let (from, until) = cache.ca().validity();
        for now in [from - Duration::days(5000), from - Duration::DAY, from, until - Duration::HOUR] {
            let der = cache.sign(&cache.ca(), &Host::Name("example.com".into()), now).unwrap();
            let (_, x509) = x509_parser::parse_x509_certificate(&der).unwrap();
            let leaf = (x509.validity().not_before.to_datetime(), x509.validity().not_after.to_datetime());
            assert!(from <= leaf.0 && leaf.0 < leaf.1 && leaf.1 <= until, "{now}: {leaf:?}");
        }
    }
}
