//! The file in which the processes of a machine leave each other what a host's starts have to keep their distance from,
//! and the locks on it, which the kernel takes away from whoever is gone.
//!
//! A key's slot is one of the few in its bucket; whoever changes what a bucket has locks it for that moment. Beyond the
//! buckets there are only locks: sixteen bytes a key, the first its lease, the others of those who wait for it, and one byte
//! for each authority, the right to fetch its robots.txt. Instants are nanoseconds of the clock that `Instant` reads; a
//! file of before the machine was started is taken to be of now.

use crate::gate::store::digest;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// The file, open; what it has locked is free when it is dropped.
#[derive(Debug)]
pub(super) struct Slots(File);

/// A name's places in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub tag: u64,
    pub place: u64,
}

/// What is known of a key; 0 is never, and nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slot {
    tag: u64,
    /// Who has the lease, or has had it last.
    pub by: u64,
    pub last_start: u64,
    pub last_fetch: u64,
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
pub(super) type Found = (u64, Slot);

impl Slots {
    /// Made if there is none. Nobody but its owner, and the directory's, can have a lock on it.
    pub fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(directory.join(FILE))?;
        if NETWORK.contains(&rustix::fs::fstatfs(&file)?.f_type) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is on a network file system"));
        }
        hand_over(&file, directory)?;
        let slots = Self(file);
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
        let length = self.0.metadata()?.len();
        if length < SIZE {
            // With room on the disk for all that is written later.
            let missing = usize::try_from(SIZE - length).unwrap_or(0);
            self.0.write_all_at(&vec![0; missing], length)?;
        }
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_or(1, |id| Id::of_bytes(&id).tag);
        let mut header = [0; 8];
        self.0.read_exact_at(&mut header, 0)?;
        if u64::from_le_bytes(header) != boot {
            let mut all = vec![0; SIZE as usize];
            self.0.read_exact_at(&mut all, 0)?;
            let slots: Vec<_> = all[BUCKET as usize..].chunks_exact(SLOT as usize).map(Slot::read).collect();
            let latest =
                slots.iter().flat_map(|slot| [slot.last_start, slot.last_fetch, slot.given]).max().unwrap_or(0);
            let now = nanos(Instant::now());
            for (slot, place) in
                slots.into_iter().zip((BUCKET..).step_by(SLOT as usize)).filter(|(slot, _)| slot.tag != 0)
            {
                self.0.write_all_at(&slot.moved(latest, now).bytes(), place)?;
            }
            self.0.write_all_at(&boot.to_le_bytes(), 0)?;
        }
        Ok(())
    }

    /// What is known of a key, if anything.
    pub fn find(&self, id: Id) -> io::Result<Option<Found>> {
        Ok(self.bucket(id)?.into_iter().find(|(_, slot)| slot.tag == id.tag))
    }

    /// The same, or a slot that has become free. `None`: they are all in use. For whoever has locked the bucket.
    pub fn find_room(&self, id: Id, now: u64) -> io::Result<Option<Found>> {
        let bucket = self.bucket(id)?;
        let known = bucket.iter().find(|(_, slot)| slot.tag == id.tag);
        // What is to matter for longer than anything does is nonsense.
        let free = || bucket.iter().find(|(_, slot)| slot.until <= now || slot.until > now.saturating_add(FAR));
        Ok(known.copied().or_else(|| free().map(|(place, _)| (*place, Slot { tag: id.tag, ..Slot::default() }))))
    }

    fn bucket(&self, id: Id) -> io::Result<Vec<Found>> {
        let (place, mut bytes) = (id.bucket(), [0; BUCKET as usize]);
        self.0.read_exact_at(&mut bytes, place)?;
        Ok((place..).step_by(SLOT as usize).zip(bytes.chunks_exact(SLOT as usize).map(Slot::read)).collect())
    }

    /// For whoever has the lease, and has locked the bucket.
    pub fn write(&self, (place, slot): Found) -> io::Result<()> {
        self.0.write_all_at(&slot.bytes(), place)
    }

    /// What may be told by anybody: hold, backoff, for how long that matters, and what answers have come to. For whoever has locked the bucket.
    pub fn write_refusal(&self, (place, slot): Found) -> io::Result<()> {
        self.0.write_all_at(&slot.bytes()[REFUSAL..], place + REFUSAL as u64)
    }

    /// For whoever has the lease; whatever others tell meanwhile.
    pub fn write_starts(&self, (place, slot): Found) -> io::Result<()> {
        self.0.write_all_at(&slot.bytes()[STARTS..STARTS + 16], place + STARTS as u64)
    }

    /// False: another process has locked it.
    pub fn lock(&self, at: u64, length: u64) -> io::Result<bool> {
        match self.control(libc::F_OFD_SETLK, libc::F_WRLCK, at, length) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `length`: 0 is all that follows.
    pub fn unlock(&self, at: u64, length: u64) -> io::Result<()> {
        self.control(libc::F_OFD_SETLK, libc::F_UNLCK, at, length).map(drop)
    }

    /// How many of these bytes other processes have locked.
    pub fn count_locked(&self, at: u64, end: u64) -> io::Result<u32> {
        if at >= end {
            return Ok(0);
        }
        let lock = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, at, end - at)?;
        if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
            return Ok(0);
        }
        // It is any of them, not the first.
        let (start, after) = (lock.l_start.cast_unsigned(), (lock.l_start + lock.l_len).cast_unsigned());
        Ok(1 + self.count_locked(at, start)? + self.count_locked(after.max(start + 1), end)?)
    }

    fn control(&self, command: libc::c_int, kind: libc::c_int, at: u64, length: u64) -> io::Result<libc::flock> {
        // SAFETY: numbers alone; no byte of it need be anything but zero.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
        (lock.l_start, lock.l_len) = (at.cast_signed(), length.cast_signed());
        // SAFETY: these commands read and write the one `flock`, which outlives the call; the file is open.
        match unsafe { libc::fcntl(self.0.as_raw_fd(), command, &raw mut lock) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(lock),
        }
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

impl Slot {
    fn read(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        let [tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals] =
            std::array::from_fn(|_| words.next().unwrap_or(0));
        Self { tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals }
    }

    fn bytes(&self) -> [u8; SLOT as usize] {
        let Self { tag, by, last_start, last_fetch, given, hold, backoff, until, latency, refusals } = *self;
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

/// What root makes in another's directory is that one's. Nobody else's is trusted.
pub(super) fn hand_over(file: &File, directory: &Path) -> io::Result<()> {
    let (it, whose, me) = (file.metadata()?, fs::metadata(directory)?, rustix::process::geteuid().as_raw());
    // A file of another name may be anybody's.
    let is_linked = it.is_file() && it.nlink() != 1;
    if is_linked || it.uid() != me && !(me == 0 && it.uid() == whose.uid()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    if me == 0 && it.uid() != whose.uid() {
        fchown(file, Some(whose.uid()), Some(whose.gid()))?;
    }
    Ok(())
}

/// One instant by both clocks: of some looks, the one that took least.
static ZERO: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    let looks = (0..8).map(|_| {
        let (before, time) = (Instant::now(), monotonic());
        let nanos = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        (before.elapsed(), before, nanos)
    });
    let (_, instant, nanos) = looks.min_by_key(|(took, ..)| *took).expect("eight");
    (instant, nanos)
});

fn monotonic() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the one `timespec`, which outlives the call; Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time
}

/// To begin, for two seconds.
const TRIES: u32 = 200;
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// NFS, SMB and 9P, whose clients have clocks of their own.
const NETWORK: [i64; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];
/// With the version of what is in it.
const FILE: &str = "politely.pace2";
const SLOT: u64 = 10 * 8;
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
