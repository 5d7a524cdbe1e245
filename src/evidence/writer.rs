//! The thread that writes: it puts records into the chain, begins new segments, and removes those that were kept long enough.

use super::bodies::Bodies;
use super::chain::{Chain, Hash, sha256};
use super::draft::Draft;
use super::queue::{Batch, Body, Lost, Queue, Taken};
use super::read::{Kind, Lines, parse};
use super::segment::{MOST_LINE, Segment, Stored, Tail, tidy};
use super::{Counter, NOTHING, digest_of};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Why no evidence can be kept there.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot keep evidence in {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("another politely ({who}) keeps its evidence in {path}")]
    InUse { path: PathBuf, who: String },
    #[error("cannot go on with the evidence in {path}: {why}")]
    Broken { path: PathBuf, why: String },
}

impl OpenError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "let the user that the proxy runs as write there, or correct `evidence.directory`",
            Self::InUse { .. } => "give each its own `evidence.directory`, or stop the other",
            Self::Broken { .. } => {
                "`politely evidence verify` says what is wrong; keep it as it is, and go on in another `evidence.directory`"
            }
        }
    }
}

/// What others see of it, and change.
pub(super) struct Shared {
    /// Seconds.
    pub keep: Counter,
    pub written: Counter,
    pub lost: Counter,
    /// The segment that is written to, and its last line.
    pub head: Mutex<(u64, Hash)>,
}

impl Shared {
    pub fn new(keep: Duration) -> Self {
        let head = Mutex::new((0, NOTHING));
        Shared { keep: Counter::new(keep.as_secs()), written: Counter::default(), lost: Counter::default(), head }
    }
}

pub(super) struct Writer {
    directory: PathBuf,
    queue: Arc<Queue>,
    shared: Arc<Shared>,
    bodies: Arc<Bodies>,
    pub segment: Segment,
    chain: Chain,
    /// What was configured last, and before that.
    texts: Vec<Body>,
    /// Records in the segment.
    records: u64,
    /// Not yet said in the chain.
    unsaid: Option<Lost>,
    out: Vec<u8>,
    /// Written, but a loss of power would lose it; since then.
    unsynced: Option<Instant>,
    looked: Instant,
    clock: Clock,
    /// Compresses, and removes bodies.
    helper: Option<JoinHandle<()>>,
    /// Nobody else writes here for as long as it is open.
    _lock: File,
}

impl Writer {
    pub fn open(
        directory: &Path,
        queue: Arc<Queue>,
        shared: Arc<Shared>,
        instance: &str,
        config: &str,
    ) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: directory.to_owned(), source };
        let broken = |why: String| OpenError::Broken { path: directory.to_owned(), why };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io)?;
        let lock = lock(directory)?;
        tidy(directory).map_err(io)?;
        let now = SystemTime::now();
        let (segment, chain, end) = resume(directory, now).map_err(|why| match why {
            Unusable::Io(source) => io(source),
            Unusable::Broken(why) => broken(why),
        })?;
        let bodies = Arc::new(Bodies::new(directory));
        let mut writer = Writer {
            directory: directory.to_owned(),
            queue,
            shared,
            bodies,
            segment,
            chain,
            texts: Vec::new(),
            records: u64::from(!end.is_first),
            unsaid: None,
            out: Vec::new(),
            unsynced: None,
            looked: Instant::now(),
            clock: Clock::default(),
            helper: None,
            _lock: lock,
        };
        let texts = [Body::Text(config.into())];
        writer.note_texts(&texts);
        writer.keep(&texts).map_err(io)?;
        writer.say(start(now, instance, &sha256(config.as_bytes()), &end)).map_err(io)?;
        writer.look_after(now);
        Ok(writer)
    }

    pub fn run(mut self) {
        let mut batch = Batch::default();
        loop {
            let patience = if self.unsynced.is_some() { SYNC } else { LOOK };
            match self.queue.take(batch, patience) {
                Taken::Batch(taken) => {
                    self.write(&taken);
                    batch = taken;
                }
                Taken::Nothing => batch = Batch::default(),
                Taken::Closed => break,
            }
            if self.unsynced.is_some_and(|since| since.elapsed() >= SYNC) {
                self.sync();
            }
            if self.looked.elapsed() >= LOOK {
                self.look_after(SystemTime::now());
            }
        }
        self.stop();
    }

    fn note_texts(&mut self, bodies: &[Body]) {
        self.texts.extend(bodies.iter().filter(|body| matches!(body, Body::Text(_))).cloned());
        // Records that name the last but one may still be on their way.
        let old = self.texts.len().saturating_sub(2);
        self.texts.drain(..old);
    }

    /// A batch: first what it names, then its lines. What cannot be written is lost, and said as soon as there is room.
    pub fn write(&mut self, batch: &Batch) {
        let now = SystemTime::now();
        if self.segment.is_over(now, MOST_SEGMENT) {
            self.next_segment(now);
        }
        self.note_texts(&batch.bodies);
        let (count, mut written) = (batch.len(), 0);
        let result = self.keep(&batch.bodies).and_then(|()| self.append(&batch.lines, &mut written));
        if let Err(error) = &result {
            let (from, to) = batch.times.unwrap_or((now, now));
            if self.unsaid.is_none() {
                tracing::error!(directory = %self.directory.display(), "evidence cannot be written, and is lost: {error}");
            }
            self.shared.lost.fetch_add(count - written, Relaxed);
            self.lose(Lost { count: count - written, from, to });
        }
        if let Some(lost) = batch.lost {
            tracing::warn!(records = lost.count, "evidence was lost: the disk is too slow");
            self.lose(lost);
            // It is of those that came before, but the next line may be hours away.
            let _ = self.append(b"", &mut 0);
        }
    }

    fn lose(&mut self, lost: Lost) {
        if lost.count > 0 {
            self.unsaid = Some(self.unsaid.map_or(lost, |before| before.and(lost)));
        }
    }

    fn keep(&self, bodies: &[Body]) -> io::Result<()> {
        bodies.iter().try_for_each(|body| match body {
            Body::Of(entry) => {
                match entry.answer.as_ref().map(|answer| (digest_of(&answer.access), answer.access.source())) {
                    Some((Some(digest), Some(file))) => self.bodies.keep(digest, file, self.segment.began),
                    _ => Ok(()),
                }
            }
            Body::Text(text) => self.bodies.keep(&sha256(text.as_bytes()), text.as_bytes(), self.segment.began),
        })
    }

    /// Lines, piece by piece; `written` counts those that are in the chain.
    fn append(&mut self, lines: &[u8], written: &mut u64) -> io::Result<()> {
        if let Some(lost) = self.unsaid {
            let mut draft = Draft::new("lost", SystemTime::now());
            draft.number("count", lost.count);
            draft.time("from", lost.from);
            draft.time("to", lost.to);
            self.say(draft)?;
            self.unsaid = None;
        }
        let (mut rest, mut chain, mut count) = (lines, self.chain, 0);
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line;
            (line, rest) = rest.split_at(end + 1);
            chain.append(line, &mut self.out);
            count += 1;
            if self.out.len() >= PIECE || rest.is_empty() {
                self.put(chain)?;
                *written += count;
                self.shared.written.fetch_add(count, Relaxed);
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
        *self.shared.head.lock() = (self.segment.number, chain.head);
        self.unsynced.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn sync(&mut self) {
        if let Err(error) = self.segment.sync(self.bodies.are_new()) {
            tracing::error!(directory = %self.directory.display(), "evidence may not be on the disk: {error}");
        }
        self.unsynced = None;
    }

    /// Without room for another it goes on with the one that there is.
    fn next_segment(&mut self, now: SystemTime) {
        self.sync();
        match begin(&self.directory, self.segment.number + 1, self.chain, now) {
            Ok((segment, chain)) => {
                tracing::info!(
                    segment = self.segment.number,
                    head = %String::from_utf8_lossy(&super::hex(&self.chain.head)),
                    "a segment of evidence is full"
                );
                (self.segment, self.chain) = (segment, chain);
                *self.shared.head.lock() = (self.segment.number, chain.head);
                self.bodies.begin();
                self.records = 0;
                // Records to come name what is configured, which came before them.
                if let Err(error) = self.keep(&self.texts) {
                    tracing::error!("what is configured cannot be kept beside the evidence: {error}");
                }
                self.look_after(now);
            }
            Err(error) => tracing::error!("no new segment of evidence can be begun: {error}"),
        }
    }

    /// Removes what was kept long enough, and compresses what is full.
    fn look_after(&mut self, now: SystemTime) {
        self.looked = Instant::now();
        // Both change what lies there.
        if self.helper.as_ref().is_some_and(|helper| !helper.is_finished()) {
            return;
        }
        // So that it can be removed in its time, however little is written.
        if self.records > 0 && self.segment.is_over(now, u64::MAX) {
            return self.next_segment(now);
        }
        let removed = match self.clock.is_steady(now) {
            true => self.remove_old(now).unwrap_or_else(|error| {
                tracing::error!(directory = %self.directory.display(), "old evidence cannot be removed: {error}");
                false
            }),
            false => false,
        };
        let (directory, bodies) = (self.directory.clone(), self.bodies.clone());
        let helper = std::thread::Builder::new().name("politely-evidence-gzip".into());
        self.helper = helper.spawn(move || help(&directory, &bodies, removed)).ok();
    }

    /// The oldest segments, up to one that ended less than `keep` ago. Whether there were any.
    fn remove_old(&mut self, now: SystemTime) -> Result<bool, String> {
        let keep = Duration::from_secs(self.shared.keep.load(Relaxed));
        let mut removed = false;
        let all = Stored::all(&self.directory).map_err(|error| error.to_string())?;
        for pair in all.windows(2) {
            let [old, next] = pair else { continue };
            // It ended when the next began, whose first line also names its last.
            let Ok((ended, head)) = next.beginning() else { break };
            if now.duration_since(ended).is_ok_and(|age| age > keep) {
                let mut draft = Draft::new("removed", now);
                draft.number("segment", old.number);
                draft.hash("head", &head);
                if let Ok((began, _)) = old.beginning() {
                    draft.time("from", began);
                }
                draft.time("to", ended);
                self.say(draft).and_then(|()| self.segment.sync(false)).map_err(|error| error.to_string())?;
                fs::remove_file(&old.path).map_err(|error| error.to_string())?;
                removed = true;
            } else {
                break;
            }
        }
        Ok(removed)
    }

    fn stop(&mut self) {
        let mut draft = Draft::new("stop", SystemTime::now());
        draft.number("written", self.shared.written.load(Relaxed));
        draft.number("lost", self.shared.lost.load(Relaxed) + self.queue.lost());
        if let Err(error) = self.append(b"", &mut 0).and_then(|()| self.say(draft)) {
            tracing::error!("the end of the evidence cannot be written: {error}");
        }
        self.sync();
        if let Some(helper) = self.helper.take() {
            let _ = helper.join();
        }
        tracing::info!(
            segment = self.segment.number,
            head = %String::from_utf8_lossy(&super::hex(&self.chain.head)),
            "evidence is closed"
        );
    }
}

/// How what was there before ended.
struct End {
    is_first: bool,
    is_clean: bool,
    torn: Vec<u8>,
}

enum Unusable {
    Io(io::Error),
    Broken(String),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Where the chain ends.
fn resume(directory: &Path, now: SystemTime) -> Result<(Segment, Chain, End), Unusable> {
    let mut all = Stored::all(directory)?;
    let mut torn = Vec::new();
    let Some(last) = all.last() else {
        let (segment, chain) = begin(directory, 1, Chain { head: NOTHING }, now)?;
        return Ok((segment, chain, End { is_first: true, is_clean: true, torn }));
    };
    let unreadable = |stored: &Stored, why: String| Unusable::Broken(format!("{}: {why}", stored.path.display()));
    if !last.is_packed {
        let tail = Tail::read(&last.path)?;
        if let Some(head) = tail.head() {
            let is_clean = tail.torn.is_empty() && tail.last.as_deref().is_some_and(is_stop);
            let (began, _) = last.beginning().map_err(|error| unreadable(last, error.to_string()))?;
            let segment = Segment::resume(last, &tail, began)?;
            return Ok((segment, Chain { head }, End { is_first: false, is_clean, torn: tail.torn }));
        }
        // It was just being begun.
        torn = tail.torn;
        fs::remove_file(&last.path)?;
        all.pop();
    }
    let Some(last) = all.last() else {
        let (segment, chain) = begin(directory, 1, Chain { head: NOTHING }, now)?;
        return Ok((segment, chain, End { is_first: true, is_clean: torn.is_empty(), torn }));
    };
    let (mut head, mut is_clean) = (NOTHING, false);
    let mut lines = Lines::of(last)?;
    while let Some(line) = lines.next() {
        let (line, hash) = line.map_err(|error| unreadable(last, error.to_string()))?;
        (head, is_clean) = (hash, is_stop(line));
    }
    let (segment, chain) = begin(directory, last.number + 1, Chain { head }, now)?;
    Ok((segment, chain, End { is_first: false, is_clean: is_clean && torn.is_empty(), torn }))
}

/// A new segment behind the chain so far.
fn begin(directory: &Path, number: u64, mut chain: Chain, now: SystemTime) -> io::Result<(Segment, Chain)> {
    let mut draft = Draft::new("segment", now);
    draft.number("segment", number);
    draft.number("format", 1);
    let mut first = Vec::new();
    draft.end(|line| chain.append(line, &mut first));
    Ok((Segment::create(directory, number, now, &first)?, chain))
}

fn start(now: SystemTime, instance: &str, config: &Hash, end: &End) -> Draft {
    let mut draft = Draft::new("start", now);
    draft.text("version", env!("CARGO_PKG_VERSION"));
    draft.text("instance", instance);
    draft.hash("config", config);
    if !end.is_first && !end.is_clean {
        draft.flag("unclean", true);
    }
    if !end.torn.is_empty() {
        draft.number("cut_bytes", end.torn.len() as u64);
        draft.text("cut", &String::from_utf8_lossy(&end.torn[..end.torn.len().min(MOST_CUT)]));
    }
    draft
}

fn is_stop(line: &[u8]) -> bool {
    parse(line).is_ok_and(|line| matches!(line.kind, Kind::Stop))
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join("lock");
    let io = |source| OpenError::Io { path: directory.to_owned(), source };
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = options.map_err(io)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut who = String::new();
        let _ = file.take(20).read_to_string(&mut who);
        return Err(OpenError::InUse { path: directory.to_owned(), who: format!("process {}", who.trim()) });
    }
    let write = |file: &mut File| file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    write(&mut file).map_err(io)?;
    Ok(file)
}

/// Whether somebody writes there now.
pub(super) fn is_locked(directory: &Path) -> bool {
    let file = File::open(directory.join("lock"));
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

fn help(directory: &Path, bodies: &Bodies, removed: bool) {
    let done = (|| {
        let all = Stored::all(directory)?;
        if let Some((_, full)) = all.split_last() {
            full.iter().filter(|stored| !stored.is_packed).try_for_each(Stored::pack)?;
        }
        if removed {
            // A clock that went back has dated some before those that came earlier.
            let began = all.iter().map(|stored| stored.beginning().map(|(began, _)| began));
            let oldest = began.collect::<Result<Vec<_>, _>>().ok().and_then(|all| all.into_iter().min());
            oldest.map_or(Ok(()), |oldest| bodies.sweep(oldest))?;
        }
        io::Result::Ok(())
    })();
    if let Err(error) = done {
        tracing::error!(directory = %directory.display(), "evidence cannot be compressed or cleared: {error}");
    }
}

/// Tells a clock that was set from time that has passed.
#[derive(Default)]
struct Clock {
    seen: Option<(SystemTime, Instant)>,
    stepped: Option<Instant>,
}

impl Clock {
    /// Whether it has not been set forward lately: what is old by a wrong clock is not removed at once.
    fn is_steady(&mut self, now: SystemTime) -> bool {
        let (wall, since) = *self.seen.get_or_insert_with(|| (now, Instant::now()));
        let expected = wall + since.elapsed();
        if now.duration_since(expected).is_ok_and(|ahead| ahead > STEP) {
            (self.seen, self.stepped) = (Some((now, Instant::now())), Some(Instant::now()));
        }
        self.stepped.is_none_or(|stepped| stepped.elapsed() > DISTRUST)
    }
}

const MOST_SEGMENT: u64 = 64 << 20;
/// Written at once.
const PIECE: usize = 256 << 10;
/// What may be lost with the power.
const SYNC: Duration = Duration::from_secs(1);
/// Between two looks at what is old.
const LOOK: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_secs(60);
const DISTRUST: Duration = Duration::from_secs(6 * 3600);
/// Of a cut line, as much as says what it was.
const MOST_CUT: usize = 4096;
const _: () = assert!(MOST_LINE > 4 * MOST_CUT);
