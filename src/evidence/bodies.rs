//! The files that records refer to, by SHA-256: each robots.txt, and what was configured. A file's time is when a record last named it,
//! so that what only removed segments name is found without reading the others.

use super::chain::{Hash, digits, from_hex, sha256};
use super::segment::compress;
use crate::config::private_directory;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(super) struct Bodies {
    directory: PathBuf,
    /// Named in the segment that is written to. Locked while a file is named or removed.
    named: Mutex<Named>,
}

#[derive(Default)]
struct Named {
    hashes: HashSet<Hash>,
    /// Some are there that were not when this was last asked.
    is_new: bool,
}

/// What is named is not there as it was.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("it is missing")]
    Missing,
    #[error("it was changed")]
    Changed,
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl Bodies {
    /// Those beside the segments in `directory`.
    pub fn new(directory: &Path) -> Self {
        Bodies { directory: directory.join(NAME), named: Mutex::default() }
    }

    /// Another segment begins, in which nothing is named yet.
    pub fn begin(&self) {
        self.named.lock().hashes.clear();
    }

    /// Names a body in the segment that began at `began`.
    pub fn keep(&self, hash: &Hash, body: &[u8], began: SystemTime) -> io::Result<()> {
        let mut named = self.named.lock();
        if named.hashes.contains(hash) {
            return Ok(());
        }
        let path = self.path(hash);
        // Not before its segment, whatever the clock has done since.
        let now = SystemTime::now().max(began);
        match File::options().write(true).open(&path) {
            Ok(file) if file.metadata()?.len() > 0 => file.set_modified(now)?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // Empty: the power went before its bytes were on the disk.
            Ok(_) | Err(_) => {
                private_directory(path.parent().expect("it is in a directory"))?;
                write(&path, body, now)?;
                named.is_new = true;
            }
        }
        if named.hashes.len() == MOST_NAMED {
            // They are looked for on the disk again.
            named.hashes.clear();
        }
        named.hashes.insert(*hash);
        Ok(())
    }

    /// Whether some were added since this was last asked.
    pub fn are_new(&self) -> bool {
        std::mem::take(&mut self.named.lock().is_new)
    }

    /// Removes those that no record has named since `began`, when the first segment began that is there still.
    pub fn sweep(&self, began: SystemTime) -> io::Result<()> {
        for shard in entries(&self.directory)? {
            for path in entries(&shard)?.into_iter().filter(|path| hash_of(path).is_some()) {
                let named = self.named.lock();
                if fs::symlink_metadata(&path)?.modified()? < began {
                    fs::remove_file(&path)?;
                }
                drop(named);
            }
        }
        Ok(())
    }

    /// What lies among them and is none.
    pub fn others(&self) -> io::Result<Vec<PathBuf>> {
        let mut others = Vec::new();
        for shard in entries(&self.directory)? {
            match shard.is_dir() {
                true => others.extend(entries(&shard)?.into_iter().filter(|path| hash_of(path).is_none())),
                false => others.push(shard),
            }
        }
        Ok(others)
    }

    /// One, as it was.
    pub fn read(&self, hash: &Hash) -> Result<Vec<u8>, BodyError> {
        let file = match File::open(self.path(hash)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(BodyError::Missing),
            file => file?,
        };
        let mut body = Vec::new();
        let read = MultiGzDecoder::new(file).take(MOST_READ).read_to_end(&mut body);
        match read {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                ) =>
            {
                Err(BodyError::Changed)
            }
            Err(error) => Err(error.into()),
            Ok(_) if sha256(&body) != *hash => Err(BodyError::Changed),
            Ok(_) => Ok(body),
        }
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        let name = digits(hash);
        self.directory.join(&name[..2]).join(name + ".gz")
    }
}

fn write(path: &Path, body: &[u8], named: SystemTime) -> io::Result<()> {
    compress(path, Compression::default(), body, |file| file.set_modified(named))
}

/// Whose body this is, by its name. `None`: it is another file.
fn hash_of(path: &Path) -> Option<Hash> {
    from_hex(path.file_name()?.to_str()?.strip_suffix(".gz")?)
}

/// What is in a directory, if there is one.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        found => found?.map(|entry| Ok(entry?.path())).collect(),
    }
}

const NAME: &str = "bodies";
/// 2 MiB of hashes.
const MOST_NAMED: usize = 1 << 16;
/// The largest `robots.max_size`, and one byte to see what is longer.
const MOST_READ: u64 = (64 << 20) + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_no_record_names_any_more_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let bodies = Bodies::new(directory.path());
        let ([old, new], now) = ([sha256(b"old"), sha256(b"new")], SystemTime::now());
        bodies.keep(&old, b"old", now).unwrap();
        bodies.keep(&new, b"new", now).unwrap();
        assert!(bodies.are_new() && !bodies.are_new());
        let later = now + Duration::from_secs(3600);
        bodies.begin();
        bodies.keep(&new, b"new", later).unwrap();
        bodies.sweep(later).unwrap();
        assert!(matches!(bodies.read(&old), Err(BodyError::Missing)));
        assert_eq!(bodies.read(&new).unwrap(), b"new");
    }

    #[test]
    fn what_is_new_is_as_young_as_its_segment_whatever_the_clock_has_done() {
        let directory = tempfile::tempdir().unwrap();
        let bodies = Bodies::new(directory.path());
        let (hash, later) = (sha256(b"new"), SystemTime::now() + Duration::from_secs(3600));
        bodies.keep(&hash, b"new", later).unwrap();
        bodies.sweep(later).unwrap();
        assert_eq!(bodies.read(&hash).unwrap(), b"new");
    }

    #[test]
    fn what_was_changed_is_not_taken_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let bodies = Bodies::new(directory.path());
        let hash = sha256(b"body");
        bodies.keep(&hash, b"body", SystemTime::now()).unwrap();
        write(&bodies.path(&hash), b"another", SystemTime::now()).unwrap();
        assert!(matches!(bodies.read(&hash), Err(BodyError::Changed)));
        fs::write(bodies.path(&hash), b"no gzip").unwrap();
        assert!(matches!(bodies.read(&hash), Err(BodyError::Changed)));
        write(&bodies.path(&hash), b"body", SystemTime::now()).unwrap();
        let whole = fs::read(bodies.path(&hash)).unwrap();
        // As `zcat` reads it.
        fs::write(bodies.path(&hash), [&whole[..], &whole].concat()).unwrap();
        assert!(matches!(bodies.read(&hash), Err(BodyError::Changed)));
        fs::write(bodies.path(&hash), [&whole[..], b"more"].concat()).unwrap();
        assert!(matches!(bodies.read(&hash), Err(BodyError::Changed)));
    }
}
