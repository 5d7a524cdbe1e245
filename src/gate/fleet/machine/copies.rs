//! Copies of robots.txt that the processes of a machine share in one file. The file has a fixed number of places; a later copy overwrites
//! an earlier one in its place.

use super::Machine;
use super::machine_file::MachineFile;
use crate::gate::fleet::parcel::{FoundCopy, Parcel};
use crate::gate::fleet::reach::ServerLost;
use crate::gate::store::snapshot::{self, FileDigest, digest, millis, time};
use crate::policy::Entry;
#[cfg(target_os = "linux")]
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;

/// The open file of the copies, even if its name now belongs to another file. Unused places take no disk space.
#[derive(Debug)]
pub(super) struct Copies(MachineFile);

/// The hash of an authority in every file, and the place of its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopyId {
    tag: u64,
    place: u64,
}

impl Machine {
    /// Returns a copy that is fresh or no older than `age`, or the right to fetch one if no other process has it or its holder may be
    /// stopped. `anew`: freshness does not count.
    pub(in crate::gate::fleet) async fn look(
        &self,
        authority: &str,
        anew: bool,
        age: Duration,
    ) -> Result<FoundCopy, ServerLost> {
        let id = CopyId::of(authority);
        // Before the copy is read, so that no process writes one in between.
        let has_right = self.slots.take_right(self.slots.id(authority));
        // Usually the page is cached, or was never written.
        let kept = match self.copies.read(id, read_at_once) {
            Ok(kept) => kept,
            Err(_) => {
                let copies = self.copies.clone();
                let read = spawn_blocking(move || copies.read(id, File::read_at)).await;
                read.ok().and_then(Result::ok).flatten()
            }
        };
        let now = SystemTime::now();
        Ok(match kept {
            // A copy from the future was written before the clock was set back.
            Some((copy, until)) if copy.sent <= now && (copy.sent + age >= now || !anew && now < until) => {
                FoundCopy::Copy(copy)
            }
            // Fetching twice is better than never.
            kept if has_right || age >= FETCH_LASTS => FoundCopy::Right(kept.map(|(copy, _)| copy), 0),
            _ => FoundCopy::Busy(LOOK_EVERY),
        })
    }

    /// Gives the right back, if this process has it.
    pub fn give_right(&self, authority: &str) {
        self.slots.give_right(self.slots.id(authority));
    }

    /// Shares an origin's answer. A copy that cannot be shared is fetched by each process.
    pub fn leave(&self, authority: &str, entry: &Entry, until: SystemTime) {
        let Some(answer) = entry.answer.as_ref().filter(|_| Self::may_leave(entry)) else { return };
        let sent = answer.freshness.validated_at();
        // Most files fit uncompressed.
        let packed = [snapshot::store_plain, snapshot::compress].into_iter();
        let mut packed = packed.filter_map(|packer| snapshot::pack(entry, sent, packer));
        if let Some(copy) = packed.find(|copy| copy.len() <= LONGEST) {
            let _ = self.copies.write(CopyId::of(authority), &copy, sent, until);
        }
    }

    /// Whether the file may fit.
    pub fn may_leave(entry: &Entry) -> bool {
        entry.source().is_none_or(|file| file.len() <= LONGEST_FILE)
    }
}

type ReadAt = fn(&File, &mut [u8], u64) -> io::Result<usize>;

/// Reads only from the page cache.
#[cfg(target_os = "linux")]
fn read_at_once(file: &File, bytes: &mut [u8], from: u64) -> io::Result<usize> {
    Ok(preadv2(file, &mut [IoSliceMut::new(bytes)], from, ReadWriteFlags::NOWAIT)?)
}

#[cfg(not(target_os = "linux"))]
fn read_at_once(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Copies {
    pub fn open(directory: &Path) -> io::Result<Self> {
        MachineFile::open(directory, FILE).map(Self)
    }

    /// The copy as its origin sent it, and the end of its freshness. `None`: no copy, or one just being overwritten.
    fn read(&self, id: CopyId, how: ReadAt) -> io::Result<Option<(Parcel, SystemTime)>> {
        let mut head = [0; HEAD];
        if !self.fill(&mut head, at(id), how)? {
            return Ok(None);
        }
        let (head_words, check) = head.split_at(WORDS * 8);
        let (words, _) = head_words.as_chunks();
        let [tag, place, sent, until, length]: [_; WORDS] = std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if id != (CopyId { tag, place }) || length > LONGEST {
            return Ok(None);
        }
        let mut checked = head_words.to_vec();
        checked.resize(head_words.len() + length, 0);
        if !self.fill(&mut checked[head_words.len()..], at(id) + HEAD as u64, how)? || digest(&checked) != check {
            return Ok(None);
        }
        Ok(Some((Parcel { bytes: checked.split_off(head_words.len()), sent: time(sent) }, time(until))))
    }

    /// False: the file ends earlier.
    fn fill(&self, mut bytes: &mut [u8], mut from: u64, how: ReadAt) -> io::Result<bool> {
        while !bytes.is_empty() {
            let read = how(&self.0.file, bytes, from)?;
            if read == 0 {
                return Ok(false);
            }
            bytes = &mut bytes[read..];
            from += read as u64;
        }
        Ok(true)
    }

    fn write(&self, id: CopyId, copy: &[u8], sent: SystemTime, until: SystemTime) -> io::Result<()> {
        let words = [id.tag, id.place, millis(sent), millis(until), copy.len() as u64].map(u64::to_le_bytes);
        let check = digest(&[words.as_flattened(), copy].concat());
        self.0.file.write_all_at(&[words.as_flattened(), &check, copy].concat(), at(id))
    }
}

impl CopyId {
    fn of(name: &str) -> Self {
        let hash = u128::from_le_bytes(digest(name.as_bytes()));
        Self { tag: (hash >> 64) as u64 | 1, place: hash as u64 >> 8 }
    }
}

/// Offset of an authority's place.
fn at(id: CopyId) -> u64 {
    id.place % PLACES * (HEAD + LONGEST) as u64
}

/// The name contains the format version.
const FILE: &str = "politely.copies2";
const PLACES: u64 = 2048;
/// Precedes a copy: some numbers, and a digest of these and the copy, as a copy may be read while another is written.
const HEAD: usize = WORDS * 8 + size_of::<FileDigest>();
const WORDS: usize = 5;
/// One robots.txt in four hundred is longer.
const LONGEST: usize = (16 << 10) - HEAD;
/// Longer files rarely compress to [`LONGEST`].
const LONGEST_FILE: usize = 8 * LONGEST;
/// Fetches rarely take longer, with all redirects.
const FETCH_LASTS: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes may write the place at once.
    #[test]
    fn a_copy_behind_the_head_of_another_is_none() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let copies = Copies::open(directory.path()).expect("it is writable");
        let of = CopyId::of("a");
        let other = CopyId { tag: of.tag ^ 1, place: of.place };
        let (sent, until) = (time(1_000), time(2_000));
        let read = |id| copies.read(id, File::read_at).expect("it is readable");
        let leave = || copies.write(of, b"copy", sent, until).expect("there is room");
        leave();
        let (copy, fresh) = read(of).expect("it has been left");
        assert_eq!((&copy.bytes[..], copy.sent, fresh), (&b"copy"[..], sent, until));
        let put = |word: u64, number: u64| {
            copies.0.file.write_all_at(&number.to_le_bytes(), at(of) + word * 8).expect("there is room");
        };
        put(0, other.tag);
        assert!(read(other).is_none(), "it is of another authority");
        leave();
        put(3, 3_000);
        assert!(read(of).is_none(), "it is fresh for less long");
    }
}
