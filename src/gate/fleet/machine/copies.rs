//! Copies of robots.txt that the processes of a machine leave each other: each a file, in one of so many places, of which a
//! later one takes that of an earlier one. The right to fetch is a lock in the file of [`slots`](super::slots).

use super::Machine;
use super::locks::hand_over;
use super::slots::Id;
use crate::gate::fleet::copies::FoundCopy;
use crate::gate::fleet::{Parcel, ServerLost};
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

/// Their directory: that very one, whatever has its name by now.
#[derive(Debug)]
pub(super) struct Copies(File);

impl Machine {
    /// A copy that is fresh, or no older than `age`, or the right to fetch one: nobody else has that, or does not come back
    /// with it: it may be stopped. `anew`: how fresh it is does not count.
    pub async fn look(&self, authority: &str, anew: bool, age: Duration) -> Result<FoundCopy, ServerLost> {
        let id = Id::of(authority);
        // First, so that nobody leaves a copy in between.
        let has_right = self.slots.lock(id.right(), 1).map_err(|error| self.give_up(&error))?;
        let copies = self.copies.clone();
        let kept = spawn_blocking(move || copies.read(id)).await.ok().flatten();
        let now = SystemTime::now();
        Ok(match kept {
            // What is from later than now was left before the clock was set back.
            Some((copy, until)) if copy.sent <= now && (copy.sent + age >= now || !anew && now < until) => {
                FoundCopy::Copy(copy)
            }
            // Twice is better than never.
            kept if has_right || age >= FETCH_LASTS => FoundCopy::Right(kept.map(|(copy, _)| copy)),
            _ => FoundCopy::Busy(LOOK_EVERY),
        })
    }

    /// The right to fetch it, if this process has that.
    pub fn give_back(&self, authority: &str) {
        // It fails as all that follows does.
        let _ = self.slots.unlock(Id::of(authority).right(), 1);
    }

    /// Leaves what the origin has answered to the others. That it could not be had is each one's to find.
    pub async fn leave(&self, authority: &str, entry: Arc<Entry>, until: SystemTime) {
        let Some(answer) = entry.answer.as_ref().filter(|_| entry.trouble.is_none()) else { return };
        let (copies, id, sent) = (self.copies.clone(), Id::of(authority), answer.freshness.validated_at());
        let write = move || {
            let copy = snapshot::pack(&entry, sent)?;
            let has_room = copy.len() + HEAD <= LONGEST as usize;
            // What cannot be left here is fetched by each.
            has_room.then(|| copies.write(id, &copy, sent, until))
        };
        let _ = spawn_blocking(write).await;
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

    /// As its origin sent it, with until when it is fresh.
    fn read(&self, id: Id) -> Option<(Parcel, SystemTime)> {
        let mut bytes = Vec::new();
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(self.path(id)).ok()?;
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let (head, copy) = bytes.split_at_checked(HEAD)?;
        let mut words = head.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        let [tag, place, sent, until] = std::array::from_fn(|_| words.next().unwrap_or(0));
        (Id { tag, place } == id).then(|| (Parcel { bytes: copy.to_vec(), sent: time(sent) }, time(until)))
    }

    fn write(&self, id: Id, copy: &[u8], sent: SystemTime, until: SystemTime) -> io::Result<()> {
        let path = self.path(id);
        let new = path.with_extension(format!("{:016x}", fastrand::u64(..)));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let write = |mut file: File| {
            hand_over(&file, &self.directory())?;
            let head = [id.tag, id.place, millis(sent), millis(until)].map(u64::to_le_bytes);
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

/// With the version of what is in it.
const DIRECTORY: &str = "politely.copies1";
const PLACES: u64 = 4096;
const HEAD: usize = 32;
const LONGEST: u64 = 64 << 10;
const OLD: Duration = Duration::from_secs(24 * 3600);
/// As a rule no fetch takes longer, with all its redirects.
const FETCH_LASTS: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
