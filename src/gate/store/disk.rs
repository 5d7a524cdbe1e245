//! The store on disk: the index and the segments with the records. Nothing in it is trusted before it is compared, so that neither a kill
//! nor a loss of power needs a repair: what was not written whole is not there.

use super::batch::WriteBatch;
use super::index::{RecordIndex, RecordPlace};
use super::read_from::ReadFrom;
use super::record_name::RecordName;
use super::segments::{Segments, record};
use super::snapshot::{CopyTimes, FileDigest, ReadFile, compress, decode, decompress, digest_of, encode, length_in};
use crate::config::private_directory;
use crate::policy::{Access, Entry};
use parking_lot::RwLock;
use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

/// The place and size of a store.
#[derive(Debug)]
pub(super) struct Location {
    pub directory: PathBuf,
    /// Maximum size in bytes; may change while the store is open.
    pub size: AtomicU64,
}

/// An open store. Other processes may have it open, too.
pub(super) struct Disk {
    /// Another one once it has grown.
    index: RwLock<Arc<RecordIndex>>,
    segments: Segments,
}

/// What is stored of an authority.
pub(super) struct StoredEntry {
    pub entry: Entry,
    /// It is among the oldest, which are removed first.
    pub is_old: bool,
}

impl Location {
    /// Opens the store or creates it.
    pub fn open(&self) -> io::Result<Disk> {
        private_directory(&self.directory)?;
        let segments = Segments::open(&self.directory)?;
        // Places in segments that are gone would be taken for the newest.
        let (index, is_new) = RecordIndex::open(&self.directory, segments.is_empty())?;
        if is_new {
            // No index names what is in them.
            segments.clear()?;
        }
        Ok(Disk { index: RwLock::new(index.into()), segments })
    }
}

impl Disk {
    /// What is stored under this key. `parse` is called for a file whose digest is not known yet.
    pub fn read(
        &self,
        key: RecordName,
        now: SystemTime,
        read: ReadFrom,
        parse: impl FnOnce(FileDigest, &ReadFile<'_>) -> Option<Access>,
    ) -> io::Result<Option<StoredEntry>> {
        let Some((place, content)) = self.record(key, read, |_| true)? else { return Ok(None) };
        let Some((&name, encoded)) = content.split_first_chunk() else { return Ok(None) };
        let (is_old, failed) = (Cell::new(self.segments.is_old(place)), Cell::new(None));
        let packed = |accepts: &dyn Fn(usize) -> bool| {
            let may = |first: &[u8]| length_in(first).is_some_and(accepts);
            let file = self.record(RecordName::of_file(name), read, may);
            let (place, packed) = file.map_err(|error| failed.set(Some(error))).ok()??;
            is_old.set(is_old.get() || self.segments.is_old(place));
            decompress(&packed, name, accepts)
        };
        let file = (name != NO_FILE).then(|| parse(name, &packed)).flatten();
        match failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(decode(encoded, file, now).map(|entry| StoredEntry { entry, is_old: is_old.get() })),
        }
    }

    /// When what is stored under this key was validated.
    pub fn times(&self, key: RecordName, read: ReadFrom) -> io::Result<Option<CopyTimes>> {
        let record = self.record(key, read, |_| true)?;
        Ok(record.and_then(|(_, content)| times_in(&content)))
    }

    /// Writes the batch. `size`: of the whole store.
    pub fn write(&self, batch: &WriteBatch, size: u64) -> io::Result<()> {
        if batch.is_void {
            self.segments.clear()?;
        }
        let mut records = NewRecords::new(self, size);
        for key in &batch.used {
            self.renew(*key, &mut records)?;
        }
        for (key, queued) in &batch.entries {
            if queued.forgets {
                records.all.push((NewRecord { name: *key, times: None }, None));
            }
            if let Some(entry) = &queued.entry {
                self.save(*key, entry, &mut records)?;
            }
        }
        records.finish()
    }

    fn save(&self, key: RecordName, entry: &Entry, records: &mut NewRecords<'_>) -> io::Result<()> {
        let name = entry.answer.as_ref().and_then(|answer| digest_of(&answer.access));
        // Many hosts have the same file.
        if let (Some(file), Some(source)) = (name.map(RecordName::of_file), entry.source())
            && !records.names.contains(&file)
            && !self.has(file)
        {
            records.add(file, None, &compress(source)?)?;
        }
        // Behind its file, so that no other process finds it without.
        records.add(key, Some(CopyTimes::of(entry)), &[&name.unwrap_or(NO_FILE)[..], &encode(entry)].concat())
    }

    /// Appends an old entry again, with its file.
    fn renew(&self, key: RecordName, records: &mut NewRecords<'_>) -> io::Result<()> {
        let is_old = |(place, _): &(RecordPlace, Vec<u8>)| self.segments.is_old(*place);
        // What cannot be read is not there.
        let Ok(Some((_, content))) = self.record(key, ReadFrom::Disk, |_| true) else { return Ok(()) };
        if let Some(name) = content.first_chunk().map(|name| RecordName::of_file(*name))
            && !records.names.contains(&name)
            && let Some((_, file)) = self.record(name, ReadFrom::Disk, |_| true).ok().flatten().filter(is_old)
        {
            records.add(name, None, &file)?;
        }
        records.add(key, times_in(&content), &content)
    }

    /// Whether what is written can be found by others, and after the next start.
    pub fn is_named(&self) -> bool {
        self.index().is_named()
    }

    /// Whether another process has replaced the index: what was written since is not found here.
    pub fn is_replaced(&self) -> bool {
        self.index().is_replaced()
    }

    /// Bytes on disk.
    pub fn bytes(directory: &Path) -> u64 {
        RecordIndex::bytes(directory) + Segments::bytes(directory)
    }

    /// Whether the record is there, whole, and will be for a while.
    fn has(&self, key: RecordName) -> bool {
        let found = self.record(key, ReadFrom::Disk, |_| true).ok().flatten();
        found.is_some_and(|(place, _)| !self.segments.is_old(place))
    }

    /// Sets the places of records, or forgets them. `size`: of the whole store.
    fn put(&self, mut places: &[(NewRecord, Option<RecordPlace>)], size: u64) -> io::Result<()> {
        let oldest = self.segments.oldest();
        loop {
            let index = self.index();
            // What cannot be read is replaced.
            let is_outdated = |record: &NewRecord, now: SystemTime| {
                let stored = self.record_by(&index, record.name, ReadFrom::Disk, |_| true).ok().flatten();
                let stored = stored.and_then(|(_, content)| times_in(&content));
                stored.zip(record.times).is_some_and(|(stored, times)| times.are_before(&stored, now))
            };
            let next = index.locked(|| {
                let now = SystemTime::now();
                while let Some(((record, place), rest)) = places.split_first() {
                    let name = &record.name;
                    match place {
                        None => index.remove(*name)?,
                        // Another process has validated it since.
                        Some(_) if record.times.is_some() && is_outdated(record, now) => {}
                        Some(place) if index.put(*name, *place, oldest)? => {}
                        Some(place) => match index.grown(size, oldest)? {
                            Some(grown) => return Ok(Some(grown)),
                            None => index.put_over_oldest(*name, *place)?,
                        },
                    }
                    places = rest;
                }
                Ok(None)
            })?;
            let Some(next) = next else { return Ok(()) };
            *self.index.write() = next.into();
        }
    }

    fn record(
        &self,
        key: RecordName,
        read: ReadFrom,
        accepts: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Option<(RecordPlace, Vec<u8>)>> {
        self.record_by(&self.index(), key, read, accepts)
    }

    fn record_by(
        &self,
        index: &RecordIndex,
        key: RecordName,
        read: ReadFrom,
        accepts: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Option<(RecordPlace, Vec<u8>)>> {
        let Some(place) = index.find(key, read)? else { return Ok(None) };
        Ok(self.segments.read(key, place, read, accepts)?.map(|content| (place, content)))
    }

    /// Nobody waits for who reads.
    fn index(&self) -> Arc<RecordIndex> {
        self.index.read().clone()
    }
}

/// A record that is to be found from now on, or, without a place, no more.
struct NewRecord {
    name: RecordName,
    /// Of an entry.
    times: Option<CopyTimes>,
}

/// Records that are appended together.
struct NewRecords<'d> {
    disk: &'d Disk,
    bytes: Vec<u8>,
    /// With where they begin in `bytes`.
    all: Vec<(NewRecord, Option<u64>)>,
    names: HashSet<RecordName>,
    size: u64,
}

impl<'d> NewRecords<'d> {
    fn new(disk: &'d Disk, size: u64) -> Self {
        Self { disk, bytes: Vec::new(), all: Vec::new(), names: HashSet::new(), size }
    }

    fn add(&mut self, name: RecordName, times: Option<CopyTimes>, content: &[u8]) -> io::Result<()> {
        self.names.insert(name);
        self.all.push((NewRecord { name, times }, Some(self.bytes.len() as u64)));
        self.bytes.extend(record(name, content));
        if self.bytes.len() >= TOGETHER { self.finish() } else { Ok(()) }
    }

    /// The index names only what is written.
    fn finish(&mut self) -> io::Result<()> {
        let (segment, from) = match self.bytes.is_empty() {
            true => (0, 0),
            false => self.disk.segments.append(&self.bytes, self.size - self.size / 16)?,
        };
        self.bytes.clear();
        let place =
            |(name, offset): (_, Option<u64>)| (name, offset.and_then(|at| RecordPlace::new(segment, from + at)));
        let places: Vec<_> = self.all.drain(..).map(place).collect();
        self.disk.put(&places, self.size)
    }
}

/// Of an entry's record.
fn times_in(content: &[u8]) -> Option<CopyTimes> {
    CopyTimes::in_encoded(content.get(NO_FILE.len()..)?)
}

/// In place of a file's digest.
const NO_FILE: FileDigest = [0; 16];
/// Bytes that are appended at once.
const TOGETHER: usize = 256 << 10;
