//! The files of a chain: `00000001.jsonl` and so on. Only the last is written to; those before it are compressed.

use super::time::day;
use crate::config::give_to_owner;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A segment as it lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub number: u64,
    pub path: PathBuf,
    pub is_compressed: bool,
}

impl Stored {
    /// All of a directory, in their order. Of one that was just being compressed, the whole one.
    pub fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let mut all: Vec<_> = entries(directory)?.into_iter().filter_map(Self::of).collect();
        all.sort_by_key(|stored| (stored.number, !stored.is_compressed));
        all.dedup_by_key(|stored| stored.number);
        Ok(all)
    }

    /// By its name. `None`: it is none.
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (stem, is_compressed) = name.strip_suffix(COMPRESSED).map_or((name, false), |stem| (stem, true));
        let digits = stem.strip_suffix(PLAIN)?;
        let number = digits.parse().ok().filter(|number| *number > 0 && format!("{number:08}") == digits)?;
        Some(Stored { number, path, is_compressed })
    }

    /// Where it is when it has been compressed.
    pub fn compressed_path(&self) -> PathBuf {
        with(&self.path, COMPRESSED)
    }

    /// Leaves it in a form that takes a tenth of the room.
    pub fn compress(&self) -> io::Result<()> {
        compress(&self.compressed_path(), LEVEL, File::open(&self.path)?, |file| file.sync_all())?;
        fs::remove_file(&self.path)
    }
}

/// All of `input` at `path`, compressed, or nothing. `end`: what its file needs before it has its name.
pub(super) fn compress(
    path: &Path,
    level: Compression,
    mut input: impl Read,
    end: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_extension("tmp");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    give_to_owner(&file, path.parent().unwrap_or(Path::new(".")))?;
    let mut encoder = GzEncoder::new(file, level);
    let done = io::copy(&mut input, &mut encoder)
        .and_then(|_| encoder.finish())
        .and_then(|file| end(&file))
        .and_then(|()| fs::rename(&new, path));
    if done.is_err() {
        // Where there is no room there is some again.
        let _ = fs::remove_file(&new);
    }
    done
}

/// The segment that is written to.
pub(super) struct Segment {
    pub number: u64,
    pub began: SystemTime,
    file: File,
    path: PathBuf,
    /// Of its whole lines.
    length: u64,
    /// There may be more in the file than that.
    is_torn: bool,
}

impl Segment {
    /// Begins one, with `first` as its first line.
    pub fn create(directory: &Path, number: u64, began: SystemTime, first: &[u8]) -> io::Result<Self> {
        let path = directory.join(format!("{number:08}{PLAIN}"));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        let mut segment = Segment { number, began, file, path, length: 0, is_torn: false };
        let begun = give_to_owner(&segment.file, directory)
            .and_then(|()| segment.append(first))
            // Its name, too, outlives a loss of power.
            .and_then(|()| File::open(directory)?.sync_all());
        match begun {
            // Nothing may follow it: the chain goes on elsewhere.
            Err(error) => fs::remove_file(&segment.path).and(Err(error)),
            Ok(()) => Ok(segment),
        }
    }

    /// Goes on with one, behind its whole lines, which have this length.
    pub fn resume(stored: Stored, length: u64, began: SystemTime) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(&stored.path)?;
        file.set_len(length)?;
        Ok(Segment { number: stored.number, began, file, path: stored.path, length, is_torn: false })
    }

    /// All of these lines, or none of them.
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

    /// Whether somebody has removed its file, or put another in its place: what is written to it is nowhere.
    pub fn is_gone(&self) -> bool {
        !is_same(&self.file, &self.path)
    }

    /// Returns when it would outlive a loss of power. `all`: what else was written beside it as well.
    pub fn sync(&self, all: bool) -> io::Result<()> {
        if all { Ok(rustix::fs::syncfs(&self.file)?) } else { self.file.sync_data() }
    }

    /// Whether it is time for another.
    pub fn is_over(&self, now: SystemTime, most: u64) -> bool {
        self.length >= most || day(now) != day(self.began)
    }
}

#[cfg(test)]
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

/// Removes what a process that was killed has left half done: nothing that is named.
pub(super) fn tidy(directory: &Path) -> io::Result<()> {
    let kept = Stored::all(directory)?;
    for path in entries(directory)? {
        let is_compressed_too =
            kept.iter().any(|stored| stored.is_compressed && stored.path == with(&path, COMPRESSED));
        if is_compressed_too || is_half_compressed(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// What lies in a directory that is none of its segments, nor left half done of one: a segment beside its compressed form, too,
/// which is not read any more.
pub(super) fn others(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let all = Stored::all(directory)?;
    let is_other = |path: &PathBuf| !all.iter().any(|stored| stored.path == *path) && !is_half_compressed(path);
    Ok(entries(directory)?.into_iter().filter(is_other).collect())
}

fn is_half_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|last| last == "tmp") && Stored::of(path.with_extension("")).is_some()
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

/// Whether this file is the one of that name.
pub(super) fn is_same(file: &File, path: &Path) -> bool {
    let number = |found: io::Result<fs::Metadata>| found.map(|it| (it.dev(), it.ino())).ok();
    number(file.metadata()) == number(fs::metadata(path))
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The longest line: a request's head is at most 1 MiB, and may take more when it is written as JSON.
pub(super) const MOST_LINE: usize = 4 << 20;
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = ".gz";
/// Records come out at a twelfth of their size, in less than half the time that the usual level takes for a fourteenth.
const LEVEL: Compression = Compression::new(2);
