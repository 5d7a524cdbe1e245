//! Names of records: half of a SHA-256, with one bit for the kind of record.

use super::snapshot::{FileDigest, digest};

/// The name of a record: a collision-resistant digest, so nobody can find two authorities or files with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RecordName(pub FileDigest);

impl RecordName {
    /// The name of the entry for an authority's file.
    pub fn of_entry(name: &str) -> Self {
        Self::with_bit(digest(name.as_bytes()), 0)
    }

    /// The name of the record with a file's bytes.
    pub fn of_file(file: FileDigest) -> Self {
        Self::with_bit(file, 1)
    }

    /// The first half of the name; its lowest bit is the kind of record.
    pub fn tag(self) -> u64 {
        u64::from_le_bytes(*self.0.first_chunk().expect("16 bytes"))
    }

    pub fn is_file(tag: u64) -> bool {
        tag & 1 == 1
    }

    fn with_bit(mut digest: FileDigest, bit: u8) -> Self {
        digest[0] = digest[0] & !1 | bit;
        Self(digest)
    }
}
