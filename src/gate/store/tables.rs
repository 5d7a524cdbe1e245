//! The tables of the store, and how a write keeps them in step: each file once, with a count of those that have it, and
//! each authority in the order of use. Called by `disk`.

use super::disk::Failure;
use super::record::{Digest, Record, digest};
use crate::policy::{Access, Entry};
use crate::robots::RobotsTxt;
use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};
use std::io;

/// The tables of one write.
pub(super) struct Tables<'t> {
    /// Authority → the hour of its last use, and its record.
    authorities: Table<'t, &'static str, (u32, &'static [u8])>,
    /// Digest → the file, compressed; apart from its count, which changes often.
    bodies: Table<'t, &'static Digest, &'static [u8]>,
    /// Digest → how many authorities have the file.
    holders: Table<'t, &'static Digest, u32>,
    uses: Table<'t, (u32, &'static str), ()>,
    meta: Table<'t, &'static str, u64>,
    bytes: u64,
}

impl<'t> Tables<'t> {
    pub fn open(transaction: &'t WriteTransaction) -> Result<Self, Failure> {
        let meta = transaction.open_table(META)?;
        let bytes = meta.get(BYTES_KEY)?.map_or(0, |bytes| bytes.value());
        Ok(Tables {
            authorities: transaction.open_table(AUTHORITIES)?,
            bodies: transaction.open_table(BODIES)?,
            holders: transaction.open_table(HOLDERS)?,
            uses: transaction.open_table(USES)?,
            meta,
            bytes,
        })
    }

    pub fn write(&mut self, authority: &str, entry: &Entry, hour: u32) -> Result<(), Failure> {
        let robots = entry.answer.as_ref().and_then(|answer| match &answer.access {
            Access::Rules(robots) => Some(robots),
            Access::AllowAll | Access::DisallowAll => None,
        });
        let body = robots.map(|robots| digest(robots.source()));
        // Held before the old one is let go: often they are the same.
        if let (Some(name), Some(robots)) = (body, robots) {
            self.hold(&name, robots)?;
        }
        self.remove(authority)?;
        let record = Record::new(entry, body).encode();
        self.bytes += row(authority, record.len());
        self.authorities.insert(authority, (hour, &*record))?;
        self.uses.insert((hour, authority), ())?;
        Ok(())
    }

    fn remove(&mut self, authority: &str) -> Result<(), Failure> {
        let Some(old) = self.authorities.remove(authority)? else {
            return Ok(());
        };
        let (hour, octets) = old.value();
        let (length, body) = (octets.len(), Record::decode(octets).and_then(|record| record.body()));
        drop(old);
        self.bytes = self.bytes.saturating_sub(row(authority, length));
        self.uses.remove((hour, authority))?;
        if let Some(body) = body {
            self.release(&body)?;
        }
        Ok(())
    }

    pub fn touch(&mut self, authority: &str, hour: u32) -> Result<(), Failure> {
        let Some((old, octets)) =
            self.authorities.get(authority)?.map(|kept| (kept.value().0, kept.value().1.to_vec()))
        else {
            return Ok(());
        };
        self.uses.remove((old, authority))?;
        self.uses.insert((hour, authority), ())?;
        self.authorities.insert(authority, (hour, &*octets))?;
        Ok(())
    }

    fn hold(&mut self, name: &Digest, robots: &RobotsTxt) -> Result<(), Failure> {
        let holders = self.holders.get(name)?.map_or(0, |holders| holders.value());
        self.holders.insert(name, holders.saturating_add(1))?;
        if holders == 0 {
            let packed = pack(robots.source())?;
            self.bytes += packed.len() as u64 + BODY_ROW;
            self.bodies.insert(name, &*packed)?;
        }
        Ok(())
    }

    fn release(&mut self, name: &Digest) -> Result<(), Failure> {
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

    /// Drops what was used least recently until the rest has room, and notes how much that is.
    pub fn finish(&mut self, room: u64) -> Result<(), Failure> {
        while self.bytes > room {
            let Some(oldest) = self.uses.first()?.map(|(used, _)| used.value().1.to_owned()) else {
                break;
            };
            self.remove(&oldest)?;
        }
        self.meta.insert(BYTES_KEY, self.bytes)?;
        Ok(())
    }
}

/// What a row costs: its two keys, the record, and what the trees add.
fn row(authority: &str, record: usize) -> u64 {
    (2 * authority.len() + record + 32) as u64
}

pub(super) fn pack(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    packed.extend_from_slice(&zstd::bulk::compress(body, LEVEL)?);
    Ok(packed)
}

pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, body) = packed.split_first_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    zstd::bulk::decompress(body, length.min(LONGEST)).ok()
}

pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("politely");
pub(super) const FORMAT_KEY: &str = "format";
pub(super) const FORMAT: u64 = 1;
const BYTES_KEY: &str = "bytes";
pub(super) const AUTHORITIES: TableDefinition<&str, (u32, &[u8])> = TableDefinition::new("authorities");
pub(super) const BODIES: TableDefinition<&Digest, &[u8]> = TableDefinition::new("bodies");
const HOLDERS: TableDefinition<&Digest, u32> = TableDefinition::new("holders");
const USES: TableDefinition<(u32, &str), ()> = TableDefinition::new("uses");
/// Pace key → until when nothing starts, and the backoff, both in milliseconds.
pub(super) const PACES: TableDefinition<&str, (u64, u64)> = TableDefinition::new("paces");
/// Good enough at twice the speed of those above it.
const LEVEL: i32 = 3;
/// No file is kept that is longer, whatever `max_size` says.
const LONGEST: usize = 1 << 30;
const BODY_ROW: u64 = 64;
