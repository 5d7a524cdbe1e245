//! Verifies a chain: each line names the hash of the one before, no segment is missing except those older than `keep`, and the files that
//! records refer to are present and unchanged.

use super::{FileError, Kind, Line, Lines, ReadError, decoded, parse};
use crate::evidence::record::{Hash, NOTHING, digits};
use crate::evidence::segment::{self, Stored, is_foreign};
use crate::evidence::timestamp::{Stamp, parse_stamp_name};
use crate::evidence::writer::is_locked;
use crate::rfc3339;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The result of a verification.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    pub segments: u64,
    pub records: u64,
    /// Arrival of the earliest and the latest of the recorded requests.
    pub times: Option<(SystemTime, SystemTime)>,
    /// SHA-256 of the last line, and the number of its segment.
    pub head: Hash,
    pub head_segment: u64,
    /// Records that could not be written: count, and when the first and the last of these requests arrived. Count 0: fsync failed, but no
    /// record is known to be lost.
    pub lost: Vec<(u64, SystemTime, SystemTime)>,
    /// The last segment that `keep` has removed.
    pub removed_to: Option<u64>,
    /// Starts after a kill or a power cut.
    pub unclean: u64,
    /// A process writes to the directory now.
    pub is_written: bool,
    /// The last line is incomplete; the next start records that.
    pub is_cut: bool,
    /// Number of zero bytes at the end, which a power cut has left in place of the last writes.
    pub zeros: u64,
    /// Number of different files that records refer to.
    pub bodies: u64,
    /// Time stamps of lines that are in the chain. [`Stamp::authenticate`] checks whether to trust their authorities.
    pub stamps: Vec<Stamp>,
    /// Files in the directory that are not part of the evidence, relative to it.
    pub others: Vec<PathBuf>,
    pub faults: Vec<Fault>,
}

/// A sign that the evidence was changed or damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("segment {segment}{place}: {what}", place = .line.map_or(String::new(), |line| format!(", line {line}")))]
pub struct Fault {
    pub segment: u64,
    /// Line number, from 1. `None`: the fault concerns the whole segment.
    pub line: Option<u64>,
    pub what: String,
}

/// Verifies the whole directory. `anchors`: heads that somebody noted elsewhere, which must be in the chain.
///
/// # Errors
/// The directory cannot be read, or there is no evidence in it.
pub fn verify(directory: &Path, anchors: &[Hash]) -> Result<Verified, ReadError> {
    verify_each(directory, anchors, |_, _, _| {})
}

/// Verifies the whole directory, and passes each readable line to `see`, with its segment and its number.
///
/// # Errors
/// As for [`verify`].
pub fn verify_each(
    directory: &Path,
    anchors: &[Hash],
    mut see: impl FnMut(u64, u64, &Line),
) -> Result<Verified, ReadError> {
    let is_written = is_locked(directory);
    let all = Stored::all(directory)?;
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(ReadError::Empty) };
    let (stamps, others): (Vec<_>, Vec<_>) = segment::others(directory)?.into_iter().partition(|path| {
        parse_stamp_name(path).is_some_and(|(segment, _)| segment >= first.number) && !is_foreign(&directory.join(path))
    });
    let stamps: Vec<_> = stamps.into_iter().filter_map(|path| parse_stamp_name(&path).map(|of| (path, of))).collect();
    let mut walk = Walk {
        found: Verified { segments: all.len() as u64, is_written, others, ..Verified::default() },
        expected: Some(NOTHING).filter(|_| first.number == 1),
        anchors: anchors.iter().chain(stamps.iter().map(|(_, (_, head))| head)).copied().collect(),
        ..Walk::default()
    };
    let (mut before, mut gaps) = (0, Vec::new());
    for (index, stored) in all.iter().enumerate() {
        let is_gap = stored.number != before + 1;
        walk.expected = walk.expected.filter(|_| !is_gap);
        walk.synced = all.get(index + 1).and_then(Stored::synced_before);
        let begins_after = walk.segment(stored, stored.number == last.number, &mut see)?;
        gaps.extend(is_gap.then_some((stored.number, begins_after)));
        before = stored.number;
    }
    gaps.into_iter().for_each(|(next, after)| walk.gap(next, after));
    walk.found.bodies = walk.bodies.len() as u64;
    for anchor in std::mem::take(&mut walk.anchors) {
        let name = digits(&anchor);
        let what = match walk.removed.values().any(|head| *head == anchor) {
            true => format!("the head {name} belongs to a removed segment, so its records cannot be verified"),
            false => format!("no line of an intact chain has the SHA-256 {name}: the chain was rewritten, or cut"),
        };
        walk.fault(last.number, None, what);
    }
    for (name, of) in stamps {
        match Stamp::read(directory.join(&name), of) {
            Ok(stamp) => walk.found.stamps.push(stamp),
            Err(error) => walk.fault(of.0, None, format!("the time stamp {}: {error}", name.display())),
        }
    }
    Ok(walk.found)
}

#[derive(Default)]
struct Walk {
    found: Verified,
    /// The hash that the next line must name; `None`: unknown.
    expected: Option<Hash>,
    /// Heads of the segments that were removed.
    removed: HashMap<u64, Hash>,
    /// Files that any record has referred to.
    bodies: HashSet<Hash>,
    /// Files that the current segment contains.
    present: HashSet<Hash>,
    /// The last line known to be on disk, if fsync failed for the segment.
    synced: Option<Hash>,
    /// Whether the line `synced` was read. Lines after it may be missing, which is not a fault, as the chain itself records the loss.
    may_end: bool,
    /// Whether lines may be missing before this place. If so, finding a line does not confirm an anchor, as the anchor's hash vouches for
    /// all lines before it. This ends at the second line of the next segment, which records the loss.
    is_after_gap: bool,
    /// Heads that must be in the chain and were not found yet.
    anchors: HashSet<Hash>,
}

impl Walk {
    fn fault(&mut self, segment: u64, line: Option<u64>, what: impl Into<String>) {
        if self.may_end {
            (self.expected, self.is_after_gap) = (None, true);
            return;
        }
        self.found.faults.push(Fault { segment, line, what: what.into() });
    }

    /// Verifies a segment. Returns the hash that its first line names.
    fn segment(
        &mut self,
        stored: &Stored,
        is_last: bool,
        see: &mut impl FnMut(u64, u64, &Line),
    ) -> Result<Option<Hash>, ReadError> {
        let (mut lines, mut number, mut first) = (Lines::of(stored)?, 0, None);
        self.present.clear();
        while let Some(read) = lines.next() {
            number += 1;
            self.is_after_gap &= number != 2;
            let (line, hash) = match read {
                Ok((line, hash)) => (parse(line), hash),
                Err(error) => match error {
                    ReadError::Torn | ReadError::TooLong if is_last && lines.ends_here()? => {
                        let zeros = lines.line.iter().rev().take_while(|byte| **byte == 0).count() as u64;
                        (self.found.is_cut, self.found.zeros) = (!self.found.is_written, zeros);
                        break;
                    }
                    error => {
                        self.fault(stored.number, Some(number), format!("the segment cannot be read further: {error}"));
                        self.expected = None;
                        self.may_end = false;
                        return Ok(first);
                    }
                },
            };
            match line {
                Ok(line) => {
                    see(stored.number, number, &line);
                    if number == 1 {
                        first = Some(line.prev);
                        // `keep` relies on the time in the file's name, so it must be right.
                        if rfc3339::seconds(stored.began) != rfc3339::seconds(line.time) {
                            self.fault(stored.number, Some(1), "its time differs from the time in the file's name");
                        }
                    }
                    self.follows(stored.number, number, line.prev);
                    self.line(stored.number, number, line);
                }
                Err(error) => self.fault(stored.number, Some(number), error.to_string()),
            }
            if !self.is_after_gap {
                self.anchors.remove(&hash);
            }
            self.expected = Some(hash);
            (self.found.head, self.found.head_segment) = (hash, stored.number);
            self.may_end |= self.synced == Some(hash);
        }
        if number == 0 && is_last {
            // The writer is creating the segment now, or was killed while it did so.
            self.found.is_cut = !self.found.is_written;
        } else if number == 0 {
            self.fault(stored.number, None, "the segment is empty");
            self.expected = None;
        }
        if std::mem::take(&mut self.may_end) {
            (self.expected, self.is_after_gap) = (None, true);
        }
        Ok(first)
    }

    fn follows(&mut self, segment: u64, line: u64, prev: Hash) {
        if self.expected.is_none_or(|expected| expected == prev) {
            return;
        }
        match line {
            1 if segment == 1 => self.fault(1, Some(1), "the chain does not begin here: earlier lines were removed"),
            1 => self.fault(segment - 1, None, format!(
                "segment {segment} does not begin with the hash of this segment's last line: that line was changed, or lines were \
                 removed or added"
            )),
            _ => self.fault(segment, Some(line - 1), format!(
                "line {line} does not contain its hash: it was changed, or lines were removed, added or moved here"
            )),
        }
    }

    fn line(&mut self, segment: u64, number: u64, line: Line) {
        let found = &mut self.found;
        if number == 1 && !matches!(line.kind, Kind::Segment { segment: said, .. } if said == segment) {
            let what =
                format!("this line must begin segment {segment}, but is another record or names another segment");
            return self.fault(segment, Some(1), what);
        }
        match line.kind {
            Kind::Segment { .. } if number > 1 => self.fault(segment, Some(number), "only line 1 can begin a segment"),
            Kind::Decision(decision) => {
                found.records += 1;
                let (first, last) = found.times.unwrap_or((line.time, line.time));
                found.times = Some((first.min(line.time), last.max(line.time)));
                let files = [decision.robots, decision.tdmrep, decision.license_file];
                let files = files.into_iter().flatten().filter_map(|file| file.sha256);
                for hash in files.chain(decision.config) {
                    self.refer(hash, segment, number);
                }
            }
            Kind::Start { unclean, config, .. } => {
                found.unclean += u64::from(unclean);
                config.into_iter().for_each(|hash| self.refer(hash, segment, number));
            }
            Kind::File { sha256, text, base64 } => {
                if let Err(error) = decoded(&sha256, text, base64) {
                    self.fault(segment, Some(number), format!("the file {}: {error}", digits(&sha256)));
                }
                self.present.insert(sha256);
            }
            Kind::Lost { count, from, to, synced } if count > 0 || synced.is_some() => {
                found.lost.push((count, from, to))
            }
            Kind::Removed { segment: removed, .. } if removed >= segment => {
                let what = format!(
                    "it says that segment {removed} was removed, which is not older than the segment of this line"
                );
                self.fault(segment, Some(number), what);
            }
            Kind::Removed { segment, head } => _ = self.removed.insert(segment, head),
            Kind::Segment { .. } | Kind::Stop | Kind::Lost { .. } | Kind::Other => {}
        }
    }

    /// Checks that the chain records the removal of the segment before `next`, which is missing. `after`: the hash that the first line of
    /// `next` names.
    fn gap(&mut self, next: u64, after: Option<Hash>) {
        let before = next - 1;
        match self.removed.get(&before) {
            None => self.fault(before, None, "the segment is missing, and no line records its removal"),
            Some(head) if after == Some(*head) => self.found.removed_to = Some(before),
            Some(_) => self.fault(next, Some(1), format!("it does not follow segment {before}, which was removed")),
        }
    }

    /// Handles a record's reference to this file, which must be in the record's segment.
    fn refer(&mut self, hash: Hash, segment: u64, line: u64) {
        self.bodies.insert(hash);
        if self.present.insert(hash) {
            self.fault(segment, Some(line), format!("it refers to the file {}: {}", digits(&hash), FileError::Missing));
        }
    }
}
