//! An entry with its file as one value, for those that have no tables: its record, the file packed, and the sender's
//! clock, which the receiver's need not agree with. Pure. Called by `fleet` and `rulebook`.

use super::record::{Digest, Record, digest, millis, time};
use super::tables;
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Entry};
use crate::robots::RobotsTxt;
use std::time::SystemTime;

/// `now`: the sender's clock. `None`: the file cannot be packed.
pub fn pack(entry: &Entry, now: SystemTime) -> Option<Vec<u8>> {
    let record = Record::new(entry, None).encode();
    let mut out = vec![VERSION];
    out.extend_from_slice(&millis(now).to_le_bytes());
    out.extend_from_slice(&u32::try_from(record.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&record);
    if let Some(Access::Rules(robots)) = entry.answer.as_ref().map(|answer| &answer.access) {
        out.extend_from_slice(&tables::pack(robots.source()).ok()?);
    }
    Some(out)
}

/// `sent`: when it was packed, by the receiver's clock. `None`: it is not one of ours.
pub fn unpack(
    octets: &[u8],
    sent: SystemTime,
    parse: impl FnOnce(Digest, &dyn Fn() -> Option<Vec<u8>>) -> Option<RobotsTxt>,
) -> Option<Entry> {
    let (&version, rest) = octets.split_first()?;
    let (clock, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (record, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let record = Record::decode(record).filter(|_| version == VERSION)?;
    let robots =
        record.body().and_then(|name| parse(name, &|| tables::unpack(body).filter(|body| digest(body) == name)));
    let mut entry = record.into_entry(robots)?;
    let (theirs, ours) = (u64::from_le_bytes(*clock), millis(sent));
    let moved = |at: u64| at.saturating_add(ours).saturating_sub(theirs);
    if let Some(answer) = &mut entry.answer {
        answer.freshness = Freshness::from_millis(answer.freshness.to_millis().map(moved));
    }
    if let Some(trouble) = &mut entry.trouble {
        trouble.since = time(moved(millis(trouble.since)))?;
        trouble.retry_at = time(moved(millis(trouble.retry_at)))?;
    }
    Some(entry)
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Answer, Validators};
    use std::time::Duration;

    const FILE: &[u8] = b"User-agent: *\nDisallow: /x\n";

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn entry() -> Entry {
        let answer = Answer {
            access: Access::Rules(RobotsTxt::parse(FILE)),
            status: 200,
            freshness: Freshness::new(at(1000), Duration::from_secs(100), 0.0),
            validators: Validators::new(Some("\"v1\""), None),
        };
        let mut entry = Entry { answer: Some(answer), trouble: None };
        entry.trouble = entry.failed(at(1200), "status 503", Some(Duration::from_secs(50)), 0.0).trouble;
        entry
    }

    fn read(_: Digest, body: &dyn Fn() -> Option<Vec<u8>>) -> Option<RobotsTxt> {
        Some(RobotsTxt::parse(&body()?))
    }

    #[test]
    fn what_is_packed_is_unpacked_by_the_receivers_clock() {
        let parcel = pack(&entry(), at(1200)).unwrap();
        for (sent, ahead) in [(1200, 0), (5200, 4000)] {
            let got = unpack(&parcel, at(sent), read).unwrap();
            let answer = got.answer.unwrap();
            assert_eq!(answer.freshness.validated_at(), at(1000 + ahead));
            assert_eq!(answer.freshness.expires_at(), at(1100 + ahead));
            assert_eq!((answer.status, answer.validators.etag()), (200, Some("\"v1\"")));
            assert!(matches!(answer.access, Access::Rules(robots) if robots.source() == FILE));
            let trouble = got.trouble.unwrap();
            assert_eq!((trouble.since, trouble.retry_at), (at(1200 + ahead), at(1250 + ahead)));
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_refused_or_at_least_no_fault() {
        let whole = pack(&entry(), at(1200)).unwrap();
        for length in 0..whole.len() {
            assert!(unpack(&whole[..length], at(0), read).is_none(), "{length}");
        }
        for place in 0..whole.len() {
            for octet in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[place] = octet;
                let _ = unpack(&changed, at(1200), read);
            }
        }
    }
}
