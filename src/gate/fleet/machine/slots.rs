//! The file in which the processes of a machine share the last starts at each host, from which the next one keeps its distance,
//! and the locks on it, which the kernel releases when a process ends.
//!
//! A key's slot is one of the few in its bucket, which is locked while a slot in it is changed. Beyond the
//! buckets there are only locks: sixteen bytes a key, the first its lease, the others for the processes that wait for it, and one
//! byte for each authority, the right to fetch its robots.txt. Instants are nanoseconds of the clock that `Instant` reads; a
//! file from before the machine was started is treated as of now. The first bucket has the machine's boot, and the key of the hash
//! that places names.

use super::clock::nanos;
use super::key_slot::{KeySlot, NUMBERS};
use super::locks::{LockFile, ROWS};
use crate::gate::store::digest;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

/// The file, open; what it has locked is free when it is dropped.
#[derive(Debug)]
pub(super) struct Slots {
    file: LockFile,
    /// Made with the file. Nobody who names hosts can tell which of them are in one bucket.
    key: u64,
}

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
        let mut slots = Self { file: LockFile::open(directory, FILE)?, key: 0 };
        // Others have it for no longer than this one, if they are not stopped just then.
        let mut tries = 0..TRIES;
        while !slots.lock(0, BUCKET)? {
            tries.next().ok_or(io::ErrorKind::TimedOut)?;
            #[expect(clippy::disallowed_methods, reason = "nothing is served yet")]
            thread::sleep(TRY_AGAIN);
        }
        slots.key = slots.begin()?;
        slots.unlock(0, BUCKET)?;
        Ok(slots)
    }

    /// So long as nobody else does. Returns the key.
    fn begin(&self) -> io::Result<u64> {
        let length = self.file.file.metadata()?.len();
        if length < SIZE {
            // With room on the disk for all that is written later.
            match fallocate(&self.file.file, FallocateFlags::empty(), 0, SIZE) {
                Err(Errno::OPNOTSUPP) => self.file.file.write_all_at(&vec![0; (SIZE - length) as usize], length)?,
                reserved => reserved?,
            }
        }
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_or(1, |id| Id::of_bytes(&id).tag);
        let [(_, [written_at_boot, key, ..]), ..] = self.file.bucket::<NUMBERS>(0)?;
        if written_at_boot != boot {
            let mut slots = Vec::new();
            // What a new file has is nothing yet.
            for bucket in (BUCKET..length.min(SIZE)).step_by(BUCKET as usize) {
                slots.extend(self.slots(bucket)?.into_iter().filter(|(_, slot)| slot.tag != 0));
            }
            let starts = slots.iter().flat_map(|(_, slot)| [slot.last_start, slot.last_fetch, slot.given]);
            let (latest, now) = (starts.max().unwrap_or(0), nanos(Instant::now()));
            slots.iter().try_for_each(|(place, slot)| self.file.write(*place, slot.moved(latest, now).row()))?;
            self.file.write(0, [boot])?;
        }
        if key != 0 {
            return Ok(key);
        }
        let key = RandomState::new().hash_one(boot).max(1);
        self.file.write(8, [key]).map(|()| key)
    }

    pub fn id(&self, name: &str) -> Id {
        let mut keyed = [0; 24];
        keyed[..8].copy_from_slice(&self.key.to_le_bytes());
        keyed[8..].copy_from_slice(&digest(name.as_bytes()));
        Id::of_bytes(&keyed)
    }

    /// What is known of a key, if anything.
    pub fn find(&self, id: Id) -> io::Result<Option<FoundSlot>> {
        Ok(self.slots(id.bucket())?.into_iter().find(|(_, slot)| slot.tag == id.tag))
    }

    /// The same, or a slot that is over; where none is, that of the key whose is over soonest: better that than a host that
    /// never has its turn. The caller has locked the bucket.
    pub fn find_room(&self, id: Id, now: u64) -> io::Result<FoundSlot> {
        let slots = self.slots(id.bucket())?;
        if let Some(known) = slots.iter().find(|(_, slot)| slot.tag == id.tag) {
            return Ok(*known);
        }
        // What is to matter for longer than anything does is nonsense.
        let over = |(_, slot): &FoundSlot| if slot.until > now.saturating_add(FAR) { 0 } else { slot.until };
        let [mut soonest, ref others @ ..] = slots;
        for other in others {
            soonest = if over(other) < over(&soonest) { *other } else { soonest };
        }
        if over(&soonest) > now {
            TOLD.call_once(|| {
                tracing::warn!("more hosts have delays than {FILE} has room for: some are forgotten before they end");
            });
        }
        Ok((soonest.0, KeySlot { tag: id.tag, ..KeySlot::default() }))
    }

    fn slots(&self, bucket: u64) -> io::Result<[FoundSlot; ROWS]> {
        Ok(self.file.bucket(bucket)?.map(|(place, row)| (place, KeySlot::of(row))))
    }

    /// The caller has the lease, and has locked the bucket.
    pub fn write(&self, (place, slot): FoundSlot) -> io::Result<()> {
        self.file.write(place, slot.row())
    }

    /// What any process may write: hold, backoff, for how long that matters, and what answers have shown. The caller has locked the bucket.
    pub fn write_refusal(&self, (place, slot): FoundSlot) -> io::Result<()> {
        let [_, _, _, _, _, refusal @ ..] = slot.row();
        self.file.write(place + 5 * 8, refusal)
    }

    /// For the holder of the lease, whatever others write meanwhile.
    pub fn write_starts(&self, (place, slot): FoundSlot) -> io::Result<()> {
        let [_, _, last_start, last_fetch, ..] = slot.row();
        self.file.write(place + 2 * 8, [last_start, last_fetch])
    }
}

impl Deref for Slots {
    type Target = LockFile;

    fn deref(&self) -> &LockFile {
        &self.file
    }
}

impl Id {
    /// The same in every file.
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
/// That has been logged.
static TOLD: Once = Once::new();
/// With the version of what is in it.
const FILE: &str = "politely.pace3";
pub(super) const BUCKET: u64 = (ROWS * NUMBERS * 8) as u64;
const BUCKETS: u64 = 8191;
const SIZE: u64 = BUCKET * (1 + BUCKETS);
pub(super) const LOCKS: u64 = 16;
/// A place has 56 bits.
const LEASES: u64 = 1 << 32;
const RIGHTS: u64 = 1 << 62;
/// Two years.
const FAR: u64 = 730 * 86_400 * 1_000_000_000;
