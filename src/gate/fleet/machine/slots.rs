//! The file in which the processes of a machine share the last starts at each host, from which the next one keeps its distance,
//! and the locks on it, which the kernel releases when a process ends.
//!
//! A key's slot is one of the few in its bucket, which is locked while a slot in it is changed. Beyond the
//! buckets there are only locks: sixteen bytes a key, the first its lease, the others for the processes that wait for it, and one
//! byte for each authority, the right to fetch its robots.txt. Instants are nanoseconds of the clock that `Instant` reads; a
//! file from before the machine was started is treated as of now.

use super::clock::nanos;
use super::key_slot::{KeySlot, NUMBERS};
use super::locks::{LockFile, ROWS};
use crate::gate::store::digest;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The file, open; what it has locked is free when it is dropped.
#[derive(Debug)]
pub(super) struct Slots(LockFile);

/// A name's places in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub tag: u64,
    pub place: u64,
}

/// Where a slot is, and what it has.
pub(super) type FoundSlot = (u64, KeySlot);

impl Slots {
    /// Made if there is none.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let slots = Self(LockFile::open(directory, FILE)?);
        // Others have it for no longer than this one, if they are not stopped just then.
        let mut tries = 0..TRIES;
        while !slots.lock(0, BUCKET)? {
            tries.next().ok_or(io::ErrorKind::TimedOut)?;
            #[expect(clippy::disallowed_methods, reason = "nothing is served yet")]
            thread::sleep(TRY_AGAIN);
        }
        slots.begin()?;
        slots.unlock(0, BUCKET)?;
        Ok(slots)
    }

    /// So long as nobody else does.
    fn begin(&self) -> io::Result<()> {
        let length = self.0.file.metadata()?.len();
        if length < SIZE {
            // With room on the disk for all that is written later.
            match fallocate(&self.0.file, FallocateFlags::empty(), 0, SIZE) {
                Err(Errno::OPNOTSUPP) => self.0.file.write_all_at(&vec![0; (SIZE - length) as usize], length)?,
                reserved => reserved?,
            }
        }
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_or(1, |id| Id::of_bytes(&id).tag);
        let [(_, [written_at_boot, ..]), ..] = self.0.bucket::<NUMBERS>(0)?;
        if written_at_boot != boot {
            let mut slots = Vec::new();
            // What a new file has is nothing yet.
            for bucket in (BUCKET..length.min(SIZE)).step_by(BUCKET as usize) {
                slots.extend(self.slots(bucket)?.into_iter().filter(|(_, slot)| slot.tag != 0));
            }
            let starts = slots.iter().flat_map(|(_, slot)| [slot.last_start, slot.last_fetch, slot.given]);
            let (latest, now) = (starts.max().unwrap_or(0), nanos(Instant::now()));
            slots.iter().try_for_each(|(place, slot)| self.0.write(*place, slot.moved(latest, now).row()))?;
            self.0.write(0, [boot])?;
        }
        Ok(())
    }

    /// What is known of a key, if anything.
    pub fn find(&self, id: Id) -> io::Result<Option<FoundSlot>> {
        Ok(self.slots(id.bucket())?.into_iter().find(|(_, slot)| slot.tag == id.tag))
    }

    /// The same, or a slot that has become free. `None`: they are all in use. The caller has locked the bucket.
    pub fn find_room(&self, id: Id, now: u64) -> io::Result<Option<FoundSlot>> {
        let slots = self.slots(id.bucket())?;
        let known = slots.iter().find(|(_, slot)| slot.tag == id.tag);
        // What is to matter for longer than anything does is nonsense.
        let free = || slots.iter().find(|(_, slot)| slot.until <= now || slot.until > now.saturating_add(FAR));
        Ok(known.copied().or_else(|| free().map(|(place, _)| (*place, KeySlot { tag: id.tag, ..KeySlot::default() }))))
    }

    fn slots(&self, bucket: u64) -> io::Result<[FoundSlot; ROWS]> {
        Ok(self.0.bucket(bucket)?.map(|(place, row)| (place, KeySlot::of(row))))
    }

    /// The caller has the lease, and has locked the bucket.
    pub fn write(&self, (place, slot): FoundSlot) -> io::Result<()> {
        self.0.write(place, slot.row())
    }

    /// What any process may write: hold, backoff, for how long that matters, and what answers have shown. The caller has locked the bucket.
    pub fn write_refusal(&self, (place, slot): FoundSlot) -> io::Result<()> {
        let [_, _, _, _, _, refusal @ ..] = slot.row();
        self.0.write(place + 5 * 8, refusal)
    }

    /// For the holder of the lease, whatever others write meanwhile.
    pub fn write_starts(&self, (place, slot): FoundSlot) -> io::Result<()> {
        let [_, _, last_start, last_fetch, ..] = slot.row();
        self.0.write(place + 2 * 8, [last_start, last_fetch])
    }
}

impl Deref for Slots {
    type Target = LockFile;

    fn deref(&self) -> &LockFile {
        &self.0
    }
}

impl Id {
    pub fn of(name: &str) -> Self {
        Self::of_bytes(name.as_bytes())
    }

    fn of_bytes(name: &[u8]) -> Self {
        let hash = u128::from_le_bytes(digest(name));
        Self { tag: (hash >> 64) as u64 | 1, place: hash as u64 >> 8 }
    }

    pub fn bucket(self) -> u64 {
        BUCKET * (1 + self.place % BUCKETS)
    }

    pub fn lease(self) -> u64 {
        LEASES + self.place * LOCKS
    }

    pub fn right(self) -> u64 {
        RIGHTS + self.place
    }
}

/// To begin, for two seconds.
const TRIES: u32 = 200;
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// With the version of what is in it.
const FILE: &str = "politely.pace2";
pub(super) const BUCKET: u64 = (ROWS * NUMBERS * 8) as u64;
const BUCKETS: u64 = 8191;
const SIZE: u64 = BUCKET * (1 + BUCKETS);
pub(super) const LOCKS: u64 = 16;
/// A place has 56 bits.
const LEASES: u64 = 1 << 32;
const RIGHTS: u64 = 1 << 62;
/// Two years.
const FAR: u64 = 730 * 86_400 * 1_000_000_000;
