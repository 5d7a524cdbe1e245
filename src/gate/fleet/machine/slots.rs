//! The file in which the processes of a machine share the last starts at each host, from which the next one keeps its distance,
//! and the locks on it, which the kernel releases when a process ends.
//!
//! A key's slot is one of the few in its bucket, which is locked while a slot in it is changed. Beyond the
//! buckets there are only locks: sixteen bytes a key, the first its lease, the others for the processes that wait for it, and one
//! byte for each authority, the right to fetch its robots.txt. Instants are nanoseconds of the clock that `Instant` reads; a
//! file from before the machine was started is treated as of now.

use super::locks::LockFile;
use crate::gate::store::digest;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;
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

/// What is known of a key; 0 is never, and nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KeySlot {
    tag: u64,
    /// Who has the lease, or has had it last.
    pub by: u64,
    pub last_start: u64,
    pub last_fetch: u64,
    /// The last of them had yet to be seen to leave. A bit of `last_start` in the file.
    pub leaving: bool,
    /// When that one gave it up.
    pub given: u64,
    pub hold: u64,
    pub backoff: u64,
    /// Then nothing of this matters any more.
    pub until: u64,
    pub latency: u64,
    pub refusals: u64,
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
            let missing = usize::try_from(SIZE - length).unwrap_or(0);
            self.0.file.write_all_at(&vec![0; missing], length)?;
        }
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_or(1, |id| Id::of_bytes(&id).tag);
        let mut header = [0; 8];
        self.0.file.read_exact_at(&mut header, 0)?;
        if u64::from_le_bytes(header) != boot {
            let mut all = vec![0; SIZE as usize];
            self.0.file.read_exact_at(&mut all, 0)?;
            let slots: Vec<_> = all[BUCKET as usize..].chunks_exact(SLOT as usize).map(KeySlot::read).collect();
            let latest =
                slots.iter().flat_map(|slot| [slot.last_start, slot.last_fetch, slot.given]).max().unwrap_or(0);
            let now = nanos(Instant::now());
            for (slot, place) in
                slots.into_iter().zip((BUCKET..).step_by(SLOT as usize)).filter(|(slot, _)| slot.tag != 0)
            {
                self.0.file.write_all_at(&slot.moved(latest, now).bytes(), place)?;
            }
            self.0.file.write_all_at(&boot.to_le_bytes(), 0)?;
        }
        Ok(())
    }

    /// What is known of a key, if anything.
    pub fn find(&self, id: Id) -> io::Result<Option<FoundSlot>> {
        Ok(self.bucket(id)?.into_iter().find(|(_, slot)| slot.tag == id.tag))
    }

    /// The same, or a slot that has become free. `None`: they are all in use. The caller has locked the bucket.
    pub fn find_room(&self, id: Id, now: u64) -> io::Result<Option<FoundSlot>> {
        let bucket = self.bucket(id)?;
        let known = bucket.iter().find(|(_, slot)| slot.tag == id.tag);
        // What is to matter for longer than anything does is nonsense.
        let free = || bucket.iter().find(|(_, slot)| slot.until <= now || slot.until > now.saturating_add(FAR));
        Ok(known.copied().or_else(|| free().map(|(place, _)| (*place, KeySlot { tag: id.tag, ..KeySlot::default() }))))
    }

    fn bucket(&self, id: Id) -> io::Result<Vec<FoundSlot>> {
        let (place, mut bytes) = (id.bucket(), [0; BUCKET as usize]);
        self.0.file.read_exact_at(&mut bytes, place)?;
        Ok((place..).step_by(SLOT as usize).zip(bytes.chunks_exact(SLOT as usize).map(KeySlot::read)).collect())
    }

    /// The caller has the lease, and has locked the bucket.
    pub fn write(&self, (place, slot): FoundSlot) -> io::Result<()> {
        self.0.file.write_all_at(&slot.bytes(), place)
    }

    /// What any process may write: hold, backoff, for how long that matters, and what answers have shown. The caller has locked the bucket.
    pub fn write_refusal(&self, (place, slot): FoundSlot) -> io::Result<()> {
        self.0.file.write_all_at(&slot.bytes()[REFUSAL..], place + REFUSAL as u64)
    }

    /// For the holder of the lease, whatever others write meanwhile.
    pub fn write_starts(&self, (place, slot): FoundSlot) -> io::Result<()> {
        self.0.file.write_all_at(&slot.bytes()[STARTS..STARTS + 16], place + STARTS as u64)
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

impl KeySlot {
    fn read(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        let [tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals] =
            std::array::from_fn(|_| words.next().unwrap_or(0));
        let (leaving, last_start) = (last_start & LEAVING != 0, last_start & !LEAVING);
        Self { tag, by, last_start, last_fetch, leaving, given, hold, backoff, until, latency, refusals }
    }

    fn bytes(&self) -> [u8; SLOT as usize] {
        let Self { tag, by, last_start, last_fetch, leaving, given, hold, backoff, until, latency, refusals } = *self;
        let last_start = if leaving { last_start | LEAVING } else { last_start };
        let mut bytes = [0; SLOT as usize];
        let words = [tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals];
        let words = words.map(u64::to_le_bytes);
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// As though no time had passed between these two.
    fn moved(self, from: u64, to: u64) -> Self {
        let moved = |at: u64| if at == 0 { 0 } else { at.saturating_add(to).saturating_sub(from).max(1) };
        let [last_start, last_fetch, given, hold, until] =
            [self.last_start, self.last_fetch, self.given, self.hold, self.until].map(moved);
        Self { last_start, last_fetch, given, hold, until, ..self }
    }
}

/// By the file's clock.
pub(super) fn nanos(at: Instant) -> u64 {
    let (instant, nanos) = *ZERO;
    match at.checked_duration_since(instant) {
        Some(ahead) => nanos.saturating_add(span(ahead)),
        None => nanos.saturating_sub(span(instant - at)).max(1),
    }
}

pub(super) fn span(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `None`: never.
pub(super) fn instant(at: u64) -> Option<Instant> {
    let (instant, nanos) = *ZERO;
    match at.checked_sub(nanos) {
        Some(ahead) => instant.checked_add(Duration::from_nanos(ahead)),
        None => instant.checked_sub(Duration::from_nanos(nanos - at)).filter(|_| at != 0),
    }
}

/// One instant by both clocks: of some looks, the one that took least.
static ZERO: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    let looks = (0..8).map(|_| {
        let (before, time) = (Instant::now(), clock_gettime(ClockId::Monotonic));
        let nanos = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        (before.elapsed(), before, nanos)
    });
    let (_, instant, nanos) = looks.min_by_key(|(took, ..)| *took).expect("eight");
    (instant, nanos)
});

/// To begin, for two seconds.
const TRIES: u32 = 200;
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// With the version of what is in it.
const FILE: &str = "politely.pace2";
const SLOT: u64 = 10 * 8;
/// In 292 years.
const LEAVING: u64 = 1 << 63;
const REFUSAL: usize = 5 * 8;
const STARTS: usize = 2 * 8;
pub(super) const BUCKET: u64 = 8 * SLOT;
const BUCKETS: u64 = 8191;
const SIZE: u64 = BUCKET * (1 + BUCKETS);
pub(super) const LOCKS: u64 = 16;
/// A place has 56 bits.
const LEASES: u64 = 1 << 32;
const RIGHTS: u64 = 1 << 62;
/// Two years.
const FAR: u64 = 730 * 86_400 * 1_000_000_000;
