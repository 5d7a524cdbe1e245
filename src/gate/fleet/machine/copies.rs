//! Copies of robots.txt that the processes of a machine leave each other: each a file, in one of so many places, of which a
//! later one takes that of an earlier one. The right to fetch is a lock in the file of [`slots`](super::slots).

use super::Machine;
use super::slots::{Id, Slots, hand_over};
use crate::gate::fleet::{Lost, Parcel};
use crate::gate::store::snapshot::{self, millis, time};
use crate::policy::Entry;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// Their directory: that very one, whatever has its name by now.
#[derive(Debug)]
pub(super) struct Copies(File);

/// The right to fetch one authority's robots.txt; given back when dropped.
#[derive(Debug)]
pub(in crate::gate) struct Right {
    slots: Arc<Slots>,
    copies: Arc<Copies>,
    id: Id,
}

/// What becomes of the wish for a copy.
pub(in crate::gate::fleet) enum Claimed {
    Copy(Parcel),
    /// It is for this process to fetch; the copy is to be renewed.
    Fetch(Right, Option<Parcel>),
}

impl Machine {
    /// A copy that is fresh, or the right to fetch it; waits while another process has that, unless that one does not come
    /// back with it: it may be stopped. `anew`: no copy will do that is from before now.
    pub async fn claim(&self, authority: &str, anew: bool) -> Result<Claimed, Lost> {
        // As a copy tells it.
        let (id, since) = (Id::of(authority), time(millis(SystemTime::now())));
        let patience = Instant::now() + FETCH_LASTS;
        loop {
            // First, so that nobody leaves one in between.
            let right = self.right(authority).map_err(|error| self.give_up(&error))?;
            // Twice is better than never.
            let right = right.or_else(|| (Instant::now() >= patience).then(|| self.right_of(id)));
            let copies = self.copies.clone();
            let kept = spawn_blocking(move || copies.read(id)).await.ok().flatten();
            let now = SystemTime::now();
            match (kept, right) {
                (Some((copy, until)), _) if copy.sent >= since || !anew && copy.sent <= now && now < until => {
                    return Ok(Claimed::Copy(copy));
                }
                (kept, Some(right)) => return Ok(Claimed::Fetch(right, kept.map(|(copy, _)| copy))),
                (_, None) => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// `None`: another has it.
    pub fn right(&self, authority: &str) -> io::Result<Option<Right>> {
        let id = Id::of(authority);
        Ok(self.slots.lock(id.right(), 1)?.then(|| self.right_of(id)))
    }

    fn right_of(&self, id: Id) -> Right {
        Right { slots: self.slots.clone(), copies: self.copies.clone(), id }
    }
}

impl Copies {
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(DIRECTORY);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
        let copies = Self(OpenOptions::new().read(true).custom_flags(flags).open(&path)?);
        hand_over(&copies.0, directory)?;
        let swept = Self(copies.0.try_clone()?);
        // Nobody waits for it.
        let _ = thread::Builder::new().spawn(move || swept.sweep());
        Ok(copies)
    }

    /// With until when it is fresh.
    fn read(&self, id: Id) -> Option<(Parcel, SystemTime)> {
        let mut bytes = Vec::new();
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(self.path(id)).ok()?;
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let (head, copy) = bytes.split_at_checked(HEAD)?;
        let mut words = head.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        let [tag, place, sent, until] = std::array::from_fn(|_| words.next().unwrap_or(0));
        (Id { tag, place } == id).then(|| (Parcel { bytes: copy.to_vec(), sent: time(sent) }, time(until)))
    }

    fn write(&self, id: Id, copy: &[u8], until: SystemTime) -> io::Result<()> {
        let path = self.path(id);
        let new = path.with_extension(format!("{:016x}", fastrand::u64(..)));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let write = |mut file: File| {
            hand_over(&file, &self.directory())?;
            let head = [id.tag, id.place, millis(SystemTime::now()), millis(until)].map(u64::to_le_bytes);
            file.write_all(&[head.as_flattened(), copy].concat())?;
            fs::rename(&new, &path)
        };
        write(file).inspect_err(|_| _ = fs::remove_file(&new))
    }

    fn path(&self, id: Id) -> PathBuf {
        self.directory().join(format!("{:03x}", id.place % PLACES))
    }

    fn directory(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// What nobody has renewed for so long is fetched anew.
    fn sweep(&self) {
        for file in fs::read_dir(self.directory()).into_iter().flatten().flatten() {
            let age = file.metadata().and_then(|it| it.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > OLD) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

impl Right {
    /// Leaves what the origin has answered to the others, behind everybody's back. That it could not be had is each one's
    /// to find.
    pub fn publish(self, entry: &Entry, until: SystemTime) {
        let answered = entry.answer.clone().filter(|_| entry.trouble.is_none());
        let write = move |entry| {
            let copy = snapshot::pack(&entry, SystemTime::now())?;
            let has_room = copy.len() + HEAD <= LONGEST as usize;
            // What cannot be left here is fetched by each.
            has_room.then(|| self.copies.write(self.id, &copy, until))
        };
        if let Some(entry) = answered.map(Entry::answered) {
            spawn_blocking(move || write(entry));
        }
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        // It fails as all that follows does.
        let _ = self.slots.unlock(self.id.right(), 1);
    }
}

/// With the version of what is in it.
const DIRECTORY: &str = "politely.copies1";
const PLACES: u64 = 4096;
const HEAD: usize = 32;
const LONGEST: u64 = 64 << 10;
const OLD: Duration = Duration::from_secs(24 * 3600);
/// As a rule no fetch takes longer, with all its redirects.
const FETCH_LASTS: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
