//! Finds where a chain continues: after its last complete line, however the process that wrote it ended. Reads only the end of the newest
//! segment.

use crate::config::{LOCK, NO_LOCK, UnusableFile, open_file, open_lock};
use crate::evidence::reader::{Kind, Line, Lines, ReadError, Tail, parse};
use crate::evidence::record::{Draft, Hash, NOTHING, link, sha256};
use crate::evidence::segment::{Segment, Stored};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The error for a directory in which no evidence can be kept.
pub fn unusable(directory: &Path, error: &io::Error) -> UnusableFile {
    let hint = match error.kind() {
        _ if is_full(error) => {
            "make room on its disk, or set another `evidence.directory`; segments older than `evidence.keep` are removed already"
        }
        io::ErrorKind::ResourceBusy => NO_LOCK,
        _ => "let the user that the proxy runs as write there, or correct `evidence.directory`",
    };
    UnusableFile::new(format!("cannot keep evidence in {}: {error}", directory.display()), hint).about(directory)
}

/// How the existing chain ended.
pub struct End {
    pub is_first: bool,
    is_clean: bool,
    torn: Vec<u8>,
}

/// Finds the end of the chain, or begins it.
pub fn resume(directory: &Path, now: SystemTime, instance: &str) -> Result<(Segment, Hash, End), UnusableFile> {
    let io = |error| unusable(directory, &error);
    let mut all = Stored::all(directory).map_err(io)?;
    let mut torn = Vec::new();
    while let Some(last) = all.pop() {
        let broken = |why: String| {
            let (directory, last) = (directory.display(), last.path.display());
            let hint = "run `politely evidence verify` to see what is wrong; keep the directory unchanged and set another `evidence.directory`";
            UnusableFile::new(format!("cannot continue the evidence in {directory}: {last}: {why}"), hint)
        };
        let lines = Lines::of(&last).map_err(io)?;
        let tail = Tail::of(&last, lines).map_err(|error| broken(error.to_string()))?;
        let line = tail.last.as_deref().map(parse);
        match line {
            _ if last.is_compressed && !tail.torn.is_empty() => return Err(broken(ReadError::Torn.to_string())),
            // The creation of this segment was interrupted: it is removed and created again.
            None if !last.is_compressed => {
                torn = tail.torn;
                fs::remove_file(&last.path).map_err(io)?;
                continue;
            }
            // The proxy never leaves such a line, so somebody else has changed the file. Appends nothing.
            Some(Err(error)) if !last.is_compressed => return Err(broken(format!("its last line: {error}"))),
            _ => {}
        }
        torn.extend(tail.torn);
        let is_clean = torn.is_empty() && matches!(line, Some(Ok(Line { kind: Kind::Stop, .. })));
        let head = tail.last.as_deref().map_or(NOTHING, sha256);
        let (segment, head) = match last.is_compressed {
            true => begin(directory, last.number + 1, head, now, instance, None).map_err(io)?,
            false => (Segment::resume(last, tail.length).map_err(io)?, head),
        };
        return Ok((segment, head, End { is_first: false, is_clean, torn }));
    }
    let (segment, head) = begin(directory, 1, NOTHING, now, instance, None).map_err(io)?;
    Ok((segment, head, End { is_first: torn.is_empty(), is_clean: torn.is_empty(), torn }))
}

/// Begins a segment. `head`: the hash of the last line so far. `loss`: the record of lines for which fsync failed, if any; it becomes the
/// segment's second line.
pub fn begin(
    directory: &Path,
    number: u64,
    mut head: Hash,
    now: SystemTime,
    instance: &str,
    loss: Option<Draft>,
) -> io::Result<(Segment, Hash)> {
    let mut draft = Draft::new("segment", now);
    draft.number("segment", number);
    draft.number("format", 2);
    draft.text("instance", instance);
    let mut first = Vec::new();
    for draft in [draft].into_iter().chain(loss) {
        draft.end(|line| link(&mut head, line, &mut first));
    }
    Ok((Segment::create(directory, number, now, &first)?, head))
}

pub fn start(now: SystemTime, instance: &str, config: &Hash, end: &End) -> Draft {
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

pub fn lock(directory: &Path) -> Result<File, UnusableFile> {
    let io = |error| unusable(directory, &error);
    let mut file = open_lock(directory).map_err(io)?;
    if !locks(&file, File::try_lock) {
        let mut who = String::new();
        let _ = file.take(20).read_to_string(&mut who);
        let (who, directory) = (who.trim(), directory.display());
        let what = format!("another `politely` (process {who}) keeps its evidence in {directory}");
        return Err(UnusableFile::new(what, "give each its own `evidence.directory`, or stop the other"));
    }
    let write = |file: &mut File| file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    write(&mut file).map_err(io)?;
    Ok(file)
}

/// Whether this error means that the disk is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a process now writes to the directory.
pub fn is_locked(directory: &Path) -> bool {
    let file = open_file(&directory.join(LOCK));
    file.is_ok_and(|file| !locks(&file, File::try_lock_shared))
}

/// Tries to lock for up to 100 ms. `verify` holds the lock briefly, and so does a child process of the lock's owner until its exec.
fn locks(file: &File, lock: fn(&File) -> Result<(), TryLockError>) -> bool {
    #[expect(clippy::disallowed_methods, reason = "nothing is served yet")]
    let wait = |_: &_| std::thread::sleep(MOMENT);
    (0..TRIES).any(|_| lock(file).inspect_err(wait).is_ok())
}

const MOMENT: Duration = Duration::from_millis(10);
const TRIES: u32 = 10;
/// Maximum number of bytes of an incomplete line that are recorded.
const MOST_CUT: usize = 4096;
