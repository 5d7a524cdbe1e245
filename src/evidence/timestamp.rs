//! Time stamps (RFC 3161): an authority signs that a line of the chain existed at a time. Each time stamp is a file beside the segments,
//! `00000001-<SHA-256 of the line>.tsr`, with the authority's unchanged answer. The stamped data is that line.

use super::record::{Hash, digits, from_hex};
use super::segment::{entries, is_foreign};
use crate::config::{read_file, write_once};
use openssl::cms::{CMSOptions, CmsContentInfo};
use openssl::error::ErrorStack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};
use time::PrimitiveDateTime;
use time::macros::format_description;
use x509_parser::asn1_rs::{Any, Class, FromDer, Tag};

/// A stored time stamp, which matches the line that the file's name identifies.
#[derive(Debug, Clone)]
pub struct Stamp {
    pub path: PathBuf,
    pub segment: u64,
    /// SHA-256 of the line.
    pub head: Hash,
    /// When the authority saw the line, by its own account.
    pub time: SystemTime,
}

/// A request for a time stamp, as DER (RFC 3161 §2.4.1). It has a nonce, and asks for the certificates as well.
pub fn query(head: &Hash, nonce: [u8; 8]) -> Vec<u8> {
    let nonce = positive(nonce);
    let parts: [&[u8]; 5] = [QUERY, head, b"\x02\x08", &nonce, b"\x01\x01\xff"];
    parts.concat()
}

/// Verifies a time stamp; returns when the authority saw the data with this SHA-256. `nonce`: the request's nonce. The certificate in the
/// answer verifies the signature. If there are `authorities`, that certificate's chain must lead to one of them, and be valid at the time
/// of the stamp.
///
/// # Errors
/// The answer is not a valid time stamp of this data.
pub fn check(response: &[u8], head: &Hash, nonce: Option<[u8; 8]>, authorities: &[X509]) -> Result<SystemTime, String> {
    let token = token(response)?;
    let (mut content, flags) = (Vec::new(), CMSOptions::BINARY | CMSOptions::NO_SIGNER_CERT_VERIFY);
    let parsed = || CmsContentInfo::from_der(token);
    let verified = parsed().and_then(|mut cms| cms.verify(None, None, None, Some(&mut content), flags));
    verified.map_err(|errors| format!("its signature does not match: {}", why(&errors)))?;
    let info = TstInfo::parse(&content).ok_or_else(|| malformed("its content is not a TSTInfo"))?;
    if info.algorithm != SHA256 || info.hashed != *head {
        return Err("it is for other data".to_owned());
    }
    if nonce.is_some_and(|nonce| info.nonce != Some(&positive(nonce))) {
        return Err("it answers another request: its nonce differs".to_owned());
    }
    if !authorities.is_empty() {
        let flags = CMSOptions::BINARY | CMSOptions::from_bits_retain(CADES);
        let trusted = store(authorities, info.time)
            .and_then(|store| parsed().and_then(|mut cms| cms.verify(None, Some(&store), None, None, flags)));
        trusted.map_err(|errors| format!("its authority is not trusted: {}", why(&errors)))?;
    }
    Ok(info.time)
}

impl Stamp {
    /// Stores an answer. `None`: the line already has a time stamp.
    ///
    /// # Errors
    /// The answer is not for this line, or cannot be stored.
    pub fn store(directory: &Path, segment: u64, head: &Hash, response: &[u8]) -> Result<Option<PathBuf>, String> {
        check(response, head, None, &[])?;
        let path = directory.join(format!("{segment:08}-{}{SUFFIX}", digits(head)));
        Ok(write_once(&path, response).map_err(cannot)?.then_some(path))
    }

    /// Verifies that the time stamp is signed by one of these authorities, or by one that they certify for time stamps.
    ///
    /// # Errors
    /// No such authority signed the time stamp, or its file cannot be read any more.
    pub fn authenticate(&self, authorities: &[X509]) -> Result<(), String> {
        check(&read_file(&self.path).map_err(cannot)?, &self.head, None, authorities).map(drop)
    }

    pub(super) fn read(path: PathBuf, (segment, head): (u64, Hash)) -> Result<Self, String> {
        let time = check(&read_file(&path).map_err(cannot)?, &head, None, &[])?;
        Ok(Stamp { path, segment, head, time })
    }
}

/// The segment and line of a time stamp, by its file's name.
pub(super) fn parse_stamp_name(path: &Path) -> Option<(u64, Hash)> {
    let (number, head) = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.split_once('-')?;
    let segment = number.parse().ok().filter(|segment| format!("{segment:08}") == number)?;
    Some((segment, from_hex(head)?))
}

/// Removes our time stamps of the segments before `first`, which have been removed.
pub(super) fn remove_before(directory: &Path, first: u64) -> io::Result<()> {
    let is_old =
        |path: &PathBuf| parse_stamp_name(path).is_some_and(|(segment, _)| segment < first) && !is_foreign(path);
    entries(directory)?.into_iter().filter(is_old).try_for_each(fs::remove_file)
}

fn cannot(error: io::Error) -> String {
    format!("cannot read or write it: {error}")
}

fn malformed(what: &str) -> String {
    format!("malformed time stamp: {what}")
}

/// The reason in the last of OpenSSL's errors.
fn why(errors: &ErrorStack) -> &str {
    let last = errors.errors().last();
    last.and_then(|error| error.data().or_else(|| error.reason())).unwrap_or("OpenSSL does not say why")
}

/// Makes a nonce a positive INTEGER of eight bytes without a leading zero.
fn positive(mut nonce: [u8; 8]) -> [u8; 8] {
    nonce[0] = nonce[0] & 0x3f | 0x40;
    nonce
}

/// The signed token of an answer that grants one (RFC 3161 §2.4.2).
fn token(response: &[u8]) -> Result<&[u8], String> {
    let (_, all) = Any::from_der(response).map_err(|_| malformed("it is not DER"))?;
    let status = at(response, &[0, 0]).filter(|status| status.tag() == Tag::Integer);
    match status.and_then(|status| status.data.last().copied()).ok_or_else(|| malformed("it has no status"))? {
        0 | 1 => {}
        status => {
            let texts = at(response, &[0, 1]).and_then(|texts| members(&texts)).unwrap_or_default();
            let why: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text.data)).collect();
            let why = if why.is_empty() { "it does not say why".to_owned() } else { why.join("; ") };
            return Err(format!("the authority refused with status {status}: {why}"));
        }
    }
    let (token, _) = Any::from_der(all.data).map_err(|_| malformed("it has no status"))?;
    // A ContentInfo with SignedData (RFC 5652 §3, §5.1) over a TSTInfo.
    let is = |path: &[usize], oid| at(token, path).is_some_and(|it| it.tag() == Tag::Oid && it.data == oid);
    let is_signed_info = is(&[0], SIGNED_DATA) && is(&[1, 0, 2, 0], TST_INFO);
    is_signed_info.then_some(token).ok_or_else(|| malformed("its token is not a signed TSTInfo"))
}

/// The data that an authority signs (RFC 3161 §2.4.2).
struct TstInfo<'a> {
    algorithm: &'a [u8],
    hashed: &'a [u8],
    time: SystemTime,
    nonce: Option<&'a [u8]>,
}

impl<'a> TstInfo<'a> {
    fn parse(der: &'a [u8]) -> Option<Self> {
        let of = |path: &[usize], tag| at(der, path).filter(|it| it.tag() == tag).map(|it| it.data);
        let mut others = members(&at(der, &[])?)?.into_iter().skip(5);
        let nonce = others.find(|it| it.class() == Class::Universal && it.tag() == Tag::Integer);
        let (algorithm, hashed) = (of(&[2, 0, 0], Tag::Oid)?, of(&[2, 1], Tag::OctetString)?);
        let time = generalized(of(&[4], Tag::GeneralizedTime)?)?;
        Some(TstInfo { algorithm, hashed, time, nonce: nonce.map(|nonce| nonce.data) })
    }
}

/// Parses a time such as `20261122183000.5Z` (RFC 3161 §2.4.2: UTC, with any fraction).
fn generalized(text: &[u8]) -> Option<SystemTime> {
    let form = format_description!(version = 2, "[year][month][day][hour][minute][second][optional [.[subsecond]]]Z");
    PrimitiveDateTime::parse(str::from_utf8(text).ok()?, form).ok().map(|time| time.assume_utc().into())
}

/// The element at this path: the index of a member, then of a member in it, and so on.
fn at<'a>(der: &'a [u8], path: &[usize]) -> Option<Any<'a>> {
    let (_, all) = Any::from_der(der).ok()?;
    path.iter().try_fold(all, |item, number| members(&item)?.into_iter().nth(*number))
}

/// The members of a SEQUENCE, or the content of an explicit tag.
fn members<'a>(item: &Any<'a>) -> Option<Vec<Any<'a>>> {
    let is_sequence = item.tag() == Tag::Sequence || item.class() == Class::ContextSpecific;
    let (mut rest, mut all) = (Some(item).filter(|_| is_sequence)?.data, Vec::new());
    while !rest.is_empty() {
        let member;
        (rest, member) = Any::from_der(rest).ok()?;
        all.push(member);
    }
    Some(all)
}

/// A store that trusts these authorities, to verify certificates for time stamps that were valid at `time`.
fn store(authorities: &[X509], time: SystemTime) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    authorities.iter().try_for_each(|authority| store.add_cert(authority.clone()))?;
    let mut terms = X509VerifyParam::new()?;
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    terms.set_time(i64::try_from(seconds).unwrap_or(i64::MAX));
    terms.set_purpose(X509PurposeId::TIMESTAMP_SIGN)?;
    terms.set_flags(X509VerifyFlags::PARTIAL_CHAIN | X509VerifyFlags::USE_CHECK_TIME)?;
    store.set_param(&terms)?;
    Ok(store.build())
}

const SUFFIX: &str = ".tsr";
/// Maximum size of an answer in bytes. Most answers have a few thousand.
pub const MOST_RESPONSE: u64 = 1 << 20;
/// The beginning of a TimeStampReq, up to the hash: version 1, SHA-256.
const QUERY: &[u8] =
    b"\x30\x43\x02\x01\x01\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
const SHA256: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x02\x01";
const SIGNED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
const TST_INFO: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x01\x04";
/// OpenSSL's flag `CMS_CADES`: also verifies that the signer's certificate is the one named by a signed attribute (RFC 5035), which RFC
/// 3161 §2.4.1 requires.
const CADES: u32 = 0x10_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfc3339;

    #[test]
    fn an_authority_writes_utc_with_any_fraction() {
        let at = |text: &str| generalized(text.as_bytes()).map(rfc3339::millis);
        assert_eq!(at("20261122183000Z").as_deref(), Some("2026-11-22T18:30:00.000Z"));
        assert_eq!(at("20261122183000.25Z").as_deref(), Some("2026-11-22T18:30:00.250Z"));
        assert_eq!((at("20261122183000"), at("20261322183000Z"), at("")), (None, None, None));
    }

    #[test]
    fn time_stamp_file_name_identifies_its_line() {
        let (head, name) = ([0xab; 32], "ab".repeat(32));
        assert_eq!(parse_stamp_name(Path::new(&format!("/x/00000012-{name}.tsr"))), Some((12, head)));
        for other in [format!("12-{name}.tsr"), format!("00000012-{name}.jsonl"), "00000012-ab.tsr".to_owned()] {
            assert_eq!(parse_stamp_name(Path::new(&other)), None, "{other}");
        }
    }

    #[test]
    fn invalid_time_stamps_are_refused_with_the_reason() {
        let head = [7; 32];
        let said = |response: &[u8]| check(response, &head, None, &[]).unwrap_err().to_string();
        assert_eq!(said(b"<html>"), "malformed time stamp: it is not DER");
        assert_eq!(said(b"\x30\x05\x30\x03\x02\x01\x00"), "malformed time stamp: its token is not a signed TSTInfo");
        assert_eq!(said(b"\x30\x05\x30\x03\x02\x01\x02"), "the authority refused with status 2: it does not say why");
        for length in 0..64 {
            said(&vec![0x30; length]);
            said(&vec![0x80; length]);
        }
    }
}
