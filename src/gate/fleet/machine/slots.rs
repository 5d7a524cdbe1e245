//! The file with the paces shared by the processes of a machine: slots of a few 64-bit words, found by a hash of the key. Debts stay there
//! after all processes have ended.
//!
//! A key's slot is in the key's bucket, which is a quarter of a page. If all slots of the bucket are in use, the file grows by a segment,
//! in which the key has another bucket. Each segment is up to twice as long as the one before. So the file grows with the number of
//! concurrent debts, and new hosts share the pages that the kernel writes. Only opening the file and adding a key take a lock, one
//! for the whole file. Each process locks the byte of its number until it ends, so that others can tell whether it is alive.

use super::Machine;
use super::clock::micros;
use super::key_id::{bucket, is_pace_beside, number, secret};
use super::machine_file::{MachineFile, boot_id};
use super::slot::{BUCKET, KeySlot, ROWS};
use super::words::SharedWords;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

impl Machine {
    /// Opens or creates the file. A damaged file is replaced, unless another process uses it. Blocks for at most `wait` while other
    /// processes open the file. `most`: upper limit of a debt.
    pub fn open(directory: &Path, most: Duration, wait: Duration) -> io::Result<Self> {
        let until = Instant::now() + wait;
        let file = loop {
            let file = MachineFile::open(directory, FILE)?;
            // Other processes hold the lock only briefly, unless suspended. The file may have been replaced meanwhile.
            if file.lock(GUARD)? && file.is_named()? {
                break file;
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            #[expect(clippy::disallowed_methods, reason = "nothing is served yet")]
            thread::sleep(TRY_AGAIN);
        };
        let boot = number(&boot_id());
        if !is_whole(&file)? {
            begin(&file, boot)?;
        }
        let words = SharedWords::map(&file.file, count(SEGMENTS))?;
        let me = (0..PROCESSES).map(|n| (n + fastrand::u16(..)) % PROCESSES + 1);
        let me = me.take(usize::from(PROCESSES)).find(|me| file.lock(PROCESS + u64::from(*me)).unwrap_or(false));
        let number = me.ok_or_else(|| io::Error::other("too many processes use it"))?;
        let process = words.word(PIDS + usize::from(number));
        let generation = ((process.load(SeqCst) >> 32) as u16).wrapping_add(1);
        process.store(u64::from(generation) << 32 | u64::from(std::process::id()), SeqCst);
        let (me, key) = (u32::from(generation) << 16 | u32::from(number), words.word(KEY_WORD).load(SeqCst));
        let segments = words.word(SEGMENTS_WORD).load(SeqCst) as usize;
        let machine = Self::with(Some(file), words, (key, segments, SEGMENTS), me, most);
        if machine.words.word(BOOT_WORD).load(SeqCst) != boot {
            machine.boot(boot);
        }
        machine.locked(|file| file.unlock(GUARD).is_ok());
        Ok(machine)
    }

    /// Creates the state in memory, for this process alone.
    pub fn unnamed(most: Duration) -> Self {
        // Maps as many segments as the process has address space for.
        let mapped = |segments| Some((SharedWords::unnamed(count(segments)).ok()?, segments));
        let (words, segments) = (1..=SEGMENTS).rev().find_map(mapped).expect("80 KiB fit into memory");
        Self::with(None, words, (secret(), 1, segments), 1, most)
    }

    /// Takes or releases a lock of the file. Returns whether that succeeded. Without a file there are no other processes, so no lock is
    /// needed.
    fn locked(&self, lock: impl FnOnce(&MachineFile) -> bool) -> bool {
        self.file.as_ref().is_none_or(lock)
    }

    /// Bytes of this process's own memory that are in use; 0 if there is a file. Each key counts as a page, as keys are spread over the
    /// pages.
    pub fn own_bytes(&self) -> usize {
        let all = if self.file.is_some() { 0 } else { size(self.segments()) as usize };
        all.min(self.used.load(SeqCst).saturating_mul(PAGE))
    }

    /// The key's slot, if there is one.
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<KeySlot<'_>> {
        for segment in 0..self.segments() {
            let bucket = self.bucket(segment, id);
            let tags: &[AtomicU64; ROWS] = bucket.first_chunk().expect("a bucket is longer");
            if let Some(row) = tags.iter().position(|tag| tag.load(SeqCst) == id) {
                return Some(KeySlot::at(bucket, row, id));
            }
            // A bucket's slots are taken in order and never become free again. If the last one is free, later segments do not have the key.
            if tags[ROWS - 1].load(SeqCst) == 0 {
                return None;
            }
        }
        None
    }

    /// The slots of a host: its own, and those of its groups.
    pub(super) fn of_host(&self, id: u64) -> impl Iterator<Item = KeySlot<'_>> {
        let all = (0..self.segments()).flat_map(move |segment| slots(self.bucket(segment, id), id));
        all.filter(move |slot| is_pace_beside(slot.id(), id))
    }

    /// Calls `uses` with the key's slot. If it has none, takes over an expired slot for it; if none has expired, evicts the key that
    /// expires first, so that every host gets a slot. `uses` is called under the lock for a new slot, so that no other key takes the
    /// slot over as expired before its first use. `None`: another process opens the file or adds a key; or processes that are alive
    /// have the turns of all keys in its buckets.
    pub(super) fn with_slot<R>(&self, id: u64, now: u64, uses: impl FnOnce(KeySlot<'_>) -> R) -> Option<R> {
        if let Some(slot) = self.find(id) {
            return Some(uses(slot));
        }
        let _inserting = self.inserting.lock();
        if !self.locked(|file| file.lock(GUARD).unwrap_or(false)) {
            return None;
        }
        let used = self.find(id).or_else(|| self.insert(id, now)).map(uses);
        let is_unlocked = self.locked(|file| file.unlock(GUARD).is_ok());
        used.filter(|_| is_unlocked)
    }

    /// Whether a process is alive; always true for `me`.
    pub(super) fn lives(&self, process: u32) -> bool {
        let byte = PROCESS + u64::from(process as u16);
        process == self.me
            || self.pid(process).is_some()
                && self.locked(|file| file.count_locked(byte, byte + 1).is_ok_and(|count| count > 0))
    }

    /// The system's id of a process. `None`: another process has taken its number.
    pub(super) fn pid(&self, process: u32) -> Option<u32> {
        let (number, generation) = (process as u16, u64::from(process >> 16));
        let place = (1..=PROCESSES).contains(&number).then_some(PIDS + usize::from(number))?;
        let word = self.words.word(place).load(SeqCst);
        (word >> 32 == generation).then_some(word as u32)
    }

    /// Number of processes that use the file, including this one, and this process's rank among them.
    pub(super) fn processes(&self) -> (u32, u32) {
        let others = |end: u16| {
            self.file.as_ref().map_or(0, |it| it.count_locked(PROCESS + 1, PROCESS + u64::from(end)).unwrap_or(0))
        };
        (others(PROCESSES + 1) + 1, others(self.me as u16))
    }

    /// Releases this process's number, so that other processes may begin the file anew.
    pub(super) fn give_up(&self) {
        self.locked(|file| file.unlock(PROCESS + u64::from(self.me as u16)).is_ok());
    }

    /// Locks the file, so that other processes add no key until this is dropped.
    #[cfg(test)]
    pub(super) fn guard(&self) -> bool {
        self.locked(|file| file.lock(GUARD).unwrap_or(false))
    }

    /// Number of keys.
    #[cfg(test)]
    pub fn keys(&self) -> usize {
        self.all_used().count()
    }

    fn segments(&self) -> usize {
        let (known, noted) = (self.segments.load(SeqCst), self.words.word(SEGMENTS_WORD).load(SeqCst) as usize);
        if noted <= known || noted > SEGMENTS {
            return known;
        }
        let is_there = self.locked(|file| file.file.metadata().is_ok_and(|it| it.len() >= size(noted)));
        let known = if is_there { noted } else { known };
        self.segments.store(known, SeqCst);
        known
    }

    /// The words of the key's bucket.
    fn bucket(&self, segment: usize, id: u64) -> &[AtomicU64] {
        self.words.row(count(segment) + bucket(id, segment, FIRST << segment.min(LONGEST)) * BUCKET, BUCKET)
    }

    /// All slots that have had a key.
    fn all_used(&self) -> impl Iterator<Item = KeySlot<'_>> {
        let buckets = (BASE..count(self.segments())).step_by(BUCKET).map(|at| self.words.row(at, BUCKET));
        buckets.flat_map(|bucket| slots(bucket, 0)).filter(|slot| !slot.is_free())
    }

    /// Takes over a slot for a new key. `None`: processes that are alive have the turns of all keys in its buckets.
    fn insert(&self, id: u64, now: u64) -> Option<KeySlot<'_>> {
        let mut soonest: Option<(u64, KeySlot<'_>)> = None;
        let mut segment = 0;
        loop {
            if segment == self.segments() && !self.grow() {
                break;
            }
            for slot in slots(self.bucket(segment, id), id) {
                let over = slot.over(now, |process| self.lives(process));
                if soonest.as_ref().is_none_or(|(soonest, _)| over < *soonest) {
                    soonest = Some((over, slot));
                }
            }
            if soonest.as_ref().is_some_and(|(over, _)| *over <= now) {
                break;
            }
            segment += 1;
        }
        let (over, slot) = soonest.filter(|(over, _)| *over < u64::MAX)?;
        if over > now && !self.is_full_told.swap(true, SeqCst) {
            tracing::warn!("there is no room for more hosts with delays: some delays are dropped before they end");
        }
        self.used.fetch_add(usize::from(slot.is_free()), SeqCst);
        slot.begin();
        Some(slot)
    }

    /// Adds a segment. False: the file has its maximum length, or the disk is full.
    fn grow(&self) -> bool {
        let segments = self.segments();
        let allocates = |file: &MachineFile| file.allocate(size(segments), size(segments + 1)).is_ok();
        if segments >= self.most_segments || !self.locked(allocates) {
            return false;
        }
        self.words.word(SEGMENTS_WORD).store(segments as u64 + 1, SeqCst);
        self.segments.store(segments + 1, SeqCst);
        true
    }

    /// Adapts a file from an earlier boot of the machine, as if no time had passed since then.
    fn boot(&self, boot: u64) {
        let latest = self.all_used().map(|slot| slot.latest()).max().unwrap_or(0);
        let now = micros(Instant::now());
        self.all_used().for_each(|slot| slot.moved(latest, now));
        self.words.word(BOOT_WORD).store(boot, SeqCst);
    }
}

/// The slots of a bucket, found for a key.
fn slots(bucket: &[AtomicU64], id: u64) -> impl Iterator<Item = KeySlot<'_>> {
    (0..ROWS).map(move |row| KeySlot::at(bucket, row, id))
}

/// Whether the file is ours and complete.
fn is_whole(file: &MachineFile) -> io::Result<bool> {
    let mut head = [[0; 8]; 4];
    let length = file.file.metadata()?.len();
    if length < size(1) {
        return Ok(false);
    }
    file.file.read_exact_at(head.as_flattened_mut(), 0)?;
    let [magic, _, key, segments] = head.map(u64::from_le_bytes);
    let segments = usize::try_from(segments).unwrap_or(0);
    Ok(magic == MAGIC && key != 0 && (1..=SEGMENTS).contains(&segments) && length >= size(segments))
}

/// Writes an empty file over a new or damaged one.
fn begin(file: &MachineFile, boot: u64) -> io::Result<()> {
    if file.file.metadata()?.len() > 0 {
        if file.count_locked(PROCESS, PROCESS + 1 + u64::from(PROCESSES))? > 0 {
            return Err(io::Error::other(format!("{FILE} is damaged, and another process uses it")));
        }
        tracing::warn!("{FILE} is damaged: it is replaced by an empty one, and delays are forgotten");
        file.file.set_len(0)?;
    }
    file.allocate(0, size(RESERVED))?;
    file.file.write_all_at([MAGIC, boot, secret(), 1].map(u64::to_le_bytes).as_flattened(), 0)
}

/// Length of a file with this many segments, in bytes.
fn size(segments: usize) -> u64 {
    (count(segments) * size_of::<u64>()) as u64
}

/// Length of a file with this many segments, in words.
fn count(segments: usize) -> usize {
    let doubled = segments.min(LONGEST);
    BASE + BUCKET * FIRST * ((1 << doubled) - 1 + ((segments - doubled) << LONGEST))
}

const TRY_AGAIN: Duration = Duration::from_millis(10);
/// The name contains the format version.
pub(super) const FILE: &str = "politely.pace7";
const MAGIC: u64 = u64::from_le_bytes(*b"politel7");
const BOOT_WORD: usize = 1;
const KEY_WORD: usize = 2;
const SEGMENTS_WORD: usize = 3;
/// Index of the first word of the process ids, which are between the head and the slots.
const PIDS: usize = 1024;
/// Maximum number of processes at a time.
const PROCESSES: u16 = 1023;
const BASE: usize = 2 * 1024;
/// Buckets of the first segment.
const FIRST: usize = 64;
/// Index of the first segment of the maximum length, 16 MiB. Each segment before it is half as long as the next.
const LONGEST: usize = 8;
/// Number of segments whose disk space is reserved in advance, in case the disk becomes full: 4 MiB, room for some 50,000 slots.
const RESERVED: usize = 6;
/// Maximum number of segments: 1.4 million slots.
const SEGMENTS: usize = 13;
const PAGE: usize = 4096;
/// Offset, beyond the data, of the byte that a process locks while it opens the file or adds a key.
const GUARD: u64 = 1 << 40;
/// Each process locks the byte at this offset plus its number.
const PROCESS: u64 = GUARD + 1;
