//! The records of the store, in files that are only appended to, the segments. All processes of the store append to the newest one; if the
//! store gets too large, the oldest is removed. Each record has its name and a checksum, so a truncated record, or another record in its
//! place, is recognised and ignored.

use super::index::RecordPlace;
use super::read_from::ReadFrom;
use super::record_name::RecordName;
use super::snapshot::{FileDigest, digest};
use crate::config::open_own;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The segments of a store.
pub(super) struct Segments {
    directory: PathBuf,
    /// Number of the newest segment, as far as this process knows.
    newest: AtomicU32,
    oldest: AtomicU32,
    /// The segment to which this process appended last, and its number.
    appended: Mutex<Option<(u32, File)>>,
    /// Segments open for reading.
    open: RwLock<BTreeMap<u32, Arc<File>>>,
}

impl Segments {
    pub fn open(directory: &Path) -> io::Result<Self> {
        let all = numbers(directory)?;
        let [oldest, newest] = [all.first(), all.last()].map(|number| number.copied().unwrap_or(0));
        Ok(Self {
            directory: directory.to_owned(),
            newest: newest.into(),
            oldest: oldest.into(),
            appended: Mutex::default(),
            open: RwLock::default(),
        })
    }

    /// Bytes of all segments.
    pub fn bytes(directory: &Path) -> u64 {
        numbers(directory).map_or(0, |all| all.iter().map(|number| length(directory, *number)).sum())
    }

    /// Whether there are segments, which may have records.
    pub fn are_there(directory: &Path) -> io::Result<bool> {
        Ok(!numbers(directory)?.is_empty())
    }

    /// Number of the oldest segment. Records in earlier segments are lost.
    pub fn oldest(&self) -> u32 {
        self.oldest.load(Ordering::Relaxed)
    }

    /// Whether a record is in the older half of the store, which is removed first.
    pub fn is_old(&self, place: RecordPlace) -> bool {
        place.segment() + SEGMENTS / 2 <= self.newest.load(Ordering::Relaxed)
    }

    /// The content of the record at this place, if it has this key and its first bytes are accepted.
    pub fn read(
        &self,
        key: RecordName,
        place: RecordPlace,
        read: ReadFrom,
        accepts: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.segment(place.segment(), read)? else { return Ok(None) };
        let mut first = [0; FIRST];
        let count = read.read_at(&file, &mut first, place.offset())?;
        if count < HEAD + ACCEPTED && read == ReadFrom::Memory {
            // The rest may be in a page that is not in memory.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some((head, rest)) = first[..count].split_first_chunk() else { return Ok(None) };
        let Some((length, check)) = length_and_check(head, key) else { return Ok(None) };
        let mut content = rest[..rest.len().min(length)].to_vec();
        if !accepts(&content) {
            return Ok(None);
        }
        let (at, from) = (content.len(), place.offset() + (HEAD + content.len()) as u64);
        content.resize(length, 0);
        Ok((read.fill(&file, &mut content[at..], from)? && digest(&content) == check).then_some(content))
    }

    /// Appends records made by [`record`]. Returns the segment and the offset of the first one. `size`: the maximum size of all segments
    /// together, in bytes.
    pub fn append(&self, records: &[u8], size: u64) -> io::Result<(u32, u64)> {
        let mut appended = self.appended.lock();
        let (number, mut file) = match appended.take() {
            Some((number, file)) if self.is_newest(number, &file)? && file.metadata()?.len() < segment_size(size) => {
                (number, file)
            }
            Some(_) | None => self.next(size)?,
        };
        let written = file.write(records)?;
        let end = file.stream_position()?;
        *appended = Some((number, file));
        if written < records.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok((number, end - records.len() as u64))
    }

    /// Opens the newest segment, or begins another if it is full. Removes the oldest ones beyond the size.
    fn next(&self, size: u64) -> io::Result<(u32, File)> {
        let mut all = numbers(&self.directory)?;
        let last = all.last().copied();
        let with_room = last.filter(|last| length(&self.directory, *last) < segment_size(size));
        // Numbers are not used again, as other processes may still have a removed segment open.
        let newest = with_room.unwrap_or_else(|| last.unwrap_or(0).max(self.newest.load(Ordering::Relaxed)) + 1);
        let mut options = OpenOptions::new();
        options.append(true).create(with_room.is_none()).mode(0o600);
        let file = open_own(&mut options, &path(&self.directory, newest))?;
        self.newest.fetch_max(newest, Ordering::Relaxed);
        all.retain(|number| *number != newest);
        let mut bytes: u64 = all.iter().map(|number| length(&self.directory, *number)).sum();
        let mut oldest = newest;
        for number in all {
            if bytes + segment_size(size) <= size {
                oldest = number;
                break;
            }
            bytes -= length(&self.directory, number);
            // Another process may have removed it already.
            let _ = fs::remove_file(path(&self.directory, number));
        }
        self.oldest.store(oldest, Ordering::Relaxed);
        self.close_removed();
        Ok((newest, file))
    }

    /// Whether the segment still exists and no newer one has been begun.
    fn is_newest(&self, number: u32, file: &File) -> io::Result<bool> {
        let is_known = number == self.newest.load(Ordering::Relaxed);
        Ok(is_known && file.metadata()?.nlink() > 0 && !path(&self.directory, number + 1).exists())
    }

    /// Closes removed segments, which take room on the disk as long as they are open.
    pub fn close_removed(&self) {
        let is_removed = |file: &File| file.metadata().is_ok_and(|it| it.nlink() == 0);
        let removed: Vec<_> = self.open.write().extract_if(.., |_, file| is_removed(file)).collect();
        // Closed after the lock is released, so that nobody waits for it.
        drop(removed);
        // If another thread has this lock, it is appending, and replaces a removed segment itself.
        if let Some(mut appended) = self.appended.try_lock() {
            drop(appended.take_if(|(_, file)| is_removed(file)));
        }
    }

    fn segment(&self, number: u32, read: ReadFrom) -> io::Result<Option<Arc<File>>> {
        if let Some(file) = self.open.read().get(&number) {
            return Ok(Some(file.clone()));
        }
        if read == ReadFrom::Memory {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = match open_own(OpenOptions::new().read(true), &path(&self.directory, number)) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        self.close_removed();
        self.newest.fetch_max(number, Ordering::Relaxed);
        self.open.write().insert(number, file.clone());
        Ok(Some(file))
    }
}

/// Encodes a record for [`append`](Segments::append).
pub(super) fn record(key: RecordName, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&MARK[..], &length, &key.0, &digest(content), content].concat()
}

/// The length and the digest of a record's content. `None`: `head` is not the head of a record with this key.
fn length_and_check(head: &[u8; HEAD], key: RecordName) -> Option<(usize, FileDigest)> {
    let (length, digests) = head.strip_prefix(MARK)?.split_first_chunk()?;
    let (named, check) = digests.split_first_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    (*named == key.0 && length <= LONGEST).then_some((length, check.try_into().ok()?))
}

/// The numbers of the segments in this directory, in ascending order.
fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let number = |file: fs::DirEntry| {
        let number: NonZeroU32 = file.file_name().to_str()?.strip_prefix(NAME)?.parse().ok()?;
        RecordPlace::new(number.get(), 0)?;
        // Ignores files whose number is written differently, such as `+1` or `01`: they are not ours.
        (file.path() == path(directory, number.get())).then_some(number.get())
    };
    let mut numbers: Vec<_> = fs::read_dir(directory)?.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{NAME}{number}"))
}

fn length(directory: &Path, number: u32) -> u64 {
    path(directory, number).symlink_metadata().map_or(0, |it| it.len())
}

fn segment_size(size: u64) -> u64 {
    (size / u64::from(SEGMENTS)).clamp(LEAST_SEGMENT, MOST_SEGMENT)
}

const NAME: &str = "robots.copies.";
/// Number of segments of a full store.
const SEGMENTS: u32 = 16;
const LEAST_SEGMENT: u64 = 4 << 10;
const MOST_SEGMENT: u64 = 32 << 30;
const MARK: &[u8; 4] = b"plr1";
const HEAD: usize = MARK.len() + 4 + 2 * size_of::<FileDigest>();
/// Bytes of a record's content that suffice for `accepts`.
const ACCEPTED: usize = 4;
/// Bytes of the first read; most records are shorter.
const FIRST: usize = 2048;
/// Maximum size of a record's content in bytes, more than any record has.
const LONGEST: usize = 64 << 20;
