//! The file of the store: a redb database. Each commit is whole or not there at all, whenever the process is killed.
//! Written by `behind` alone, read by `Store::load`.

use super::record::{Digest, Record, digest, millis, time};
use super::tables::{AUTHORITIES, BODIES, FORMAT, FORMAT_KEY, META, PACES, Tables, unpack};
use crate::policy::Entry;
use crate::robots::RobotsTxt;
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageError,
    WriteTransaction,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// An open store.
pub(super) struct Disk {
    database: Database,
    path: PathBuf,
    /// Octets of records and bodies at most.
    room: u64,
}

/// What is to be written together.
#[derive(Default)]
pub(super) struct Batch {
    pub entries: HashMap<Box<str>, Arc<Entry>>,
    pub used: HashSet<Box<str>>,
    pub owed: HashMap<Box<str>, Owed>,
}

/// What a pace key owes, by the calendar's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Owed {
    pub until: SystemTime,
    pub backoff: Duration,
}

/// Why there is no store on disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("another politely uses it")]
    InUse,
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not our file, or damaged.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.used.is_empty() && self.owed.is_empty()
    }
}

impl Disk {
    /// Opens the store in this directory, or begins one. A file that is no store of ours is set aside.
    pub fn open(directory: &Path, size: u64) -> Result<Self, Failure> {
        fs::create_dir_all(directory)?;
        let path = directory.join(FILE);
        match Self::open_file(&path, size) {
            Err(Failure::Unreadable(why)) => {
                let aside = set_aside(&path)?;
                tracing::warn!("the store {} is set aside as {}: {why}", path.display(), aside.display());
                Self::open_file(&path, size)
            }
            opened => opened,
        }
    }

    fn open_file(path: &Path, size: u64) -> Result<Self, Failure> {
        guarded(|| {
            let database = Database::builder().set_cache_size(CACHE).create(path)?;
            let transaction = database.begin_write().map_err(redb::Error::from)?;
            {
                let mut meta = transaction.open_table(META)?;
                let format = meta.get(FORMAT_KEY)?.map(|format| format.value());
                match format {
                    Some(FORMAT) => {}
                    None if is_new(&transaction)? => _ = meta.insert(FORMAT_KEY, FORMAT)?,
                    other => return Err(Failure::Unreadable(format!("its format is {other:?}, not {FORMAT}"))),
                }
                transaction.open_table(AUTHORITIES)?;
                transaction.open_table(BODIES)?;
                transaction.open_table(PACES)?;
            }
            transaction.commit()?;
            // Records and bodies fill the pages of the file by two thirds.
            Ok(Disk { database, path: path.to_owned(), room: size / 3 * 2 })
        })
    }

    /// What is kept of this authority. `parse` reads a file that is not known by its digest yet.
    pub fn read(
        &self,
        authority: &str,
        parse: impl FnOnce(Digest, &dyn Fn() -> Option<Vec<u8>>) -> Option<RobotsTxt>,
    ) -> Result<Option<Entry>, Failure> {
        guarded(|| {
            let transaction = self.database.begin_read()?;
            let Some(kept) = transaction.open_table(AUTHORITIES)?.get(authority)? else {
                return Ok(None);
            };
            let Some(record) = Record::decode(kept.value().1) else {
                return Ok(None);
            };
            let bodies = transaction.open_table(BODIES)?;
            let robots = record.body().and_then(|name| {
                parse(name, &|| {
                    let packed = bodies.get(&name).ok().flatten()?;
                    let body = unpack(packed.value())?;
                    (digest(&body) == name).then_some(body)
                })
            });
            Ok(record.into_entry(robots))
        })
    }

    /// All debts that are not paid yet.
    pub fn debts(&self, now: SystemTime) -> Result<HashMap<Box<str>, Owed>, Failure> {
        guarded(|| {
            let transaction = self.database.begin_read()?;
            let mut debts = HashMap::new();
            for row in transaction.open_table(PACES)?.iter()? {
                let (key, value) = row?;
                let (until, backoff) = value.value();
                if let Some(until) = time(until).filter(|until| *until > now) {
                    debts.insert(key.value().into(), Owed { until, backoff: Duration::from_millis(backoff) });
                }
            }
            Ok(debts)
        })
    }

    /// How many authorities it holds.
    pub fn authorities(&self) -> u64 {
        let count = || guarded(|| Ok(self.database.begin_read()?.open_table(AUTHORITIES)?.len()?));
        count().unwrap_or_default()
    }

    /// How many files it holds.
    #[cfg(test)]
    pub fn bodies(&self) -> u64 {
        self.database.begin_read().unwrap().open_table(BODIES).unwrap().len().unwrap()
    }

    /// Writes the batch; then drops what was used least recently until the rest has room.
    pub fn commit(&self, batch: &Batch, now: SystemTime) -> Result<(), Failure> {
        guarded(|| {
            let mut transaction = self.database.begin_write().map_err(redb::Error::from)?;
            transaction.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
            // After a kill the next start must not have to walk through a gigabyte.
            transaction.set_quick_repair(true);
            {
                let mut tables = Tables::open(&transaction)?;
                let hour = hour(now);
                for authority in &batch.used {
                    tables.touch(authority, hour)?;
                }
                for (authority, entry) in &batch.entries {
                    tables.write(authority, entry, hour)?;
                }
                tables.finish(self.room)?;
                let mut paces = transaction.open_table(PACES)?;
                for (key, owed) in &batch.owed {
                    let backoff = u64::try_from(owed.backoff.as_millis()).unwrap_or(u64::MAX);
                    paces.insert(&**key, (millis(owed.until), backoff))?;
                }
            }
            transaction.commit()?;
            Ok(())
        })
    }

    /// Forgets debts that are paid.
    pub fn forget_paid(&self, now: SystemTime) -> Result<(), Failure> {
        guarded(|| {
            let transaction = self.database.begin_write().map_err(redb::Error::from)?;
            transaction.open_table(PACES)?.retain(|_, (until, _)| until > millis(now))?;
            transaction.commit()?;
            Ok(())
        })
    }

    /// Gives up the file, so that the next start begins a new one.
    pub fn set_aside(self) -> io::Result<PathBuf> {
        let Disk { database, path, .. } = self;
        drop(database);
        set_aside(&path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Hours since 1970, which is exact enough for what goes first.
fn hour(now: SystemTime) -> u32 {
    u32::try_from(millis(now) / 3_600_000).unwrap_or(u32::MAX)
}

/// Whether nothing but our own empty table is in the file.
fn is_new(transaction: &WriteTransaction) -> Result<bool, Failure> {
    Ok(transaction.list_tables()?.count() <= 1)
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".broken-{}", millis(SystemTime::now()) / 1000));
    let aside = PathBuf::from(name);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// A damaged file must not bring us down, not even by an assertion of the database's own.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Failure::Unreadable("its pages do not fit".into())))
}

impl From<redb::Error> for Failure {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => Failure::InUse,
            redb::Error::Io(error)
                if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Failure::Io(error)
            }
            other => Failure::Unreadable(other.to_string()),
        }
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::TableError> for Failure {
    fn from(error: redb::TableError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::TransactionError> for Failure {
    fn from(error: redb::TransactionError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::CommitError> for Failure {
    fn from(error: redb::CommitError) -> Self {
        redb::Error::from(error).into()
    }
}

const FILE: &str = "robots.redb";
/// The trees' upper pages; the file itself is in the system's cache.
const CACHE: usize = 16 << 20;
