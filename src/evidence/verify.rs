//! Whether a chain is whole: each line follows from the one before it, no segment is missing but those that were kept long
//! enough, and the files that records refer to are there unchanged.

use super::bodies::Bodies;
use super::chain::{Hash, NOTHING, digits};
use super::read::{Kind, Line, Lines, ReadError, parse};
use super::segment::{self, Stored};
use super::writer;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    pub segments: u64,
    pub records: u64,
    /// When the first and the last line that is there were written.
    pub times: Option<(SystemTime, SystemTime)>,
    /// Of the last line.
    pub head: Hash,
    /// Records that there was no room for, with when they came.
    pub lost: Vec<(u64, SystemTime, SystemTime)>,
    /// The last of the segments that were removed as `keep` says.
    pub removed_to: Option<u64>,
    /// Starts after an end that was none: a kill, a loss of power.
    pub unclean: u64,
    /// Somebody writes to it.
    pub is_written: bool,
    /// Its last line is cut, which the next start will say.
    pub is_cut: bool,
    /// Different bodies that records name.
    pub bodies: u64,
    /// Of the heads that were noted elsewhere, those that are known only as the end of a segment that was removed: what was in it
    /// nothing here can show.
    pub removed_heads: Vec<Hash>,
    /// What lies in the directory and is no part of the evidence, by its path there.
    pub others: Vec<PathBuf>,
    pub faults: Vec<Fault>,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub segment: u64,
    /// From 1; `None`: the segment as a whole.
    pub line: Option<u64>,
    pub what: String,
}

/// Reads all of it. `anchors`: heads that were noted elsewhere, which have to be in it.
///
/// # Errors
/// The directory cannot be read, or there is no evidence in it.
pub fn verify(directory: &Path, anchors: &[Hash]) -> Result<Verified, ReadError> {
    let is_written = writer::is_locked(directory);
    let all = Stored::all(directory)?;
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(ReadError::Empty) };
    let others = others(directory)?;
    let mut walk = Walk {
        found: Verified { segments: all.len() as u64, is_written, others, ..Verified::default() },
        expected: Some(NOTHING).filter(|_| first.number == 1),
        anchors: anchors.iter().copied().collect(),
        ..Walk::default()
    };
    let mut before = first.number - 1;
    let mut start = None;
    for stored in &all {
        if stored.number != before + 1 {
            let (one, last) = (before + 1, stored.number - 1);
            let what = match one == last {
                true => "the segment is missing".to_owned(),
                false => format!("the segments up to {last} are missing"),
            };
            walk.fault(one, None, what);
            walk.expected = None;
        }
        let begins_after = walk.segment(stored, stored.number == last.number)?;
        start = start.or(begins_after);
        before = stored.number;
    }
    walk.beginning(first.number, start);
    walk.bodies(directory);
    let removed: HashSet<_> = walk.removed.values().copied().collect();
    for anchor in std::mem::take(&mut walk.anchors) {
        if removed.contains(&anchor) {
            walk.found.removed_heads.push(anchor);
            continue;
        }
        let what = format!("no line has the SHA-256 {}: the chain was rewritten, or cut", digits(&anchor));
        walk.fault(last.number, None, what);
    }
    Ok(walk.found)
}

#[derive(Default)]
struct Walk {
    found: Verified,
    /// What the next line has to name; `None`: unknown.
    expected: Option<Hash>,
    /// Heads of the segments that were removed.
    removed: HashMap<u64, Hash>,
    /// Where a body was named first.
    named: HashMap<Hash, (u64, u64)>,
    /// Not seen yet.
    anchors: HashSet<Hash>,
}

impl Walk {
    fn fault(&mut self, segment: u64, line: Option<u64>, what: impl Into<String>) {
        self.found.faults.push(Fault { segment, line, what: what.into() });
    }

    /// Tells what its first line names.
    fn segment(&mut self, stored: &Stored, is_last: bool) -> Result<Option<Hash>, ReadError> {
        let (mut lines, mut number, mut first) = (Lines::of(stored)?, 0, None);
        while let Some(read) = lines.next() {
            number += 1;
            let (line, hash) = match read {
                Ok((line, hash)) => (parse(line), hash),
                Err(ReadError::Torn) if is_last => {
                    self.found.is_cut = !self.found.is_written;
                    break;
                }
                Err(error) => {
                    self.fault(stored.number, Some(number), format!("the segment cannot be read on: {error}"));
                    self.expected = None;
                    return Ok(first);
                }
            };
            match line {
                Ok(line) => {
                    if number == 1 {
                        first = Some(line.prev);
                    }
                    self.follows(stored.number, number, line.prev);
                    self.line(stored.number, number, line);
                }
                Err(error) => self.fault(stored.number, Some(number), error.to_string()),
            }
            self.anchors.remove(&hash);
            self.expected = Some(hash);
            self.found.head = hash;
        }
        match number {
            // It was just being begun.
            0 if is_last => self.found.is_cut = !self.found.is_written,
            0 => {
                self.fault(stored.number, None, "the segment is empty");
                self.expected = None;
            }
            _ => {}
        }
        Ok(first)
    }

    fn follows(&mut self, segment: u64, line: u64, prev: Hash) {
        if self.expected.is_none_or(|expected| expected == prev) {
            return;
        }
        match line {
            1 if segment == 1 => self.fault(1, Some(1), "the chain does not begin here: what came before was removed"),
            1 => self.fault(segment - 1, None, format!(
                "its last line is not the one that segment {segment} follows: it was changed, or lines were removed or added"
            )),
            _ => self.fault(segment, Some(line - 1), format!(
                "line {line} does not follow from it: it was changed, or lines were removed, added or moved here"
            )),
        }
    }

    fn line(&mut self, segment: u64, number: u64, line: Line) {
        let found = &mut self.found;
        let (first, _) = found.times.unwrap_or((line.time, line.time));
        found.times = Some((first, line.time));
        if number == 1 && !matches!(line.kind, Kind::Segment { segment: said } if said == segment) {
            return self.fault(segment, Some(1), "it does not begin as this segment does");
        }
        match line.kind {
            Kind::Segment { .. } if number > 1 => self.fault(segment, Some(number), "a segment does not begin here"),
            Kind::Decision(decision) => {
                found.records += 1;
                let files = [decision.robots, decision.tdmrep].into_iter().flatten().filter_map(|file| file.sha256);
                for hash in files.chain(decision.config) {
                    self.named.entry(hash).or_insert((segment, number));
                }
            }
            Kind::Start { unclean, config, .. } => {
                found.unclean += u64::from(unclean);
                config.map(|hash| *self.named.entry(hash).or_insert((segment, number)));
            }
            Kind::Lost { count, from, to } => found.lost.push((count, from, to)),
            Kind::Removed { segment: removed, .. } if removed >= segment => {
                self.fault(
                    segment,
                    Some(number),
                    format!("it says that segment {removed} was removed, which is not older"),
                );
            }
            Kind::Removed { segment, head } => _ = self.removed.insert(segment, head),
            Kind::Segment { .. } | Kind::Stop | Kind::Other => {}
        }
    }

    /// What came before the first segment that is there was removed by the writer, which recorded that.
    fn beginning(&mut self, first: u64, after: Option<Hash>) {
        let Some(before) = first.checked_sub(1).filter(|before| *before > 0) else { return };
        match (self.removed.get(&before), after) {
            (Some(head), Some(after)) if *head == after => self.found.removed_to = Some(before),
            (Some(_), _) => {
                self.fault(first, Some(1), format!("it does not follow segment {before}, which was removed"))
            }
            (None, _) => self.fault(before, None, "the segment is missing, and was not removed as `keep` says"),
        }
    }

    fn bodies(&mut self, directory: &Path) {
        let bodies = Bodies::new(directory);
        self.found.bodies = self.named.len() as u64;
        let mut named: Vec<_> = std::mem::take(&mut self.named).into_iter().collect();
        named.sort_by_key(|(_, place)| *place);
        for (hash, (segment, line)) in named {
            if let Err(error) = bodies.read(&hash) {
                let hash = digits(&hash);
                self.fault(segment, Some(line), format!("it rests on bodies/{}/{hash}.gz: {error}", &hash[..2]));
            }
        }
    }
}

/// By their paths in the directory, in their order.
fn others(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let ours = ["bodies", "lock"].map(|name| directory.join(name));
    let beside = segment::others(directory)?.into_iter().filter(|path| !ours.contains(path));
    let all = beside.chain(Bodies::new(directory).others()?);
    let mut all: Vec<_> = all.map(|path| path.strip_prefix(directory).map_or(path.clone(), Path::to_owned)).collect();
    all.sort();
    Ok(all)
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}
