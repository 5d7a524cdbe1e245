//! Serialises an entry: a version byte, then `postcard`. The store keeps an entry's file separately. The fleet sends the file after the
//! entry, or separately. It also sends the sender's clock, since the receiver's may differ. Values of other versions are ignored.

use crate::evidence::{self, Hash, sha256};
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Entry, SiteAnswer, Trouble, Validators};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::io;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};
use zstd::bulk::{Compressor, Decompressor};

/// Identifies a file: the first half of its SHA-256, long enough that nobody can pass one file off as another.
pub(in crate::gate) type FileDigest = [u8; 16];

pub(in crate::gate) fn digest(file: &[u8]) -> FileDigest {
    first_half(&sha256(file))
}

/// The digest of a parsed file, which is computed once.
pub(in crate::gate) fn digest_of(access: &Access) -> Option<FileDigest> {
    evidence::digest_of(access).map(first_half)
}

pub(in crate::gate) fn first_half(whole: &Hash) -> FileDigest {
    *whole.first_chunk().expect("32 bytes")
}

/// Function that reads a copy's file if its length is accepted.
pub(in crate::gate) type ReadFile<'a> = dyn Fn(&dyn Fn(usize) -> bool) -> Option<Vec<u8>> + 'a;

/// Serialises an entry and, separately, its file, which the caller may append to it. `now`: the sender's clock. `None`: the file cannot be
/// compressed.
pub(in crate::gate) fn pack(entry: &Entry, now: SystemTime) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let access = entry.answer.as_ref().map(|answer| &answer.access);
    let packed = access.and_then(Access::source).map(compress).transpose().ok()?;
    let name = access.and_then(digest_of);
    Some((with_version(&Snapshot { clock: millis(now), record: EntryRecord::of(entry), name }), packed))
}

/// The digest of the entry's file, if the file is not appended to this value of [`pack`].
pub(in crate::gate) fn lacks_file(bytes: &[u8]) -> Option<FileDigest> {
    let (Snapshot { name, .. }, packed) = begins_with(bytes)?;
    name.filter(|_| packed.is_empty())
}

/// Reverses [`pack`]. `sent`: when the value was packed, by the receiver's clock. `now`: that clock's current time. `parse` returns the
/// parsed file: from memory, if a file with this digest is there, or else by reading and parsing what is appended to the value. `None`: the
/// value is malformed or of another version, or its file is missing.
pub(in crate::gate) fn unpack(
    bytes: &[u8],
    sent: SystemTime,
    now: SystemTime,
    parse: impl FnOnce(FileDigest, &ReadFile<'_>) -> Option<Access>,
) -> Option<Entry> {
    let (Snapshot { clock, mut record, name }, packed) = begins_with(bytes)?;
    (name.is_some() || packed.is_empty()).then_some(())?;
    let ours = millis(sent);
    record.move_instants(|at| at.saturating_add(ours).saturating_sub(clock));
    let file = name.and_then(|name| parse(name, &|accepts| decompress(packed, name, accepts)));
    record.into_entry(file, now)
}

/// Serialises an entry without its file.
pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    with_version(&EntryRecord::of(entry))
}

/// Reverses [`encode`]. `None` if the bytes are malformed, or the file is missing.
pub(super) fn decode(bytes: &[u8], file: Option<Access>, now: SystemTime) -> Option<Entry> {
    of_this_version::<EntryRecord<'_>>(bytes)?.into_entry(file, now)
}

/// When an entry was validated, and until when it need not be fetched.
#[derive(Debug, Clone, Copy)]
pub(in crate::gate) struct CopyTimes {
    /// `None`: there is no answer.
    pub validated_at: Option<SystemTime>,
    /// Whether the last fetch has failed.
    pub has_failed: bool,
    pub fresh_until: SystemTime,
}

impl CopyTimes {
    pub fn of(entry: &Entry) -> Self {
        EntryRecord::of(entry).times()
    }

    /// The times of an entry that [`encode`] has serialised.
    pub(super) fn in_encoded(bytes: &[u8]) -> Option<Self> {
        of_this_version::<EntryRecord<'_>>(bytes).map(|record| record.times())
    }

    /// Whether `other` was validated later, by more than clock differences and delays can explain. A copy dated in the future, by a clock
    /// that was ahead, counts as older than any other, as its age is unknown.
    pub fn are_before(&self, other: &Self, now: SystemTime) -> bool {
        let validated = |times: &Self| times.validated_at.filter(|at| *at <= now + SAME);
        validated(other).is_some_and(|other| validated(self).is_none_or(|own| other > own + SAME))
    }

    /// Whether the copy is fresh, or is no older than `age` and no fetch has failed since. `anew`: freshness does not count.
    pub fn are_usable(&self, anew: bool, age: Duration) -> bool {
        let now = SystemTime::now();
        let is_fresh = !anew && now < self.fresh_until;
        // A copy dated in the future was written before the clock was set back.
        self.validated_at.map_or(is_fresh, |at| at <= now && (is_fresh || !self.has_failed && at + age >= now))
    }
}

/// Packs a file: its length, then the file, compressed if that saves anything.
pub(super) fn compress(file: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = length_of(file).to_vec();
    let frame = COMPRESSOR.lock().compress(file)?;
    // The length tells whether the file is compressed.
    packed.extend_from_slice(if frame.len() < file.len() { &frame } else { file });
    Ok(packed)
}

/// Reverses [`compress`], if the length that the packed file claims is accepted, and the file's digest is `name`. Uses no more memory than
/// that length.
pub(super) fn decompress(packed: &[u8], name: FileDigest, accepts: &dyn Fn(usize) -> bool) -> Option<Vec<u8>> {
    let (length, file) = packed.split_first_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    let file = match length == file.len() {
        _ if !accepts(length) => return None,
        true => file.to_vec(),
        false => DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(file, length)).ok()?,
    };
    (digest(&file) == name).then_some(file)
}

/// The length that a packed file claims.
pub(super) fn length_in(packed: &[u8]) -> Option<usize> {
    packed.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
}

fn length_of(file: &[u8]) -> [u8; 4] {
    u32::try_from(file.len()).unwrap_or(u32::MAX).to_le_bytes()
}

/// Milliseconds since 1970: only wall-clock time is meaningful across processes.
pub(in crate::gate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize, Deserialize)]
struct Snapshot<'a> {
    clock: u64,
    #[serde(borrow)]
    record: EntryRecord<'a>,
    /// The digest of its file.
    name: Option<FileDigest>,
}

/// An entry without its file, as stored. Instants are in milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct EntryRecord<'a> {
    #[serde(borrow)]
    answer: Option<AnswerRecord<'a>>,
    #[serde(borrow)]
    trouble: Option<TroubleRecord<'a>>,
}

#[derive(Serialize, Deserialize)]
struct AnswerRecord<'a> {
    kind: AnswerKind,
    status: u16,
    /// When it was validated, when to refresh it, and when it expires.
    freshness: [u64; 3],
    etag: Option<&'a str>,
    last_modified: Option<&'a str>,
}

/// The kind of an answer. Earlier versions ignore an entry with a variant that they do not know.
#[derive(Serialize, Deserialize)]
enum AnswerKind {
    /// A file of the site's own. Which kind of file follows from the entry's name.
    File,
    Missing,
    ForeignFile,
}

#[derive(Serialize, Deserialize)]
struct TroubleRecord<'a> {
    since: u64,
    failures: u32,
    retry_at: u64,
    why: &'a str,
}

impl<'a> EntryRecord<'a> {
    fn of(entry: &'a Entry) -> Self {
        let answer = entry.answer.as_ref().map(|answer| AnswerRecord {
            kind: match answer.access {
                Access::Missing => AnswerKind::Missing,
                Access::Rules(_) | Access::Reservations(_) | Access::Licenses(_) => match answer.is_foreign {
                    true => AnswerKind::ForeignFile,
                    false => AnswerKind::File,
                },
            },
            status: answer.status,
            freshness: answer.freshness.to_millis(),
            etag: answer.validators.etag(),
            last_modified: answer.validators.last_modified(),
        });
        let trouble = entry.trouble.as_ref().map(|trouble| TroubleRecord {
            since: millis(trouble.since),
            failures: trouble.failures,
            retry_at: millis(trouble.retry_at),
            why: &trouble.why,
        });
        EntryRecord { answer, trouble }
    }

    fn times(&self) -> CopyTimes {
        let answered = self.answer.as_ref().map(|answer| answer.freshness.map(time));
        let retry_at = self.trouble.as_ref().map(|trouble| time(trouble.retry_at));
        let refresh_at = answered.map(|[_, refresh_at, _]| refresh_at);
        CopyTimes {
            validated_at: answered.map(|[validated_at, ..]| validated_at),
            has_failed: retry_at.is_some(),
            fresh_until: retry_at.or(refresh_at).unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }

    fn move_instants(&mut self, moved: impl Fn(u64) -> u64) {
        if let Some(answer) = &mut self.answer {
            answer.freshness = answer.freshness.map(&moved);
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.since = moved(trouble.since);
            trouble.retry_at = moved(trouble.retry_at);
        }
    }

    /// Combines the record with its parsed file. `None`: the file is missing.
    fn into_entry(self, file: Option<Access>, now: SystemTime) -> Option<Entry> {
        let answer = match self.answer {
            None => None,
            Some(answer) => Some(SiteAnswer {
                access: match answer.kind {
                    AnswerKind::Missing => Access::Missing,
                    AnswerKind::File | AnswerKind::ForeignFile => file?,
                },
                status: answer.status,
                asked_again: None,
                is_foreign: matches!(answer.kind, AnswerKind::ForeignFile),
                freshness: Freshness::from_millis(answer.freshness),
                validators: Validators::new(answer.etag, answer.last_modified),
            }),
        };
        let trouble = self.trouble.map(|trouble| {
            let (since, retry_at) = (time(trouble.since), time(trouble.retry_at));
            Box::new(Trouble { since, failures: trouble.failures, retry_at, why: trouble.why.into() })
        });
        Some(Entry { answer, trouble, linked: None }.sanitized(now))
    }
}

/// Reverses [`millis`], up to the year 10889, which every platform's clock can represent.
pub(in crate::gate) fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis.min(1 << 48))
}

fn with_version(value: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("writing to a vector cannot fail")
}

fn of_this_version<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    begins_with(bytes).and_then(|(value, rest)| rest.is_empty().then_some(value))
}

/// Reads a value from the beginning of `bytes`. Returns it with the bytes after it.
fn begins_with<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (&version, rest) = bytes.split_first()?;
    postcard::take_from_bytes(rest).ok().filter(|_| version == VERSION)
}

/// Tolerance in comparisons of validation times: clocks differ, and storing takes time.
const SAME: Duration = Duration::from_secs(1);
/// Raised with each change of the records above that another version would misread. Version 1 was a hand-written format.
const VERSION: u8 = 4;
/// Compression level: compresses well enough, at twice the speed of higher levels.
const LEVEL: i32 = 3;
/// Shared, so that its 200 KB of working memory are not allocated anew for each file of a few kilobytes.
static COMPRESSOR: LazyLock<Mutex<Compressor<'static>>> =
    LazyLock::new(|| Mutex::new(Compressor::new(LEVEL).expect("the level is valid")));
// One decompressor for each thread, as requests read copies at the same time.
thread_local!(static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::default());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robots::RobotsTxt;

    const FILE: &[u8] = b"User-agent: *\nDisallow: /x\n";

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn entries() -> Vec<Entry> {
        let failed = |entry: &Entry| entry.failed(at(1200), "status 503", Some(Duration::from_secs(50)), 0.0);
        let mut entries = vec![Entry::default(), failed(&Entry::default())];
        let file = || Access::Rules(RobotsTxt::parse(FILE));
        for (access, is_foreign) in [(file(), false), (file(), true), (Access::Missing, false)] {
            let freshness = Freshness::new(at(1000), Duration::from_secs(100), 0.0);
            let validators = Validators::new(Some("\"é\""), None);
            let answer = SiteAnswer::new(access, 404, freshness);
            let answered = Entry::answered(SiteAnswer { is_foreign, validators, ..answer });
            entries.extend([failed(&answered), answered]);
        }
        entries
    }

    /// The packed entry, followed by its file.
    fn packed(entry: &Entry) -> Vec<u8> {
        let (mut packed, file) = pack(entry, at(1200)).unwrap();
        assert_eq!(lacks_file(&packed), entry.source().map(digest));
        packed.extend(file.unwrap_or_default());
        assert_eq!(lacks_file(&packed), None);
        packed
    }

    fn read(_: FileDigest, file: &ReadFile<'_>) -> Option<Access> {
        Some(Access::Rules(RobotsTxt::parse(&file(&|_| true)?)))
    }

    #[test]
    fn encoded_entry_decodes_to_the_same_entry() {
        for entry in entries() {
            let bytes = encode(&entry);
            let again = decode(&bytes, entry.robots_txt().cloned().map(Access::Rules), at(1200)).unwrap();
            assert_eq!(encode(&again), bytes);
            assert_eq!(decode(&bytes, None, at(1200)).is_some(), entry.robots_txt().is_none());
        }
    }

    #[test]
    fn packed_entry_is_unpacked_by_the_receivers_clock() {
        for entry in entries() {
            let packed = packed(&entry);
            for ahead in [0, 4000] {
                let now = at(1200 + ahead);
                let got = unpack(&packed, now, now, read).unwrap();
                assert_eq!(got.source(), entry.source());
                if let Some(answer) = got.answer {
                    assert_eq!(answer.freshness.validated_at(), at(1000 + ahead));
                    assert_eq!(answer.freshness.expires_at(), at(1100 + ahead));
                    assert_eq!((answer.status, answer.validators.etag()), (404, Some("\"é\"")));
                    assert_eq!(Some(answer.is_foreign), entry.answer.as_ref().map(|answer| answer.is_foreign));
                }
                if let Some(trouble) = got.trouble {
                    assert_eq!((trouble.since, trouble.retry_at), (now, at(1250 + ahead)));
                }
            }
        }
    }

    #[test]
    fn compressed_file_decompresses_to_the_same_bytes() {
        let noise: Vec<u8> = (0..4000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let files = [&b""[..], b"x", b"User-agent: *\nDisallow: /\n", &FILE.repeat(100), &noise];
        for file in files {
            let packed = compress(file).unwrap();
            assert!(packed.len() <= file.len() + 4);
            assert_eq!(decompress(&packed, digest(file), &|_| true).as_deref(), Some(file));
            assert_eq!(decompress(&packed, digest(b"another"), &|_| true), None);
        }
        assert!(compress(files[3]).unwrap().len() < 100);
        // Earlier versions kept a frame even if it was longer than the file.
        let frame = zstd::bulk::compress(b"x", LEVEL).unwrap();
        let packed = [&1_u32.to_le_bytes()[..], &frame].concat();
        assert_eq!(decompress(&packed, digest(b"x"), &|_| true).unwrap(), b"x");
    }

    #[test]
    fn file_is_decompressed_only_if_its_claimed_length_is_accepted_and_correct() {
        let file = FILE.repeat(1_000);
        let plain = |file: &[u8]| Ok([&length_of(file)[..], file].concat());
        for packer in [plain, compress] {
            let mut packed = packer(&file).unwrap();
            for (most, is_read) in [(file.len(), true), (file.len() - 1, false)] {
                let read = decompress(&packed, digest(&file), &|length| length <= most);
                assert_eq!(read.is_some(), is_read, "{most}");
            }
            packed[..4].copy_from_slice(&100_u32.to_le_bytes());
            assert_eq!(decompress(&packed, digest(&file), &|length| length <= 100), None);
        }
    }

    #[test]
    fn entries_of_other_versions_are_ignored() {
        for version in [0, 1, VERSION + 1, 255] {
            let mut bytes = encode(&Entry::default());
            bytes[0] = version;
            assert!(decode(&bytes, None, at(0)).is_none());
            let mut bytes = packed(&Entry::default());
            bytes[0] = version;
            assert!(unpack(&bytes, at(0), at(0), read).is_none());
        }
    }

    /// Before 1.0, entries did not say whether a file came from another host.
    #[derive(Serialize, Deserialize)]
    struct EarlierEntry<'a> {
        #[serde(borrow)]
        answer: Option<EarlierAnswer<'a>>,
        #[serde(borrow)]
        trouble: Option<TroubleRecord<'a>>,
    }

    #[derive(Serialize, Deserialize)]
    struct EarlierAnswer<'a> {
        is_missing: bool,
        status: u16,
        freshness: [u64; 3],
        etag: Option<&'a str>,
        last_modified: Option<&'a str>,
    }

    #[test]
    fn format_is_compatible_with_versions_without_foreign_files() {
        for entry in entries() {
            let bytes = encode(&entry);
            let earlier = of_this_version::<EarlierEntry<'_>>(&bytes);
            assert_eq!(earlier.is_none(), entry.answer.as_ref().is_some_and(|answer| answer.is_foreign));
            let Some(earlier) = earlier else { continue };
            let is_missing = entry.answer.as_ref().map(|answer| matches!(answer.access, Access::Missing));
            assert_eq!(earlier.answer.as_ref().map(|answer| answer.is_missing), is_missing);
            assert_eq!(with_version(&earlier), bytes, "an earlier version writes the same bytes");
        }
    }

    #[test]
    fn truncated_bytes_are_rejected_and_altered_bytes_cause_no_panic() {
        for entry in entries() {
            for whole in [encode(&entry), packed(&entry)] {
                let read_all = |bytes: &[u8]| {
                    let decoded = decode(bytes, entry.robots_txt().cloned().map(Access::Rules), at(1200));
                    decoded.or_else(|| unpack(bytes, at(1200), at(1200), read))
                };
                assert!((0..whole.len()).all(|length| unpack(&whole[..length], at(0), at(0), read).is_none()));
                assert!(read_all(&[&whole[..], b"x"].concat()).is_none());
                for place in 0..whole.len() {
                    for byte in [0, 1, 0x7f, 0x80, 0xff] {
                        let mut changed = whole.clone();
                        changed[place] = byte;
                        let _ = read_all(&changed);
                    }
                }
            }
        }
    }
}
