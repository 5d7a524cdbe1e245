//! The thread that writes: it takes records from `queue`, appends them to `chain`, begins new segments, and removes segments older than
//! `keep`. `start` finds the end of an earlier chain.

mod chain;
mod queue;
mod removal;
mod retention;
mod start;

pub use queue::{Batch, Queue};
pub use start::{is_locked, unusable};

use crate::config::{LOCK, UnusableFile, is_same, private_directory, warn_of_foreign, warn_of_others};
use crate::evidence::record::{Draft, digits, sha256};
use crate::evidence::segment::{compress_full, foreign, tidy};
use chain::Chain;
use queue::Lost;
use start::{is_full, lock, resume, start};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

pub struct Writer {
    directory: PathBuf,
    queue: Arc<Queue>,
    pub chain: Chain,
    /// Lines that could not be written because the disk was full. They are written before the next record.
    pending: Vec<Vec<u8>>,
    /// Lost records that the chain does not report yet.
    lost: Option<Lost>,
    /// When a loss was last logged.
    logged: Option<Instant>,
    /// Whether the log has reported that nothing can be written. If so, it must still report the recovery, with the number of lost records
    /// (`unsaid`).
    is_told: bool,
    unsaid: u64,
    /// When `look_after` last ran.
    looked: Instant,
    /// The thread that compresses ended segments.
    pub helper: Option<JoinHandle<()>>,
    /// When writing last failed, and why. `None`: the last write succeeded.
    pub failed: Option<(Instant, String)>,
    /// The lock file. While it is open, no other process can write to the directory.
    lock: File,
    /// Segments that could not be removed, although the chain says that they were.
    stuck: HashSet<u64>,
}

impl Writer {
    pub fn open(directory: &Path, queue: Arc<Queue>, instance: &str, config: &str) -> Result<Self, UnusableFile> {
        let io = |error| unusable(directory, &error);
        private_directory(directory).map_err(io)?;
        warn_of_others(directory, "this evidence");
        let lock = lock(directory)?;
        tidy(directory).map_err(io)?;
        warn_of_foreign(&foreign(directory).map_err(io)?, "evidence");
        let now = SystemTime::now();
        let (segment, head, end) = resume(directory, now, instance)?;
        let mut writer = Writer {
            directory: directory.to_owned(),
            chain: Chain::new(directory.to_owned(), queue.clone(), instance.to_owned(), (segment, head), !end.is_first),
            queue,
            pending: Vec::new(),
            lost: None,
            logged: None,
            is_told: false,
            unsaid: 0,
            looked: Instant::now(),
            helper: None,
            failed: None,
            lock,
            stuck: HashSet::new(),
        };
        let digest = sha256(config.as_bytes());
        let begin = |writer: &mut Self| {
            writer.chain.keep(&digest, config.as_bytes())?;
            writer.chain.say(start(now, instance, &digest, &end))
        };
        let mut begun = begin(&mut writer);
        if begun.as_ref().is_err_and(is_full) && writer.remove_old(now).is_ok_and(|removed| removed) {
            begun = begin(&mut writer);
        }
        begun.map_err(io)?;
        writer.look_after(now);
        Ok(writer)
    }

    pub fn run(mut self) {
        let patience = |writer: &Self| match writer.is_behind() || writer.chain.unsynced_for().is_some() {
            true => SYNC,
            false => LOOK,
        };
        let mut batch = Batch::default();
        while let Some(taken) = self.queue.take(batch, patience(&self)) {
            if !taken.is_empty() || self.is_behind() {
                self.write(&taken);
            }
            batch = taken;
            if self.chain.unsynced_for().is_some_and(|since| since >= SYNC) {
                let _ = self.chain.sync();
            }
            if self.looked.elapsed() >= LOOK {
                self.look_after(SystemTime::now());
            }
        }
        self.stop();
    }

    /// Writes a batch. Records that cannot be written are lost; the chain records the loss as soon as there is room.
    pub fn write(&mut self, batch: &Batch) {
        let now = SystemTime::now();
        if self.chain.segment.is_over(now, MOST_SEGMENT) && self.chain.next_segment(now, false) {
            self.look_after(now);
        }
        let mut written = 0;
        let appended =
            self.may_write(now).and_then(|()| self.catch_up()).and_then(|()| self.chain.append(batch, &mut written));
        if let Err(error) = &appended {
            self.failed.get_or_insert_with(|| (Instant::now(), error.to_string()));
        }
        match appended {
            // The log reports the end of a loss.
            Ok(None) if self.is_told => {
                self.is_told = false;
                let records = std::mem::take(&mut self.unsaid);
                tracing::warn!(records, "evidence is written again; these records were lost");
            }
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => {
                let (from, to) = batch.times.unwrap_or((now, now));
                let lost = Lost { count: batch.records - written, from, to };
                self.queue.lost.fetch_add(lost.count, Relaxed);
                self.unsaid += lost.count;
                if self.lost.is_none() && self.is_to_be_logged() {
                    self.is_told = true;
                    tracing::error!(directory = %self.directory.display(), "evidence cannot be written, and is lost: {error}");
                }
                self.lose(lost);
            }
        }
        if let Some(lost) = batch.lost {
            if self.is_to_be_logged() {
                tracing::warn!(records = lost.count, "evidence was lost: {}", batch.why);
            }
            self.lose(lost);
        }
        // Records the loss now, as the next record may be hours away.
        if self.lost.is_some() && self.failed.is_none() && !self.chain.is_damaged() {
            let _ = self.catch_up();
        }
    }

    fn lose(&mut self, lost: Lost) {
        if lost.count > 0 {
            self.lost = Some(self.lost.map_or(lost, |before| before.and(lost)));
        }
    }

    fn is_to_be_logged(&mut self) -> bool {
        let is_quiet = self.logged.is_some_and(|logged| logged.elapsed() <= QUIET);
        self.logged = self.logged.filter(|_| is_quiet).or_else(|| Some(Instant::now()));
        !is_quiet
    }

    /// Whether the chain or the log must still report a loss. The report does not wait for the next record.
    fn is_behind(&self) -> bool {
        self.lost.is_some() || self.is_told
    }

    /// Fails if writing failed less than a second ago. Begins a new segment if the current one was removed, or fsync failed for it.
    fn may_write(&mut self, now: SystemTime) -> io::Result<()> {
        let recent = self.failed.as_ref().filter(|(since, _)| since.elapsed() < PAUSE && !self.queue.is_closed());
        if let Some((_, why)) = recent {
            return Err(io::Error::other(why.clone()));
        }
        self.failed = None;
        let is_gone = self.chain.segment.is_gone();
        if !is_gone && !self.chain.is_damaged() {
            return Ok(());
        }
        private_directory(&self.directory)?;
        if !is_same(&self.lock, &self.directory.join(LOCK)) {
            self.lock = lock(&self.directory).map_err(io::Error::other)?;
        }
        let before = self.chain.segment.number;
        self.chain.next_segment(now, true);
        if self.chain.segment.number == before {
            return Err(io::Error::other(
                "the current segment was removed or damaged, and no new segment can be created",
            ));
        }
        if is_gone {
            tracing::warn!(segment = before, "a segment of evidence was removed, and the records in it are gone");
        }
        Ok(())
    }

    /// Appends the lines that could not be written before, and the line that records a loss.
    fn catch_up(&mut self) -> io::Result<()> {
        while let Some(line) = self.pending.first().cloned() {
            self.chain.line(&line)?;
            self.pending.remove(0);
        }
        if let Some(lost) = self.lost {
            self.chain.say(lost.draft())?;
            self.lost = None;
        }
        Ok(())
    }

    /// Removes segments older than `keep`, and compresses ended ones.
    pub fn look_after(&mut self, now: SystemTime) {
        self.looked = Instant::now();
        // A removed file takes disk space as long as it is open, so a new segment is begun. If that fails, the next write reports the
        // error.
        if self.chain.segment.is_gone() {
            let _ = self.may_write(now);
        }
        // Ends a segment by its age, however little is written, so that it can be removed when due.
        if self.chain.is_used && self.chain.segment.is_over(now, u64::MAX) {
            self.chain.next_segment(now, false);
        }
        // The helper and `remove_old` both change the directory, so only one of them runs at a time.
        if self.helper.as_ref().is_some_and(|helper| !helper.is_finished()) {
            return;
        }
        if let Err(error) = self.remove_old(now) {
            tracing::error!(directory = %self.directory.display(), "old evidence cannot be removed: {error}");
        }
        let directory = self.directory.clone();
        let helper = std::thread::Builder::new().name("politely-evidence-gzip".into());
        self.helper = helper.spawn(move || compress_full(&directory)).ok();
    }

    fn stop(&mut self) {
        // Tries a second time if fsync fails, as the chain then continues in another segment.
        for _ in 0..2 {
            let mut draft = Draft::new("stop", SystemTime::now());
            draft.number("written", self.queue.written.load(Relaxed));
            draft.number("lost", self.queue.lost.load(Relaxed));
            let ready = if self.chain.is_damaged() { self.may_write(SystemTime::now()) } else { Ok(()) };
            let ended = ready.and_then(|()| self.catch_up()).and_then(|()| self.chain.say(draft));
            if let Err(error) = ended {
                tracing::error!("the last lines of the evidence cannot be written: {error}");
            }
            if self.chain.sync().is_ok() {
                break;
            }
        }
        let _ = self.helper.take().map(JoinHandle::join);
        let (segment, lost) = (self.chain.segment.number, self.queue.lost.load(Relaxed));
        tracing::info!(segment, head = %digits(&self.chain.head()), lost, "evidence is closed");
    }
}

/// Number of bytes after which a new segment begins.
const MOST_SEGMENT: u64 = 64 << 20;
/// Maximum time between fsyncs: a power failure loses at most the records of this time. Also the time between two attempts to record a
/// loss.
const SYNC: Duration = Duration::from_secs(1);
/// Time until a failed write is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two searches for old segments.
const LOOK: Duration = Duration::from_secs(3600);
/// Minimum time between two log lines about losses.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
pub use queue::MOST_RECORD;
