//! The store's file: a redb database. Commits are atomic even if the process is killed, and the next start opens the file without
//! scanning it.

use super::batch::WriteBatch;
use super::snapshot::{FileDigest, ReadFile, decode, decompress, millis};
use super::tables::{AUTHORITIES, BODIES, FORMAT, FORMAT_KEY, META, Tables};
use crate::config::{open_own, private_directory};
use crate::policy::{Access, Entry};
use redb::{Database, Durability, Error, ReadableDatabase, ReadableTableMetadata, WriteTransaction};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

/// The place and size of a store.
#[derive(Debug)]
pub(super) struct Location {
    pub directory: PathBuf,
    /// Maximum size in bytes; may change while the store is open.
    pub size: AtomicU64,
}

/// An open store.
pub(super) struct Disk(Database);

/// Why there is no store on disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("another politely process has it open")]
    InUse,
    /// The file may be intact, but the open database is unusable.
    #[error("{0}")]
    Io(io::Error),
    /// Not our file, or damaged.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

impl Location {
    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Opens the store or creates it. A file that is not a store is set aside. `suspect`: check every page of it first.
    pub fn open(&self, suspect: bool) -> Result<Disk, DiskError> {
        private_directory(&self.directory).map_err(DiskError::Io)?;
        let path = self.file();
        let is_new = !path.exists();
        match self.open_file(&path, suspect) {
            Err(DiskError::Unreadable(why)) => {
                // The old file is moved only after the new one exists: a full disk must not destroy it.
                let new = path.with_added_extension("new");
                let _ = fs::remove_file(&new);
                let disk = self.open_file(&new, false).inspect_err(|_| _ = fs::remove_file(&new))?;
                let aside = path.with_added_extension(format!("broken-{}", millis(SystemTime::now()) / 1000));
                fs::rename(&path, &aside).and_then(|()| fs::rename(&new, &path)).map_err(DiskError::Io)?;
                tracing::warn!("the store {} is set aside as {}: {why}", path.display(), aside.display());
                Ok(disk)
            }
            // A file cut short by a full disk is incomplete, not damaged.
            Err(DiskError::Io(error)) if is_new => {
                let _ = fs::remove_file(&path);
                Err(DiskError::Io(error))
            }
            opened => opened,
        }
    }

    fn open_file(&self, path: &Path, suspect: bool) -> Result<Disk, DiskError> {
        guarded(|| {
            let mut file = OpenOptions::new();
            let file = open_own(file.read(true).write(true).create(true).truncate(false).mode(0o600), path)?;
            let mut database = Database::builder().set_cache_size(CACHE).create_file(file)?;
            if suspect {
                database.check_integrity()?;
            }
            let disk = Disk(database);
            match disk.format()? {
                Some(FORMAT) => {}
                Some(_) | None => disk.begin()?,
            }
            Ok(disk)
        })
    }
}

impl Disk {
    /// The format version. `None`: the file is new. A file of another program is an error.
    fn format(&self) -> Result<Option<u64>, Error> {
        let transaction = self.0.begin_read()?;
        let tables = transaction.list_tables()?.count() + transaction.list_multimap_tables()?.count();
        if tables == 0 {
            return Ok(None);
        }
        let meta = transaction.open_table(META);
        let meta = meta.map_err(|_| Error::Corrupted("it belongs to another program".into()))?;
        Ok(Some(meta.get(FORMAT_KEY)?.map_or(0, |format| format.value())))
    }

    /// Empties the store: other format versions are not read.
    fn begin(&self) -> Result<(), Error> {
        let transaction = self.write()?;
        for table in transaction.list_tables()?.collect::<Vec<_>>() {
            transaction.delete_table(table)?;
        }
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(FORMAT_KEY, FORMAT)?;
        }
        Tables::open(&transaction)?;
        Ok(transaction.commit()?)
    }

    /// The entry of this authority. `parse` is called for a file whose digest is not known yet.
    pub fn read(
        &self,
        authority: &str,
        now: SystemTime,
        parse: impl FnOnce(FileDigest, &ReadFile<'_>) -> Option<Access>,
    ) -> Result<Option<Entry>, DiskError> {
        guarded(|| {
            let transaction = self.0.begin_read()?;
            let Some(kept) = transaction.open_table(AUTHORITIES)?.get(authority)? else {
                return Ok(None);
            };
            let (_, body, record) = kept.value();
            let bodies = transaction.open_table(BODIES)?;
            let robots = body.and_then(|name| {
                parse(name, &|accepts| decompress(bodies.get(&name).ok().flatten()?.value(), name, accepts))
            });
            Ok(decode(record, robots, now))
        })
    }

    /// Number of authorities.
    pub fn authorities(&self) -> u64 {
        let count = || guarded(|| Ok(self.0.begin_read()?.open_table(AUTHORITIES)?.len()?));
        count().unwrap_or_default()
    }

    /// Number of files.
    #[cfg(test)]
    pub fn bodies(&self) -> u64 {
        self.0.begin_read().unwrap().open_table(BODIES).unwrap().len().unwrap()
    }

    /// Writes the batch, then drops the least recently used entries until the rest fits into `size`. Once it `is_late`, the remaining
    /// entries are only removed: the number of those is returned. `in_haste`: takes room on the disk to save time.
    pub fn commit(
        &self,
        batch: &WriteBatch,
        size: u64,
        in_haste: bool,
        is_late: impl Fn() -> bool,
    ) -> Result<usize, DiskError> {
        guarded(|| {
            let transaction = self.write()?;
            let mut left_out = 0;
            {
                let mut tables = Tables::open(&transaction)?;
                tables.in_haste = in_haste;
                if let Some(lost) = &batch.lost {
                    tables.remove_all(|authority| lost.holds(authority))?;
                }
                for authority in &batch.used {
                    tables.touch(authority)?;
                }
                for (authority, (entry, _)) in &batch.entries {
                    if left_out > 0 || is_late() {
                        left_out += 1;
                        tables.remove(authority)?;
                    } else {
                        tables.write(authority, entry)?;
                    }
                }
                // Records and bodies fill about two thirds of the file's pages.
                tables.finish(size / 3 * 2)?;
            }
            transaction.commit()?;
            Ok(left_out)
        })
    }

    /// Starts a transaction. All writes go through here, so that after a kill or power cut the next start need not scan a gigabyte.
    fn write(&self) -> Result<WriteTransaction, Error> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(true);
        Ok(transaction)
    }
}

/// Turns panics into errors: a damaged file must not stop the process, not even by an assertion in the database.
fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, DiskError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(DiskError::from),
        Err(_) => Err(DiskError::Unreadable("its pages do not fit".into())),
    }
}

impl From<Error> for DiskError {
    fn from(error: Error) -> Self {
        match error {
            Error::DatabaseAlreadyOpen => DiskError::InUse,
            Error::Io(error) if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                DiskError::Io(error)
            }
            // After a failure the open database is unusable, which says nothing about the file.
            error @ (Error::PreviousIo
            | Error::DatabaseClosed
            | Error::LockPoisoned(_)
            | Error::TransactionPoisoned) => DiskError::Io(io::Error::other(error.to_string())),
            other => DiskError::Unreadable(other.to_string()),
        }
    }
}

const FILE: &str = "robots.redb";
/// For the upper levels of the trees; the operating system caches the file.
const CACHE: usize = 16 << 20;
