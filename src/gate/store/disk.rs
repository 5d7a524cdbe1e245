//! The store on disk: the index and the segments with the records. Each record is verified when it is read, so no repair is needed after a
//! kill or a loss of power: a record that was not written completely counts as missing.

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
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// An open store. Other processes may have it open, too.
pub(super) struct Disk {
    /// The index in use: replaced by another one when it grows or is emptied.
    index: RwLock<Arc<RecordIndex>>,
    pub segments: Segments,
}

/// An authority's stored entry.
pub(super) struct StoredEntry {
    pub entry: Entry,
    /// The entry or its file is among the oldest records, which are removed first.
    pub is_old: bool,
}

impl Disk {
    /// Opens the store in this directory or creates it.
    pub fn open(directory: &Path) -> io::Result<Self> {
        private_directory(directory)?;
        // Without segments, an old index is replaced: its entries point to missing segments, and would seem newer than new records.
        let index = RecordIndex::open(directory, || Segments::are_there(directory))?;
        Ok(Self { index: RwLock::new(index.into()), segments: Segments::open(directory)? })
    }

    /// The entry stored under this key. `parse`: as for [`Store::load`](super::Store::load).
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

    /// When the entry stored under this key was validated, and until when it need not be fetched.
    pub fn times(&self, key: RecordName, read: ReadFrom) -> io::Result<Option<CopyTimes>> {
        let record = self.record(key, read, |_| true)?;
        Ok(record.and_then(|(_, content)| CopyTimes::in_encoded(content.get(NO_FILE.len()..)?)))
    }

    /// Writes the batch. `size`: limit of the whole store, in bytes.
    pub fn write(&self, batch: &WriteBatch, size: u64) -> io::Result<()> {
        if batch.is_void || self.index().is_over(size) {
            // All other processes switch to the new index, too.
            let blank = self.index().begun_anew()?;
            *self.index.write() = blank.into();
        }
        let mut records = NewRecords::new(self, size);
        for key in &batch.used {
            self.renew(*key, &mut records)?;
        }
        for (key, queued) in &batch.entries {
            if queued.forgets {
                records.all.push((NewRecord { name: *key, unless: Unless::Never }, None));
            }
            if let Some(entry) = &queued.entry {
                self.save(*key, entry, &mut records)?;
            }
        }
        records.finish()
    }

    fn save(&self, key: RecordName, entry: &Entry, records: &mut NewRecords<'_>) -> io::Result<()> {
        let name = entry.answer.as_ref().and_then(|answer| digest_of(&answer.access));
        // Many hosts have the same file, which is written once.
        if let (Some(file), Some(source)) = (name.map(RecordName::of_file), entry.source())
            && records.files.insert(file)
            && !self.has(file)
        {
            records.add(file, Unless::Never, &compress(source)?)?;
        }
        // The entry comes after its file, so that no other process finds it without the file.
        records.add(
            key,
            Unless::ValidatedLater(CopyTimes::of(entry)),
            &[&name.unwrap_or(NO_FILE)[..], &encode(entry)].concat(),
        )
    }

    /// Appends an old entry again, and its file if that is old, too.
    fn renew(&self, key: RecordName, records: &mut NewRecords<'_>) -> io::Result<()> {
        // A record that cannot be read counts as missing.
        let Ok(Some((place, content))) = self.record(key, ReadFrom::Disk, |_| true) else { return Ok(()) };
        if let Some(name) = content.first_chunk().map(|name| RecordName::of_file(*name))
            && !records.files.contains(&name)
            && let Some((place, file)) = self.record(name, ReadFrom::Disk, |_| true).ok().flatten()
        {
            records.files.insert(name);
            if self.segments.is_old(place) {
                records.add(name, Unless::Never, &file)?;
            }
        }
        records.add(key, Unless::ElsewhereThan(place), &content)
    }

    /// Bytes on disk.
    pub fn bytes(directory: &Path) -> u64 {
        RecordIndex::bytes(directory) + Segments::bytes(directory)
    }

    /// Whether the record is stored intact, and is not among the oldest, which are removed first.
    fn has(&self, key: RecordName) -> bool {
        let found = self.record(key, ReadFrom::Disk, |_| true).ok().flatten();
        found.is_some_and(|(place, _)| !self.segments.is_old(place))
    }

    /// Sets the places of records in the index, unless the stored record [has changed](Self::has_changed). Without a place, removes the
    /// record from the index. `size`: limit of the whole store, in bytes.
    fn put(&self, places: &[(NewRecord, Option<RecordPlace>)], size: u64) -> io::Result<()> {
        let oldest = self.segments.oldest();
        loop {
            let index = self.index();
            let next = index.locked(|| {
                let now = SystemTime::now();
                for (record, place) in places {
                    let name = &record.name;
                    match place {
                        None => index.remove(*name)?,
                        Some(_) if self.has_changed(record, now) => {}
                        Some(place) if index.put(*name, *place, oldest)? => {}
                        Some(place) => match index.grown(size, oldest) {
                            Ok(Some(grown)) => return Ok(Some(grown)),
                            Ok(None) => index.put_over_oldest(*name, *place)?,
                            // The disk has no room for a larger index.
                            Err(error) if is_full(&error) => index.put_over_oldest(*name, *place)?,
                            Err(error) => return Err(error),
                        },
                    }
                }
                Ok(None)
            })?;
            let Some(next) = next else { return Ok(()) };
            *self.index.write() = next.into();
        }
    }

    /// Whether the stored record has changed meanwhile, for example by another process, so that the new record must not replace it.
    fn has_changed(&self, record: &NewRecord, now: SystemTime) -> bool {
        match record.unless {
            Unless::Never => false,
            Unless::ElsewhereThan(place) => {
                self.index().find(record.name, ReadFrom::Disk).ok().flatten() != Some(place)
            }
            Unless::ValidatedLater(times) => {
                // A record that cannot be read is replaced.
                let stored = self.times(record.name, ReadFrom::Disk).ok().flatten();
                stored.is_some_and(|stored| times.are_before(&stored, now))
            }
        }
    }

    fn record(
        &self,
        key: RecordName,
        read: ReadFrom,
        accepts: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Option<(RecordPlace, Vec<u8>)>> {
        let Some(place) = self.index().find(key, read)? else { return Ok(None) };
        Ok(self.segments.read(key, place, read, accepts)?.map(|content| (place, content)))
    }

    /// The index, cloned so that no lock is held while it is read.
    pub fn index(&self) -> Arc<RecordIndex> {
        self.index.read().clone()
    }
}

/// A record whose entry in the index is to be set or removed.
struct NewRecord {
    name: RecordName,
    unless: Unless,
}

/// The condition under which the index must not be changed for a new record.
enum Unless {
    Never,
    /// If the stored entry was validated later than the new entry.
    ValidatedLater(CopyTimes),
    /// If the index no longer names this place, from which the record was read for its renewal.
    ElsewhereThan(RecordPlace),
}

/// Records that are appended together.
struct NewRecords<'d> {
    disk: &'d Disk,
    bytes: Vec<u8>,
    /// The records, each with its offset in `bytes`. `None`: its place is removed from the index.
    all: Vec<(NewRecord, Option<u64>)>,
    /// Names of the files that these records contain, or that are stored already.
    files: HashSet<RecordName>,
    size: u64,
}

impl<'d> NewRecords<'d> {
    fn new(disk: &'d Disk, size: u64) -> Self {
        Self { disk, bytes: Vec::new(), all: Vec::new(), files: HashSet::new(), size }
    }

    fn add(&mut self, name: RecordName, unless: Unless, content: &[u8]) -> io::Result<()> {
        self.all.push((NewRecord { name, unless }, Some(self.bytes.len() as u64)));
        self.bytes.extend(record(name, content));
        if self.bytes.len() >= TOGETHER { self.finish() } else { Ok(()) }
    }

    /// Appends the records, then sets their places, so that the index names only records that are written.
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

/// Whether the disk is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Takes the place of a file's digest in an entry without a file.
const NO_FILE: FileDigest = [0; 16];
/// Number of collected bytes at which records are appended to the segment.
const TOGETHER: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{SiteAnswer, freshness::Freshness};
    use crate::robots::RobotsTxt;
    use std::time::Duration;

    fn disk(directory: &Path) -> Disk {
        Disk::open(directory).unwrap()
    }

    fn batch(number: usize, robots: &str) -> WriteBatch {
        let freshness = Freshness::new(SystemTime::now(), Duration::from_secs(3600), 0.0);
        let answer = SiteAnswer::new(Access::Rules(RobotsTxt::parse(robots.as_bytes())), 200, freshness);
        let mut batch = WriteBatch::default();
        batch.save(key(number), Arc::new(Entry::answered(answer)));
        batch
    }

    fn key(number: usize) -> RecordName {
        RecordName::of_entry(&format!("http://h{number}"))
    }

    fn is_there(disk: &Disk, number: usize) -> bool {
        disk.times(key(number), ReadFrom::Disk).unwrap().is_some()
    }

    /// The other process forgets an old record between its reading and its renewal.
    #[test]
    fn record_forgotten_by_another_process_is_not_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (disk(directory.path()), disk(directory.path()));
        for number in 0..2 {
            one.write(&batch(number, "# kept"), MIB).unwrap();
        }
        let mut records = NewRecords::new(&one, MIB);
        (0..2).for_each(|number| one.renew(key(number), &mut records).unwrap());
        let mut forgets = WriteBatch::default();
        forgets.forget(key(0));
        other.write(&forgets, MIB).unwrap();
        records.finish().unwrap();
        assert_eq!([0, 1].map(|number| is_there(&other, number)), [false, true]);
    }

    #[test]
    fn missing_file_is_written_again_although_another_entry_with_it_is_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        disk.write(&batch(0, "# the same"), MIB).unwrap();
        disk.index().remove(RecordName::of_file(super::super::digest(b"# the same"))).unwrap();
        let mut both = batch(1, "# the same");
        both.used.insert(key(0));
        disk.write(&both, MIB).unwrap();
        let parse = |_, body: &ReadFile<'_>| Some(Access::Rules(RobotsTxt::parse(&body(&|_| true)?)));
        assert!(disk.read(key(1), SystemTime::now(), ReadFrom::Disk, parse).unwrap().is_some());
    }

    /// A write meanwhile would be lost if the other process is about to replace the index.
    #[test]
    fn write_fails_while_another_process_does_not_finish_its_write() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (disk(directory.path()), disk(directory.path()));
        let index = one.index();
        let wrote = |disk: &Disk| disk.write(&batch(0, "# new"), MIB);
        index
            .locked(|| {
                assert_eq!(wrote(&other).unwrap_err().kind(), io::ErrorKind::TimedOut);
                Ok(None)
            })
            .unwrap();
        assert!(!is_there(&one, 0));
        wrote(&other).unwrap();
        assert!(is_there(&one, 0));
    }

    #[test]
    fn store_emptied_by_one_process_is_empty_for_all() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (disk(directory.path()), disk(directory.path()));
        // The other process is ahead by some segments.
        one.write(&batch(0, "# old"), MIB).unwrap();
        for number in 1..40 {
            other.write(&batch(number, &format!("# {number}{}", "x".repeat(20_000))), MIB).unwrap();
            assert!(is_there(&other, number));
        }
        let mut void = batch(40, "# new");
        void.is_void = true;
        one.write(&void, MIB).unwrap();
        assert!(other.index().is_replaced());
        other.write(&batch(41, "# newer"), MIB).unwrap();
        for disk in [&one, &other, &disk(directory.path())] {
            assert_eq!([0, 1, 39, 40, 41].map(|number| is_there(disk, number)), [false, false, false, true, true]);
        }
    }

    #[test]
    fn processes_that_create_the_store_at_once_lose_no_records() {
        for _ in 0..50 {
            let directory = tempfile::tempdir().unwrap();
            let begin = std::sync::Barrier::new(3);
            std::thread::scope(|scope| {
                for number in 0..3 {
                    let (begin, directory) = (&begin, directory.path());
                    scope.spawn(move || {
                        begin.wait();
                        disk(directory).write(&batch(number, "# own"), MIB).unwrap();
                    });
                }
            });
            let all = disk(directory.path());
            assert!((0..3).all(|number| is_there(&all, number)));
        }
    }

    #[test]
    fn index_too_large_for_a_lowered_limit_is_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        (0..1000).for_each(|number| disk.write(&batch(number, "# the same"), 64 * MIB).unwrap());
        assert!(RecordIndex::bytes(directory.path()) > 16 << 10);
        disk.write(&batch(1000, "# the same"), 128 << 10).unwrap();
        assert!(RecordIndex::bytes(directory.path()) <= 12 << 10);
        assert_eq!([0, 1000].map(|number| is_there(&disk, number)), [false, true]);
    }

    const MIB: u64 = 1 << 20;
}
