//! Appends lines to the chain and begins new segments. Tracks which files the segment contains and which lines are synced.

use super::queue::{Batch, EvidenceFile, Lost, Queue};
use super::start::begin;
use crate::evidence::record::{Draft, Hash, digits, hex, link};
use crate::evidence::segment::Segment;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

pub struct Chain {
    directory: PathBuf,
    queue: Arc<Queue>,
    /// The name of this process.
    instance: String,
    pub segment: Segment,
    /// The SHA-256 of the last line.
    head: Hash,
    /// Files that this process has written to the segment.
    files: HashSet<Hash>,
    /// Whether the segment has records. A segment without records continues, however old it is.
    pub is_used: bool,
    out: Vec<u8>,
    unsynced: Option<Unsynced>,
    /// Lines for which fsync failed. The next segment begins with a record of this loss; until then, nothing is written.
    damaged: Option<Unsynced>,
    /// Time of the last failed attempt to begin a segment. `None`: the last attempt succeeded.
    refused: Option<Instant>,
}

/// Lines appended since the last fsync, which a power failure would lose.
struct Unsynced {
    since: Instant,
    /// The SHA-256 of the last line before them.
    synced: Hash,
    records: Lost,
}

impl Chain {
    pub fn new(
        directory: PathBuf,
        queue: Arc<Queue>,
        instance: String,
        (segment, head): (Segment, Hash),
        is_used: bool,
    ) -> Self {
        let (files, out) = (HashSet::new(), Vec::new());
        let (unsynced, damaged, refused) = (None, None, None);
        Chain { directory, queue, instance, segment, head, files, is_used, out, unsynced, damaged, refused }
    }

    pub fn head(&self) -> Hash {
        self.head
    }

    /// Whether fsync failed for the segment, and no new segment could be begun since.
    pub fn is_damaged(&self) -> bool {
        self.damaged.is_some()
    }

    /// Time since the first line that is not synced.
    pub fn unsynced_for(&self) -> Option<Duration> {
        self.unsynced.as_ref().map(|unsynced| unsynced.since.elapsed())
    }

    /// Appends the files that the records refer to, then the records, piece by piece. Leaves out records whose file could not be written;
    /// the returned `Option` then holds the reason. Adds the number of appended records to `written`.
    pub fn append(&mut self, batch: &Batch, written: &mut u64) -> io::Result<Option<io::Error>> {
        let (mut left_out, mut why) = (HashSet::new(), None);
        for (hash, bytes) in batch.files.values().filter_map(EvidenceFile::body) {
            if let Err(error) = self.keep(hash, bytes) {
                left_out.insert(hex(hash));
                why = Some(error);
            }
        }
        let (mut rest, mut head, mut count) = (&batch.lines[..], self.head, 0);
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line;
            (line, rest) = rest.split_at(end + 1);
            if left_out.is_empty() || !line.split(|byte| *byte == b'"').any(|text| left_out.contains(text)) {
                link(&mut head, line, &mut self.out);
                count += 1;
            }
            if self.out.len() >= PIECE || rest.is_empty() && count > 0 {
                self.put(head)?;
                *written += count;
                self.queue.written.fetch_add(count, Relaxed);
                self.is_used = true;
                if let (Some(unsynced), Some((from, to))) = (&mut self.unsynced, batch.times) {
                    unsynced.records = unsynced.records.and(Lost { count, from, to });
                }
                count = 0;
            }
        }
        Ok(why)
    }

    /// Writes a file, unless the segment already contains it.
    pub fn keep(&mut self, hash: &Hash, bytes: &[u8]) -> io::Result<()> {
        if self.files.contains(hash) {
            return Ok(());
        }
        self.say(Draft::file(hash, bytes))?;
        if self.files.len() == MOST_FILES {
            // A file whose hash is forgotten is written once more when a record refers to it again.
            self.files.clear();
        }
        self.files.insert(*hash);
        Ok(())
    }

    /// Appends a line that is not a request's record, such as a file, a start or a loss.
    pub fn say(&mut self, draft: Draft) -> io::Result<()> {
        let line = draft.end(<[u8]>::to_vec);
        self.line(&line)
    }

    pub fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let mut head = self.head;
        link(&mut head, line, &mut self.out);
        self.put(head)
    }

    /// Writes `out`. `head`: the hash of its last line.
    fn put(&mut self, head: Hash) -> io::Result<()> {
        let appended = match self.damaged {
            None => self.segment.append(&self.out),
            Some(_) => Err(io::Error::other("fsync failed for the segment, and no new segment can be created")),
        };
        self.out.clear();
        appended?;
        self.queue.note_progress();
        self.unsynced.get_or_insert_with(|| Unsynced::after(self.head));
        self.head = head;
        *self.queue.head.lock() = (self.segment.number, head);
        Ok(())
    }

    /// Syncs the segment. After a failed fsync, pages may be gone, and a second fsync would not report it: the lines since the last
    /// successful fsync are recorded as lost, and the chain continues in another segment.
    pub fn sync(&mut self) -> io::Result<()> {
        let Some(unsynced) = self.unsynced.take() else { return Ok(()) };
        let Err(error) = self.segment.sync() else { return Ok(()) };
        let (directory, segment, records) = (self.directory.display(), self.segment.number, unsynced.records.count);
        tracing::error!(%directory, segment, records, "fsync failed, and these records of evidence may be lost: {error}");
        self.queue.lost.fetch_add(records, Relaxed);
        self.damaged = Some(unsynced);
        self.begin(SystemTime::now());
        Err(error)
    }

    /// Begins another segment. If that fails, the current segment continues, and the next attempt is made after ten seconds, or at once if
    /// `is_urgent`. Returns whether an attempt was made.
    pub fn next_segment(&mut self, now: SystemTime, is_urgent: bool) -> bool {
        if !is_urgent && self.refused.is_some_and(|refused| refused.elapsed() < AGAIN) {
            return false;
        }
        // If the sync fails, it begins another segment itself.
        if self.sync().is_ok() {
            self.begin(now);
        }
        true
    }

    fn begin(&mut self, now: SystemTime) {
        let loss = self.damaged.as_ref().map(|damaged| {
            let mut draft = damaged.records.draft();
            draft.hash("synced", &damaged.synced);
            draft
        });
        match begin(&self.directory, self.segment.number + 1, self.head, now, &self.instance, loss) {
            Ok((segment, head)) => {
                let (ended, last) = (self.segment.number, digits(&self.head));
                tracing::info!(segment = ended, head = %last, "a segment of evidence has ended");
                self.unsynced = None;
                (self.segment, self.head, self.is_used) = (segment, head, false);
                (self.refused, self.damaged) = (None, None);
                self.files.clear();
                *self.queue.head.lock() = (self.segment.number, head);
            }
            Err(error) => {
                if self.refused.replace(Instant::now()).is_none() {
                    tracing::error!("cannot begin a new segment of evidence, the current one continues: {error}");
                }
            }
        }
    }
}

impl Unsynced {
    fn after(synced: Hash) -> Self {
        let now = SystemTime::now();
        Unsynced { since: Instant::now(), synced, records: Lost { count: 0, from: now, to: now } }
    }
}

/// Maximum number of files that are remembered: 2 MiB of hashes.
const MOST_FILES: usize = 1 << 16;
/// Number of buffered bytes at which they are written to the file.
const PIECE: usize = 256 << 10;
/// Time until another attempt to begin a segment.
const AGAIN: Duration = Duration::from_secs(10);
