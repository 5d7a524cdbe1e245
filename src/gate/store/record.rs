//! What is kept of an authority, as octets: fixed numbers little-endian, texts after their lengths, a version in front.
//! Pure. Called by `disk`.

use crate::policy::freshness::Freshness;
use crate::policy::{Access, Answer, Entry, Trouble, Validators};
use crate::robots::RobotsTxt;
use std::time::{Duration, SystemTime};

/// Names a body: the first half of its SHA-256, as nobody must be able to pass one file off as another.
pub(in crate::gate) type Digest = [u8; 16];

pub(in crate::gate) fn digest(body: &[u8]) -> Digest {
    let whole = ring::digest::digest(&ring::digest::SHA256, body);
    *whole.as_ref().first_chunk().expect("32 octets")
}

/// An [`Entry`] whose file is named in place of being there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    answer: Option<KeptAnswer>,
    trouble: Option<Trouble>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptAnswer {
    access: KeptAccess,
    status: u16,
    freshness: Freshness,
    validators: Validators,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptAccess {
    Rules(Digest),
    AllowAll,
    DisallowAll,
}

impl Record {
    /// `body`: the digest of the entry's file, if it has one.
    pub fn new(entry: &Entry, body: Option<Digest>) -> Self {
        let answer = entry.answer.as_ref().map(|answer| KeptAnswer {
            access: match (&answer.access, body) {
                (Access::Rules(_), Some(body)) => KeptAccess::Rules(body),
                (Access::Rules(robots), None) => KeptAccess::Rules(digest(robots.source())),
                (Access::AllowAll, _) => KeptAccess::AllowAll,
                (Access::DisallowAll, _) => KeptAccess::DisallowAll,
            },
            status: answer.status,
            freshness: answer.freshness,
            validators: answer.validators.clone(),
        });
        Record { answer, trouble: entry.trouble.as_deref().cloned() }
    }

    /// The file that belongs to it.
    pub fn body(&self) -> Option<Digest> {
        match self.answer.as_ref()?.access {
            KeptAccess::Rules(body) => Some(body),
            KeptAccess::AllowAll | KeptAccess::DisallowAll => None,
        }
    }

    /// With its file read. `None` if that is missing.
    pub fn into_entry(self, robots: Option<RobotsTxt>) -> Option<Entry> {
        let answer = match self.answer {
            None => None,
            Some(kept) => Some(Answer {
                access: match kept.access {
                    KeptAccess::Rules(_) => Access::Rules(robots?),
                    KeptAccess::AllowAll => Access::AllowAll,
                    KeptAccess::DisallowAll => Access::DisallowAll,
                },
                status: kept.status,
                freshness: kept.freshness,
                validators: kept.validators,
            }),
        };
        Some(Entry { answer, trouble: self.trouble.map(Box::new) })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match &self.answer {
            None => out.push(NONE),
            Some(answer) => {
                match answer.access {
                    KeptAccess::Rules(body) => {
                        out.push(RULES);
                        out.extend_from_slice(&body);
                    }
                    KeptAccess::AllowAll => out.push(ALLOW_ALL),
                    KeptAccess::DisallowAll => out.push(DISALLOW_ALL),
                }
                out.extend_from_slice(&answer.status.to_le_bytes());
                for millis in answer.freshness.to_millis() {
                    out.extend_from_slice(&millis.to_le_bytes());
                }
                put_text(&mut out, answer.validators.etag());
                put_text(&mut out, answer.validators.last_modified());
            }
        }
        match &self.trouble {
            None => out.push(NONE),
            Some(trouble) => {
                out.push(TROUBLE);
                put_time(&mut out, trouble.since);
                out.extend_from_slice(&trouble.failures.to_le_bytes());
                put_time(&mut out, trouble.retry_at);
                put_text(&mut out, Some(&trouble.why));
            }
        }
        out
    }

    /// `None` if these are not the octets of a record.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let mut input = Input(octets);
        if input.octet()? != VERSION {
            return None;
        }
        let access = match input.octet()? {
            NONE => None,
            RULES => Some(KeptAccess::Rules(input.take()?)),
            ALLOW_ALL => Some(KeptAccess::AllowAll),
            DISALLOW_ALL => Some(KeptAccess::DisallowAll),
            _ => return None,
        };
        let answer = match access {
            None => None,
            Some(access) => Some(KeptAnswer {
                access,
                status: u16::from_le_bytes(input.take()?),
                freshness: Freshness::from_millis([input.number()?, input.number()?, input.number()?]),
                validators: Validators::new(input.text()?.as_deref(), input.text()?.as_deref()),
            }),
        };
        let trouble = match input.octet()? {
            NONE => None,
            TROUBLE => Some(Trouble {
                since: input.time()?,
                failures: u32::from_le_bytes(input.take()?),
                retry_at: input.time()?,
                why: input.text()??,
            }),
            _ => return None,
        };
        input.0.is_empty().then_some(Record { answer, trouble })
    }
}

const VERSION: u8 = 1;
const NONE: u8 = 0;
const RULES: u8 = 1;
const ALLOW_ALL: u8 = 2;
const DISALLOW_ALL: u8 = 3;
const TROUBLE: u8 = 4;

/// Milliseconds since 1970: the calendar's clock is all that outlives a process.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `None`: further away than the platform's clock goes.
pub(super) fn time(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

fn put_time(out: &mut Vec<u8>, time: SystemTime) {
    out.extend_from_slice(&millis(time).to_le_bytes());
}

/// Its length and one, or zero if there is none. Fields are far shorter than a header block may be.
fn put_text(out: &mut Vec<u8>, text: Option<&str>) {
    let text = text.filter(|text| text.len() < usize::from(u16::MAX));
    let length = text.map_or(0, |text| u16::try_from(text.len() + 1).expect("filtered above"));
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn octet(&mut self) -> Option<u8> {
        self.take().map(|[octet]| octet)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<SystemTime> {
        time(self.number()?)
    }

    fn text(&mut self) -> Option<Option<Box<str>>> {
        let Some(length) = usize::from(u16::from_le_bytes(self.take()?)).checked_sub(1) else {
            return Some(None);
        };
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Some(str::from_utf8(text).ok()?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> SystemTime {
        time(millis).unwrap()
    }

    fn answer(access: Access) -> Answer {
        let freshness = Freshness::from_millis([1_700_000_000_123, 2, 3]);
        let validators = Validators::new(Some("\"é\""), None);
        Answer { access, status: 404, freshness, validators }
    }

    fn entries() -> Vec<Entry> {
        let trouble = Trouble { since: at(5), failures: 7, retry_at: at(6), why: "status 503".into() };
        let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /x\n");
        let mut entries = vec![Entry::default()];
        for access in [Access::Rules(robots), Access::AllowAll, Access::DisallowAll] {
            entries.push(Entry { answer: Some(answer(access.clone())), trouble: None });
            entries.push(Entry { answer: Some(answer(access)), trouble: Some(Box::new(trouble.clone())) });
        }
        entries.push(Entry { answer: None, trouble: Some(Box::new(trouble)) });
        entries
    }

    #[test]
    fn what_is_written_is_read_again() {
        for entry in entries() {
            let record = Record::new(&entry, None);
            assert_eq!(Record::decode(&record.encode()).as_ref(), Some(&record));
            let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /x\n");
            let again = record.clone().into_entry(Some(robots)).unwrap();
            assert_eq!(Record::new(&again, None), record);
            assert_eq!(record.into_entry(None).is_none(), Record::new(&entry, None).body().is_some());
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_refused_or_at_least_no_fault() {
        for entry in entries() {
            let whole = Record::new(&entry, None).encode();
            for length in 0..whole.len() {
                assert_eq!(Record::decode(&whole[..length]), None);
            }
            assert_eq!(Record::decode(&[&whole[..], b"x"].concat()), None);
            for at in 0..whole.len() {
                for octet in [0, 1, 0x7f, 0xff] {
                    let mut changed = whole.clone();
                    changed[at] = octet;
                    let _ = Record::decode(&changed);
                }
            }
        }
    }
}
