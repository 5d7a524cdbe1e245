//! The certificate authority that signs certificates for intercepted hosts: created on first use, or the operator's.

mod directory;

pub use directory::{CERTIFICATE, KEY};

use std::fs::File;
use std::path::{Path, PathBuf};

use data_encoding::HEXUPPER;
use rcgen::{Issuer, KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use crate::config::{
    CaSource, Settings, UnusableFile, control_lock, open_file, open_ours, read_file, read_ours, read_whole,
    state_directory,
};

use super::certificate::{anchor_in, mark, may_sign, parse, shown, to_pem};
use super::error::fault;
use super::secret_file;

use directory::{NEXT, OLD};

/// A certificate authority, ready to sign.
pub struct Ca {
    pub(super) issuer: Issuer<'static, KeyPair>,
    /// Certificates to send with a leaf; roots are left out, as clients have them.
    pub(super) chain: Vec<CertificateDer<'static>>,
    anchor: CertificateDer<'static>,
    anchor_pem: String,
    path: PathBuf,
    /// The content of the certificate file when it was read.
    written: Vec<u8>,
    /// The way to replace the authority, for hints.
    remedy: &'static str,
    /// The open file, with a shared lock while this process signs: it shows that the authority is in use, even if the file is renamed.
    _file: File,
    validity: (OffsetDateTime, OffsetDateTime),
}

/// A certificate that clients have to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    pub pem: String,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint` shows it.
    pub fingerprint: String,
    /// Identifies the certificate: the end of its serial.
    pub mark: String,
    pub until: OffsetDateTime,
}

impl Trusted {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let x509 = parse(certificate)?;
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
        let fingerprint: Vec<String> = digest.as_ref().iter().map(|byte| HEXUPPER.encode(&[*byte])).collect();
        Some(Self {
            pem: to_pem(certificate),
            fingerprint: fingerprint.join(":"),
            mark: mark(x509.raw_serial()),
            until: x509.validity.not_after.to_datetime(),
        })
    }
}

impl Ca {
    /// Opens the configured authority.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn configured(settings: &Settings) -> Result<Self, UnusableFile> {
        let source = &settings.intercept.ca;
        let opened = match source.files() {
            Some((certificate, key)) => Self::open(certificate, key),
            None => Self::open_or_create(&directory(source)),
        };
        opened.map_err(|error| error.placed(&settings.places))
    }

    /// Whether `other` is the same authority at the same path.
    pub fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.written == other.written
    }

    /// Whether the file was replaced by another authority, which the next reload will use.
    fn is_replaced(&self) -> bool {
        read_file(&self.path).is_ok_and(|now| now != self.written)
    }

    /// Opens a certificate and its key (PKCS #8), both PEM. The certificate's intermediates and root may follow it in the file.
    ///
    /// # Errors
    /// Either file cannot be read or used, others can read the key, the two do not match, or the certificate has expired. A certificate
    /// that is not yet valid is accepted, with a [`warning`](Self::warning): the clock may be wrong for a while after boot, and not all
    /// requests need the authority.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, UnusableFile> {
        Self::open_at(certificate, key, REPLACE, OffsetDateTime::now_utc())
    }

    fn open_at(
        certificate: &Path,
        key: &Path,
        remedy: &'static str,
        now: OffsetDateTime,
    ) -> Result<Self, UnusableFile> {
        let unusable = |why: &str| {
            let hint = "name a PEM file that begins with a CA certificate; its intermediates may follow";
            UnusableFile::new(format!("{} cannot be used: {why}", certificate.display()), hint).about(certificate)
        };
        let file = open_file(certificate).map_err(fault(certificate, "read"))?;
        // Fails on file systems without locks, which is ignored.
        let _ = control_lock(&file, libc::F_OFD_SETLK, libc::F_RDLCK as libc::c_short, 0, 1);
        let text = read_whole(&file).map_err(fault(certificate, "read"))?;
        let all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(&format!("it is not PEM: {error}")))?;
        let key_pair = secret_file::load_key(key)?;
        let parsed = all.iter().map(|der| parse(der)).collect::<Option<Vec<_>>>();
        let parsed = parsed.ok_or_else(|| unusable("a certificate in it is malformed"))?;
        if parsed.is_empty() {
            return Err(unusable("it contains no certificate"));
        }
        let ours = parsed.iter().position(|x509| x509.public_key().subject_public_key.data == key_pair.der_bytes());
        let Some(ours) = ours else {
            let (path, certificate, key) = (key, certificate.display(), key.display());
            let what = format!("the key {key} does not belong to the certificate {certificate}");
            let hint = format!("restore the matching pair, or delete {certificate} and {key}");
            return Err(UnusableFile::new(what, hint).about(path));
        };
        may_sign(&parsed[ours]).map_err(unusable)?;
        let validity = &parsed[ours].validity;
        let validity = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
        if validity.1 <= now {
            let hint = format!(
                "the clock says {}; if that is right, {remedy}, and have clients trust the new one",
                shown(now)
            );
            let what = format!("{} expired on {}", certificate.display(), shown(validity.1));
            return Err(UnusableFile::new(what, hint).about(certificate));
        }
        let roots: Vec<bool> = parsed.iter().map(|x509| x509.subject() == x509.issuer()).collect();
        let issuer = Issuer::from_ca_cert_der(&all[ours], key_pair);
        let issuer = issuer.map_err(|_| unusable("its name has parts that cannot be copied into a leaf"))?;
        let anchor = all[roots.iter().position(|is_root| *is_root).unwrap_or(ours)].clone();
        // The issuer first, then the others in their order, without roots.
        let others = (0..all.len()).filter(|at| *at != ours);
        let chain = std::iter::once(ours).chain(others).filter(|at| !roots[*at]).map(|at| all[at].clone()).collect();
        Ok(Self {
            issuer,
            chain,
            anchor_pem: to_pem(&anchor),
            anchor,
            path: certificate.to_owned(),
            remedy,
            written: text,
            _file: file,
            validity,
        })
    }

    /// The certificate that clients have to trust, PEM: the root, if it is known.
    pub fn cert_pem(&self) -> &str {
        &self.anchor_pem
    }

    /// All certificates that clients have to trust:
    ///
    /// - this authority's
    /// - the one that is now in this authority's file, if the file was replaced
    /// - the prepared successor's
    /// - the predecessor's, while any process still signs with it
    pub fn trusted(&self) -> Vec<Trusted> {
        let in_place = self.is_replaced().then(|| trusted_in(&self.path)).flatten();
        let old = self.path.with_added_extension(OLD);
        let old = is_in_use(&old).then(|| trusted_in(&old)).flatten();
        let mut all = vec![self.anchor.clone()];
        for other in [in_place, self.beside(NEXT), old].into_iter().flatten() {
            if !all.contains(&other) {
                all.push(other);
            }
        }
        all.iter().filter_map(Trusted::of).collect()
    }

    /// The existing certificates of the configured authority, its successor and its predecessor. Creates nothing.
    pub fn present(source: &CaSource) -> Vec<CertificateDer<'static>> {
        let path = source.files().map_or_else(|| directory(source).join(CERTIFICATE), |(path, _)| path.to_owned());
        let others = [NEXT, OLD].map(|extension| path.with_added_extension(extension));
        [path].iter().chain(&others).filter_map(|path| trusted_in(path)).collect()
    }

    /// The prepared successor.
    pub fn next(&self) -> Option<Trusted> {
        Trusted::of(&self.beside(NEXT)?)
    }

    fn beside(&self, extension: &str) -> Option<CertificateDer<'static>> {
        trusted_in(&self.path.with_added_extension(extension))
    }

    /// [`trusted`](Self::trusted), as PEM.
    pub fn trusted_pem(&self) -> String {
        self.trusted().into_iter().map(|certificate| certificate.pem).collect()
    }

    /// [`cert_pem`](Self::cert_pem), as DER.
    pub fn cert_der(&self) -> &CertificateDer<'static> {
        &self.anchor
    }

    /// The certificate's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A few digits that identify this authority: the end of the serial of [`Self::cert_der`].
    pub fn mark(&self) -> String {
        parse(&self.anchor).map(|x509| mark(x509.raw_serial())).unwrap_or_default()
    }

    /// The start and end of the authority's validity. No leaf is valid outside of it.
    pub fn validity(&self) -> (OffsetDateTime, OffsetDateTime) {
        self.validity
    }

    /// A warning about the authority's dates or a replaced file, with advice. `None`: nothing is wrong.
    pub fn warning(&self, now: OffsetDateTime) -> Option<String> {
        let ((from, until), path, remedy) = (self.validity, self.path.display(), self.remedy);
        if now < from {
            Some(format!(
                "{path} is valid from {}, and the clock says {}: until then no client accepts it; set the clock, or, if \
                 the clock is right, {remedy} and have clients trust the new one",
                shown(from),
                shown(now)
            ))
        } else if until - now < WARNED {
            let is_prepared = remedy == ROTATE && self.path.parent().and_then(Self::prepared).is_some();
            let cure = match is_prepared {
                true => {
                    "when clients trust the next one, put it in its place with `politely ca rotate --finish`".to_owned()
                }
                false => format!("{remedy}, and have clients trust the new one"),
            };
            Some(format!("{path} expires on {}; {cure}", shown(until)))
        } else if self.is_replaced() {
            Some(format!("{path} was replaced by another certificate authority; `politely reload` puts it into use"))
        } else {
            None
        }
    }
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The directory for files that belong to the authority: by default `ca` in the state directory.
pub fn directory(source: &CaSource) -> PathBuf {
    source.directory.clone().unwrap_or_else(|| state_directory().join("ca"))
}

/// Whether the authority in this file has expired.
pub fn has_expired(certificate: &Path) -> bool {
    let anchor = read_file(certificate).ok().and_then(|pem| anchor_in(&pem));
    anchor.and_then(|it| Trusted::of(&it)).is_some_and(|it| it.until <= OffsetDateTime::now_utc())
}

/// The certificate that clients of the authority in this file have to trust. `None` if the file belongs to another user: other users may be
/// able to create files in the directory of an operator's authority.
fn trusted_in(certificate: &Path) -> Option<CertificateDer<'static>> {
    anchor_in(&read_ours(certificate).ok()?)
}

/// Whether any process signs with the authority in this file.
fn is_in_use(certificate: &Path) -> bool {
    let Some(file) = certificate.parent().and_then(|directory| open_ours(certificate, directory).ok()) else {
        return false;
    };
    let lock = control_lock(&file, libc::F_OFD_GETLK, libc::F_WRLCK as libc::c_short, 0, 1);
    lock.is_ok_and(|lock| lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Time before the authority's expiry at which the warning begins.
const WARNED: Duration = Duration::days(30);
/// Advice for replacing our own authority, and the operator's.
const ROTATE: &str = "make another with `politely ca rotate`";
const REPLACE: &str = "replace it and its key (`intercept.ca`)";

#[cfg(test)]
mod tests {
    use super::directory::{YEARS, next, parameters};
    use super::*;
    use crate::config::private_directory;
    use crate::policy::Host;
    use crate::tls::LeafCache;
    use rcgen::PKCS_ECDSA_P256_SHA256;
    use std::fs;
    use time::macros::datetime;

    const RIGHT: OffsetDateTime = datetime!(2027-03-01 12:00 UTC);

    #[test]
    fn authority_created_under_a_wrong_clock_is_valid_under_the_right_one() {
        for wrong in [
            OffsetDateTime::UNIX_EPOCH,
            datetime!(2000-01-01 0:00 UTC),
            RIGHT - Duration::DAY,
            RIGHT + Duration::days(10),
            datetime!(2040-01-01 0:00 UTC),
        ] {
            let home = tempfile::tempdir().unwrap();
            let directory = home.path().join("ca");
            let made = Ca::open_or_create_at(&directory, wrong).unwrap();
            assert_eq!(made.warning(wrong), None, "{wrong}");
            let again = Ca::open_or_create_at(&directory, RIGHT).unwrap();
            assert_eq!((again.warning(RIGHT), again.cert_der()), (None, made.cert_der()), "{wrong}");
            let until = again.validity().1;
            assert!(until >= RIGHT + Duration::days(9 * 365), "{wrong}: {until}");
        }
    }

    /// Makes an authority with these dates of validity, in a new directory.
    fn dated(from: OffsetDateTime, until: OffsetDateTime) -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("ca");
        secret_file::directory(&directory).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        secret_file::write(&directory.join(KEY), key.serialize_pem(), 0o600).unwrap();
        let mut made = parameters(RIGHT).unwrap();
        (made.not_before, made.not_after) = (from, until);
        secret_file::write(&directory.join(CERTIFICATE), made.self_signed(&key).unwrap().pem(), 0o644).unwrap();
        (home, directory)
    }

    #[test]
    fn authority_not_yet_valid_is_used_with_a_warning_about_the_clock() {
        for ahead in [Duration::HOUR, Duration::days(10), Duration::days(5000)] {
            let (_home, directory) = dated(RIGHT + ahead, RIGHT + ahead + YEARS);
            let ca = Ca::open_or_create_at(&directory, RIGHT).unwrap();
            let warning = ca.warning(RIGHT).unwrap();
            assert!(warning.contains("and the clock says 2027-03-01 12:00 UTC"), "{warning}");
            assert!(warning.contains(&format!("valid from {}", shown(RIGHT + ahead))), "{warning}");
            assert_eq!(ca.warning(RIGHT + ahead), None);
        }
    }

    #[test]
    fn expired_authority_is_refused_with_a_hint_to_rotate() {
        let (_home, directory) = dated(RIGHT - YEARS, RIGHT);
        let error = Ca::open_or_create_at(&directory, RIGHT).unwrap_err();
        let path = directory.join(CERTIFICATE);
        assert_eq!(error.to_string(), format!("{} expired on 2027-03-01 12:00 UTC", path.display()));
        let hint = "the clock says 2027-03-01 12:00 UTC; if that is right, make another with `politely ca rotate`, and have \
                    clients trust the new one";
        assert_eq!(error.hint(), hint);
        let ca = Ca::open_or_create_at(&directory, RIGHT - Duration::days(29)).unwrap();
        let warning = ca.warning(RIGHT - Duration::days(29)).unwrap();
        assert!(
            warning.contains("expires on 2027-03-01 12:00 UTC; make another with `politely ca rotate`"),
            "{warning}"
        );
        assert_eq!(ca.warning(RIGHT - Duration::days(31)), None);
        drop(ca);
        let (now, key) = (RIGHT - Duration::DAY, directory.join(KEY));
        assert!(Ca::prepare(&directory).unwrap());
        let warning = Ca::open_at(&path, &key, REPLACE, now).unwrap().warning(now).unwrap();
        assert!(
            warning.ends_with("; replace it and its key (`intercept.ca`), and have clients trust the new one"),
            "{warning}"
        );
    }

    #[test]
    fn interrupted_rotation_is_completed_by_the_next_process() {
        let (_home, directory) = dated(RIGHT - YEARS, RIGHT + YEARS);
        assert!(Ca::prepare(&directory).unwrap() && !Ca::prepare(&directory).unwrap());
        let [certificate, key] = next(&directory);
        let pem = fs::read_to_string(&certificate).unwrap();
        assert_eq!(Ca::open_or_create(&directory).unwrap().trusted()[1].pem, pem);
        fs::rename(&certificate, directory.join(CERTIFICATE)).unwrap();
        let ca = Ca::open_or_create(&directory).unwrap();
        assert_eq!((ca.cert_pem(), ca.trusted().len(), key.exists()), (pem.as_str(), 1, false));
    }

    fn rotated(directory: &Path) -> Ca {
        Ca::prepare(directory).unwrap();
        Ca::finish(directory, &Ca::prepared(directory).unwrap()).unwrap()
    }

    /// The authority may change between the question to the user and the answer.
    #[test]
    fn finish_installs_only_the_agreed_successor_and_only_once() {
        let (_home, directory) = dated(RIGHT - YEARS, RIGHT + YEARS);
        let in_directory = || {
            let all = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
            all.map(|path| (fs::read(&path).unwrap(), path)).collect::<std::collections::BTreeSet<_>>()
        };
        assert!(Ca::prepare(&directory).unwrap());
        let agreed = Ca::prepared(&directory).unwrap();
        assert_eq!(Ca::finish(&directory, &agreed).unwrap().cert_pem(), agreed.pem);
        for another in [false, true] {
            assert_eq!(another && Ca::prepare(&directory).unwrap(), another);
            let before = in_directory();
            assert!(Ca::finish(&directory, &agreed).unwrap_err().to_string().contains("ca.pem.next"));
            assert_eq!(in_directory(), before);
        }
        assert_eq!(Ca::replace_expired(&directory).unwrap().cert_pem(), agreed.pem, "the authority has not expired");
    }

    #[test]
    fn predecessor_is_trusted_while_a_process_signs_with_it() {
        let (_home, directory) = dated(RIGHT - YEARS, RIGHT + YEARS);
        let running = Ca::open_or_create(&directory).unwrap();
        let in_place = || Ca::open_or_create(&directory).unwrap();
        assert!(running.is_same(&in_place()) && running.warning(RIGHT).is_none());
        let next = rotated(&directory);
        let both = |ca: &Ca| ca.trusted().into_iter().map(|it| it.pem).collect::<Vec<_>>();
        let [old, new] = [running.cert_pem().to_owned(), next.cert_pem().to_owned()];
        assert_eq!(both(&running), [old.clone(), new.clone()], "clients also trust the authority on the disk");
        assert_eq!(both(&next), [new.clone(), old], "clients also trust the authority that still signs");
        assert!(!running.is_same(&in_place()) && next.is_same(&in_place()));
        assert!(running.warning(RIGHT).is_some_and(|warning| warning.contains("`politely reload` puts it into use")));
        drop(running);
        assert_eq!(both(&next), [new]);
    }

    #[test]
    fn checking_whether_an_authority_is_in_use_does_not_count_as_use() {
        let (_home, directory) = dated(RIGHT - YEARS, RIGHT + YEARS);
        Ca::open_or_create(&directory).unwrap();
        let ca = rotated(&directory);
        let ask = || (0..300).map(|_| ca.trusted().len()).max();
        let most = std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(ask));
            all.map(|asked| asked.join().unwrap())
        });
        assert_eq!(most, [Some(1); 8]);
    }

    /// The operator's own authority may be in a directory where others can put files.
    #[test]
    fn certificate_file_of_another_user_is_not_trusted() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let (_other, directory) = dated(RIGHT - YEARS, RIGHT + YEARS);
        let [certificate, key] = [CERTIFICATE, KEY].map(|name| {
            let file = home.path().join(name);
            fs::copy(directory.join(name), &file).unwrap();
            file
        });
        let own = Ca::open(&certificate, &key).unwrap();
        Ca::prepare(&directory).unwrap();
        let successor = home.path().join("ca.pem.next");
        fs::copy(&next(&directory)[0], &successor).unwrap();
        assert!(own.trusted().len() == 2 && own.next().is_some());
        fs::remove_file(&successor).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &successor, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(own.trusted().len(), 1, "a pipe does not block");
        fs::remove_file(&successor).unwrap();
        for beside in [successor, certificate] {
            fs::copy(&next(&directory)[0], &beside).unwrap();
            if rustix::process::geteuid().is_root() {
                chown(&beside, Some(61_184), None).unwrap();
                assert!(own.trusted().len() == 1 && own.next().is_none(), "{}", beside.display());
            }
        }
    }

    #[test]
    fn root_creates_no_authority_in_a_directory_of_another_user() {
        use std::os::unix::fs::{MetadataExt, chown, symlink};
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (directory, file) = (home.path().join("ca"), home.path().join("file"));
        private_directory(&directory).unwrap();
        chown(&directory, Some(61_184), None).unwrap();
        fs::write(&file, "").unwrap();
        symlink(&file, directory.join(".lock")).unwrap();
        let said = Ca::open_or_create(&directory).unwrap_err().to_string();
        assert!(said.contains("belongs to the user 61184: run this as that user"), "{said}");
        assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn expired_authority_is_replaced_and_its_files_are_kept_as_old() {
        let (_home, directory) = dated(datetime!(2000-01-01 0:00 UTC), datetime!(2001-01-01 0:00 UTC));
        let old = [CERTIFICATE, KEY].map(|name| fs::read(directory.join(name)).unwrap());
        assert!(Ca::open_or_create(&directory).is_err());
        let ca = Ca::replace_expired(&directory).unwrap();
        assert_eq!(ca.warning(OffsetDateTime::now_utc()), None);
        assert_eq!(Ca::open_or_create(&directory).unwrap().cert_der(), ca.cert_der());
        assert_eq!(["ca.pem.old", "ca.key.old"].map(|name| fs::read(directory.join(name)).unwrap()), old);
        assert_ne!(fs::read(directory.join(KEY)).unwrap(), old[1]);
        LeafCache::new(ca, 4).unwrap().config_for(&Host::Name("example.com".into()));
    }
}
