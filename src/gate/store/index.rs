//! The index of the store: a hash table in a file, from the name of a record to its place. All processes of the store read and write it. If
//! two write at the same time, a place may be lost. A place that was read is verified against the record. When a bucket is full, a larger
//! index replaces this one.

use super::limit;
use super::read_from::ReadFrom;
use super::record_name::RecordName;
use crate::config::{is_at, open_own, unnamed};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::NamedTempFile;

/// The open index.
#[derive(Debug)]
pub(super) struct RecordIndex {
    file: File,
    path: PathBuf,
    /// Number of buckets, a power of two.
    buckets: u64,
}

/// The place where a record begins. Places of later records are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPlace(u64);

/// A slot of a bucket: the tag of a name, and the place of its record. Both are zero if the slot is free.
#[derive(Debug, Clone, Copy, Default)]
struct IndexSlot {
    tag: u64,
    place: u64,
}

impl RecordPlace {
    /// The place at this offset of a segment. `None`: the numbers are too large for a place.
    pub fn new(segment: u32, offset: u64) -> Option<Self> {
        let fits = segment < 1 << (u64::BITS - OFFSET_BITS) && offset < 1 << OFFSET_BITS;
        fits.then_some(Self(u64::from(segment) << OFFSET_BITS | offset))
    }

    pub fn segment(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    pub fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

impl RecordIndex {
    /// Opens the index of the store in this directory. Begins a new index if the file is missing or damaged, or if the index has places
    /// although there are no records. Renames a file that is not an index.
    pub fn open(directory: &Path, are_records: impl Fn() -> io::Result<bool>) -> io::Result<Self> {
        let path = directory.join(FILE);
        let mut is_new = false;
        loop {
            match open_own(OpenOptions::new().read(true).write(true), &path) {
                Ok(file) => match content(&file)? {
                    // The index is read before the records are looked for: a record is written before its place, so another process's
                    // first write in between does not look like an index without records.
                    Content::Buckets(buckets) if is_new || is_blank(&file, buckets)? || are_records()? => {
                        return Ok(Self { file, path, buckets });
                    }
                    Content::Buckets(_) => drop(begin(&path, FIRST_BUCKETS)?.persist(&path)?),
                    Content::Damaged => {
                        tracing::warn!("the store's index {} is damaged: it starts again, empty", path.display());
                        begin(&path, FIRST_BUCKETS)?.persist(&path)?;
                    }
                    Content::NoIndex => set_aside(&path, begin(&path, FIRST_BUCKETS)?)?,
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match begin(&path, FIRST_BUCKETS)?.persist_noclobber(&path) {
                        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(error.error),
                        // Another process may have begun an index at the same time.
                        Ok(_) | Err(_) => {}
                    }
                }
                Err(error) => return Err(error),
            }
            is_new = true;
        }
    }

    /// Replaces this index with an empty index, and returns that.
    pub fn begun_anew(&self) -> io::Result<Self> {
        let new = begin(&self.path, FIRST_BUCKETS)?;
        limit::pass_on(&self.file, new.as_file())?;
        Ok(Self { file: new.persist(&self.path)?, path: self.path.clone(), buckets: FIRST_BUCKETS })
    }

    /// Opens the index that has replaced this index.
    fn again(&self) -> io::Result<Self> {
        Self::open(self.path.parent().expect("a path in a directory"), || Ok(true))
    }

    /// Whether the open file still has its name, so that other processes and the next start find what is written.
    pub fn is_named(&self) -> bool {
        is_at(&self.file, &self.path).unwrap_or(false)
    }

    /// Whether another process has replaced or removed the open file, so that records written since are not found here.
    pub fn is_replaced(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Whether there is a file with the index's name: after the open one was replaced or removed, tells which of the two.
    pub fn has_successor(&self) -> bool {
        self.path.exists()
    }

    /// Does the work while no other process writes, as far as the file system has locks. Returns another index if the caller must do the
    /// work there: the index that `work` has returned or, without doing the work here, the one that has replaced this index.
    #[expect(clippy::disallowed_methods, reason = "the store's own thread writes")]
    pub fn locked(&self, work: impl FnOnce() -> io::Result<Option<Self>>) -> io::Result<Option<Self>> {
        let mut tries = (0..LOCK_TRIES).map(|_| self.file.try_lock().inspect_err(|_| sleep(LOCK_AGAIN)));
        let is_locked = match tries.find(|tried| !matches!(tried, Err(TryLockError::WouldBlock))) {
            Some(tried) => tried.is_ok(), // Not all file systems have locks.
            None => return Err(io::Error::new(io::ErrorKind::TimedOut, "another process has not finished writing")),
        };
        let done = if self.is_replaced() { self.again().map(Some) } else { work() };
        if is_locked {
            self.file.unlock()?;
        }
        done
    }

    pub fn find(&self, name: RecordName, read: ReadFrom) -> io::Result<Option<RecordPlace>> {
        let bucket = self.bucket(self.at(name), read)?;
        let found = bucket.into_iter().find(|slot| slot.tag == name.tag() && slot.place > 0);
        Ok(found.map(|slot| RecordPlace(slot.place)))
    }

    /// Sets the place of a record. In a full bucket, overwrites a place in a segment before `oldest`. False: all its places are in use.
    pub fn put(&self, name: RecordName, place: RecordPlace, oldest: u32) -> io::Result<bool> {
        self.put_over(name, place, |slot| (RecordPlace(slot.place).segment() < oldest).then_some(slot.place))
    }

    /// Like [`put`](Self::put), but if all places are in use, overwrites the place of the oldest entry. The place of a file is overwritten
    /// only if the bucket has no entries, as many entries may need an old file.
    pub fn put_over_oldest(&self, name: RecordName, place: RecordPlace) -> io::Result<()> {
        self.put_over(name, place, |slot| Some((RecordName::is_file(slot.tag), slot.place))).map(drop)
    }

    /// Sets the place of a record. In a full bucket, overwrites the slot with the lowest `rank`; `None`: a slot that must stay.
    fn put_over<R: Ord>(
        &self,
        name: RecordName,
        place: RecordPlace,
        rank: impl Fn(&IndexSlot) -> Option<R>,
    ) -> io::Result<bool> {
        let bucket = self.bucket(self.at(name), ReadFrom::Disk)?;
        let numbered = || bucket.iter().enumerate();
        let own = numbered().find(|(_, slot)| slot.tag == name.tag());
        let free = || numbered().filter_map(|(at, slot)| Some((rank(slot)?, at))).min();
        let Some(at) = own.map(|(at, _)| at).or_else(|| Some(free()?.1)) else { return Ok(false) };
        self.write(name, at, IndexSlot { tag: name.tag(), place: place.0 }).map(|()| true)
    }

    /// Frees the slot of a record.
    pub fn remove(&self, name: RecordName) -> io::Result<()> {
        let bucket = self.bucket(self.at(name), ReadFrom::Disk)?;
        let own = bucket.iter().position(|slot| slot.tag == name.tag());
        own.map_or(Ok(()), |at| self.write(name, at, IndexSlot::default()))
    }

    /// Replaces the index with an index of twice the size, with all places in segments from `oldest` on. `None`: that index would be too
    /// large for a store of this size.
    pub fn grown(&self, size: u64, oldest: u32) -> io::Result<Option<Self>> {
        let buckets = self.buckets * 2;
        if buckets * BYTES_PER_BUCKET > size {
            return Ok(None);
        }
        let new = begin(&self.path, buckets)?;
        limit::pass_on(&self.file, new.as_file())?;
        for number in 0..self.buckets {
            let slots = self.bucket(HEAD + number * BUCKET as u64, ReadFrom::Disk)?;
            // The places of a bucket go to the bucket with the same number, or with that number plus the old number of buckets.
            for target in [number, number + self.buckets] {
                let kept = slots.iter().filter(|slot| slot.place > 0 && RecordPlace(slot.place).segment() >= oldest);
                let kept = kept.filter(|slot| bucket_of(slot.tag, buckets) == target);
                let words: Vec<_> = kept.flat_map(|slot| [slot.tag, slot.place]).map(u64::to_le_bytes).collect();
                new.as_file().write_all_at(words.as_flattened(), HEAD + target * BUCKET as u64)?;
            }
        }
        Ok(Some(Self { file: new.persist(&self.path)?, path: self.path.clone(), buckets }))
    }

    /// Whether the index is larger than a store of this size allows.
    pub fn is_over(&self, size: u64) -> bool {
        self.buckets > FIRST_BUCKETS && self.buckets * BYTES_PER_BUCKET > size
    }

    /// The size limit in force for all processes of the store: see [`limit::in_force`].
    pub fn limit(&self, own: u64, noted: &AtomicU64) -> io::Result<u64> {
        limit::in_force(&self.file, own, noted)
    }

    /// Bytes that the index in this directory takes.
    pub fn bytes(directory: &Path) -> u64 {
        fs::symlink_metadata(directory.join(FILE)).map_or(0, |it| it.len())
    }

    fn bucket(&self, at: u64, read: ReadFrom) -> io::Result<[IndexSlot; SLOTS]> {
        let mut bytes = [0; BUCKET];
        // If the file was cut, slots beyond its end stay zero, which means free.
        read.read_at(&self.file, &mut bytes, at)?;
        let (words, _) = bytes.as_chunks();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        Ok(std::array::from_fn(|slot| IndexSlot { tag: word(2 * slot), place: word(2 * slot + 1) }))
    }

    fn write(&self, name: RecordName, slot: usize, IndexSlot { tag, place }: IndexSlot) -> io::Result<()> {
        let words = [tag, place].map(u64::to_le_bytes);
        self.file.write_all_at(words.as_flattened(), self.at(name) + (slot * SLOT) as u64)
    }

    fn at(&self, name: RecordName) -> u64 {
        HEAD + bucket_of(name.tag(), self.buckets) * BUCKET as u64
    }
}

/// The state of a file with the index's name.
enum Content {
    Buckets(u64),
    Damaged,
    NoIndex,
}

fn content(file: &File) -> io::Result<Content> {
    let mut head = [0; FORMAT.len() + 8];
    let read = file.read_at(&mut head, 0)?;
    let (format, buckets) = head.split_at(FORMAT.len());
    let buckets = u64::from_le_bytes(buckets.try_into().expect("8 bytes"));
    if format != FORMAT {
        return Ok(Content::NoIndex);
    }
    let is_possible = read == head.len() && buckets.is_power_of_two() && buckets < MOST_BUCKETS;
    let is_whole = is_possible && file.metadata()?.len() == length(buckets);
    Ok(if is_whole { Content::Buckets(buckets) } else { Content::Damaged })
}

/// Whether the index has no places and is as small as a new one.
fn is_blank(file: &File, buckets: u64) -> io::Result<bool> {
    let mut all = [0; FIRST_BUCKETS as usize * BUCKET];
    Ok(buckets == FIRST_BUCKETS && ReadFrom::Disk.fill(file, &mut all, HEAD)? && all.iter().all(|byte| *byte == 0))
}

/// Creates an empty index, in a file with a temporary name.
fn begin(path: &Path, buckets: u64) -> io::Result<NamedTempFile> {
    let directory = path.parent().expect("a path in a directory");
    let mut file = unnamed(directory)?;
    file.write_all(&[&FORMAT[..], &buckets.to_le_bytes()].concat())?;
    file.as_file().set_len(length(buckets))?;
    Ok(file)
}

/// Renames a file that is not an index, and puts `new` in its place. `new` is already written, so that a full disk loses nothing.
fn set_aside(path: &Path, new: NamedTempFile) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let aside = path.with_added_extension(format!("broken-{now}-{}", std::process::id()));
    fs::rename(path, &aside)?;
    tracing::warn!("{} is not the index of a store, and was renamed to {}", path.display(), aside.display());
    new.persist_noclobber(path)?;
    Ok(())
}

/// The bucket of a tag: its low bits, more of them in a larger index, without the lowest one, which is the kind of record.
fn bucket_of(tag: u64, buckets: u64) -> u64 {
    tag >> 1 & (buckets - 1)
}

fn length(buckets: u64) -> u64 {
    HEAD + buckets * BUCKET as u64
}

pub(super) const FILE: &str = "robots.index";
/// If the layout of the index or of the records changes, change the file names, too: an older release may use the store beside a newer one.
const FORMAT: &[u8; 24] = b"politely robots store 1\n";
const HEAD: u64 = 4096;
const SLOT: usize = size_of::<IndexSlot>();
/// Slots of a bucket: enough that most slots of the index are in use before a bucket is full.
const SLOTS: usize = 16;
const BUCKET: usize = SLOT * SLOTS;
/// Minimum size of the store in bytes for each bucket of the index, so that the index takes at most a sixteenth of the store.
const BYTES_PER_BUCKET: u64 = BUCKET as u64 * 16;
/// Maximum number of attempts to lock, one each ms: a write takes some ms, and growing the index takes 1 s for each 2 GiB of the store.
const LOCK_TRIES: u32 = 5000;
const LOCK_AGAIN: Duration = Duration::from_millis(1);
const FIRST_BUCKETS: u64 = 16;
const MOST_BUCKETS: u64 = 1 << 36;
/// Bits of a place for the offset in a segment, which has less than 64 GiB. The other bits can number 268 million segments.
const OFFSET_BITS: u32 = 36;
