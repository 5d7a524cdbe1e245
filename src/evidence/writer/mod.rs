//! The thread that writes: it puts records into the chain, begins new segments, and removes those that were kept long enough.

mod start;
mod unkept;
mod unsaid;
mod upkeep;

pub use start::{OpenError, is_locked};

use super::bodies::Bodies;
use super::chain::{Chain, digits, sha256};
use super::draft::Draft;
use super::queue::{Batch, Lost, Queue};
use super::segment::{Segment, is_same, tidy};
use crate::config::private_directory;
use start::{LOCK, begin, lock, resume, start, warn_of_others};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use unkept::Unkept;
use unsaid::{Unsaid, is_full};
pub use upkeep::Clock;
use upkeep::LOOK;

pub(super) struct Writer {
    directory: PathBuf,
    queue: Arc<Queue>,
    bodies: Arc<Bodies>,
    pub segment: Segment,
    chain: Chain,
    /// Records in the segment.
    records: u64,
    unsaid: Unsaid,
    out: Vec<u8>,
    /// Written, but a loss of power would lose it; since then.
    unsynced: Option<Instant>,
    looked: Instant,
    clock: Clock,
    /// When no new segment could be begun, since one could.
    refused: Option<Instant>,
    /// Compresses, and removes bodies.
    helper: Option<JoinHandle<()>>,
    /// When something could not be written since it could, and why.
    pub failed: Option<(Instant, String)>,
    /// Nobody else writes here for as long as it is open.
    lock: File,
}

impl Writer {
    pub fn open(directory: &Path, queue: Arc<Queue>, instance: &str, config: &str) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: directory.to_owned(), source };
        private_directory(directory).map_err(io)?;
        warn_of_others(directory);
        let lock = lock(directory)?;
        tidy(directory).map_err(io)?;
        let now = SystemTime::now();
        let (segment, chain, end) = resume(directory, now)?;
        let mut writer = Writer {
            directory: directory.to_owned(),
            queue,
            bodies: Arc::new(Bodies::new(directory)),
            segment,
            chain,
            records: u64::from(!end.is_first),
            unsaid: Unsaid::default(),
            out: Vec::new(),
            unsynced: None,
            looked: Instant::now(),
            clock: Clock::default(),
            refused: None,
            helper: None,
            failed: None,
            lock,
        };
        let digest = sha256(config.as_bytes());
        let begin = |writer: &mut Self| {
            writer.bodies.keep(&digest, config.as_bytes(), writer.segment.began)?;
            writer.say(start(now, instance, &digest, &end))
        };
        begin(&mut writer)
            .or_else(|error| match is_full(&error) && writer.remove_old(now).is_ok_and(|removed| removed) {
                true => begin(&mut writer),
                false => Err(error),
            })
            .map_err(io)?;
        writer.look_after(now);
        Ok(writer)
    }

    pub fn run(mut self) {
        let patience = |writer: &Self| if writer.unsynced.is_some() { SYNC } else { LOOK };
        let mut batch = Batch::default();
        while let Some(taken) = self.queue.take(batch, patience(&self)) {
            if !taken.is_empty() {
                self.write(&taken);
            }
            batch = taken;
            if self.unsynced.is_some_and(|since| since.elapsed() >= SYNC) {
                self.sync();
            }
            if self.looked.elapsed() >= LOOK {
                self.look_after(SystemTime::now());
            }
        }
        self.stop();
    }

    /// A batch: first what it names, then its lines. What cannot be written is lost, and said as soon as there is room.
    pub fn write(&mut self, batch: &Batch) {
        let now = SystemTime::now();
        if self.segment.is_over(now, MOST_SEGMENT) && self.next_segment(now) {
            self.look_after(now);
        }
        let (count, mut written) = (batch.records, 0);
        let may_write = self.may_write(now);
        let unkept =
            if may_write.is_ok() { Unkept::of(batch, &self.bodies, self.segment.began) } else { Unkept::default() };
        let lines = unkept.spare(&batch.lines);
        let appended = may_write.and_then(|()| self.append(&lines, &mut written));
        if let Err(error) = &appended {
            self.failed.get_or_insert_with(|| (Instant::now(), error.to_string()));
        }
        if let Some(error) = appended.err().or(unkept.why) {
            let (from, to) = batch.times.unwrap_or((now, now));
            if !self.unsaid.is_lost() && self.unsaid.is_to_be_logged() {
                tracing::error!(directory = %self.directory.display(), "evidence cannot be written, and is lost: {error}");
            }
            self.queue.lost.fetch_add(count - written, Relaxed);
            self.unsaid.lose(Lost { count: count - written, from, to });
        }
        if let Some(lost) = batch.lost {
            if self.unsaid.is_to_be_logged() {
                tracing::warn!(records = lost.count, "evidence was lost: the disk is too slow");
            }
            self.unsaid.lose(lost);
            // It is of those that came before, but the next line may be hours away.
            if self.failed.is_none() {
                let _ = self.catch_up();
            }
        }
    }

    /// For as long as there is no room, room is looked for now and then. A segment that somebody has removed is followed by the
    /// next, which shows in the chain.
    fn may_write(&mut self, now: SystemTime) -> io::Result<()> {
        let recent = self.failed.as_ref().filter(|(since, _)| since.elapsed() < PAUSE && !self.queue.is_closed());
        if let Some((_, why)) = recent {
            return Err(io::Error::other(why.clone()));
        }
        self.failed = None;
        if !self.segment.is_gone() {
            return Ok(());
        }
        private_directory(&self.directory)?;
        if !is_same(&self.lock, &self.directory.join(LOCK)) {
            self.lock = lock(&self.directory).map_err(io::Error::other)?;
        }
        self.refused = None;
        let gone = self.segment.number;
        self.next_segment(now);
        if self.segment.is_gone() {
            return Err(io::Error::other("its segment was removed, and no other can be begun"));
        }
        tracing::warn!(segment = gone, "a segment of evidence was removed, and the records in it are gone");
        Ok(())
    }

    /// Says what is not said yet.
    fn catch_up(&mut self) -> io::Result<()> {
        let mut unsaid = std::mem::take(&mut self.unsaid);
        let said = unsaid.say(|draft| self.say(draft));
        self.unsaid = unsaid;
        said
    }

    /// Lines, piece by piece; `written` counts those that are in the chain.
    fn append(&mut self, lines: &[u8], written: &mut u64) -> io::Result<()> {
        self.catch_up()?;
        let (mut rest, mut chain, mut count) = (lines, self.chain, 0);
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line;
            (line, rest) = rest.split_at(end + 1);
            chain.append(line, &mut self.out);
            count += 1;
            if self.out.len() >= PIECE || rest.is_empty() {
                self.put(chain)?;
                *written += count;
                self.queue.written.fetch_add(count, Relaxed);
                self.records += count;
                count = 0;
            }
        }
        Ok(())
    }

    /// One line of the writer's own.
    fn say(&mut self, draft: Draft) -> io::Result<()> {
        let mut chain = self.chain;
        draft.end(|line| chain.append(line, &mut self.out));
        self.put(chain)
    }

    /// What is made ready; then the chain ends as in `chain`.
    fn put(&mut self, chain: Chain) -> io::Result<()> {
        let appended = self.segment.append(&self.out);
        self.out.clear();
        appended?;
        self.chain = chain;
        *self.queue.head.lock() = (self.segment.number, chain.head);
        self.unsynced.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn sync(&mut self) {
        if let Err(error) = self.segment.sync(self.bodies.are_new()) {
            tracing::error!(directory = %self.directory.display(), "evidence may not be on the disk: {error}");
        }
        self.unsynced = None;
    }

    /// Without room for another it goes on with the one that there is, and tries again after a while. Whether it has tried.
    pub fn next_segment(&mut self, now: SystemTime) -> bool {
        if self.refused.is_some_and(|refused| refused.elapsed() < AGAIN) {
            return false;
        }
        self.sync();
        match begin(&self.directory, self.segment.number + 1, self.chain, now) {
            Ok((segment, chain)) => {
                tracing::info!(
                    segment = self.segment.number,
                    head = %digits(&self.chain.head),
                    "a segment of evidence has ended"
                );
                (self.segment, self.chain) = (segment, chain);
                *self.queue.head.lock() = (self.segment.number, chain.head);
                self.bodies.begin();
                self.records = 0;
                self.refused = None;
            }
            Err(error) => {
                if self.refused.replace(Instant::now()).is_none() {
                    tracing::error!("no new segment of evidence can be begun, the one so far goes on: {error}");
                }
            }
        }
        true
    }

    fn stop(&mut self) {
        let mut draft = Draft::new("stop", SystemTime::now());
        draft.number("written", self.queue.written.load(Relaxed));
        draft.number("lost", self.queue.lost.load(Relaxed));
        if let Err(error) = self.catch_up().and_then(|()| self.say(draft)) {
            tracing::error!("the end of the evidence cannot be written: {error}");
        }
        self.sync();
        if let Some(helper) = self.helper.take() {
            let _ = helper.join();
        }
        tracing::info!(
            segment = self.segment.number,
            head = %digits(&self.chain.head),
            "evidence is closed"
        );
    }
}

const MOST_SEGMENT: u64 = 64 << 20;
/// Written at once.
const PIECE: usize = 256 << 10;
/// What may be lost with the power.
const SYNC: Duration = Duration::from_secs(1);
/// Until room is looked for again.
const PAUSE: Duration = Duration::from_secs(1);
/// Until a new segment is tried again.
const AGAIN: Duration = Duration::from_secs(10);
