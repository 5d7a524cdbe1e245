//! The files of a chain: `00000001-20261122T183000Z.jsonl` and so on, by number and beginning. Only the last is written to;
//! those before it are compressed, and how old they are their names say. What a segment's records refer to is in the same segment.

use crate::config::{LOCK, give_to_owner, is_ours, is_same, open_ours};
use crate::rfc3339;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// A segment on the disk, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub number: u64,
    /// When it began, to the second.
    pub began: SystemTime,
    pub path: PathBuf,
    pub is_compressed: bool,
}

impl Stored {
    /// All of a directory, in their order, but for those of other users. Of a plain segment and a compressed form beside it, only the
    /// plain one: `gzip -k` may have made the other from fewer records. Opens none.
    pub fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let own = entries(directory)?.into_iter().filter(|path| !is_foreign(path));
        let mut all: Vec<_> = own.filter_map(Self::of).collect();
        all.sort_by_key(|stored| (stored.number, stored.is_compressed));
        all.dedup_by_key(|stored| stored.number);
        Ok(all)
    }

    /// `None`: the name is not a segment's.
    fn of(path: PathBuf) -> Option<Self> {
        let is_compressed = path.extension()? == COMPRESSED;
        let plain = if is_compressed { path.file_stem()? } else { path.file_name()? }.to_str()?;
        let stem = plain.strip_suffix(PLAIN)?;
        let (number, began) = stem.split_once('-')?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        let began = PrimitiveDateTime::parse(began, BEGAN).ok()?.assume_utc().into();
        (plain == file_name(number, began)).then_some(Stored { number, began, path, is_compressed })
    }

    pub fn open(&self) -> io::Result<File> {
        open(&self.path)
    }

    /// The path of its compressed form.
    pub fn compressed_path(&self) -> PathBuf {
        self.path.with_added_extension(COMPRESSED)
    }

    /// Replaces it by its compressed form, which takes a tenth of the room. A file with the name of that form must have the same content.
    pub fn compress(&self) -> io::Result<()> {
        let whole = self.compressed_path();
        if whole.symlink_metadata().is_ok() && !self.is_unpacked(&whole).unwrap_or(false) {
            return Err(io::Error::other(format!("{} differs from the segment: move it away", whole.display())));
        }
        let new = self.path.with_added_extension(HALF_DONE);
        // What has that name may be a link of another user's.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        give_to_owner(&file, new.parent().unwrap_or(Path::new(".")))?;
        let mut encoder = GzEncoder::new(file, LEVEL);
        let done = io::copy(&mut self.open()?, &mut encoder)
            .and_then(|_| encoder.finish())
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&new, whole));
        // If it failed because the disk is full, the unfinished copy must not keep its room.
        done.or_else(|error| fs::remove_file(&new).and(Err(error)))?;
        fs::remove_file(&self.path)
    }

    /// Removes it, and a compressed form beside it first, which would otherwise be the segment.
    pub fn remove(&self) -> io::Result<()> {
        let copy = self.compressed_path();
        if !self.is_compressed && copy.symlink_metadata().is_ok() && !is_foreign(&copy) {
            fs::remove_file(copy)?;
        }
        fs::remove_file(&self.path)
    }

    /// Whether it has what is compressed in this file.
    fn is_unpacked(&self, compressed: &Path) -> io::Result<bool> {
        let mut plain = BufReader::new(self.open()?);
        let mut unpacked = BufReader::new(MultiGzDecoder::new(open(compressed)?));
        loop {
            let (one, other) = (plain.fill_buf()?, unpacked.fill_buf()?);
            let length = one.len().min(other.len());
            if length == 0 || one[..length] != other[..length] {
                return Ok(one.len() == other.len() && length == 0);
            }
            plain.consume(length);
            unpacked.consume(length);
        }
    }
}

/// The segment that is written to.
pub(super) struct Segment {
    pub number: u64,
    began: SystemTime,
    file: File,
    path: PathBuf,
    /// Length of its whole lines.
    length: u64,
    /// The file may be longer than that.
    is_torn: bool,
}

impl Segment {
    /// Begins one, with `first` as its first lines.
    pub fn create(directory: &Path, number: u64, began: SystemTime, first: &[u8]) -> io::Result<Self> {
        let path = directory.join(file_name(number, began));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        let mut segment = Segment { number, began, file, path, length: 0, is_torn: false };
        let begun = give_to_owner(&segment.file, directory)
            .and_then(|()| segment.append(first))
            // What they record is lost nowhere else: a segment that follows a failed fsync is on the disk before it is used.
            .and_then(|()| segment.sync())
            // So that its name outlives a loss of power as well.
            .and_then(|()| File::open(directory)?.sync_all());
        match begun {
            // The chain goes on elsewhere, so nothing may be left here.
            Err(error) => fs::remove_file(&segment.path).and(Err(error)),
            Ok(()) => Ok(segment),
        }
    }

    /// Continues one after its whole lines, which have this length.
    pub fn resume(stored: Stored, length: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(&stored.path)?;
        file.set_len(length)?;
        Ok(Segment { number: stored.number, began: stored.began, file, path: stored.path, length, is_torn: false })
    }

    /// Appends all of these lines, or none of them.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
        }
        self.is_torn = true;
        let written = self.file.write_all(lines);
        if written.is_ok() {
            self.length += lines.len() as u64;
        }
        self.is_torn = written.is_err() && self.file.set_len(self.length).is_err();
        written
    }

    /// Whether somebody has removed or replaced its file, so that what is written to it is nowhere.
    pub fn is_gone(&self) -> bool {
        !is_same(&self.file, &self.path)
    }

    /// Returns when what was appended would outlive a loss of power.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether it is time for another: after `most` bytes, and each day.
    pub fn is_over(&self, now: SystemTime, most: u64) -> bool {
        self.length >= most || day(now) != day(self.began)
    }
}

/// Compresses full segments.
pub(super) fn compress_full(directory: &Path) {
    let done = Stored::all(directory).and_then(|all| {
        let full = all.split_last().map_or(&[][..], |(_, full)| full);
        // One that is damaged keeps no other from it.
        full.iter().filter(|stored| !stored.is_compressed).map(Stored::compress).fold(Ok(()), io::Result::and)
    });
    if let Err(error) = done {
        tracing::error!(directory = %directory.display(), "evidence cannot be compressed: {error}");
    }
}

/// Files that other users have put into the directory under names of segments. They are not read.
pub fn foreign(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let all = entries(directory)?.into_iter().filter(|path| is_foreign(path));
    Ok(all.filter_map(Stored::of).map(|stored| stored.path).collect())
}

/// Opens a segment, which must be ours or the directory's owner's. An error names it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let opened = open_ours(path, path.parent().unwrap_or(Path::new(".")));
    opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Whether another user has put a file there. What has just been removed was ours.
pub(super) fn is_foreign(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !is_ours(&found, path.parent().unwrap_or(Path::new("."))))
}

/// Removes what a killed process left half done.
pub(super) fn tidy(directory: &Path) -> io::Result<()> {
    let mut half_done = entries(directory)?.into_iter().filter(|path| is_half_compressed(path) && !is_foreign(path));
    half_done.try_for_each(fs::remove_file)
}

/// Files of a directory that are not part of the evidence, by their paths in it, in their order. A compressed form beside a plain segment
/// is one: it is not read.
pub(super) fn others(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let segments = Stored::all(directory)?;
    let paths: HashSet<_> = segments.iter().map(|segment| &segment.path).collect();
    let is_part = |path: &PathBuf| paths.contains(path) || is_half_compressed(path) || path.ends_with(LOCK);
    let mut all: Vec<_> = entries(directory)?.into_iter().filter(|path| !is_part(path)).collect();
    all.iter_mut().for_each(|path| *path = path.strip_prefix(directory).map_or(path.clone(), Path::to_owned));
    all.sort();
    Ok(all)
}

fn is_half_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == HALF_DONE) && Stored::of(path.with_extension("")).is_some()
}

/// What is in a directory.
pub(super) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

fn file_name(number: u64, began: SystemTime) -> String {
    format!("{number:08}-{}{PLAIN}", rfc3339::seconds(began).replace(['-', ':'], ""))
}

/// Days since 1970 in UTC.
fn day(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / 86_400
}

/// As in the name of its file.
const BEGAN: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = "gz";
const HALF_DONE: &str = "tmp";
/// Records come out at a twelfth of their size, in less than half the time that the usual level takes for a fourteenth.
const LEVEL: Compression = Compression::new(2);

#[cfg(test)]
mod tests {
    use super::*;

    impl Segment {
        /// From now on there is no room for it.
        pub fn fill_up(&mut self) -> (File, PathBuf) {
            let path = PathBuf::from("/dev/full");
            let full = File::options().append(true).open(&path).expect("Linux has it");
            (std::mem::replace(&mut self.file, full), std::mem::replace(&mut self.path, path))
        }

        pub fn make_room(&mut self, (file, path): (File, PathBuf)) {
            (self.file, self.path) = (file, path);
        }
    }
}
