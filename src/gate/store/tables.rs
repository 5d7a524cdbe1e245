//! The tables of the store, kept consistent by each write: each file once, with a reference count, and the authorities in order of use.

use super::snapshot::{FileDigest, compress, digest_of, encode, store_plain};
use crate::policy::Entry;
use redb::{Error, ReadableTable, Table, TableDefinition, WriteTransaction};

/// The tables of one write.
pub(super) struct Tables<'t> {
    /// Authority → number of its last use, its file, and its record.
    authorities: Table<'t, &'static str, (u64, Option<FileDigest>, &'static [u8])>,
    /// Digest → the compressed file; separate from the reference count, which changes often.
    bodies: Table<'t, &'static FileDigest, &'static [u8]>,
    /// Digest → number of authorities that have the file.
    holders: Table<'t, &'static FileDigest, u32>,
    uses: Table<'t, u64, &'static str>,
    meta: Table<'t, &'static str, u64>,
    bytes: u64,
    /// Counts uses; unlike a clock, it cannot go backwards.
    use_number: u64,
    /// Files are not compressed, which takes most of the time.
    pub in_haste: bool,
}

impl<'t> Tables<'t> {
    pub fn open(transaction: &'t WriteTransaction) -> Result<Self, Error> {
        let meta = transaction.open_table(META)?;
        let bytes = meta.get(BYTES_KEY)?.map_or(0, |bytes| bytes.value());
        let uses = transaction.open_table(USES)?;
        let use_number = uses.last()?.map_or(0, |(number, _)| number.value());
        Ok(Tables {
            authorities: transaction.open_table(AUTHORITIES)?,
            bodies: transaction.open_table(BODIES)?,
            holders: transaction.open_table(HOLDERS)?,
            uses,
            meta,
            bytes,
            use_number,
            in_haste: false,
        })
    }

    pub fn write(&mut self, authority: &str, entry: &Entry) -> Result<(), Error> {
        let (file, body) = (entry.source(), entry.answer.as_ref().and_then(|answer| digest_of(&answer.access)));
        // The new file is referenced before the old one is released: often they are the same.
        if let (Some(name), Some(file)) = (body, file) {
            self.hold(&name, file)?;
        }
        let old = self.insert(authority, body, &encode(entry))?;
        old.map_or(Ok(()), |old| self.removed(old))
    }

    /// Marks the authority as used now.
    pub fn touch(&mut self, authority: &str) -> Result<(), Error> {
        let kept = self.authorities.get(authority)?.map(|kept| {
            let (_, body, record) = kept.value();
            (body, record.to_vec())
        });
        let Some((body, record)) = kept else { return Ok(()) };
        let old = self.insert(authority, body, &record)?;
        // The file's reference count is unchanged.
        old.map_or(Ok(()), |(number, _, bytes)| self.removed((number, None, bytes)))
    }

    /// Returns what to undo of the row before, if there was one.
    fn insert(&mut self, authority: &str, body: Option<FileDigest>, record: &[u8]) -> Result<Option<OldRow>, Error> {
        self.use_number += 1;
        self.bytes += row(authority, record.len());
        self.uses.insert(self.use_number, authority)?;
        let old = self.authorities.insert(authority, (self.use_number, body, record))?;
        Ok(old.map(|old| parts(authority, old.value())))
    }

    pub fn remove(&mut self, authority: &str) -> Result<(), Error> {
        let old = self.authorities.remove(authority)?.map(|old| parts(authority, old.value()));
        old.map_or(Ok(()), |old| self.removed(old))
    }

    pub fn remove_all(&mut self, is_one: impl Fn(&str) -> bool) -> Result<(), Error> {
        let mut all = Vec::new();
        for row in self.authorities.extract_if(|authority, _| is_one(authority))? {
            let (authority, old) = row?;
            all.push(parts(authority.value(), old.value()));
        }
        all.into_iter().try_for_each(|old| self.removed(old))
    }

    /// Updates the other tables after a row was removed.
    fn removed(&mut self, (number, body, bytes): OldRow) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.uses.remove(number)?;
        body.map_or(Ok(()), |body| self.release(&body))
    }

    fn hold(&mut self, name: &FileDigest, file: &[u8]) -> Result<(), Error> {
        let holders = self.holders.get(name)?.map_or(0, |holders| holders.value());
        self.holders.insert(name, holders.saturating_add(1))?;
        if holders == 0 {
            let packed = if self.in_haste { store_plain(file)? } else { compress(file)? };
            self.bytes += packed.len() as u64 + BODY_ROW;
            self.bodies.insert(name, &*packed)?;
        }
        Ok(())
    }

    fn release(&mut self, name: &FileDigest) -> Result<(), Error> {
        let holders = self.holders.get(name)?.map_or(0, |holders| holders.value());
        match holders {
            0 => {}
            1 => {
                self.holders.remove(name)?;
                let length = self.bodies.remove(name)?.map_or(0, |packed| packed.value().len() as u64);
                self.bytes = self.bytes.saturating_sub(length + BODY_ROW);
            }
            holders => _ = self.holders.insert(name, holders - 1)?,
        }
        Ok(())
    }

    /// Drops the least recently used rows until the rest fits, and records the total size.
    pub fn finish(&mut self, room: u64) -> Result<(), Error> {
        while self.bytes > room {
            let Some(oldest) = self.uses.first()?.map(|(_, authority)| authority.value().to_owned()) else {
                break;
            };
            self.remove(&oldest)?;
        }
        self.meta.insert(BYTES_KEY, self.bytes)?;
        Ok(())
    }
}

/// What to undo when a row is removed: its use, its file, its bytes.
type OldRow = (u64, Option<FileDigest>, u64);

fn parts(authority: &str, row_value: (u64, Option<FileDigest>, &[u8])) -> OldRow {
    let (number, body, record) = row_value;
    (number, body, row(authority, record.len()))
}

/// Size of a row: its two keys, the record, and the overhead of the trees.
fn row(authority: &str, record: usize) -> u64 {
    (2 * authority.len() + record + 64) as u64
}

pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("politely");
pub(super) const FORMAT_KEY: &str = "format";
/// Raised with each change of the tables.
pub(super) const FORMAT: u64 = 2;
const BYTES_KEY: &str = "bytes";
pub(super) const AUTHORITIES: TableDefinition<&str, (u64, Option<FileDigest>, &[u8])> =
    TableDefinition::new("authorities");
pub(super) const BODIES: TableDefinition<&FileDigest, &[u8]> = TableDefinition::new("bodies");
const HOLDERS: TableDefinition<&FileDigest, u32> = TableDefinition::new("holders");
const USES: TableDefinition<u64, &str> = TableDefinition::new("uses");
const BODY_ROW: u64 = 64;
