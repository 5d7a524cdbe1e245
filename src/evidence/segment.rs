//! The files of a chain, named by number and start time, such as `00000001-20261122T183000Z.jsonl`. Only the last segment is written to;
//! earlier ones are compressed. A file's name tells its age. A segment also contains the site files and configurations that its records
//! refer to.

use crate::config::{LOCK, is_ours, is_same, open_ours};
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

/// A segment on disk, as its file name describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub number: u64,
    /// Start of the segment, to the second.
    pub began: SystemTime,
    pub path: PathBuf,
    pub is_compressed: bool,
}

impl Stored {
    /// The segments of a directory in order, without files of other users. If a segment exists both plain and compressed, only the plain
    /// file counts: `gzip -k` may have compressed it before its last records. Opens no file.
    pub fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let own = entries(directory)?.into_iter().filter(|path| !is_foreign(path));
        let mut all: Vec<_> = own.filter_map(Self::of).collect();
        all.sort_by_key(|stored| (stored.number, stored.is_compressed));
        all.dedup_by_key(|stored| stored.number);
        Ok(all)
    }

    /// Parses a file's name. `None`: it is not the name of a segment.
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

    /// The path of the segment's compressed file.
    pub fn compressed_path(&self) -> PathBuf {
        self.path.with_added_extension(COMPRESSED)
    }

    /// Replaces the segment by its compressed file, which takes about a twelfth of the space. A file that already has that name must have
    /// the same content.
    pub fn compress(&self) -> io::Result<()> {
        let whole = self.compressed_path();
        if whole.symlink_metadata().is_ok() && !self.is_unpacked(&whole).unwrap_or(false) {
            return Err(io::Error::other(format!("{} differs from the segment: move it away", whole.display())));
        }
        let new = self.path.with_added_extension(HALF_DONE);
        // Removes a file at this path first, as it may be another user's link.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let mut encoder = GzEncoder::new(file, LEVEL);
        let done = io::copy(&mut self.open()?, &mut encoder)
            .and_then(|_| encoder.finish())
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&new, whole));
        // After a failure, such as a full disk, the unfinished copy must not take space.
        done.or_else(|error| fs::remove_file(&new).and(Err(error)))?;
        fs::remove_file(&self.path)
    }

    /// Removes the segment. Removes a compressed file beside it first, which would otherwise take its place.
    pub fn remove(&self) -> io::Result<()> {
        let copy = self.compressed_path();
        if !self.is_compressed && copy.symlink_metadata().is_ok() && !is_foreign(&copy) {
            fs::remove_file(copy)?;
        }
        fs::remove_file(&self.path)
    }

    /// Whether this file, unpacked, has the same content as the segment.
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
    /// Length of the complete lines in bytes.
    length: u64,
    /// Whether the file may end with a part of a line, beyond `length`.
    is_torn: bool,
}

impl Segment {
    /// Begins a segment, with `first` as its first lines.
    pub fn create(directory: &Path, number: u64, began: SystemTime, first: &[u8]) -> io::Result<Self> {
        let path = directory.join(file_name(number, began));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        let mut segment = Segment { number, began, file, path, length: 0, is_torn: false };
        let begun = segment
            .append(first)
            // After a failed fsync, only these lines record the loss: they must be on disk before the segment is used.
            .and_then(|()| segment.sync())
            // Makes the file's name durable as well.
            .and_then(|()| File::open(directory)?.sync_all());
        match begun {
            // The chain will continue in another file, so this file must be removed.
            Err(error) => fs::remove_file(&segment.path).and(Err(error)),
            Ok(()) => Ok(segment),
        }
    }

    /// Continues a segment after its complete lines, whose total length is `length`.
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

    /// Whether somebody has removed or replaced the file, so that further lines would be lost.
    pub fn is_gone(&self) -> bool {
        !is_same(&self.file, &self.path)
    }

    /// Makes the appended lines durable (fsync).
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether a new segment should begin: after `most` bytes, and at least daily.
    pub fn is_over(&self, now: SystemTime, most: u64) -> bool {
        self.length >= most || day(now) != day(self.began)
    }
}

/// Compresses all segments except the last one, which is written to.
pub(super) fn compress_full(directory: &Path) {
    let done = Stored::all(directory).and_then(|all| {
        let full = all.split_last().map_or(&[][..], |(_, full)| full);
        // A damaged segment does not prevent others from being compressed.
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

/// Opens a segment, which must belong to us or to the directory's owner. An error names the file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let opened = open_ours(path, path.parent().unwrap_or(Path::new(".")));
    opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Whether the file at this path belongs to another user. `false` if there is no file.
pub(super) fn is_foreign(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !is_ours(&found, path.parent().unwrap_or(Path::new("."))))
}

/// Removes half-compressed files that a killed process has left.
pub(super) fn tidy(directory: &Path) -> io::Result<()> {
    let mut half_done = entries(directory)?.into_iter().filter(|path| is_half_compressed(path) && !is_foreign(path));
    half_done.try_for_each(fs::remove_file)
}

/// The files in a directory that are not part of the evidence, as sorted relative paths. They include a compressed file beside a plain
/// segment, as only the plain file is read.
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

/// The paths of all entries of a directory.
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

/// Format of the start time in a file name.
const BEGAN: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = "gz";
const HALF_DONE: &str = "tmp";
/// Compresses records to a twelfth of their size. The default level would reach a fourteenth, but takes more than twice as long.
const LEVEL: Compression = Compression::new(2);

#[cfg(test)]
mod tests {
    use super::*;

    impl Segment {
        /// Makes all further writes to the segment fail, as on a full disk.
        pub fn fill_up(&mut self) -> (File, PathBuf) {
            let path = PathBuf::from("/dev/full");
            let full = File::options().append(true).open(&path).expect("Linux has /dev/full");
            (std::mem::replace(&mut self.file, full), std::mem::replace(&mut self.path, path))
        }

        pub fn make_room(&mut self, (file, path): (File, PathBuf)) {
            (self.file, self.path) = (file, path);
        }
    }
}
